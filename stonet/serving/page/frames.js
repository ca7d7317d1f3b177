/* What the map shows at each step from the issue time: values at the stations and fields. They are
   asked for when first shown; then all others follow, so that play does not wait. */

import * as api from "./api.js";
import { leadQuery } from "./clock.js";
import { Grid, strengthNear, strengths } from "./raster.js";

const CELLS = 4500; // of a field
const BATCH = 4; // leads of one request for fields
const AHEAD = 24; // leads that are asked for before they are shown
const REFUSED = [413, 422]; // too much to ask, or a time without observations

export class Frames {
  /** `events`: {busy(promise), trouble(error, again), arrived(step)}. */
  constructor(events) {
    Object.assign(this, { events, generation: 0, region: null, prefetching: null, hold: null });
    Object.assign(this, { values: new Map(), fields: new Map(), former: new Map(), pending: new Set() });
  }

  /** Stations and their values at an issue time, and the forecast at them; null if it is outdated. */
  async open(model, clock, issue) {
    this.generation += 1;
    const mine = this.generation;
    const issueQuery = clock.query(issue);
    const [now, ahead] = await this.events.busy(Promise.all([
      api.getStations(issueQuery),
      api.getForecast({ issue_time: issueQuery }).catch((error) => {
        if (error.status !== 413) throw error;
        return null; // too many stations for one request: the field alone is shown
      })]));
    if (mine !== this.generation) return null;
    Object.assign(this, { model, clock, issue, issueQuery });
    this.names = model.channels.map(({ name }) => name);
    this.values = new Map([[0, this.byChannel(now.stations)]]);
    [this.fields, this.former, this.pending] = [new Map(), new Map(), new Set()];
    const stations = now.stations.map((station, index) => ({ ...station, index }));
    this.strength = strengthNear(stations, model.kind);
    this.alpha = null;
    if (ahead) this.takeForecast(ahead, stations);
    return stations;
  }

  byChannel(stations) {
    return Object.fromEntries(this.names.map((name) => [name, stations.map(({ values }) => values[name])]));
  }

  takeForecast({ times, channels, sites }, stations) {
    const rows = new Map(sites.map((site, row) => [site.name, row]));
    const order = stations.map(({ id }, row) => rows.get(id) ?? row);
    times.forEach((time, k) => {
      const step = Math.round((time - this.issue) / this.clock.step);
      this.values.set(step, Object.fromEntries(Object.entries(channels)
        .map(([name, { values }]) => [name, order.map((row) => values[row]?.[k] ?? null)])));
    });
  }

  /** Another part of the world is shown: fields are asked anew; until then the former ones stay. */
  setRegion(region) {
    if (JSON.stringify(region) === JSON.stringify(this.region)) return;
    if (this.fields.size) this.former = this.fields;
    Object.assign(this, { region, alpha: null, fields: new Map(), pending: new Set() });
  }

  at(step, channel) {
    return this.values.get(step)?.[channel] ?? [];
  }

  field(step, channel) {
    const name = `${channel} ${step}`;
    return this.fields.get(name) ?? this.former.get(name) ?? null;
  }

  /** All values of a channel that are there. */
  all(channel) {
    return [...this.values.values()].flatMap((frame) => frame[channel] ?? []).filter((value) => value !== null);
  }

  has(step, channel) {
    return step > 0 ? this.fields.has(`${channel} ${step}`) : this.values.has(step);
  }

  /** Ask for what a step lacks, then for those that play would show next, then for the past. */
  async load(step, channel) {
    if (!this.model) return;
    const [mine, region] = [this.generation, this.region];
    this.wanted = channel;
    const current = () => mine === this.generation && region === this.region && channel === this.wanted;
    const { past_steps: past, horizon: { steps } } = this.model;
    const next = Array.from({ length: Math.min(AHEAD, steps) }, (_, k) => ((Math.max(1, step) + k - 1) % steps) + 1);
    try {
      if (step > 0) await this.loadFields([step], channel, current);
      else await this.loadPast(step, current);
      if (this.prefetching?.()) return; // another call does it
      this.prefetching = current;
      for (let k = 0; k < next.length && current(); k += BATCH) {
        await this.hold; // what the reader asks for goes first
        await this.loadFields(next.slice(k, k + BATCH), channel, current);
      }
      for (let k = 0; k <= Math.min(AHEAD, past) && current(); k += 1) await this.loadPast(-k, current);
    } catch (error) {
      if (current()) this.events.trouble(error, () => this.load(step, channel));
    } finally {
      if (this.prefetching === current) this.prefetching = null;
    }
  }

  async loadPast(step, current) {
    const { values, pending } = this;
    const name = `past ${step}`;
    if (values.has(step) || pending.has(name)) return;
    pending.add(name);
    try {
      const time = this.clock.query(this.issue + step * this.clock.step);
      values.set(step, this.byChannel((await api.getStations(time)).stations));
    } catch (error) {
      if (!REFUSED.includes(error.status)) throw error;
      values.set(step, {}); // before the first observation
    } finally {
      pending.delete(name);
    }
    if (current()) this.events.arrived(step);
  }

  async loadFields(steps, channel, current) {
    const { region, fields, pending, strength } = this;
    const name = (step) => `${channel} ${step}`;
    const lacking = steps.filter((step) => !fields.has(name(step)) && !pending.has(name(step)))
      .sort((a, b) => a - b);
    if (!lacking.length) return;
    lacking.forEach((step) => pending.add(name(step)));
    try {
      const found = await this.events.busy(api.getField({
        channel, region, issue_time: this.issueQuery, size: sizeOf(region),
        times: lacking.map((step) => leadQuery(step * this.model.step_seconds)),
      }));
      const [rows, columns] = [found.rows.values, found.columns.values];
      const alpha = this.region === region && this.alpha ? this.alpha : strengths(rows, columns, strength);
      if (this.region === region) this.alpha = alpha;
      found.values.forEach((values, k) => fields.set(name(lacking[k]), new Grid(rows, columns, values, alpha)));
    } finally {
      lacking.forEach((step) => pending.delete(name(step)));
    }
    if (current()) lacking.forEach((step) => this.events.arrived(step));
  }
}

/** Rows and columns of nearly square cells. */
function sizeOf(region) {
  const sides = [region.lat ?? region.y, region.lon ?? region.x].map(([low, high]) => high - low);
  const cell = Math.sqrt((sides[0] * sides[1]) / CELLS);
  return sides.map((side) => Math.max(12, Math.round(side / cell)));
}
