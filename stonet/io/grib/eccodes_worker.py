"""The only process that runs ecCodes: it answers questions about messages that come down a pipe.

A damaged message can crash or hang the C library (25 of 2000 mutated ones did, ecCodes 2.50), so
it runs apart, in bounded memory, and never in the user's process. `decoder` starts this file
as a script, asks, and trusts no answer further than its size.

    question:  {"ask": "describe" | "grid" | "values", "sizes": [bytes of each message]}  + messages
    answer:    {"error": text}  or  {"arrays": [lengths], ...}  + arrays
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, BinaryIO

import numpy as np

MEMORY = 4 * 2**30
MISSING = 1e100  # stands for a value that the bitmap leaves out
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


def describe(eccodes: Any, messages: list[bytes]) -> dict[str, Any]:
    """What each message's header says; None where it says nothing."""
    return {"headers": [_header(eccodes, message) for message in messages], "arrays": []}


def _header(eccodes: Any, message: bytes) -> dict[str, Any]:
    handle = eccodes.codes_new_from_message(message)
    try:
        getters = (eccodes.codes_get_string, TEXTS), (eccodes.codes_get_long, NUMBERS)
        return {key: _known(eccodes, get, handle, key) for get, keys in getters for key in keys}
    finally:
        eccodes.codes_release(handle)


def _known(eccodes: Any, get: Any, handle: Any, key: str) -> Any:
    try:
        return get(handle, key)
    except eccodes.CodesInternalError:
        return None


def grid(eccodes: Any, messages: list[bytes]) -> dict[str, Any]:
    """Latitudes and longitudes, in the order of the message's values."""
    handle = eccodes.codes_new_from_message(messages[0])
    kind = eccodes.codes_get_string(handle, "gridType")
    if kind in IN_ORDER:
        latitudes = eccodes.codes_get_double_array(handle, "latitudes")
        longitudes = eccodes.codes_get_double_array(handle, "longitudes")
        order = _alternating(eccodes, handle, len(latitudes))
    else:  # number the points, and see where each number comes out
        count = eccodes.codes_get_long(handle, "numberOfDataPoints")
        eccodes.codes_set_string(handle, "packingType", "grid_simple")
        eccodes.codes_set_long(handle, "bitmapPresent", 0)
        eccodes.codes_set_long(handle, "bitsPerValue", 32)
        eccodes.codes_set_double_array(handle, "values", np.arange(count, dtype=np.float64))
        triples = eccodes.codes_get_double_array(handle, "latLonValues").reshape(-1, 3)
        latitudes, longitudes = triples[:, 0], triples[:, 1]
        order = np.rint(triples[:, 2]).astype(np.int64)
        if not np.array_equal(np.sort(order), np.arange(count)):
            raise ValueError("the order of the grid's points cannot be found")
    both = np.empty((2, len(order)))
    both[:, order] = latitudes, longitudes
    return {"arrays": [both[0], both[1]]}


def _alternating(eccodes: Any, handle: Any, count: int) -> np.ndarray:
    """The order of the values where every other row runs backwards, which ecCodes passes over."""
    order = np.arange(count)
    if not _known(eccodes, eccodes.codes_get_long, handle, "alternativeRowScanning"):
        return order
    across = _known(eccodes, eccodes.codes_get_long, handle, "jPointsAreConsecutive")
    length = eccodes.codes_get_long(handle, "Nj" if across else "Ni")
    rows = order.reshape(-1, length)
    rows[1::2] = rows[1::2, ::-1].copy()
    return order


def values(eccodes: Any, messages: list[bytes]) -> dict[str, Any]:
    """The values of each message, NaN where missing."""
    arrays = []
    for message in messages:
        handle = eccodes.codes_new_from_message(message)
        eccodes.codes_set_double(handle, "missingValue", MISSING)
        found = eccodes.codes_get_double_array(handle, "values")
        eccodes.codes_release(handle)
        with np.errstate(over="ignore"):
            arrays.append(np.where(found == MISSING, np.nan, found).astype(np.float32))
    return {"arrays": arrays}


ANSWERS = {"describe": describe, "grid": grid, "values": values}


def serve(eccodes: Any, questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the pipe is closed."""
    for line in questions:
        question = json.loads(line)
        messages = [questions.read(size) for size in question["sizes"]]
        try:
            answer = ANSWERS[question["ask"]](eccodes, messages)
        except (eccodes.CodesInternalError, ValueError, MemoryError) as error:
            answer = {"error": str(error) or type(error).__name__, "arrays": []}
        arrays = answer.pop("arrays")
        answer["arrays"] = [len(array) for array in arrays]
        answers.write(json.dumps(answer).encode() + b"\n")
        for array in arrays:
            answers.write(np.ascontiguousarray(array).data)
        answers.flush()


def main() -> None:
    """Say that ecCodes is there, then serve."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing the library prints may be an answer
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        pass  # not on this system: the time limit remains
    import eccodes

    answers.write(b'{"arrays": []}\n')
    answers.flush()
    serve(eccodes, sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
