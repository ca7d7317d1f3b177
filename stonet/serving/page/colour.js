/* Colours of values: viridis, which is in order for every kind of colour vision and in grey. */

const STOPS = [
  "440154", "470d60", "48186a", "482374", "472d7b", "453681", "424086", "3f4989", "3b528b", "375a8d", "33638d",
  "2f6a8e", "2c728e", "297a8e", "26818e", "23898e", "21908c", "1f988b", "1f9f88", "21a685", "28ae80", "31b57b",
  "3ebc74", "4cc26c", "5dc963", "6ece58", "82d34c", "96d83f", "abdc32", "c0df24", "d5e21a", "eae51a", "fde725",
].map((stop) => [0, 2, 4].map((at) => parseInt(stop.slice(at, at + 2), 16)));

/** 256 colours as [r, g, b]. */
export const TABLE = Array.from({ length: 256 }, (_, index) => {
  const at = (index / 255) * (STOPS.length - 1);
  const low = Math.min(Math.floor(at), STOPS.length - 2);
  return STOPS[low].map((part, k) => Math.round(part + (at - low) * (STOPS[low + 1][k] - part)));
});

/** From values to colours, between two limits. */
export class Scale {
  constructor(low, high) {
    this.low = low;
    this.high = high > low ? high : low + 1;
  }

  /** [r, g, b] of a value. */
  rgb(value) {
    const share = (value - this.low) / (this.high - this.low);
    return TABLE[Math.max(0, Math.min(255, Math.round(255 * share)))];
  }

  css(value) {
    return `rgb(${this.rgb(value).join(" ")})`;
  }

  /** Round limits around nearly all of the values: one in 200 is left out at each end. */
  static of(values) {
    const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
    if (!sorted.length) return new Scale(0, 1);
    const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
    const [low, high] = [at(0.005), at(0.995)];
    const unit = 10 ** Math.floor(Math.log10((high - low) / 2 || 1)) / 2;
    return new Scale(Math.floor(low / unit) * unit, Math.ceil(high / unit) * unit);
  }
}

/** Round numbers between two limits, about `count` of them. */
export function roundTicks(low, high, count = 5) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const width = [1, 2, 2.5, 5, 10].map((lead) => lead * power).find((width) => width >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / width - 1e-9); k * width <= high + width * 1e-9; k += 1) {
    found.push(Number((k * width).toPrecision(12)));
  }
  return found;
}
