/* The page: a model, an issue time, a time of the map, a point; everything else follows from these. */

import * as api from "./api.js";
import { Clock, leadQuery, seconds } from "./clock.js";
import { Scale, TABLE, roundTicks } from "./colour.js";
import { fromAddress, toAddress } from "./link.js";
import { WorldMap } from "./map.js";
import { Panel, named } from "./panel.js";
import { Grid } from "./raster.js";
import { Sites } from "./sites.js";
import { fillTable } from "./table.js";
import { watchTheme } from "./theme.js";
import { Timeline } from "./timeline.js";
import { Quantity, placeWords } from "./words.js";

const CELLS = 72; // of the longer side of the field
const BATCH = 4; // leads of one request for fields
const LOOK = 30000; // milliseconds between two looks for new observations
const part = (id) => document.getElementById(id);

const state = { model: null, clock: null, channel: null, issue: 0, following: true, step: 0, point: null, station: null };
const frames = new Map(); // step -> values of the stations by channel, for the issue time
const fields = new Map(); // "channel step" -> Grid
let scale = null;
let quantity = null;
let stations = [];
let generation = 0; // counts issue times, so that late answers to earlier ones are dropped
let working = 0;
let retry = null;

const context = () => ({
  ...state, quantity, stations, issueQuery: issueQuery(), intervals: panel.intervals,
  time: state.issue + state.step * state.clock.step, latest: latest(),
});
const latest = () => seconds(state.model.issue_times.latest);
const first = () => seconds(state.model.issue_times.first);
const issueQuery = () => state.clock.query(state.issue);

const map = new WorldMap(part("canvas"), {
  ask: (position, station) => choose(position, station),
  hover: showTip,
  cursor: (position, station) => announce(station
    ? `${named(station)}: ${quantity.value(valueOf(station))}` : position ? placeWords(position, state.model.kind) : "outside the map"),
  moved: () => {},
});
const timeline = new Timeline((step) => {
  state.step = step;
  showFrame();
});
timeline.ready = () => state.step <= 0 || fields.has(key(state.step)) || working === 0;
const panel = new Panel(context, (time) => {
  timeline.pause();
  const step = Math.round((time - state.issue) / state.clock.step);
  state.step = Math.max(-state.model.past_steps, Math.min(state.model.horizon.steps, step));
  showFrame();
});
const sites = new Sites(context, { shown: (positions) => map.setSites(positions), trouble: complain, busy });

/** Run a promise while the page says that it is computing. */
async function busy(promise) {
  working += 1;
  part("busy").hidden = false;
  try {
    return await promise;
  } finally {
    working -= 1;
    part("busy").hidden = working > 0 ? false : true;
  }
}

/** Show what went wrong, with a button that tries again if that makes sense. */
function complain(error, again = null) {
  if (error.name === "AbortError") return;
  part("alert-text").textContent = error.message;
  part("alert").hidden = false;
  retry = typeof again === "function" ? again : null;
  part("alert-retry").hidden = retry === null;
}

function calm() {
  part("alert").hidden = true;
}

const announce = (text) => { part("point-words").textContent = text; };
const key = (step) => `${state.channel} ${step}`;
const valueOf = (station) => frames.get(state.step)?.[state.channel]?.[station.index];

/** The first view: model, stations, coast; then the issue time. */
async function start() {
  calm();
  const model = await busy(api.getModel());
  const asked = fromAddress();
  state.model = model;
  state.clock = new Clock(model.issue_times.latest, model.step_seconds);
  const names = model.channels.map(({ name }) => name);
  state.channel = names.includes(asked.variable) ? asked.variable : names[0];
  state.following = asked.issue === undefined;
  state.issue = asked.issue === undefined ? latest() : clampIssue(seconds(asked.issue));
  state.step = Math.max(-model.past_steps, Math.min(model.horizon.steps, asked.lead ?? 1));
  describe();
  map.setRegion(model.kind, model.region, model.axes);
  if (model.kind === "sphere") loadCoast();
  await setIssue(state.issue);
  if (asked.point) await choose(asked.point, stationNear(asked.point));
  setInterval(look, LOOK);
}

