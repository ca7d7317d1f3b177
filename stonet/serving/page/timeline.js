/* The slider over past and lead times, and play. */

import { element } from "./chart.js";
import { leadWords } from "./clock.js";

const FRAME = 450; // milliseconds of a step while playing
const PLAY = "M6 4l10 6-10 6z";
const PAUSE = "M6 4h3v12H6zM11 4h3v12h-3z";

export class Timeline {
  /** `changed(step)` is called when the reader or play moves; steps count from the issue time.
   *  `ready()` says whether play may go on. */
  constructor(changed, ready) {
    const part = (id) => document.getElementById(id);
    Object.assign(this, { changed, ready, slider: part("time"), button: part("play"), sign: part("play-sign") });
    Object.assign(this, { when: part("when"), lead: part("lead"), svg: part("ticks"), timer: null });
    this.slider.addEventListener("input", () => {
      this.pause();
      this.changed(Number(this.slider.value));
    });
    this.button.addEventListener("click", () => this.toggle());
    new ResizeObserver(() => this.drawTicks()).observe(this.svg.parentElement);
  }

  /** `past` and `horizon` in steps, `issue` in seconds. */
  set(clock, past, horizon, issue) {
    Object.assign(this, { clock, past, horizon, issue });
    this.slider.min = -past;
    this.slider.max = horizon;
    this.drawTicks();
  }

  get playing() {
    return this.timer !== null;
  }

  show(step) {
    const time = this.issue + step * this.clock.step;
    this.slider.value = step;
    this.when.textContent = this.clock.long(time);
    this.lead.textContent = step > 0 ? `forecast ${leadWords(step * this.clock.step)}`
      : step === 0 ? "observed, latest" : `observed, ${leadWords(step * this.clock.step)}`;
    this.lead.classList.toggle("future", step > 0);
    this.slider.setAttribute("aria-valuetext", `${this.when.textContent}, ${this.lead.textContent}`);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  /** Play from here, round and round. */
  play() {
    this.label(true);
    const next = () => {
      const step = Number(this.slider.value);
      if (this.ready()) this.changed(step >= this.horizon ? -this.past : step + 1);
      this.timer = setTimeout(next, FRAME);
    };
    this.timer = setTimeout(next, 0);
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    this.label(false);
  }

  label(playing) {
    this.button.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.sign.setAttribute("d", playing ? PAUSE : PLAY);
  }

  /** Times below the slider, and where the forecast begins. */
  drawTicks() {
    if (!this.clock) return;
    const width = this.svg.parentElement.clientWidth;
    const edge = 8; // half of the slider's thumb
    const { issue, past, horizon, clock } = this;
    const at = (time) => edge + (((time - issue) / clock.step + past) / (past + horizon)) * (width - 2 * edge);
    this.svg.setAttribute("viewBox", `0 0 ${width} 26`);
    this.svg.replaceChildren(element("rect", { class: "ahead", x: at(issue), y: 0, width: width - edge - at(issue), height: 4, rx: 2 }),
      element("rect", { class: "behind", x: edge, y: 0, width: at(issue) - edge, height: 4, rx: 2 }));
    for (const tick of clock.ticks(issue - past * clock.step, issue + horizon * clock.step, width / 74)) {
      const x = at(tick.time);
      this.svg.append(element("line", { x1: x, x2: x, y1: 6, y2: 10 }));
      const anchor = x < 20 ? "start" : x > width - 20 ? "end" : "middle";
      this.svg.append(element("text", { x: anchor === "start" ? 1 : anchor === "end" ? width - 1 : x, y: 22, "text-anchor": anchor, class: tick.major ? "major" : "" }, tick.label));
    }
    this.svg.append(element("line", { class: "issue", x1: at(issue), x2: at(issue), y1: -2, y2: 12 }));
  }
}
