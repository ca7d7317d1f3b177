/* The forecast at one point: value, words, chart, facts and table. */

import * as api from "./api.js";
import { Chart } from "./chart.js";
import { leadQuery, leadWords } from "./clock.js";
import { fillTable } from "./table.js";
import { distanceWords, placeWords, supportWords } from "./words.js";

const QUANTILES = [0.05, 0.25, 0.75, 0.95];
const BANDS = [[90, "0.05", "0.95"], [50, "0.25", "0.75"]];
const MOST_TIMES = 120;
const part = (id) => document.getElementById(id);

/** Leads between the steps of the data, so that the curve is finer than these. */
function fineLeads(horizon, step) {
  const factor = Math.max(1, Math.min(4, Math.floor(MOST_TIMES / horizon)));
  return Array.from({ length: horizon * factor }, (_, k) => ((k + 1) * step) / factor);
}

export class Panel {
  /** `context()`: {model, clock, quantity, channel, issue, issueQuery, time}; `pick(time)`. */
  constructor(context, pick) {
    Object.assign(this, { context, found: null, content: null, asked: null, request: null });
    this.chart = new Chart(part("chart"), pick);
  }

  /** The body of a request for the chosen point. */
  body() {
    const { model, issueQuery } = this.context();
    const { position, station } = this.asked;
    return {
      sites: [station?.id ?? position],
      times: fineLeads(model.horizon.steps, model.step_seconds).map(leadQuery),
      quantiles: model.quantiles_available === false ? null : QUANTILES,
      issue_time: issueQuery,
    };
  }

  /** Ask for the forecast at a position, or at a station by its id; gives when it is shown. */
  async ask(position, station) {
    this.request?.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    const { model, clock, issue, latest } = this.context();
    const before = this.asked;
    this.asked = { position, station };
    const made = await api.getForecast(this.body(), signal).catch((error) => {
      if (error.status === 422) this.asked = before;
      throw error;
    });
    const nearest = [].concat(made.sites[0].nearest ?? []);
    const ahead = Math.min(issue + model.horizon.steps * clock.step, latest);
    const hours = (model.past_steps * clock.step + ahead - issue) / 3600;
    const past = nearest.length
      ? await api.getSeries(nearest, hours, clock.query(ahead), signal) : { times: [], stations: [] };
    if (signal.aborted) return;
    this.found = { made, past, station, issue };
    this.show();
  }

  /** Fill the card with what was found, for the present channel. */
  show() {
    if (!this.found) return;
    const { model, clock, quantity, channel, time } = this.context();
    const { made, past, station, issue } = this.found;
    const [site] = made.sites;
    const forecast = made.channels[channel];
    const values = forecast.values[0];
    const quantile = (key) => forecast.quantiles?.[key]?.[0];
    const bands = BANDS.filter(([, low]) => quantile(low))
      .map(([percent, low, high]) => ({ percent, low: quantile(low), high: quantile(high) }));
    part("point-empty").hidden = true;
    part("point").hidden = false;
    const title = station ? named(station) : placeWords(site.position, model.kind);
    part("place").value = station ? station.id : site.position.map((value) => Number(value.toFixed(4))).join(", ");
    this.content = { title, made, values, bands, issue, channel };
    this.chart.show({
      clock, quantity, now: issue, time,
      curve: { times: made.times, values, bands },
      past: past.stations.map((line) => ({
        name: shorten(named(line)), times: past.times, values: line.values[channel],
      })),
    });
    this.facts(site);
    this.table();
    this.mark();
    part("point-words").textContent = this.words();
    part("spoken").textContent = this.words(); // the live region, which is always there
  }

  facts(site) {
    const { model, stations } = this.context();
    const nearest = [].concat(site.nearest ?? [])[0];
    const station = stations.find(({ id }) => id === nearest);
    const distance = distanceWords(site.distance_km ?? site.distance, model.kind, model.axes?.[0]?.units);
    const lines = [
      ["Place", `${this.content.title}${this.found.station ? ` · ${placeWords(site.position, model.kind)}` : ""}`],
      ["Nearest observation", nearest ? `${named(station ?? { id: nearest })}, ${distance} away` : "none"],
      ["Support", supportWords(site.support)],
    ];
    if (/^observed/.test(site.support) || site.support === 0) lines.splice(1, 1);
    part("point-facts").replaceChildren(...lines.flatMap(([name, text]) => {
      const [head, body] = [document.createElement("dt"), document.createElement("dd")];
      [head.textContent, body.textContent] = [name, text];
      return [head, body];
    }));
  }

  table() {
    const { clock, quantity } = this.context();
    const { made, values, bands, issue, title } = this.content;
    const heads = ["Time", "Lead", quantity.title, ...bands.map((band) => `${band.percent} % interval`)];
    const lines = made.times.map((time, k) => [clock.short(time), leadWords(time - issue), quantity.number(values[k]),
      ...bands.map((band) => `${quantity.number(band.low[k])} to ${quantity.number(band.high[k])}`)]);
    fillTable(part("point-table"), `${quantity.name} at ${title}`, heads, lines);
  }

  /** The value at the time of the map, in words; empty in the past, and without a point. */
  reading() {
    return this.content && this.context().step > 0 ? part("point-value").textContent : "";
  }

  /** Show the value at the time of the map. */
  mark() {
    if (!this.content) return;
    const { clock, quantity, time } = this.context();
    const { made, values, bands, issue } = this.content;
    const wanted = time > issue ? time : made.times[0];
    const k = made.times.reduce((best, at, i) => Math.abs(at - wanted) < Math.abs(made.times[best] - wanted) ? i : best, 0);
    part("point-value").textContent = quantity.value(values[k]);
    const band = bands.find(({ percent }) => percent === 90);
    const range = band && Number.isFinite(band.low[k])
      ? ` · 90 %: ${quantity.number(band.low[k])} to ${quantity.value(band.high[k])}` : "";
    part("point-range").textContent = `${clock.short(made.times[k])}, ${leadWords(made.times[k] - issue)}${range}`;
    this.chart.mark(time > issue ? made.times[k] : time);
  }

  /** The forecast in one or two sentences. */
  words() {
    const { clock, quantity } = this.context();
    const { made, values, bands, title } = this.content;
    const known = values.map((value, k) => [value, k]).filter(([value]) => Number.isFinite(value));
    if (!known.length) return `No forecast can be given at ${title}.`;
    const [least, lowest] = known.reduce((a, b) => (b[0] < a[0] ? b : a));
    const [most, highest] = known.reduce((a, b) => (b[0] > a[0] ? b : a));
    const at = (k) => clock.short(made.times[k]);
    const sentence = `${quantity.name} at ${title}: lowest ${quantity.value(least)} (${at(lowest)}), highest ${quantity.value(most)} (${at(highest)}).`;
    const band = bands.find(({ percent }) => percent === 90);
    const end = known.at(-1)[1];
    if (!band || !Number.isFinite(band.low[end])) return sentence;
    return `${sentence} At the end, ${at(end)}, it lies with 90 % probability between ${quantity.number(band.low[end])} and ${quantity.value(band.high[end])}.`;
  }

  clear() {
    this.request?.abort();
    Object.assign(this, { found: null, content: null, asked: null });
    part("point").hidden = true;
    part("point-empty").hidden = false;
  }
}

/** Id and name of a station. */
export const named = ({ id, name }) => (name && name !== id ? `${name} (${id})` : id);

const shorten = (text) => (text.length > 34 ? `${text.slice(0, 33)}…` : text);
