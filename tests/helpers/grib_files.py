"""GRIB messages, written with ecCodes itself."""

from __future__ import annotations

import numpy as np
import pytest

eccodes = pytest.importorskip("eccodes")

GRID = np.arange(12.0) + 270  # values on the grid of `message`, four by three


def message(values, edition=2, size=(4, 3), corner=(52.0, 10.0), **keys):
    """One message on a latitude-longitude grid; `keys` are ecCodes' own, set in their order."""
    handle = eccodes.codes_grib_new_from_samples(f"regular_ll_sfc_grib{edition}")
    grid = {
        "Ni": size[0],
        "Nj": size[1],
        "iDirectionIncrementInDegrees": 1.0,
        "jDirectionIncrementInDegrees": 1.0,
        "latitudeOfFirstGridPointInDegrees": corner[0],
        "latitudeOfLastGridPointInDegrees": corner[0] - size[1] + 1,
        "longitudeOfFirstGridPointInDegrees": corner[1],
        "longitudeOfLastGridPointInDegrees": corner[1] + size[0] - 1,
    }
    head = {"shortName": "2t", "dataDate": 20190301, "dataTime": 0, "bitsPerValue": 24}
    for key, value in (grid | head | keys).items():
        eccodes.codes_set(handle, key, value)
    values = np.asarray(values, dtype=np.float64)
    if np.isnan(values).any():
        eccodes.codes_set(handle, "bitmapPresent", 1)
        eccodes.codes_set(handle, "missingValue", 1e9)
        values = np.where(np.isnan(values), 1e9, values)
    eccodes.codes_set_values(handle, values)
    written = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return written


def as_ecc(written):
    """The values as ecCodes itself decodes them."""
    handle = eccodes.codes_new_from_message(written)
    eccodes.codes_set(handle, "missingValue", 1e9)
    values = eccodes.codes_get_values(handle)
    eccodes.codes_release(handle)
    return np.where(values == 1e9, np.nan, values).astype(np.float32)
