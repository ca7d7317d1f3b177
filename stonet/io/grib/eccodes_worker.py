"""The helper process that runs ecCodes on messages that `eccodes_client` sends.

A damaged message can crash or hang the C library (25 of 2000 mutated ones did, ecCodes 2.50), so
it never runs in the user's process.

    request:  {"task": "describe" | "grid" | "values"}, one block for each message
    reply:    {"error": text}, or {"headers": [...]}, or one block for each array
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stonet.system.sandbox import Handler, Message, serve

MAX_MEMORY = 4 * 2**30  # bytes of address space of this process
MISSING = 1e100  # marks values that the bitmap leaves out
TEXTS = ("cfVarName", "shortName", "units", "typeOfLevel", "stepType", "gridType", "centre")
NUMBERS = (
    "level", "number", "dataDate", "dataTime", "validityDate", "validityTime",
    "numberOfDataPoints", "uvRelativeToGrid", "discipline", "parameterCategory",
    "parameterNumber", "indicatorOfParameter", "table2Version", "indicatorOfUnitOfTimeRange",
)  # fmt: skip
# grids whose coordinates ecCodes lists in the order of the values (alternating rows excepted);
# those of projections it lists row by row from the south-west, however the values are stored
IN_ORDER = {
    "regular_ll", "reduced_ll", "rotated_ll", "regular_gg", "reduced_gg", "rotated_gg",
    "reduced_rotated_gg", "lambert_azimuthal_equal_area", "healpix", "unstructured_grid",
}  # fmt: skip


def describe(eccodes: Any, messages: list[bytes]) -> Message:
    """The keys of each message's header; None for a key that it does not have.

    Args:
        eccodes: the library.
        messages: all their bytes.
    """
    return {"headers": [_header(eccodes, message) for message in messages]}, []


def _header(eccodes: Any, message: bytes) -> dict[str, Any]:
    handle = eccodes.codes_new_from_message(message)
    try:
        getters = (eccodes.codes_get_string, TEXTS), (eccodes.codes_get_long, NUMBERS)
        return {key: _get(eccodes, get, handle, key) for get, keys in getters for key in keys}
    finally:
        eccodes.codes_release(handle)


def _get(eccodes: Any, getter: Any, handle: Any, key: str) -> Any:
    try:
        return getter(handle, key)
    except eccodes.CodesInternalError:
        return None


def grid(eccodes: Any, messages: list[bytes]) -> Message:
    """Latitudes and longitudes, in the order of the message's values.

    Args:
        eccodes: the library.
        messages: one message.
    """
    handle = eccodes.codes_new_from_message(messages[0])
    kind = eccodes.codes_get_string(handle, "gridType")
    if kind in IN_ORDER:
        latitudes = eccodes.codes_get_double_array(handle, "latitudes")
        longitudes = eccodes.codes_get_double_array(handle, "longitudes")
        order = _alternating(eccodes, handle, len(latitudes))
    else:  # store each point's number as its value, and read the numbers with the coordinates
        count = eccodes.codes_get_long(handle, "numberOfDataPoints")
        eccodes.codes_set_string(handle, "packingType", "grid_simple")
        eccodes.codes_set_long(handle, "bitmapPresent", 0)
        eccodes.codes_set_long(handle, "bitsPerValue", 32)
        eccodes.codes_set_double_array(handle, "values", np.arange(count, dtype=np.float64))
        triples = eccodes.codes_get_double_array(handle, "latLonValues").reshape(-1, 3)
        latitudes, longitudes = triples[:, 0], triples[:, 1]
        order = np.rint(triples[:, 2]).astype(np.int64)
        if not np.array_equal(np.sort(order), np.arange(count)):
            raise ValueError("the order of the grid's points cannot be determined")
    both = np.empty((2, len(order)))
    both[:, order] = latitudes, longitudes
    return {}, [both[0].tobytes(), both[1].tobytes()]


def _alternating(eccodes: Any, handle: Any, count: int) -> np.ndarray:
    """The order of the values where every other row runs backwards, which ecCodes ignores."""
    order = np.arange(count)
    if not _get(eccodes, eccodes.codes_get_long, handle, "alternativeRowScanning"):
        return order
    by_columns = _get(eccodes, eccodes.codes_get_long, handle, "jPointsAreConsecutive")
    length = eccodes.codes_get_long(handle, "Nj" if by_columns else "Ni")
    rows = order.reshape(-1, length)
    rows[1::2] = rows[1::2, ::-1].copy()
    return order


def values(eccodes: Any, messages: list[bytes]) -> Message:
    """The values of each message as float32, NaN where missing.

    Args:
        eccodes: the library.
        messages: all their bytes.
    """
    arrays = []
    for message in messages:
        handle = eccodes.codes_new_from_message(message)
        eccodes.codes_set_double(handle, "missingValue", MISSING)
        array = eccodes.codes_get_double_array(handle, "values")
        eccodes.codes_release(handle)
        with np.errstate(over="ignore"):
            array = np.where(array == MISSING, np.nan, array).astype(np.float32)
        arrays.append(array.tobytes())
    return {}, arrays


TASKS = {"describe": describe, "grid": grid, "values": values}


def prepare() -> Handler:
    """Import ecCodes; returns the function that replies to a request."""
    import eccodes

    def handle(content: dict[str, Any], messages: list[bytes]) -> Message:
        try:
            return TASKS[content["task"]](eccodes, messages)
        except (eccodes.CodesInternalError, ValueError, MemoryError) as error:
            return {"error": str(error) or type(error).__name__}, []

    return handle


if __name__ == "__main__":
    serve(prepare, MAX_MEMORY)
