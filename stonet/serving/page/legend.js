/* The legend of the colours, with round numbers. */

import { TABLE, roundTicks } from "./colour.js";

const part = (id) => document.getElementById(id);

export function showLegend(quantity, scale) {
  const bar = part("legend-bar").getContext("2d");
  TABLE.forEach((colour, k) => {
    bar.fillStyle = `rgb(${colour.join(" ")})`;
    bar.fillRect(k, 0, 1, 1);
  });
  part("legend").hidden = false;
  part("legend-title").textContent = quantity.title;
  part("legend-ticks").replaceChildren(...roundTicks(scale.low, scale.high, 4).map((tick) => {
    const mark = document.createElement("span");
    mark.textContent = String(tick).replace("-", "−");
    const share = (tick - scale.low) / (scale.high - scale.low);
    mark.style.left = `${100 * share}%`;
    mark.className = share < 0.08 ? "first" : share > 0.92 ? "last" : "";
    return mark;
  }));
  part("legend").setAttribute("aria-label", `Colours: ${quantity.title}, from dark violet `
    + `(${quantity.number(scale.low)}) to yellow (${quantity.number(scale.high)})`);
}
