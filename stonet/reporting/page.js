// The report's script: values beside the pointer, sorted tables, stations and channels to pick,
// and the theme. It reads the JSON in #values and changes this page only; all text is set as text.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("values").textContent);
  const tip = document.getElementById("tip");
  const SVG = "http://www.w3.org/2000/svg";
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const made = (name, attributes, parent) => {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    return parent.appendChild(node);
  };
  const shown = (value) => value === null || !Number.isFinite(value) ? "\u2013" : String(+value.toPrecision(4));

  // ---- Values beside the pointer ----
  const nearest = (places, x) => {
    let best = 0;
    places.forEach((place, i) => {
      if (Math.abs(place - x) < Math.abs(places[best] - x)) best = i;
    });
    return best;
  };
  const nearestPoint = (map, x, y) => {
    let best = -1, least = 144; // squared pixels
    map.x.forEach((place, i) => {
      const distance = (place - x) ** 2 + (map.y[i] - y) ** 2;
      if (distance < least) { best = i; least = distance; }
    });
    return best;
  };
  const locate = (svg, event) => {
    const matrix = svg.getScreenCTM();
    return matrix ? new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse()) : null;
  };
  const showTip = (event, title, rows) => {
    tip.replaceChildren();
    tip.appendChild(document.createElement("b")).textContent = title;
    for (const [name, value] of rows) {
      const line = tip.appendChild(document.createElement("span"));
      line.appendChild(document.createElement("span")).textContent = name;
      line.appendChild(document.createElement("span")).textContent = value;
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
    const top = event.clientY + 14 + box.height > innerHeight ? event.clientY - 14 - box.height : event.clientY + 14;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, top) + "px";
  };
  const watch = (plot, hover) => {
    const svg = plot.querySelector("svg");
    const isMap = Boolean(hover.values), map = hover.map || data.map;
    let mark = null;
    const clear = () => { tip.hidden = true; if (mark) mark.remove(); mark = null; };
    const move = (event) => {
      const at = locate(svg, event);
      clear();
      if (!at) return;
      if (isMap) {
        const i = nearestPoint(map, at.x, at.y);
        if (i < 0) return;
        mark = made("circle", { cx: map.x[i], cy: map.y[i], r: 7, class: "spot" }, svg);
        showTip(event, map.names[i], [[hover.label || "value", shown(hover.values[i])]]);
      } else {
        const i = nearest(hover.x, at.x);
        mark = made("line", { x1: hover.x[i], x2: hover.x[i], y1: hover.top, y2: hover.bottom, class: "cursor" }, svg);
        const rows = hover.lines.filter((line) => line[2][i] !== null);
        showTip(event, hover.labels[i], rows.map((line) => [line[0], shown(line[2][i])]));
      }
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerdown", move);
    svg.addEventListener("pointerleave", clear);
    if (isMap && map === data.map) svg.addEventListener("click", (event) => {
      const at = locate(svg, event);
      const i = at ? nearestPoint(map, at.x, at.y) : -1;
      const station = i < 0 ? -1 : data.seriesOf[data.map.index[i]];
      if (station >= 0) pick(station, plot.closest("#stations") === null);
    });
  };
  for (const name in data.hover) watch(document.getElementById(name), data.hover[name]);
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // ---- Sorted tables ----
  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    return cell.textContent === "\u2013" ? Infinity : cell.textContent;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  for (const table of all("table.sortable")) {
    all("th", table).forEach((head, column) => head.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = table.tBodies[0];
      const rows = [...body.rows].sort((a, b) => compare(key(a, column), key(b, column)) * (up ? 1 : -1));
      body.append(...rows);
    }));
  }

  // ---- The series of a station ----
  const decoded = (text) => {
    if (!text) return null;
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new DataView(bytes.buffer);
  };
  const series = data.series.map((one) => ({
    ...one,
    views: { observed: decoded(one.observed), forecast: decoded(one.forecast), low: decoded(one.low), high: decoded(one.high) },
  }));
  const values = (one, kind, station) => one.times.map((_, i) => {
    const view = one.views[kind];
    const whole = view ? view.getInt16(2 * (station * one.times.length + i), true) : -32768;
    return whole === -32768 ? NaN : one.low_value + (whole + 30000) * one.step;
  });
  const roundSteps = (low, high, count) => {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((size) => size >= raw) || raw;
    const found = [];
    for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) found.push(+v.toPrecision(12));
    return found;
  };
  const DAY = 86400000;
  const dateLabel = (time, span) => {
    const text = new Date(time).toISOString();
    return span > 3 * DAY ? text.slice(5, 10) : text.slice(5, 16).replace("T", " ");
  };
  const timeTicks = (one, low, high, count) => {
    if (!one.calendar) return roundSteps(low / 1e9, high / 1e9, count).map((v) => [v * 1e9, String(v)]);
    const sizes = [1 / 24, 3 / 24, 6 / 24, 12 / 24, 1, 2, 5, 7, 14, 30].map((days) => days * DAY);
    const step = sizes.find((size) => (high - low) / size <= count) || (high - low) / count;
    const found = [];
    for (let v = Math.ceil(low / step) * step; v <= high; v += step) found.push([v, dateLabel(v, step * count)]);
    return found;
  };
  const draw = (plot, one, station) => {
    const narrow = plot.clientWidth < 560;
    const W = narrow ? 380 : 860, H = 240, L = 56, R = 16, T = 10, B = 42;
    const columns = Object.fromEntries(["observed", "forecast", "low", "high"].map((kind) => [kind, values(one, kind, station)]));
    const finite = Object.values(columns).flat().filter(Number.isFinite);
    plot.replaceChildren();
    const svg = made("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Observed values and forecasts" }, plot);
    if (!finite.length) {
      made("text", { x: W / 2, y: H / 2, "text-anchor": "middle", class: "label" }, svg).textContent = "nothing observed or forecast here";
      return;
    }
    const t0 = one.times[0], t1 = one.times[one.times.length - 1];
    let low = Math.min(...finite), high = Math.max(...finite);
    const margin = 0.06 * (high - low) || 0.5;
    low -= margin; high += margin;
    const x = (time) => L + (time - t0) / (t1 - t0 || 1) * (W - L - R);
    const y = (value) => H - B - (value - low) / (high - low) * (H - B - T);
    for (const tick of roundSteps(low, high, 5)) {
      made("line", { x1: L, x2: W - R, y1: y(tick), y2: y(tick), class: "grid" }, svg);
      made("text", { x: L - 6, y: y(tick) + 4, "text-anchor": "end", class: "tick" }, svg).textContent = String(tick);
    }
    for (const [tick, label] of timeTicks(one, t0, t1, narrow ? 4 : 8)) {
      made("line", { x1: x(tick), x2: x(tick), y1: H - B, y2: H - B + 4, class: "axis" }, svg);
      made("text", { x: x(tick), y: H - B + 17, "text-anchor": "middle", class: "tick" }, svg).textContent = label;
    }
    made("line", { x1: L, x2: W - R, y1: H - B, y2: H - B, class: "axis" }, svg);
    const labelY = one.unit === "" ? one.channel : `${one.channel} (${one.unit})`;
    const middle = (T + H - B) / 2;
    made("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})`, class: "label" }, svg).textContent = labelY;
    made("text", { x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle", class: "label" }, svg).textContent = one.calendar ? "time (UTC)" : "time (s)";
    const pieces = (column) => {
      const found = [[]];
      column.forEach((value, i) => {
        const broken = !Number.isFinite(value) || (i && one.times[i] - one.times[i - 1] > one.gap);
        if (broken && found[found.length - 1].length) found.push([]);
        if (Number.isFinite(value)) found[found.length - 1].push(i);
      });
      return found.filter((piece) => piece.length);
    };
    const line = (column, indices) => indices.map((i) => `${x(one.times[i]).toFixed(1)} ${y(column[i]).toFixed(1)}`);
    for (const piece of pieces(columns.low)) {
      const outline = [...line(columns.low, piece), ...line(columns.high, piece).reverse()];
      made("path", { d: `M${outline.join("L")}Z`, class: "band" }, svg);
    }
    for (const [kind, style] of [["observed", "line ink"], ["forecast", "line c0 own"]]) {
      const d = pieces(columns[kind]).map((piece) => `M${line(columns[kind], piece).join("L")}${piece.length === 1 ? "h0" : ""}`).join("");
      made("path", { d, class: style }, svg);
    }
    const labels = one.times.map((time) => one.calendar ? new Date(time).toISOString().slice(0, 16).replace("T", " ") + " UTC" : `${+(time / 1e9).toPrecision(6)} s`);
    const rows = [["observed", "observed"], ["forecast", "forecast"], ["interval from", "low"], ["to", "high"]];
    watch(plot, {
      x: one.times.map(x), labels, top: T, bottom: H - B,
      lines: rows.map(([name, kind]) => [name, "", columns[kind].map((v) => Number.isFinite(v) ? v : null)]),
    });
  };
  const pickers = all(".picker");
  const pick = (station, jump) => {
    for (const picker of pickers) {
      const select = picker.querySelector("select");
      if (station < select.options.length) select.value = String(station);
      picker.querySelector(".picked-name").textContent = select.selectedOptions[0].textContent;
      draw(picker.querySelector(".plot"), series[Number(picker.dataset.series)], Number(select.value));
      if (jump && picker.offsetParent) picker.scrollIntoView({ behavior: "smooth", block: "center" });
    }
    all("tr[data-station]").forEach((row) => row.classList.toggle("picked", row.dataset.station === String(station)));
  };
  for (const picker of pickers) {
    picker.hidden = false;
    const select = picker.querySelector("select");
    select.addEventListener("change", () => pick(Number(select.value), false));
  }
  for (const row of all("tr[data-station]")) row.addEventListener("click", () => pick(Number(row.dataset.station), true));

  // ---- Channels and theme ----
  const channels = document.getElementById("channels");
  const showChannel = (chosen) => all("[data-channel]").forEach((block) => {
    if (block.closest("table") === null) block.hidden = block.dataset.channel !== chosen;
  });
  if (channels) {
    channels.hidden = false;
    const select = channels.querySelector("select");
    select.addEventListener("change", () => { showChannel(select.value); redraw(); });
    showChannel(select.value);
  }
  const theme = document.getElementById("theme");
  const isDark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  theme.hidden = false;
  theme.textContent = isDark() ? "Light" : "Dark";
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    theme.textContent = isDark() ? "Light" : "Dark";
  });
  const redraw = () => { if (pickers.length) pick(Number(pickers[0].querySelector("select").value), false); };
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  redraw();
})();
