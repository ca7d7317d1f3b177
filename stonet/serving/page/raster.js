/* The forecast field as an image: each pixel's value is interpolated, then coloured. */

import { TABLE } from "./colour.js";

const COARSE = 2; // pixels of the screen for one of the image
const FAR = 2.5; // in usual distances between stations, or in cells: the field begins to fade
const GONE = 5; // and has faded

/** Values on a regular grid, and how firmly each is shown. */
export class Grid {
  /** `rows`, `columns`: coordinates; `values`: [row][column], null if missing; `alpha`: as `strengths` gives it. */
  constructor(rows, columns, values, alpha) {
    const upward = rows[0] < rows.at(-1);
    const order = upward ? values : [...values].reverse();
    const sorted = upward ? rows : [...rows].reverse();
    this.rows = [sorted[0], sorted.at(-1)];
    this.columns = [columns[0], columns.at(-1)];
    this.shape = [rows.length, columns.length];
    this.values = new Float32Array(order.flatMap((row) => row.map((value) => value ?? NaN)));
    this.alpha = alpha;
  }
}

/** How firmly each value of a grid is shown, its rows in increasing order. */
export function strengths(rows, columns, strength) {
  const sorted = [...rows].sort((a, b) => a - b);
  const cell = ((sorted[1] - sorted[0]) * Math.PI) / 180;
  return new Float32Array(sorted.flatMap((row) => columns.map((column) => strength(row, column, cell))));
}

/** How firmly a field is shown at a place: 1 near stations, 0 far from all of them. */
export function strengthNear(stations, kind) {
  const positions = stations.map(({ position }) => position);
  if (kind === "plane" || positions.length < 4) return () => 1;
  const points = positions.map(([lat, lon]) => unit(lat, lon));
  const nearest = (point, self) => points.reduce((best, other, k) => k === self ? best
    : Math.max(best, point[0] * other[0] + point[1] * other[1] + point[2] * other[2]), -1);
  const some = points.map((_, k) => k).filter((k) => k % Math.ceil(points.length / 200) === 0);
  const spacing = some.map((k) => angle(nearest(points[k], k))).sort((a, b) => a - b)[some.length >> 1];
  return (lat, lon, cell) => {
    const away = angle(nearest(unit(lat, lon), -1)) / Math.max(spacing, 0.6 * cell, 1e-6);
    return Math.max(0, Math.min(1, (GONE - away) / (GONE - FAR)));
  };
}

const angle = (cosine) => Math.acos(Math.max(-1, Math.min(1, cosine)));

function unit(lat, lon) {
  const [a, b] = [(lat * Math.PI) / 180, (lon * Math.PI) / 180];
  return [Math.cos(a) * Math.cos(b), Math.cos(a) * Math.sin(b), Math.sin(a)];
}

/** Where along an axis of `count` cells a coordinate lies; -1 outside of the outermost cells. */
function along(value, [first, last], count) {
  const at = ((value - first) / (last - first)) * (count - 1);
  return at < -0.5 || at > count - 0.5 ? -1 : Math.max(0, Math.min(count - 1, at));
}

/** An image of the grid for the whole view. */
export function paint(grid, scale, projection, view) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(view.width / COARSE);
  canvas.height = Math.ceil(view.height / COARSE);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const [rows, columns] = grid.shape;
  const factor = 255 / (scale.high - scale.low);
  const eastward = Array.from({ length: canvas.width }, (_, x) => view.fromScreen((x + 0.5) * COARSE, 0)[0]);
  for (let y = 0; y < canvas.height; y += 1) {
    const v = view.fromScreen(0, (y + 0.5) * COARSE)[1];
    if (Math.abs(v) > -projection.lowest) continue;
    const { across, origin, rate } = projection.row(v);
    const i = along(across, grid.rows, rows);
    if (i < 0) continue;
    const low = Math.min(Math.floor(i), rows - 2);
    const up = i - low;
    for (let x = 0; x < canvas.width; x += 1) {
      const swing = eastward[x] * rate;
      const j = projection.globe && Math.abs(swing) > 180 ? -1 : along(origin + swing, grid.columns, columns);
      if (j < 0) continue;
      const left = Math.min(Math.floor(j), columns - 2);
      const right = j - left;
      const at = low * columns + left;
      const mix = (numbers) => (1 - up) * ((1 - right) * numbers[at] + right * numbers[at + 1])
        + up * ((1 - right) * numbers[at + columns] + right * numbers[at + columns + 1]);
      const value = mix(grid.values);
      if (Number.isNaN(value)) continue;
      const colour = TABLE[Math.max(0, Math.min(255, Math.round((value - scale.low) * factor)))];
      const pixel = 4 * (y * canvas.width + x);
      image.data[pixel] = colour[0];
      image.data[pixel + 1] = colour[1];
      image.data[pixel + 2] = colour[2];
      image.data[pixel + 3] = 255 * mix(grid.alpha);
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
