/* What the map draws, from the ground up: graticule, coastlines, stations, marks. */

import { roundTicks } from "./colour.js";

function segment(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

function circle(context, [x, y], radius, colour, width) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.stroke();
}

/** A line through points of the map's plane; it is torn where it leaps across the map. */
function trace({ context, view, projection }, points) {
  const leap = view.scale * (projection.globe ? 2 : 90);
  let last = null;
  context.beginPath();
  for (const point of points) {
    const [x, y] = view.toScreen(point);
    if (last === null || Math.abs(x - last) > leap) context.moveTo(x, y);
    else context.lineTo(x, y);
    last = x;
  }
  context.stroke();
}

export function drawGraticule(map, colours) {
  const { context, projection } = map;
  context.strokeStyle = colours.grid;
  context.fillStyle = colours.faint;
  context.font = `11px ${colours.font}`;
  context.lineWidth = 0.75;
  if (projection.globe) drawGlobe(map);
  else if (map.kind === "plane") drawAxes(map);
  else drawDegrees(map);
}

const STEPS = Array.from({ length: 61 }, (_, k) => k / 30 - 1);

/** The ground below all layers: the globe, where it is shown as a whole. */
export function drawGround({ context, view, projection }, colours) {
  context.clearRect(0, 0, view.width, view.height);
  if (!projection.globe) return;
  const side = (longitude) => STEPS.map((share) => projection.forward([90 * share, longitude]));
  context.beginPath();
  [...side(180), ...side(-180).reverse()].forEach((point) => context.lineTo(...view.toScreen(point)));
  context.fillStyle = colours.globe;
  context.fill();
}

function drawGlobe(map) {
  const line = (position) => trace(map, STEPS.map((share) => map.projection.forward(position(share))));
  for (let at = -180; at <= 180; at += 60) line((share) => [90 * share, at]);
  for (let at = -60; at <= 60; at += 30) line((share) => [at, 180 * share]);
}

function drawDegrees({ context, view, projection }) {
  const { squeeze, middle } = projection;
  const [left, bottom] = view.fromScreen(0, view.height);
  const [right, top] = view.fromScreen(view.width, 0);
  const ends = [left, right].map((u) => u / squeeze + middle);
  context.textAlign = "center";
  for (const longitude of roundTicks(...ends, view.width / 130)) {
    const [x] = view.toScreen([(longitude - middle) * squeeze, 0]);
    segment(context, x, 0, x, view.height);
    context.fillText(degrees(longitude, "EW"), x, view.height - 7);
  }
  context.textAlign = "left";
  for (const latitude of roundTicks(Math.max(-90, bottom), Math.min(90, top), view.height / 130)) {
    const [, y] = view.toScreen([0, latitude]);
    segment(context, 0, y, view.width, y);
    context.fillText(degrees(latitude, "NS"), 8, y - 4);
  }
}

/** Ticks and names of a plane's axes, around the visible part of the region. */
function drawAxes({ context, view, axes }) {
  const [left, bottom] = view.fromScreen(view.inset[0], view.height - view.inset[3]);
  const [right, top] = view.fromScreen(view.width - view.inset[2], view.inset[1]);
  const xs = [Math.max(left, view.box[0]), Math.min(right, view.box[2])];
  const ys = [Math.max(bottom, view.box[1]), Math.min(top, view.box[3])];
  const [x0, y0] = view.toScreen([xs[0], ys[0]]);
  const [x1, y1] = view.toScreen([xs[1], ys[1]]);
  context.textAlign = "center";
  for (const tick of roundTicks(...xs, (x1 - x0) / 110)) {
    const [x] = view.toScreen([tick, 0]);
    segment(context, x, y0, x, y1);
    context.fillText(plain(tick), x, y0 + 16);
  }
  const name = (axis) => axis.units && axis.units !== "1" ? `${axis.name} (${axis.units})` : axis.name;
  context.fillText(name(axes[0]), (x0 + x1) / 2, y0 + 33);
  context.textAlign = "right";
  for (const tick of roundTicks(...ys, (y0 - y1) / 110)) {
    const [, y] = view.toScreen([0, tick]);
    segment(context, x0, y, x1, y);
    context.fillText(plain(tick), x0 - 8, y + 4);
  }
  context.strokeRect(x0, y1, x1 - x0, y0 - y1);
  context.save();
  context.translate(x0 - 40, (y0 + y1) / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(name(axes[1]), 0, 0);
  context.restore();
}

export function drawLines(map, colours) {
  map.context.lineJoin = "round";
  for (const line of map.lines) {
    map.context.strokeStyle = line.border ? colours.border : colours.coast;
    map.context.lineWidth = line.border ? 0.7 : 1;
    trace(map, line.points);
  }
}

export function drawStations({ context, view, stations, values, scale, radius }, colours) {
  stations.forEach((station, index) => {
    const [x, y] = view.toScreen(station.uv);
    if (x < -9 || y < -9 || x > view.width + 9 || y > view.height + 9) return;
    const value = values[index];
    const known = value !== null && value !== undefined && scale;
    context.fillStyle = known ? scale.css(value) : "transparent";
    context.beginPath();
    context.arc(x, y, known ? radius : radius * 0.7, 0, 2 * Math.PI);
    context.fill();
    context.strokeStyle = known ? colours.ring : colours.faint;
    context.lineWidth = 1;
    context.stroke();
  });
}

/** The reader's sites, the hovered station, the chosen point with its value, the cursor of keys. */
export function drawMarks(map, colours) {
  const { context, view } = map;
  for (const uv of map.sites) {
    const [x, y] = view.toScreen(uv);
    context.strokeStyle = colours.paper;
    context.fillStyle = colours.accent;
    context.lineWidth = 2;
    context.beginPath();
    context.rect(x - 4, y - 4, 8, 8);
    context.fill();
    context.stroke();
  }
  if (map.hovered) circle(context, view.toScreen(map.hovered.uv), map.radius + 3, colours.ink, 1.5);
  if (map.point) drawPoint(map, view.toScreen(map.projection.forward(map.point)), colours);
  if (!map.cursor || document.activeElement !== map.canvas) return;
  const [x, y] = view.toScreen(map.cursor);
  for (const [width, colour] of [[5, colours.paper], [2, colours.ink]]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    segment(context, x - 14, y, x + 14, y);
    segment(context, x, y - 14, x, y + 14);
  }
}

function drawPoint({ context, view, label }, at, colours) {
  circle(context, at, 9, colours.paper, 6);
  circle(context, at, 9, colours.accent, 3);
  context.fillStyle = colours.accent;
  context.fillRect(at[0] - 1.5, at[1] - 1.5, 3, 3);
  if (!label) return;
  context.font = `600 13px ${colours.font}`;
  const width = context.measureText(label).width + 16;
  const x = at[0] + width + 18 > view.width ? at[0] - width - 16 : at[0] + 16;
  context.fillStyle = colours.accent;
  context.beginPath();
  context.roundRect(x, at[1] - 12, width, 24, 6);
  context.fill();
  context.fillStyle = colours.paper;
  context.textAlign = "left";
  context.fillText(label, x + 8, at[1] + 4.5);
}

const plain = (value) => String(Number(value.toPrecision(6))).replace("-", "−");

function degrees(value, [plus, minus]) {
  const turned = value > 180 ? value - 360 : value < -180 ? value + 360 : value;
  return `${plain(Math.abs(turned))}°${turned === 0 ? "" : turned < 0 ? minus : plus}`;
}
