/* Numbers, units, positions and forecasts in words. */

const UNITS = { degC: "°C", degree_Celsius: "°C", Celsius: "°C", degF: "°F", 1: "", "": "", percent: "%" };

/** Units as people write them: "m s-1" becomes "m s⁻¹". */
export function unitWords(units) {
  const known = UNITS[units ?? ""];
  if (known !== undefined) return known;
  const raised = { "-": "⁻", 1: "¹", 2: "²", 3: "³", 4: "⁴" };
  return units.replace(/([A-Za-z])\^?\*{0,2}(-?[1-4])\b/g,
    (_, letter, power) => letter + [...power].map((sign) => raised[sign]).join(""));
}

/** Name and units of a channel, and how many decimals its values need. */
export class Quantity {
  constructor(channel, scale) {
    const long = channel.long_name || channel.name;
    const words = long.replaceAll("_", " ");
    this.name = /^[a-z]{3}/.test(words) ? words[0].toUpperCase() + words.slice(1) : words;
    this.units = unitWords(channel.units);
    const span = Math.abs(scale.high - scale.low) || 1;
    this.decimals = Math.max(0, Math.min(6, Math.ceil(2 - Math.log10(span))));
  }

  get title() {
    return this.units ? `${this.name} (${this.units})` : this.name;
  }

  number(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const text = value.toFixed(this.decimals);
    return (/^-0\.?0*$/.test(text) ? text.slice(1) : text).replace("-", "−");
  }

  /** The number with its units. */
  value(value) {
    const text = this.number(value);
    return text === "–" ? "no value" : this.units ? `${text}\u00a0${this.units}` : text;
  }
}

/** A position: "15.79° S, 47.93° W" or "0.500, 0.250". */
export function placeWords(position, kind, digits = kind === "sphere" ? 2 : 3) {
  if (kind === "plane") return position.map((part) => part.toFixed(digits)).join(", ");
  const part = (value, [plus, minus]) =>
    `${Math.abs(value).toFixed(digits)}° ${value < 0 ? minus : plus}`;
  return `${part(position[0], "NS")}, ${part(position[1], "EW")}`;
}

/** A distance: "12 km". */
export function distanceWords(distance, kind, units) {
  const number = distance >= 100 ? distance.toFixed(0) : String(Number(distance.toPrecision(2)));
  const unit = kind === "sphere" ? "km" : unitWords(units);
  return unit ? `${number} ${unit}` : number;
}

/** Support of a point in words. */
export function supportWords(support) {
  const level = typeof support === "string" ? support : ["observed", "interpolated", "extrapolated"][support];
  if (/^observed/.test(level)) return "Observed here: the forecast uses this station's own past.";
  if (/^interpol/.test(level)) return "Interpolated from stations near by.";
  return "Extrapolated: no station is near, so trust it less.";
}
