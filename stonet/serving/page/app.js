/* The page: a model, a variable, an issue time, a time of the map, a point; all else follows. */

import * as api from "./api.js";
import { Clock, seconds, spanWords } from "./clock.js";
import { Scale } from "./colour.js";
import { Controls, busy, calm, complain, isBusy } from "./controls.js";
import { Frames } from "./frames.js";
import { showLegend } from "./legend.js";
import { fromAddress, toAddress } from "./link.js";
import { WorldMap } from "./map.js";
import { Panel, named } from "./panel.js";
import { Sites } from "./sites.js";
import { fillTable } from "./table.js";
import { watchTheme } from "./theme.js";
import { Timeline } from "./timeline.js";
import { Quantity, placeWords } from "./words.js";

const LOOK = 30000; // milliseconds between two looks for new observations
const SETTLED = 350; // milliseconds after which a moved map is asked anew
const OFFERED = 2000; // stations in the list of the field for a place
const part = (id) => document.getElementById(id);

const state = {
  model: null, clock: null, channel: null, issue: 0, following: true, step: 0, point: null,
  stations: [], quantity: null, scale: null,
};

/** What panel and sites need to know. */
const context = () => ({
  ...state, issueQuery: state.clock.query(state.issue), latest: latest(),
  time: state.issue + state.step * state.clock.step,
});
const latest = () => seconds(state.model.issue_times.latest);
const first = () => seconds(state.model.issue_times.first);
const within = (value, low, high) => Math.max(low, Math.min(high, value));
const clampStep = (step) => within(step, -state.model.past_steps, state.model.horizon.steps);
const clampIssue = (time) => within(Number.isFinite(time) ? time : latest(), first(), latest());
const valueOf = (station) => frames.at(state.step, state.channel)[station.index];

const frames = new Frames({
  busy, trouble: complain, arrived: (step) => step === state.step && showFrame(),
});
const map = new WorldMap(part("canvas"), {
  ask: choose,
  hover: showTip,
  cursor: (position, station) => {
    part("spoken").textContent = station ? `${named(station)}, ${state.quantity.value(valueOf(station))}`
      : position ? placeWords(position, state.model.kind) : "outside the map";
  },
  moved: settle,
});
const timeline = new Timeline(moveTo, () => frames.has(state.step, state.channel) || !isBusy());
const panel = new Panel(context, (time) => {
  timeline.pause();
  moveTo(clampStep(Math.round((time - state.issue) / state.clock.step)));
});
const sites = new Sites(context, {
  busy, trouble: complain, shown: (positions) => map.setSites(positions),
});
const controls = new Controls({ variable: setChannel, issue: pickIssue });

async function start() {
  const model = await busy(api.getModel());
  const asked = fromAddress();
  const names = model.channels.map(({ name }) => name);
  state.model = model;
  state.clock = new Clock(model.issue_times.latest, model.step_seconds);
  state.channel = names.includes(asked.variable) ? asked.variable : names[0];
  state.step = clampStep(asked.lead ?? 1);
  controls.set(model, state.clock);
  controls.showVariable(state.channel);
  map.setRegion(model.kind, model.region, model.axes);
  loadRegion();
  await setIssue(asked.issue === undefined ? latest() : seconds(asked.issue), asked.issue === undefined);
  if (asked.point) await choose(asked.point, stationAt(asked.point));
  setInterval(look, LOOK);
}

/** Coastlines and fields of what the map shows. */
async function loadRegion() {
  const region = map.visible();
  frames.setRegion(region);
  frames.load(state.step, state.channel);
  if (state.model.kind === "plane") return;
  try {
    const found = await api.getCoast([region.lon[0], region.lat[0], region.lon[1], region.lat[1]]);
    if (region !== frames.region) return;
    map.setLines([...found.borders.map((points) => ({ points, border: true })),
      ...found.coast.map((points) => ({ points, border: false }))]);
  } catch (error) {
    complain(error, loadRegion);
  }
}

let settling = null;
function settle() {
  clearTimeout(settling);
  settling = setTimeout(loadRegion, SETTLED);
}

/** Another issue time: everything is asked anew. */
async function setIssue(time, following) {
  Object.assign(state, { issue: clampIssue(time), following });
  const { model, clock, issue } = state;
  controls.showIssue(issue, first(), latest());
  timeline.set(clock, model.past_steps, model.horizon.steps, issue);
  timeline.show(state.step);
  try {
    calm();
    const stations = await frames.open(model, clock, issue);
    if (!stations) return;
    takeStations(stations);
  } catch (error) {
    complain(error, () => setIssue(time, following));
    return;
  }
  setChannel(state.channel);
  if (panel.asked) choose(panel.asked.position, panel.asked.station);
  sites.ask();
}

function takeStations(stations) {
  state.stations = stations;
  map.setStations(stations);
  part("station-names").replaceChildren(...stations.slice(0, OFFERED).map((station) => {
    const option = document.createElement("option");
    [option.value, option.label] = [station.id, named(station)];
    return option;
  }));
  const step = spanWords(state.clock.step);
  const each = { "1 h": "hourly", "24 h": "daily" }[step] ?? `every ${step}`;
  part("subtitle").textContent = `${stations.length} stations · ${each} · `
    + `${spanWords(state.model.horizon.steps * state.clock.step)} ahead`;
}

