/* The map: a canvas with the field, coastlines, stations, and a cursor for keys. */

import { roundTicks } from "./colour.js";
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
    Object.assign(this, { point: null, cursor: null, hovered: null, painted: null });
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

  setPoint(position) {
    this.point = position;
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
    this.view.resize(width, height, this.kind === "plane" ? [52, 20, 20, 44] : [14, 14, 14, 14]);
    this.painted = null;
    this.draw();
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
    context.clearRect(0, 0, view.width, view.height);
    if (this.grid && this.scale) {
      this.painted ??= paint(this.grid, this.scale, this.projection, view);
      context.imageSmoothingEnabled = true;
      context.globalAlpha = colours.dark ? 0.82 : 0.88;
      context.drawImage(this.painted, 0, 0, 2 * this.painted.width, 2 * this.painted.height);
      context.globalAlpha = 1;
    }
    this.drawGraticule(colours);
    this.drawLines(colours);
    this.drawStations(colours);
    this.drawMarks(colours);
  }

  drawGraticule(colours) {
    const { context, view } = this;
    const [left, bottom] = view.fromScreen(0, view.height);
    const [right, top] = view.fromScreen(view.width, 0);
    context.strokeStyle = colours.grid;
    context.fillStyle = colours.faint;
    context.font = `11px ${colours.font}`;
    context.lineWidth = 0.75;
    if (this.projection.globe) {
      for (let at = -180; at <= 180; at += 30) this.trace(curve(-90, 90, (k) => [k, at]), true);
      for (let at = -90; at <= 90; at += 30) this.trace(curve(-180, 180, (k) => [at, k]), true);
      return;
    }
    const squeeze = this.projection.squeeze ?? 1;
    const middle = this.projection.middle ?? 0;
    const box = view.box;
    const plane = this.kind === "plane";
    const limits = plane ? [Math.max(left, box[0]), Math.min(right, box[2]), Math.max(bottom, box[1]), Math.min(top, box[3])]
      : [left / squeeze + middle, right / squeeze + middle, Math.max(-90, bottom), Math.min(90, top)];
    for (const x of roundTicks(limits[0], limits[1], view.width / 130)) {
      const [at] = view.toScreen([(x - middle) * squeeze, 0]);
      this.segment(at, plane ? view.toScreen([0, limits[3]])[1] : 0, at, plane ? view.toScreen([0, limits[2]])[1] : view.height);
      context.textAlign = "center";
      context.fillText(plane ? trim(x) : degrees(x, "EW"), at, view.height - (plane ? 26 : 7));
    }
    for (const y of roundTicks(limits[2], limits[3], view.height / 130)) {
      const [, at] = view.toScreen([0, y]);
      this.segment(plane ? view.toScreen([limits[0], 0])[0] : 0, at, plane ? view.toScreen([limits[1], 0])[0] : view.width, at);
      context.textAlign = plane ? "right" : "left";
      context.fillText(plane ? trim(y) : degrees(y, "NS"), plane ? view.toScreen([limits[0], 0])[0] - 8 : 8, at + (plane ? 4 : -4));
    }
    if (plane) this.nameAxes(limits);
  }

  /** Names of a plane's axes, with units. */
  nameAxes(limits) {
    const { context, view } = this;
    const name = ({ name, units }) => units && units !== "1" ? `${name} (${units})` : name;
    const [x0, y0] = view.toScreen([limits[0], limits[2]]);
    const [x1, y1] = view.toScreen([limits[1], limits[3]]);
    context.strokeRect(x0, y1, x1 - x0, y0 - y1);
    context.textAlign = "center";
    context.fillText(name(this.axes[0]), (x0 + x1) / 2, view.height - 9);
    context.save();
    context.translate(Math.max(14, x0 - 40), (y0 + y1) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(name(this.axes[1]), 0, 0);
    context.restore();
  }

  segment(x0, y0, x1, y1) {
    this.context.beginPath();
    this.context.moveTo(x0, y0);
    this.context.lineTo(x1, y1);
    this.context.stroke();
  }

  trace(points, positions = false) {
    const { context, view } = this;
    context.beginPath();
    let last = null;
    for (const point of points) {
      const [x, y] = view.toScreen(positions ? this.projection.forward(point) : point);
      const torn = last === null || Math.abs(x - last) > view.scale * (this.projection.globe ? 2 : 90);
      if (torn) context.moveTo(x, y);
      else context.lineTo(x, y);
      last = x;
    }
    context.stroke();
  }

  drawLines(colours) {
    const { context } = this;
    context.lineJoin = "round";
    for (const line of this.lines) {
      context.strokeStyle = line.border ? colours.border : colours.coast;
      context.lineWidth = line.border ? 0.7 : 1.1;
      this.trace(line.points);
    }
  }

  /** Radius of a station on the screen: smaller where there are many. */
  get radius() {
    const room = Math.sqrt((this.view.width * this.view.height) / Math.max(1, this.stations.length));
    return Math.max(2.4, Math.min(6, room * 0.11)) * Math.min(1.6, this.view.zoom ** 0.3);
  }

  drawStations(colours) {
    const { context, view, radius } = this;
    this.stations.forEach((station, index) => {
      const [x, y] = view.toScreen(station.uv);
      if (x < -9 || y < -9 || x > view.width + 9 || y > view.height + 9) return;
      const value = this.values[index];
      const known = value !== null && value !== undefined && this.scale;
      context.beginPath();
      context.arc(x, y, known ? radius : radius * 0.7, 0, 2 * Math.PI);
      context.fillStyle = known ? this.scale.css(value) : "transparent";
      context.fill();
      context.strokeStyle = known ? colours.ring : colours.faint;
      context.lineWidth = 1;
      context.stroke();
    });
  }

  drawMarks(colours) {
    const { context, view, radius } = this;
    context.lineWidth = 2;
    for (const uv of this.sites) {
      const [x, y] = view.toScreen(uv);
      context.strokeStyle = colours.paper;
      context.fillStyle = colours.accent;
      context.beginPath();
      context.rect(x - 4, y - 4, 8, 8);
      context.fill();
      context.stroke();
    }
    if (this.hovered) this.circle(view.toScreen(this.hovered.uv), radius + 3, colours.ink, 1.5);
    if (this.point) {
      const at = view.toScreen(this.projection.forward(this.point));
      this.circle(at, 9, colours.paper, 6);
      this.circle(at, 9, colours.accent, 3);
      context.fillStyle = colours.accent;
      context.fillRect(at[0] - 1.5, at[1] - 1.5, 3, 3);
    }
    if (this.cursor && document.activeElement === this.canvas) {
      const [x, y] = view.toScreen(this.cursor);
      for (const [width, colour] of [[5, colours.paper], [2, colours.ink]]) {
        context.strokeStyle = colour;
        context.lineWidth = width;
        this.segment(x - 14, y, x + 14, y);
        this.segment(x, y - 14, x, y + 14);
      }
    }
  }

  circle([x, y], radius, colour, width) {
    const { context } = this;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.stroke();
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

const curve = (first, last, position) =>
  Array.from({ length: 61 }, (_, k) => position(first + ((last - first) * k) / 60));

const trim = (value) => String(Number(value.toPrecision(6))).replace("-", "−");

const degrees = (value, [plus, minus]) => {
  const round = Math.abs(value) > 180 ? 360 - Math.abs(value) : Math.abs(value);
  const sign = (value < 0) === (Math.abs(value) <= 180) ? minus : plus;
  return `${trim(round)}°${round === 0 ? "" : sign}`;
};
