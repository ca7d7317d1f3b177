/* Times. Inside the page a time is a number of seconds: since 1970 UTC, or since zero where the data
   have no calendar. The API writes dates as ISO 8601 and other times as seconds ("0.175 s"). */

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const two = (number) => String(number).padStart(2, "0");

/** Seconds of a time as the API writes it. */
export function seconds(time) {
  if (typeof time === "number") return time;
  const plain = /^\s*([-+\d.e]+)\s*s?\s*$/.exec(time);
  if (plain) return Number(plain[1]);
  return Date.parse(/Z|[+-]\d\d:\d\d$/.test(time) ? time : `${time}Z`) / 1000;
}

/** Whether a time as the API writes it is a date. */
export const isDate = (time) => typeof time === "string" && /^\d{4}-\d\d/.test(time);

/** A number of seconds without exponent and without trailing zeros. */
const decimal = (value) => String(Number(value.toFixed(9)).toFixed(9)).replace(/\.?0+$/, "");

/** A lead as the API reads it: "+21600s". */
export const leadQuery = (lead) => `+${decimal(lead)}s`;

/** A lead in words: "+6 h", "+1 h 30 min", "+4 ms". */
export function leadWords(lead) {
  const size = Math.abs(lead);
  const sign = lead > 0 ? "+" : "−";
  if (size === 0) return "now";
  if (size >= 345600 && size % 86400 === 0) return `${sign}${size / 86400} d`;
  if (size >= 60 && size % 60 === 0) {
    const [hours, minutes] = [Math.floor(size / 3600), (size % 3600) / 60];
    return sign + [hours && `${hours} h`, minutes && `${minutes} min`].filter(Boolean).join(" ");
  }
  const [unit, name] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]].find(([unit]) => size >= unit) ?? [1e-9, "ns"];
  return `${sign}${Number((size / unit).toPrecision(4))} ${name}`;
}

/** A length of time in words: "1 h", "24 h", "4 ms". */
export const spanWords = (length) => leadWords(length).slice(1);

/** Names for the times of one data set. */
export class Clock {
  /** `sample`: any time as the API writes it; `step`: seconds between frames. */
  constructor(sample, step) {
    this.calendar = isDate(sample);
    this.step = step;
  }

  /** The time as the API reads it. */
  query(time) {
    if (!this.calendar) return `${decimal(time)} s`;
    return new Date(Math.round(time * 1000)).toISOString().replace(/\.000Z$/, "Z");
  }

  /** "Tue 24 Sep 2024, 15:00 UTC", or "0.175 s". */
  long(time) {
    if (!this.calendar) return this.plain(time);
    const date = new Date(Math.round(time * 1000));
    return `${DAYS[date.getUTCDay()]} ${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} `
      + `${date.getUTCFullYear()}, ${this.hour(date)} UTC`;
  }

  /** "Tue 15:00", or "175 ms". */
  short(time) {
    if (!this.calendar) return this.plain(time);
    const date = new Date(Math.round(time * 1000));
    return `${DAYS[date.getUTCDay()]} ${this.hour(date)}`;
  }

  hour(date) {
    const whole = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;
    return this.step % 60 ? `${whole}:${two(date.getUTCSeconds())}` : whole;
  }

  plain(time) {
    return this.step < 1 ? `${Number((time * 1000).toFixed(4))} ms` : `${decimal(time)} s`;
  }

  /** Ticks of a time axis: [{time, label, major}], at most about `count`. */
  ticks(first, last, count) {
    const widths = this.calendar
      ? [60, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000]
      : [...Array(12)].flatMap((_, power) => [1, 2, 5].map((lead) => lead * 10 ** (power - 6)));
    const width = widths.find((width) => (last - first) / width <= count) ?? widths.at(-1);
    const found = [];
    for (let k = Math.ceil(first / width - 1e-6); k * width <= last + width * 1e-6; k += 1) {
      const time = k * width;
      const midnight = this.calendar && Math.round(time) % 86400 === 0;
      const date = new Date(time * 1000);
      const label = !this.calendar ? this.plain(time)
        : midnight ? `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}` : this.hour(date);
      found.push({ time, label, major: midnight });
    }
    return found;
  }
}