function describe() {
  const { model } = state;
  part("title").textContent = model.name;
  document.title = `${model.name} · stonet live map`;
  part("colophon").textContent = `stonet ${model.version}`;
  part("variable").replaceChildren(...model.channels.map((channel) => {
    const option = document.createElement("option");
    option.value = channel.name;
    option.textContent = new Quantity(channel, { low: 0, high: 1 }).title;
    return option;
  }));
  part("variable").value = state.channel;
  part("variable").disabled = false;
  const plane = model.kind === "plane";
  document.body.classList.toggle("is-plane", plane);
  part("site-columns").textContent = plane ? "name, x, y" : "name, lat, lon";
  part("place").placeholder = plane ? "x, y or a station" : "latitude, longitude or a station";
  const issue = part("issue");
  issue.disabled = false;
  if (state.clock.calendar) {
    issue.type = "datetime-local";
    issue.step = Math.max(1, model.step_seconds);
    [issue.min, issue.max] = [inputTime(first()), inputTime(latest())];
  }
}

const inputTime = (time) => new Date(time * 1000).toISOString().slice(0, state.clock.step % 60 ? 19 : 16);
const clampIssue = (time) => Math.max(first(), Math.min(latest(), Number.isFinite(time) ? time : latest()));

async function loadCoast() {
  const { lat, lon } = state.model.region;
  try {
    const found = await api.getCoast([lon[0], lat[0], lon[1], lat[1]]);
    map.setLines([...(found.border ?? []).map((points) => ({ points, border: true })),
      ...(found.coast ?? []).map((points) => ({ points, border: false }))]);
  } catch (error) {
    complain(error);
  }
}

/** Another issue time: everything is asked anew. */
async function setIssue(time) {
  generation += 1;
  const mine = generation;
  state.issue = clampIssue(time);
  frames.clear();
  fields.clear();
  const { model, clock } = state;
  part("issue").value = clock.calendar ? inputTime(state.issue) : clock.plain(state.issue);
  part("issue-earlier").disabled = state.issue <= first();
  part("issue-later").disabled = state.issue >= latest();
  part("issue-latest").disabled = state.issue >= latest();
  timeline.set(clock, model.past_steps, model.horizon.steps, state.issue);
  timeline.show(state.step);
  try {
    calm();
    const [now, ahead] = await busy(Promise.all([
      api.getStations(issueQuery()), api.getForecast({ issue_time: issueQuery() })]));
    if (mine !== generation) return;
    takeStations(now.stations);
    takeForecast(ahead);
  } catch (error) {
    if (mine === generation) complain(error, () => setIssue(time));
    return;
  }
  setScale();
  showFrame();
  loadFrames(mine);
  if (panel.asked) choose(panel.asked.position, panel.asked.station);
  sites.ask();
}

/** Stations and their values at the issue time. */
function takeStations(found) {
  stations = found.map((station, index) => ({ ...station, index }));
  map.setStations(stations);
  frames.set(0, valuesOf(found));
  part("station-names").replaceChildren(...stations.map((station) => {
    const option = document.createElement("option");
    option.value = station.id;
    option.label = named(station);
    return option;
  }));
  const { model, clock } = state;
  const each = clock.step % 3600 === 0 ? (clock.step === 3600 ? "hourly" : `every ${clock.step / 3600} h`)
    : leadQuery(clock.step).slice(1).replace("s", " s steps");
  part("subtitle").textContent = `${stations.length} stations · ${each} · `
    + `forecasts ${span(model.horizon.seconds)} ahead`;
}

const span = (length) => length >= 3600 ? `${Number((length / 3600).toPrecision(3))} h`
  : length >= 60 ? `${Number((length / 60).toPrecision(3))} min`
    : length >= 1 ? `${length} s` : `${Number((length * 1000).toPrecision(3))} ms`;

const valuesOf = (found) => Object.fromEntries(
  state.model.channels.map(({ name }) => [name, found.map((station) => station.values[name])]));

/** The forecast at the stations, lead by lead. */
function takeForecast({ times, channels, sites: rows }) {
  const index = new Map(rows.map((site, row) => [site.name, row]));
  times.forEach((time, k) => {
    const step = Math.round((time - state.issue) / state.clock.step);
    frames.set(step, Object.fromEntries(Object.entries(channels).map(([name, { values }]) =>
      [name, stations.map((station, row) => values[index.get(station.id) ?? row]?.[k] ?? null)])));
  });
}

