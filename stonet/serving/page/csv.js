/* Sites from a CSV file of the reader's own. */

const LATITUDE = ["lat", "latitude", "y"];
const LONGITUDE = ["lon", "lng", "long", "longitude", "x"];
const NAME = ["name", "id", "site", "station", "station_id"];

/** The cells of a line; a quoted cell may hold the separator. */
function cells(line, separator) {
  const found = [];
  let cell = "";
  let quoted = false;
  for (let k = 0; k < line.length; k += 1) {
    const sign = line[k];
    if (quoted && sign === '"' && line[k + 1] === '"') {
      cell += '"';
      k += 1;
    } else if (sign === '"') quoted = !quoted;
    else if (sign === separator && !quoted) {
      found.push(cell.trim());
      cell = "";
    } else cell += sign;
  }
  return [...found, cell.trim()];
}

/** {names, positions} of a CSV text; an Error in words if it holds no sites.
 *  Positions are [latitude, longitude] on the sphere and [x, y] on a plane. */
export function readSites(text, kind) {
  const lines = text.replace(/^\uFEFF/, "").split(/\r?\n/).filter((line) => line.trim() !== "");
  if (!lines.length) throw new Error("The file is empty.");
  const separator = [";", "\t", ","].find((sign) => lines[0].includes(sign)) ?? ",";
  const head = cells(lines[0].toLowerCase(), separator);
  const column = (names) => head.findIndex((name) => names.includes(name));
  const [lat, lon, name] = [LATITUDE, LONGITUDE, NAME].map(column);
  const wanted = kind === "plane" ? ["x", "y"] : ["lat", "lon"];
  if (lat < 0 || lon < 0) {
    throw new Error(`Expected columns named ${wanted.join(" and ")} in the first line, got: ${head.join(", ")}.`);
  }
  const names = [];
  const positions = [];
  lines.slice(1).forEach((line, k) => {
    const row = cells(line, separator);
    const number = (at) => {
      const value = row[at] === "" || row[at] === undefined ? NaN
        : Number(separator === "," ? row[at] : row[at].replace(",", "."));
      if (Number.isFinite(value)) return value;
      throw new Error(`Line ${k + 2} has no number in column ${head[at]}: "${row[at] ?? ""}".`);
    };
    positions.push(kind === "plane" ? [number(lon), number(lat)] : [number(lat), number(lon)]);
    names.push((name >= 0 && row[name]) || `site ${k + 1}`);
  });
  if (!positions.length) throw new Error("The file has column names, but no sites below them.");
  return { names, positions };
}
