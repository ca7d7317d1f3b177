/* From positions to the plane of the map and back. A position is [latitude, longitude] in degrees on
   the sphere and [x, y] on a plane. All three projections keep a parallel straight, so that a row of
   the map has one latitude: `row(v)` gives it, and the longitudes per unit along it. */

const RADIANS = Math.PI / 180;

/** Coordinates of a plane as they are. */
export class Plane {
  constructor(region) {
    this.box = [region.x[0], region.y[0], region.x[1], region.y[1]];
  }

  forward([x, y]) {
    return [x, y];
  }

  inverse(u, v) {
    return [u, v];
  }

  row(v) {
    return { across: v, origin: 0, rate: 1 };
  }
}

/** Equirectangular, true to shape in the middle of the region. */
export class Equirectangular {
  constructor(region) {
    const [south, north] = region.lat;
    const [west, east] = region.lon;
    this.middle = (west + east) / 2;
    this.lowest = -90;
    this.squeeze = Math.max(0.2, Math.cos(((south + north) / 2) * RADIANS));
    this.box = [...this.forward([south, west]), ...this.forward([north, east])];
  }

  forward([latitude, longitude]) {
    return [turn(longitude - this.middle) * this.squeeze, latitude];
  }

  inverse(u, v) {
    const { across, origin, rate } = this.row(v);
    return Math.abs(v) > 90 ? null : [across, turn(origin + u * rate)];
  }

  row(v) {
    return { across: v, origin: this.middle, rate: 1 / this.squeeze };
  }
}

/** Equal Earth (Savric, Patterson and Jenny 2018), for the globe. */
export class EqualEarth {
  constructor() {
    this.globe = true;
    const [right, top] = [this.forward([0, 179.999])[0], this.forward([90, 0])[1]];
    this.box = [-right, -top, right, top];
    this.lowest = -top;
  }

  forward([latitude, longitude]) {
    const theta = Math.asin((Math.sqrt(3) / 2) * Math.sin(latitude * RADIANS));
    const east = turn(longitude) * RADIANS;
    return [(2 * Math.sqrt(3) * east * Math.cos(theta)) / (3 * slope(theta)), height(theta)];
  }

  inverse(u, v) {
    if (Math.abs(v) > this.box[3]) return null;
    const { across, rate } = this.row(v);
    return Math.abs(u * rate) > 180 ? null : [across, u * rate];
  }

  row(v) {
    let theta = Math.max(-1.05, Math.min(1.05, v));
    for (let pass = 0; pass < 8; pass += 1) theta -= (height(theta) - v) / slope(theta);
    const sine = Math.max(-1, Math.min(1, (2 * Math.sin(theta)) / Math.sqrt(3)));
    const rate = (3 * slope(theta)) / (2 * Math.sqrt(3) * Math.cos(theta)) / RADIANS;
    return { across: Math.asin(sine) / RADIANS, origin: 0, rate };
  }
}

const COEFFICIENTS = [1.340264, -0.081106, 0.000893, 0.003796];
const POWERS = [1, 3, 7, 9];

function height(theta) {
  return COEFFICIENTS.reduce((sum, part, k) => sum + part * theta ** POWERS[k], 0);
}

function slope(theta) {
  return COEFFICIENTS.reduce((sum, part, k) => sum + part * POWERS[k] * theta ** (POWERS[k] - 1), 0);
}

/** A longitude between -180 and 180. */
export function turn(longitude) {
  return longitude >= -180 && longitude <= 180 ? longitude
    : ((((longitude + 180) % 360) + 360) % 360) - 180;
}

/** The projection that suits a region. */
export function projectionFor(kind, region) {
  if (kind === "plane") return new Plane(region);
  return region.lon[1] - region.lon[0] > 150 ? new EqualEarth() : new Equirectangular(region);
}

/** Where the plane of the map lies on the screen: a scale and a centre. */
export class View {
  constructor(box) {
    this.box = box;
    this.centre = [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2];
    this.zoom = 1;
    this.resize(1, 1);
  }

  /** `inset`: pixels around the region, as [left, top, right, bottom]. */
  resize(width, height, inset = [0, 0, 0, 0]) {
    Object.assign(this, { width, height, inset });
    const [wide, high] = [this.box[2] - this.box[0], this.box[3] - this.box[1]];
    const free = [width - inset[0] - inset[2], height - inset[1] - inset[3]];
    this.base = Math.max(1e-9, Math.min(free[0] / wide, free[1] / high));
    this.middle = [inset[0] + free[0] / 2, inset[1] + free[1] / 2];
  }

  get scale() {
    return this.base * this.zoom;
  }

  toScreen([u, v]) {
    return [this.middle[0] + (u - this.centre[0]) * this.scale,
      this.middle[1] - (v - this.centre[1]) * this.scale];
  }

  fromScreen(x, y) {
    return [this.centre[0] + (x - this.middle[0]) / this.scale,
      this.centre[1] - (y - this.middle[1]) / this.scale];
  }

  /** Zoom by a factor; what is at (x, y) stays there. */
  zoomAt(factor, x = this.middle[0], y = this.middle[1]) {
    const before = this.fromScreen(x, y);
    this.zoom = Math.max(1, Math.min(40, this.zoom * factor));
    const after = this.fromScreen(x, y);
    this.move(before[0] - after[0], before[1] - after[1]);
  }

  /** Move the centre, which stays in the region. */
  move(u, v) {
    const [low, high] = [[this.box[0], this.box[1]], [this.box[2], this.box[3]]];
    this.centre = this.centre.map((old, k) => this.zoom === 1 ? (low[k] + high[k]) / 2
      : Math.max(low[k], Math.min(high[k], old + [u, v][k])));
  }
}