/** Colours that hold for all times, so that play can be compared. */
function setScale() {
  const values = [...frames.values()].flatMap((frame) => frame[state.channel])
    .filter((value) => value !== null);
  scale = Scale.of(values);
  quantity = new Quantity(state.model.channels.find(({ name }) => name === state.channel), scale);
  const bar = part("legend-bar").getContext("2d");
  TABLE.forEach((colour, k) => {
    bar.fillStyle = `rgb(${colour.join(" ")})`;
    bar.fillRect(k, 0, 1, 1);
  });
  part("legend-title").textContent = quantity.title;
  part("legend-ticks").replaceChildren(...roundTicks(scale.low, scale.high, 4).map((tick) => {
    const mark = document.createElement("span");
    mark.textContent = String(tick).replace("-", "−");
    mark.style.left = `${(100 * (tick - scale.low)) / (scale.high - scale.low)}%`;
    return mark;
  }));
  part("legend").setAttribute("aria-label",
    `Colours: ${quantity.title}, dark violet ${quantity.number(scale.low)} to yellow ${quantity.number(scale.high)}`);
}

/** Show the time of the slider on map, panel and tables. */
function showFrame() {
  timeline.show(state.step);
  const values = frames.get(state.step)?.[state.channel] ?? [];
  map.show(values, state.step > 0 ? fields.get(key(state.step)) ?? null : null, scale);
  panel.mark();
  listStations(values);
  toAddress({ variable: state.channel, issue: state.following ? null : issueQuery(), lead: state.step, point: state.point });
  if (!frames.has(state.step) || (state.step > 0 && !fields.has(key(state.step)))) loadStep(state.step, generation);
}

function listStations(values) {
  if (!part("stations-table").closest("details").open) return;
  fillTable(part("stations-table"), `${quantity.title}, ${state.clock.long(context().time)}`,
    ["Station", "Place", quantity.name],
    stations.map((station, k) => [named(station), placeWords(station.position, state.model.kind), quantity.number(values[k])]));
}

const pending = new Set();

/** Ask for what a step lacks. */
async function loadStep(step, mine) {
  const wanted = step > 0 ? key(step) : `past ${step}`;
  if (pending.has(wanted) || mine !== generation) return;
  if (step <= 0) await loadPast(step, mine, wanted);
  else await loadFields([step], mine);
}

async function loadPast(step, mine, wanted) {
  pending.add(wanted);
  try {
    const found = await api.getStations(state.clock.query(state.issue + step * state.clock.step));
    if (mine !== generation) return;
    frames.set(step, valuesOf(found.stations));
    if (step === state.step) showFrame();
  } catch (error) {
    frames.set(step, {}); // before the first observation there is nothing to show
  } finally {
    pending.delete(wanted);
  }
}

/** Fields of some leads in one request. */
async function loadFields(steps, mine) {
  const { channel, model } = state;
  const keys = steps.map((step) => `${channel} ${step}`);
  keys.forEach((name) => pending.add(name));
  try {
    const found = await busy(api.getField({
      channel, times: steps.map((step) => leadQuery(step * model.step_seconds)),
      issue_time: issueQuery(), size: sizeOf(model.region),
    }));
    if (mine !== generation) return;
    const [rows, columns] = [found.lat ?? found.y, found.lon ?? found.x];
    found.values.forEach((values, k) => fields.set(keys[k], new Grid(rows, columns, values)));
    if (keys.includes(key(state.step))) showFrame();
  } catch (error) {
    if (mine === generation) complain(error, () => loadFields(steps, mine));
    throw error;
  } finally {
    keys.forEach((name) => pending.delete(name));
  }
}

/** Rows and columns for a region: square cells. */
function sizeOf(region) {
  const [rows, columns] = [region.lat ?? region.y, region.lon ?? region.x].map(([low, high]) => high - low);
  const unit = Math.max(rows, columns) / CELLS;
  return [rows, columns].map((length) => Math.max(8, Math.round(length / unit)));
}

/** Ask for all steps, the shown one first, so that play has them. */
async function loadFrames(mine) {
  const { channel, model } = state;
  const current = () => mine === generation && channel === state.channel;
  try {
    if (state.step > 0) await loadStep(state.step, mine);
    const lacking = Array.from({ length: model.horizon.steps }, (_, k) => k + 1)
      .filter((step) => !fields.has(`${channel} ${step}`) && !pending.has(`${channel} ${step}`));
    for (let k = 0; k < lacking.length && current(); k += BATCH) await loadFields(lacking.slice(k, k + BATCH), mine);
    for (let step = -1; step >= -model.past_steps && current(); step -= 1) {
      if (!frames.has(step)) await loadPast(step, mine, `past ${step}`);
    }
  } catch (error) { /* it was said already */ }
}

const stationNear = (position) => stations.find((station) =>
  station.position.every((value, k) => Math.abs(value - position[k]) < 1e-5));

