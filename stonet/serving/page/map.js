/* The map: a canvas with the field, coastlines, stations, and a cursor for keys. */

import { drawGraticule, drawGround, drawLines, drawMarks, drawStations } from "./layers.js";
import { View, projectionFor } from "./projection.js";
import { paint } from "./raster.js";
import { palette } from "./theme.js";

const REACH = 9; // pixels within which a click means the station
const STRIDE = 12; // pixels of an arrow key

export class WorldMap {
  /** `events`: {ask(position, station), hover(station, x, y), moved()}. */
  constructor(canvas, events) {
    Object.assign(this, { canvas, events });
    this.context = canvas.getContext("2d");
    Object.assign(this, { stations: [], values: [], lines: [], sites: [], grid: null, scale: null });
    Object.assign(this, { point: null, label: "", cursor: null, hovered: null, painted: null });
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    this.listen();
  }

  /** The region of a model, on a plane or on the sphere. */
  setRegion(kind, region, axes) {
    Object.assign(this, { kind, axes, projection: projectionFor(kind, region) });
    this.view = new View(this.projection.box);
    this.resize();
  }

  /** Coastlines and borders: [{points: [[longitude, latitude], ...], border}]. */
  setLines(lines) {
    this.lines = lines.map(({ points, border }) =>
      ({ border, points: points.map(([x, y]) => this.projection.forward([y, x])) }));
    this.draw();
  }

  setStations(stations) {
    this.stations = stations.map((station) =>
      ({ ...station, uv: this.projection.forward(station.position) }));
    this.draw();
  }

  /** What is shown: the values of the stations, the field or null, and their colours. */
  show(values, grid, scale) {
    if (grid !== this.grid || scale !== this.scale) this.painted = null;
    Object.assign(this, { values, grid, scale });
    this.draw();
  }

  /** The chosen point, and its value in words. */
  setPoint(position, label = this.label) {
    Object.assign(this, { point: position, label });
    this.draw();
  }

  setSites(positions) {
    this.sites = positions.map((position) => this.projection.forward(position));
    this.draw();
  }

