/* The head of the page: variable and issue time; and messages to the reader. */

import { seconds } from "./clock.js";
import { Quantity } from "./words.js";

const part = (id) => document.getElementById(id);
let retry = null;
let working = 0;

/** Run a promise while the page says that it is computing. */
export async function busy(promise) {
  working += 1;
  part("busy").hidden = false;
  try {
    return await promise;
  } finally {
    working -= 1;
    part("busy").hidden = working === 0;
  }
}

/** Whether a request is on its way. */
export const isBusy = () => working > 0;

const SOON = [0, 408, 429]; // statuses after which the same request may succeed, besides 5xx

/** Show what went wrong; `again` is called if the reader wants to try again. */
export function complain(error, again = null) {
  if (error.name === "AbortError") return;
  part("alert-text").textContent = error.message;
  part("alert").hidden = false;
  const hopeful = error.status === undefined || SOON.includes(error.status) || error.status >= 500;
  retry = typeof again === "function" && hopeful ? again : null;
  part("alert-retry").hidden = retry === null;
}

export function calm() {
  part("alert").hidden = true;
}

part("alert-close").addEventListener("click", calm);
part("alert-retry").addEventListener("click", () => {
  calm();
  retry?.();
});

/** Fields for variable and issue time. `picked.variable(name)`, `picked.issue(seconds)`. */
export class Controls {
  constructor(picked) {
    Object.assign(this, { picked, clock: null });
    part("variable").addEventListener("change", () => picked.variable(part("variable").value));
    part("issue").addEventListener("change", () => {
      const time = this.typed(part("issue").value);
      if (Number.isFinite(time)) picked.issue(time);
      else this.showIssue(this.issue, this.first, this.latest);
    });
    part("issue-earlier").addEventListener("click", () => picked.issue(this.issue - this.clock.step));
    part("issue-later").addEventListener("click", () => picked.issue(this.issue + this.clock.step));
    part("issue-latest").addEventListener("click", () => picked.issue(this.latest));
  }

  /** What the model offers. */
  set(model, clock) {
    this.clock = clock;
    part("title").textContent = model.name;
    document.title = `${model.name} · stonet live map`;
    part("colophon").textContent = `stonet ${model.version}`;
    part("variable").replaceChildren(...model.channels.map((channel) => {
      const option = document.createElement("option");
      option.value = channel.name;
      option.textContent = new Quantity(channel, { low: 0, high: 1 }).title;
      return option;
    }));
    const plane = model.kind === "plane";
    document.body.classList.toggle("is-plane", plane);
    part("site-columns").textContent = plane ? "name, x, y" : "name, lat, lon";
    part("place").placeholder = plane ? "x, y or a station" : "latitude, longitude or a station";
    part("issue-label").textContent = clock.calendar ? "Issued (UTC)" : "Issued";
    part("issue").type = clock.calendar ? "datetime-local" : "text";
    part("issue").step = Math.max(1, Math.round(clock.step));
    part("issue").disabled = part("variable").disabled = false;
  }

  showVariable(name) {
    part("variable").value = name;
  }

  showIssue(issue, first, latest) {
    Object.assign(this, { issue, first, latest });
    const text = (time) => new Date(time * 1000).toISOString().slice(0, this.clock.step % 60 ? 19 : 16);
    if (this.clock.calendar) {
      Object.assign(part("issue"), { min: text(first), max: text(latest), value: text(issue) });
    } else part("issue").value = this.clock.plain(issue);
    part("issue-earlier").disabled = issue <= first;
    part("issue-later").disabled = part("issue-latest").disabled = issue >= latest;
  }

  typed(text) {
    if (this.clock.calendar) return seconds(text);
    return parseFloat(text) * (/ms\s*$/.test(text) ? 1e-3 : 1);
  }
}