/** The reader chose a point, or a station. */
async function choose(position, station = null) {
  state.point = position;
  map.setPoint(position);
  toAddress({ variable: state.channel, issue: state.following ? null : issueQuery(), lead: state.step, point: state.point });
  try {
    calm();
    await busy(panel.ask(position, station ?? null));
  } catch (error) {
    if (error.status === 422 && panel.intervals && /calibration/.test(error.message)) {
      panel.intervals = false; // this run gives no intervals
      await choose(position, station);
    } else complain(error, () => choose(position, station));
  }
}

function showTip(station, x, y) {
  const tip = part("tip");
  tip.hidden = station === null;
  if (!station) return;
  tip.textContent = `${named(station)}  ${quantity.value(valueOf(station))}`;
  const right = x > map.view.width * 0.6;
  tip.style.left = right ? "auto" : `${x + 14}px`;
  tip.style.right = right ? `${map.view.width - x + 14}px` : "auto";
  tip.style.top = `${Math.max(4, y - 30)}px`;
}

/** A place that was typed: a station, or two numbers. */
function place(text) {
  const wanted = text.trim().toLowerCase();
  const station = stations.find(({ id, name }) => id.toLowerCase() === wanted || name?.toLowerCase() === wanted)
    ?? stations.find((one) => named(one).toLowerCase().includes(wanted) && wanted.length > 2);
  if (station) return { position: station.position, station };
  const numbers = wanted.split(/[\s,;]+/).map(Number);
  if (wanted && numbers.length === 2 && numbers.every(Number.isFinite)) return { position: numbers, station: stationNear(numbers) };
  return null;
}

/** See if the server has newer observations; follow them if the latest are shown. */
async function look() {
  if (document.hidden || working) return;
  try {
    const before = latest();
    state.model = await api.getModel();
    if (latest() === before) return;
    if (state.clock.calendar) part("issue").max = inputTime(latest());
    if (state.following) setIssue(latest());
    else part("issue-later").disabled = part("issue-latest").disabled = false;
  } catch (error) { /* the next request will say it */ }
}

function pickIssue(time) {
  state.following = time >= latest();
  setIssue(time);
}

part("variable").addEventListener("change", (event) => {
  state.channel = event.target.value;
  setScale();
  showFrame();
  panel.show();
  sites.show();
  loadFrames(generation);
});
part("issue").addEventListener("change", (event) => {
  const text = event.target.value;
  const time = state.clock.calendar ? seconds(text)
    : parseFloat(text) * (/ms\s*$/.test(text) ? 1e-3 : 1);
  if (Number.isFinite(time)) pickIssue(time);
});
part("issue-earlier").addEventListener("click", () => pickIssue(state.issue - state.clock.step));
part("issue-later").addEventListener("click", () => pickIssue(state.issue + state.clock.step));
part("issue-latest").addEventListener("click", () => pickIssue(latest()));
part("place-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const found = place(part("place").value);
  if (found) choose(found.position, found.station);
  else complain(new Error(`Expected ${part("place").placeholder}, got "${part("place").value}".`));
});
for (const [id, format] of [["point-csv", "csv"], ["point-netcdf", "netcdf"]]) {
  part(id).addEventListener("click", () => {
    const { position, station } = panel.asked;
    busy(api.download(panel.body(position, station?.id), format)).catch(complain);
  });
}
part("link").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    part("link").textContent = "Copied";
    setTimeout(() => { part("link").textContent = "Copy link"; }, 1500);
  } catch (error) {
    complain(new Error(`Copy the address of this page: ${location.href}`));
  }
});
part("zoom-in").addEventListener("click", () => map.zoomBy(1.6));
part("zoom-out").addEventListener("click", () => map.zoomBy(1 / 1.6));
part("zoom-all").addEventListener("click", () => map.zoomBy(1e-6));
part("alert-close").addEventListener("click", calm);
part("alert-retry").addEventListener("click", () => retry?.());
part("stations-table").closest("details").addEventListener("toggle", () => scale && showFrame());
document.addEventListener("keydown", (event) => {
  const typed = event.target.closest("input:not([type=range]), select, button, a, summary, textarea, dialog");
  if (event.key !== " " || typed || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  timeline.toggle();
});
window.addEventListener("hashchange", () => {
  const asked = fromAddress();
  if (asked.lead !== undefined && asked.lead !== state.step) {
    state.step = asked.lead;
    showFrame();
  }
  if (asked.point && String(asked.point) !== String(state.point)) choose(asked.point, stationNear(asked.point));
});
watchTheme(part("theme"), () => map.draw());
start().catch((error) => complain(error, start));
