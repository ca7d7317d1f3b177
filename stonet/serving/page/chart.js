/* The chart of a point: past of the nearest stations, the forecast and its bands, as SVG. */

import { roundTicks } from "./colour.js";

const SPACE = "http://www.w3.org/2000/svg";
const MARGIN = { left: 46, right: 14, top: 14, bottom: 26 };

/** An SVG element with attributes and children. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The `d` of a line through points; null breaks it. */
function path(points) {
  let pen = false;
  return points.map(([x, y]) => {
    if (!Number.isFinite(y)) {
      pen = false;
      return "";
    }
    const word = `${pen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = true;
    return word;
  }).join("");
}

export class Chart {
  /** `pick(time)` is called where the reader clicks. */
  constructor(box, pick) {
    Object.assign(this, { box, pick, content: null });
    new ResizeObserver(() => this.content && this.draw()).observe(box);
  }

  /** `content`: {clock, quantity, now, time, curve: {times, values, bands: [{low, high, percent}]},
   *  past: [{name, times, values}], whole: leads at whole steps}. */
  show(content) {
    this.content = content;
    this.draw();
  }

  /** Move the line that marks the time of the map. */
  mark(time) {
    if (!this.content) return;
    this.content.time = time;
    this.drawMark(time);
  }

  draw() {
    const { clock, quantity, now, curve, past } = this.content;
    const width = Math.max(260, this.box.clientWidth);
    const height = Math.round(Math.max(200, Math.min(280, width * 0.6)));
    const times = [...curve.times, ...past.flatMap((line) => line.times)];
    const ends = [Math.min(now, ...times), Math.max(now, ...times)];
    const values = [curve.values, ...curve.bands.flatMap((band) => [band.low, band.high]),
      ...past.map((line) => line.values)].flat().filter((value) => Number.isFinite(value));
    let [low, high] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
    const room = (high - low || 1) * 0.06;
    [low, high] = [low - room, high + room];
    const { left, right, top, bottom } = MARGIN;
    this.x = (time) => left + ((time - ends[0]) / (ends[1] - ends[0] || 1)) * (width - left - right);
    this.y = (value) => (Number.isFinite(value)
      ? height - bottom - ((value - low) / (high - low)) * (height - top - bottom) : NaN);
    this.time = (x) => ends[0] + ((x - left) / (width - left - right)) * (ends[1] - ends[0]);
    this.size = { width, height, ends };

    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
      "aria-label": `${quantity.name}: forecast with 50 and 90 percent bands, and the past of the nearest stations. The values are in the table below.` });
    for (const tick of roundTicks(low, high, 5)) {
      const y = this.y(tick);
      svg.append(element("line", { class: "rule", x1: left, x2: width - right, y1: y, y2: y }),
        element("text", { class: "tick", x: left - 7, y: y + 3.5, "text-anchor": "end" }, label(tick)));
    }
    for (const tick of clock.ticks(...ends, (width - left) / 62)) {
      const x = this.x(tick.time);
      svg.append(element("line", { class: "notch", x1: x, x2: x, y1: height - bottom, y2: height - bottom + 4 }));
      if (x > left - 4 && x < width - 16) {
        svg.append(element("text", { class: tick.major ? "tick major" : "tick", x, y: height - 8, "text-anchor": "middle" }, tick.label));
      }
    }
    svg.append(element("rect", { class: "ahead", x: this.x(now), y: top, width: Math.max(0, width - right - this.x(now)), height: height - top - bottom }),
      element("text", { class: "unit", x: 4, y: 9 }, quantity.units));
    for (const band of curve.bands) {
      const there = curve.times.map((time, k) => [this.x(time), this.y(band.high[k])]);
      const back = curve.times.map((time, k) => [this.x(time), this.y(band.low[k])]).reverse();
      const sound = [...there, ...back].filter(([, y]) => Number.isFinite(y));
      if (sound.length > 3) svg.append(element("path", { class: `band p${band.percent}`, d: `${path(sound)}Z` }));
    }
    past.forEach((line, k) => {
      const points = line.times.map((time, at) => [time, line.values[at]]);
      const part = (kept) => path(points.filter(([time]) => kept(time)).map(([time, value]) => [this.x(time), this.y(value)]));
      svg.append(element("path", { class: `past n${k}`, d: part((time) => time <= now) }),
        element("path", { class: `past later n${k}`, d: part((time) => time >= now) }));
    });
    svg.append(element("path", { class: "curve", d: path(curve.times.map((time, k) => [this.x(time), this.y(curve.values[k])])) }));
    const nowLabel = element("text", { class: "tick now", x: this.x(now) + 5, y: top + 9 }, "forecast");
    svg.append(element("line", { class: "now", x1: this.x(now), x2: this.x(now), y1: top, y2: height - bottom }), nowLabel);
    this.marker = element("g", { class: "marker" });
    svg.append(this.marker);
    svg.addEventListener("click", (event) => this.pick(this.time(event.clientX - svg.getBoundingClientRect().left)));
    svg.addEventListener("pointermove", (event) =>
      this.drawMark(this.time(event.clientX - svg.getBoundingClientRect().left), true));
    svg.addEventListener("pointerleave", () => this.drawMark(this.content.time));
    this.box.replaceChildren(svg, this.legend());
    this.drawMark(this.content.time);
  }

  /** A line at a time, with the value there in words if `told`. */
  drawMark(time, told = false) {
    const { clock, quantity, curve, past, now } = this.content;
    const { width, height, ends } = this.size;
    this.marker.replaceChildren();
    if (time < ends[0] || time > ends[1]) return;
    const x = this.x(time);
    const nearest = (line) => line.times.reduce((best, at, k) =>
      Math.abs(at - time) < Math.abs(line.times[best] - time) ? k : best, 0);
    const line = time > now || !past.length ? curve : past[0];
    const k = nearest(line);
    this.marker.append(element("line", { x1: x, x2: x, y1: MARGIN.top, y2: height - MARGIN.bottom }));
    const value = line.values[k];
    if (!Number.isFinite(value)) return;
    this.marker.append(element("circle", { cx: x, cy: this.y(value), r: 4, class: line === curve ? "" : "past" }));
    if (!told) return;
    const words = `${quantity.value(value)} · ${clock.short(line.times[k])}`;
    const room = 6.3 * words.length + 12;
    const at = Math.max(MARGIN.left, Math.min(width - room - 4, x - room / 2));
    const y = this.y(value) > height / 2 ? this.y(value) - 30 : this.y(value) + 12;
    this.marker.append(element("rect", { class: "flag", x: at, y, width: room, height: 20, rx: 4 }),
      element("text", { class: "flag", x: at + room / 2, y: y + 14, "text-anchor": "middle" }, words));
  }

  /** What lines and bands mean. */
  legend() {
    const list = document.createElement("ul");
    list.className = "keys-of-chart";
    const item = (style, words) => {
      const entry = document.createElement("li");
      const sample = element("svg", { viewBox: "0 0 24 12", width: 24, height: 12, "aria-hidden": "true" });
      sample.append(...style);
      entry.append(sample, words);
      list.append(entry);
    };
    const stroke = (name) => [element("path", { class: name, d: "M1 6H23" })];
    const bands = this.content.curve.bands.length
      ? [element("rect", { class: "band p90", x: 0, y: 0, width: 24, height: 12 }),
        element("rect", { class: "band p50", x: 0, y: 3, width: 24, height: 6 })] : [];
    item([...bands, ...stroke("curve")], bands.length ? "forecast, 50 and 90 %" : "forecast");
    this.content.past.forEach((line, k) => item(stroke(`past n${k}`), line.name));
    if (this.content.past.some((line) => line.times.some((time) => time > this.content.now))) {
      item(stroke("past later n0"), "observed later");
    }
    return list;
  }
}

const label = (value) => String(value).replace("-", "−");
