"""Makes `stonet/plotting/natural_earth.npz`, coastlines and borders of maps, from Natural Earth.

The source is the npm package `world-atlas`, which holds Natural Earth's countries as TopoJSON. An
arc of a topology that bounds land is coast; every other arc lies between two countries. A file
of another content than the recorded one is refused. Run, with npm and a network:

    python scripts/natural_earth.py

or, on a package that is there already, `python scripts/natural_earth.py world-atlas-2.0.2.tgz`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np

PACKAGE = "world-atlas@2.0.2"
SHA256 = "032e7765f2ce00edaeafec23ff22bc3b77e42987c257da944cc585b452c05b97"
MEMBER = "package/countries-10m.json"
OBJECTS = ("countries", "land")
TARGET = Path(__file__).parents[1] / "stonet" / "plotting" / "natural_earth.npz"
UNITS_PER_DEGREE = 250  # 0.004 degrees, near the source's own 0.0036 and 0.0017
TOLERANCES = (0.25, 0.06, 0.012)  # degrees of a great circle; of the levels 0, 1, 2


def main() -> None:
    """Read the package, simplify its lines, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", nargs="?", type=Path, help="world-atlas-2.0.2.tgz")
    parser.add_argument("-o", "--output", type=Path, default=TARGET)
    arguments = parser.parse_args()
    coast, border = coasts_and_borders(topology(arguments.package))
    parts = {**packed("coast", coast), **packed("border", border)}
    np.savez_compressed(arguments.output, allow_pickle=False, **parts)
    for kind in ("coast", "border"):
        levels = parts[f"{kind}_levels"]
        counts = [int((levels <= level).sum()) for level in range(len(TOLERANCES))]
        print(f"{kind}: {parts[f'{kind}_sizes'].size} lines, points by level {counts}")
    print(f"{arguments.output}: {arguments.output.stat().st_size} bytes")


def topology(package: Path | None) -> dict:
    """The TopoJSON of the package, downloaded by npm if it is not given."""
    if package is None:
        with tempfile.TemporaryDirectory() as folder:
            command = ["npm", "pack", PACKAGE, "--silent", "--pack-destination", folder]
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
            content = next(Path(folder).glob("*.tgz")).read_bytes()
    else:
        content = package.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise SystemExit(f"Expected {PACKAGE} with sha256 {SHA256}, got {found}.")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        member = archive.extractfile(MEMBER)
        assert member is not None
        return json.load(member)


def coasts_and_borders(topology: dict) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Lines of longitude and latitude: the arcs around land, and those between countries."""
    arcs = decoded_arcs(topology)
    used, land = ({abs_arc(a) for a in flat(topology["objects"][name])} for name in OBJECTS)
    coast = [line for index in sorted(land) for line in cut(arcs[index])]
    border = [line for index in sorted(used - land) for line in cut(arcs[index])]
    return coast, border


def decoded_arcs(topology: dict) -> list[np.ndarray]:
    """The arcs in degrees: running sums of quantised differences, scaled."""
    scale, origin = (np.array(topology["transform"][key]) for key in ("scale", "translate"))
    return [np.cumsum(np.array(arc), axis=0) * scale + origin for arc in topology["arcs"]]


def flat(value: object) -> list[int]:
    """All arc numbers of a TopoJSON object, whatever its nesting."""
    if isinstance(value, int):
        return [value]
    if isinstance(value, dict):
        value = value.get("geometries", value.get("arcs", []))
    return [number for part in value for number in flat(part)]


def abs_arc(number: int) -> int:
    """The arc that a number means: ~i is arc i backwards."""
    return number if number >= 0 else ~number


def cut(line: np.ndarray) -> list[np.ndarray]:
    """The line without its artificial parts along the date line and the south pole.

    A step of more than 180 degrees goes around the other way: the line ends at the date line and
    goes on beyond it.
    """
    lon, lat = line.T
    step = np.diff(lon)
    wraps = np.abs(step) > 180.0
    on_edge = np.abs(lon) > 179.999
    along_edge = on_edge[:-1] & on_edge[1:]
    at_pole = (lat[:-1] < -89.9) | (lat[1:] < -89.9)
    pieces, begin, prefix = [], 0, line[:0]
    for index in np.flatnonzero(wraps | along_edge | at_pole):
        ending = [prefix, line[begin : index + 1]]
        prefix = line[:0]
        if wraps[index] and not along_edge[index] and not at_pole[index]:
            side = 180.0 if lon[index] > 0 else -180.0
            width = step[index] + 2.0 * side  # of the step across the date line
            share = (side - lon[index]) / width if width else 0.0
            crossing = lat[index] + share * (lat[index + 1] - lat[index])
            ending.append(np.array([[side, crossing]]))
            prefix = np.array([[-side, crossing]])
        pieces.append(np.concatenate(ending))
        begin = index + 1
    pieces.append(np.concatenate([prefix, line[begin:]]))
    return [piece for piece in pieces if len(piece) > 1]


def levels_of(line: np.ndarray) -> np.ndarray:
    """The coarsest level that keeps each point; len(TOLERANCES) for points that no level keeps.

    Douglas and Peucker's method: between two kept points, the farthest one is kept if it is farther
    than the tolerance. A point never belongs to a coarser level than the points it depends on.
    """
    flat_line = line * np.array([np.cos(np.deg2rad(line[:, 1].mean())), 1.0])
    significance = np.zeros(len(line))
    closed = bool((line[0] == line[-1]).all())
    significance[[0, -1]] = 0.0 if closed else np.inf
    stack = [(0, len(line) - 1, np.inf)]
    while stack:
        first, last, bound = stack.pop()
        if last - first < 2:
            continue
        distance = to_segment(flat_line[first + 1 : last], flat_line[first], flat_line[last])
        farthest = int(distance.argmax())
        value = min(bound, float(distance[farthest]))
        if value < TOLERANCES[-1]:
            continue
        middle = first + 1 + farthest
        significance[middle] = value
        stack += [(first, middle, value), (middle, last, value)]
    if closed:  # a ring goes with its farthest point, so that small islands are left out
        significance[[0, -1]] = significance.max()
    return (significance[:, None] < np.array(TOLERANCES)).sum(axis=1).astype(np.uint8)


def to_segment(points: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Distances of points to a segment, which may be a point."""
    along = end - start
    share = ((points - start) @ along) / max(float(along @ along), 1e-300)
    nearest = start + np.clip(share, 0.0, 1.0)[:, None] * along
    return np.hypot(*(points - nearest).T)


def packed(kind: str, lines: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Starts, differences, sizes and levels of the lines, as small integers."""
    kept = []
    for line in lines:
        levels = levels_of(line)
        keep = levels < len(TOLERANCES)
        if keep.sum() > 1:
            kept.append((np.rint(line[keep] * UNITS_PER_DEGREE).astype(np.int64), levels[keep]))
    steps = [np.diff(points, axis=0, prepend=points[:1]) for points, _ in kept]
    joined = np.concatenate(steps)
    assert np.abs(joined).max() < 2**15
    return {
        f"{kind}_starts": np.array([points[0] for points, _ in kept], dtype=np.int32),
        f"{kind}_sizes": np.array([len(points) for points, _ in kept], dtype=np.int32),
        f"{kind}_steps": np.ascontiguousarray(joined.T.astype(np.int16)),
        f"{kind}_levels": np.concatenate([levels for _, levels in kept]),
    }


if __name__ == "__main__":
    main()