  resize() {
    if (!this.view) return;
    const { clientWidth: width, clientHeight: height } = this.canvas.parentElement;
    const dense = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * dense);
    this.canvas.height = Math.round(height * dense);
    this.context.setTransform(dense, 0, 0, dense, 0, 0);
    this.view.resize(width, height, this.inset(width));
    this.painted = null;
    this.draw();
  }

  /** Room around the region: for the axes of a plane and the legend beside it. */
  inset(width) {
    if (this.kind !== "plane") return [14, 14, 14, width > 520 ? 14 : 56];
    return width > 620 ? [64, 20, 290, 48] : [58, 14, 14, 96];
  }

  /** The visible part of the sphere, or the region of a plane. */
  visible() {
    const { view, projection } = this;
    if (this.kind === "plane") {
      return { x: [view.box[0], view.box[2]], y: [view.box[1], view.box[3]] };
    }
    const [left, bottom] = view.fromScreen(0, view.height);
    const [right, top] = view.fromScreen(view.width, 0);
    if (projection.globe && (view.zoom < 3)) return { lat: [-90, 90], lon: [-180, 180] };
    const lat = [bottom, top].map((v) => projection.row(Math.max(projection.lowest, Math.min(-projection.lowest, v))).across);
    const { origin, rate } = projection.row(Math.abs(bottom) < Math.abs(top) ? top : bottom);
    const half = projection.globe ? 180 : 360;
    const lon = [left, right].map((u) => Math.max(-half, Math.min(half, origin + u * rate)));
    return { lat, lon: lon[1] - lon[0] > 360 ? [lon[0], lon[0] + 360] : lon };
  }

  /** Draw at the next frame. */
  draw() {
    if (!this.view || this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      this.drawNow();
    });
  }

  drawNow() {
    const { context, view } = this;
    const colours = palette();
    drawGround(this, colours);
    if (this.grid && this.scale) {
      this.painted ??= paint(this.grid, this.scale, this.projection, view);
      context.imageSmoothingEnabled = true;
      context.globalAlpha = colours.dark ? 0.82 : 0.88;
      context.drawImage(this.painted, 0, 0, 2 * this.painted.width, 2 * this.painted.height);
      context.globalAlpha = 1;
    }
    drawGraticule(this, colours);
    drawLines(this, colours);
    drawStations(this, colours);
    drawMarks(this, colours);
  }

  /** Radius of a station on the screen: smaller where there are many. */
  get radius() {
    const room = Math.sqrt((this.view.width * this.view.height) / Math.max(1, this.stations.length));
    return Math.max(2.4, Math.min(6, room * 0.11)) * Math.min(1.6, this.view.zoom ** 0.3);
  }

  /** The station nearest to a place on the screen, if one is within reach. */
  stationAt(x, y, reach = Math.max(REACH, this.radius + 3)) {
    let found = null;
    for (const station of this.stations) {
      const [a, b] = this.view.toScreen(station.uv);
      const distance = Math.hypot(a - x, b - y);
      if (distance <= reach) [found, reach] = [station, distance];
    }
    return found;
  }

  /** The position at a place on the screen; null outside the map. */
  positionAt(x, y) {
    return this.projection.inverse(...this.view.fromScreen(x, y));
  }

  /** Zoom, about a place on the screen. */
  zoomBy(factor, x, y) {
    this.view.zoomAt(factor, x, y);
    this.canvas.classList.toggle("zoomed", this.view.zoom > 1);
    this.painted = null;
    this.draw();
    this.events.moved();
  }

  ask(x, y) {
    const station = this.stationAt(x, y);
    const position = station ? station.position : this.positionAt(x, y);
    if (position) this.events.ask(position, station);
  }

  listen() {
    const { canvas } = this;
    let start = null;
    canvas.addEventListener("pointerdown", (event) => {
      start = { x: event.offsetX, y: event.offsetY, dragged: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = [event.offsetX, event.offsetY];
      if (start && this.view.zoom > 1 && (start.dragged || Math.hypot(x - start.x, y - start.y) > 4)) {
        if (!start.dragged) canvas.setPointerCapture(event.pointerId);
        this.view.move((start.x - x) / this.view.scale, (y - start.y) / this.view.scale);
        start = { x, y, dragged: true };
        this.painted = null;
        this.draw();
        return;
      }
      this.hover(this.view ? this.stationAt(x, y) : null, x, y);
    });
    canvas.addEventListener("pointerup", () => {
      if (start?.dragged) this.events.moved();
    });
    canvas.addEventListener("click", (event) => {
      if (!start?.dragged && this.view) this.ask(event.offsetX, event.offsetY);
      start = null;
    });
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("wheel", (event) => {
      if (!this.view) return;
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("focus", () => this.draw());
    canvas.addEventListener("blur", () => {
      this.hover(null);
      this.draw();
    });
  }

  hover(station, x, y) {
    if (station !== this.hovered) {
      this.hovered = station;
      this.canvas.classList.toggle("over", station !== null);
      this.draw();
    }
    this.events.hover(station, x, y);
  }

  /** Arrow keys move the cursor, Enter asks, + - 0 zoom. */
  key(event) {
    if (!this.view || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const here = this.view.toScreen(this.cursor ?? (this.point ? this.projection.forward(this.point) : this.view.centre));
    if (moves[event.key]) {
      const stride = STRIDE * (event.shiftKey ? 5 : 1);
      const x = Math.max(0, Math.min(this.view.width, here[0] + moves[event.key][0] * stride));
      const y = Math.max(0, Math.min(this.view.height, here[1] + moves[event.key][1] * stride));
      this.cursor = this.view.fromScreen(x, y);
      this.hover(this.stationAt(x, y), x, y);
      this.events.cursor(this.positionAt(x, y), this.stationAt(x, y));
      this.draw();
    } else if (event.key === "Enter") this.ask(...here);
    else if (event.key === "+" || event.key === "=") this.zoomBy(1.5, ...here);
    else if (event.key === "-") this.zoomBy(1 / 1.5, ...here);
    else if (event.key === "0") this.zoomBy(1e-6);
    else return;
    event.preventDefault();
  }
}