/** Another variable: one range of colours for all its times, so that play can be compared. */
function setChannel(name) {
  state.channel = name;
  state.scale = Scale.of(frames.all(name));
  state.quantity = new Quantity(state.model.channels.find((channel) => channel.name === name), state.scale);
  controls.showVariable(name);
  showLegend(state.quantity, state.scale);
  showFrame();
  panel.show();
  sites.show();
}

function moveTo(step) {
  state.step = step;
  showFrame();
}

/** Show the time of the slider on map, panel and table. */
function showFrame() {
  if (!state.quantity) return;
  const { step, channel, scale } = state;
  timeline.show(step);
  panel.mark();
  map.show(frames.at(step, channel), step > 0 ? frames.field(step, channel) : null, scale);
  map.setPoint(state.point, panel.reading());
  listStations();
  toAddress({ variable: channel, issue: state.following ? null : context().issueQuery, lead: step, point: state.point });
  if (!frames.has(step, channel) || frames.wanted !== channel) frames.load(step, channel);
}

function listStations() {
  if (!part("stations-box").open || !state.quantity) return;
  const values = frames.at(state.step, state.channel);
  fillTable(part("stations-table"), `${state.quantity.title}, ${state.clock.long(context().time)}`,
    ["Station", "Place", state.quantity.name], state.stations.map((station, k) =>
      [named(station), placeWords(station.position, state.model.kind), state.quantity.number(values[k])]));
}

const stationAt = (position) => state.stations.find((station) =>
  station.position.every((value, k) => Math.abs(value - position[k]) < 1e-5)) ?? null;

/** The reader chose a point, or a station. */
async function choose(position, station = null) {
  const before = state.point;
  state.point = position;
  map.setPoint(position, "");
  showTip(null);
  try {
    calm();
    const asked = busy(panel.ask(position, station));
    frames.hold = asked.catch(() => null);
    await asked;
  } catch (error) {
    complain(error, () => choose(position, station));
    if (error.status === 422) state.point = before; // there is no such place
  }
  showFrame();
}

function showTip(station, x, y) {
  const tip = part("tip");
  tip.hidden = station === null || String(station.position) === String(state.point);
  if (tip.hidden) return;
  tip.textContent = `${named(station)}  ${state.quantity.value(valueOf(station))}`;
  const right = x > map.view.width * 0.6;
  tip.style.left = right ? "auto" : `${x + 14}px`;
  tip.style.right = right ? `${map.view.width - x + 14}px` : "auto";
  tip.style.top = `${Math.max(4, y - 30)}px`;
}

/** The place that was typed: a station, or two numbers. */
function typedPlace(text) {
  const wanted = text.trim().toLowerCase();
  const station = state.stations.find(({ id }) => id.toLowerCase() === wanted)
    ?? state.stations.find((one) => wanted.length > 2 && named(one).toLowerCase().includes(wanted));
  if (station) return [station.position, station];
  const numbers = wanted.split(/[\s,;]+/).map(Number);
  const sound = wanted !== "" && numbers.length === 2 && numbers.every(Number.isFinite);
  return sound ? [numbers, stationAt(numbers)] : null;
}

function pickIssue(time) {
  setIssue(time, time >= latest());
}

/** See if the server has newer observations; follow them if the latest are shown. */
async function look() {
  if (document.hidden || isBusy() || !state.quantity) return;
  try {
    const before = latest();
    state.model = await api.getModel();
    if (latest() === before) return;
    if (state.following) setIssue(latest(), true);
    else controls.showIssue(state.issue, first(), latest());
  } catch (error) { /* the next request of the reader will say it */ }
}

part("place-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const found = typedPlace(part("place").value);
  if (found) choose(...found);
  else complain(new Error(`Expected ${part("place").placeholder}, got "${part("place").value}".`));
});
for (const [id, format] of [["point-csv", "csv"], ["point-netcdf", "netcdf"]]) {
  part(id).addEventListener("click", () => busy(api.download(panel.body(), format)).catch(complain));
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
for (const [id, factor] of [["zoom-in", 1.6], ["zoom-out", 1 / 1.6], ["zoom-all", 1e-6]]) {
  part(id).addEventListener("click", () => map.zoomBy(factor));
}
part("stations-box").addEventListener("toggle", listStations);
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=range]), select, button, a, summary, dialog");
  if (event.key !== " " || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  timeline.toggle();
});
window.addEventListener("hashchange", async () => { // a link that was pasted
  if (!state.quantity) return; // the first view reads the address itself
  const asked = fromAddress();
  const names = state.model.channels.map(({ name }) => name);
  state.step = clampStep(asked.lead ?? state.step);
  if (names.includes(asked.variable)) state.channel = asked.variable;
  await setIssue(asked.issue === undefined ? latest() : seconds(asked.issue), asked.issue === undefined);
  if (asked.point) choose(asked.point, stationAt(asked.point));
});
window.addEventListener("focus", look);
watchTheme(part("theme"), () => map.draw());
start().catch((error) => complain(error, () => location.reload()));
