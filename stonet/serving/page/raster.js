/* The forecast field as an image: each pixel's value is interpolated, then coloured. */

import { TABLE } from "./colour.js";

/** Values on a regular grid, row by row. */
export class Grid {
  /** `rows`, `columns`: coordinates in increasing order; `values`: [row][column], null if missing. */
  constructor(rows, columns, values) {
    this.rows = [rows[0], rows.at(-1)];
    this.columns = [columns[0], columns.at(-1)];
    this.shape = [rows.length, columns.length];
    this.values = new Float32Array(rows.length * columns.length);
    values.forEach((row, i) => row.forEach((value, j) => {
      this.values[i * columns.length + j] = value ?? NaN;
    }));
  }
}

/** Where along an axis of `count` values from first to last a coordinate lies; -1 outside. */
const along = (value, [first, last], count) => {
  const at = ((value - first) / (last - first)) * (count - 1);
  return at < -0.5 || at > count - 0.5 ? -1 : Math.max(0, Math.min(count - 1, at));
};

/** An image of the grid for the whole view, at one pixel in `coarse`. */
export function paint(grid, scale, projection, view, coarse = 2) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(view.width / coarse);
  canvas.height = Math.ceil(view.height / coarse);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const [rows, columns] = grid.shape;
  const factor = 255 / (scale.high - scale.low);
  const { values } = grid;
  for (let y = 0; y < canvas.height; y += 1) {
    const v = view.fromScreen(0, (y + 0.5) * coarse)[1];
    if (Math.abs(v) > 90 && projection.middle !== undefined) continue;
    const { across, origin, rate } = projection.row(v);
    const i = along(across, grid.rows, rows);
    if (i < 0 || !Number.isFinite(rate)) continue;
    const low = Math.min(Math.floor(i), rows - 2) * columns;
    const share = i - low / columns;
    for (let x = 0; x < canvas.width; x += 1) {
      const u = view.fromScreen((x + 0.5) * coarse, 0)[0];
      const swing = u * rate;
      if (projection.globe && Math.abs(swing) > 180) continue;
      const j = along(origin + swing, grid.columns, columns);
      if (j < 0) continue;
      const left = Math.min(Math.floor(j), columns - 2);
      const part = j - left;
      const at = low + left;
      const value = (1 - share) * ((1 - part) * values[at] + part * values[at + 1])
        + share * ((1 - part) * values[at + columns] + part * values[at + columns + 1]);
      if (Number.isNaN(value)) continue;
      const colour = TABLE[Math.max(0, Math.min(255, Math.round((value - scale.low) * factor)))];
      const pixel = 4 * (y * canvas.width + x);
      [image.data[pixel], image.data[pixel + 1], image.data[pixel + 2]] = colour;
      image.data[pixel + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
