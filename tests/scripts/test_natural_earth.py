"""The script behind the file of coastlines: TopoJSON by hand, cuts, simplification."""

import importlib.util
import itertools

import numpy as np
import pytest
from helpers.paths import ROOT

from stonet.plotting.natural_earth import TOLERANCES, UNITS_PER_DEGREE

SPEC = importlib.util.spec_from_file_location("make", ROOT / "scripts" / "natural_earth.py")
assert SPEC is not None and SPEC.loader is not None
make = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make)

# Two unit squares side by side in half-degree units: arc 0 is their common side.
TOPOLOGY = {
    "transform": {"scale": [0.5, 0.5], "translate": [10, 20]},
    "arcs": [
        [[2, 0], [0, 2]],
        [[2, 2], [-2, 0], [0, -2], [2, 0]],
        [[2, 0], [2, 0], [0, 2], [-2, 0]],
    ],
    "objects": {
        "countries": {
            "type": "GeometryCollection",
            "geometries": [
                {"type": "Polygon", "arcs": [[0, 1]]},
                {"type": "MultiPolygon", "arcs": [[[2, -1]]]},
            ],
        },
        "land": {
            "type": "GeometryCollection",
            "geometries": [{"type": "Polygon", "arcs": [[1, 2]]}],
        },
    },
}


def test_shared_arcs_are_borders_and_the_others_coast():
    coast, border = make.coasts_and_borders(TOPOLOGY)
    assert [line.tolist() for line in border] == [[[11, 20], [11, 21]]]
    assert coast[0].tolist() == [[11, 21], [10, 21], [10, 20], [11, 20]]
    assert len(coast) == 2


def test_a_line_across_the_date_line_is_cut_there():
    east, west = make.cut(np.array([[178.0, 0.0], [179.0, 0.0], [-179.0, 1.0], [-178.0, 1.0]]))
    assert east.tolist() == [[178, 0], [179, 0], [180, 0.5]]
    assert west.tolist() == [[-180, 0.5], [-179, 1], [-178, 1]]


def test_artificial_lines_are_dropped():
    line = np.array([[170.0, -80.0], [180.0, -85.0], [180.0, -89.999], [-180.0, -89.999]])
    (kept,) = make.cut(line)
    assert kept.tolist() == [[170, -80], [180, -85]]


def test_simplified_lines_stay_within_the_tolerance():
    random = np.random.default_rng(0)
    line = np.stack([np.linspace(0, 5, 400), np.cumsum(random.normal(0, 0.02, 400))], axis=1)
    levels = make.levels_of(line)
    flat = line * np.array([np.cos(np.deg2rad(line[:, 1].mean())), 1.0])
    for level, tolerance in enumerate(TOLERANCES):
        kept = np.flatnonzero(levels <= level)
        assert kept[0] == 0 and kept[-1] == len(line) - 1
        for first, last in itertools.pairwise(kept):
            between = flat[first : last + 1]
            assert make.to_segment(between, flat[first], flat[last]).max() < tolerance


def test_small_islands_belong_to_fine_levels_only():
    angle = np.linspace(0, 2 * np.pi, 50)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    ring[-1] = ring[0]
    assert make.levels_of(10 * ring).min() == 0
    assert make.levels_of(0.05 * ring).min() == 1
    assert make.levels_of(0.001 * ring).min() == len(TOLERANCES)


def test_packed_lines_return_by_running_sums():
    line = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, -1.0]])
    parts = make.packed("coast", [line, line + 10.0])
    assert make.UNITS_PER_DEGREE == UNITS_PER_DEGREE and make.TOLERANCES == TOLERANCES
    assert parts["coast_sizes"].tolist() == [3, 3]
    restored = np.cumsum(parts["coast_steps"].T[3:], axis=0) + parts["coast_starts"][1]
    assert (restored / UNITS_PER_DEGREE).tolist() == (line + 10.0).tolist()


def test_another_package_is_refused(tmp_path):
    (tmp_path / "other.tgz").write_bytes(b"other")
    with pytest.raises(SystemExit, match="sha256"):
        make.topology(tmp_path / "other.tgz")
