"""ecCodes in a helper process: the meaning of headers, coordinates of grids, rare packings.

The library runs in `eccodes_worker`, a process that may crash or hang without harm.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from stonet.errors import DataError, UsageError
from stonet.io.safety import check_memory
from stonet.system.sandbox import CrashError, Sandbox, StartError

TIMEOUT = 10.0  # seconds for a reply, and as many again for each 16 MB of messages
BYTES_PER_POINT = 200  # of a grid in memory: coordinates, unit vector, name
INSTALL = "GRIB files are read with ecCodes, which is not installed: pip install 'stonet[grib]'."

SANDBOX = Sandbox("stonet.io.grib.eccodes_worker")


def describe(origin: str, message: bytes) -> dict[str, Any]:
    """The keys of a message's header that `eccodes_worker` lists.

    Args:
        origin: file and position of the message, for errors.
        message: all its bytes.
    """
    return _request(origin, "describe", [message])[0]["headers"][0]


def coordinates(origin: str, message: bytes, points: int) -> Float64[np.ndarray, "node 2"]:
    """Latitude and longitude of each value.

    Args:
        origin: file and position of the message, for errors.
        message: all its bytes.
        points: that its header declares.
    """
    check_memory(points * BYTES_PER_POINT, f"a grid of {points} points", origin)
    axes = [np.frombuffer(block) for block in _request(origin, "grid", [message])[1]]
    if [len(axis) for axis in axes] != [points, points]:
        raise DataError(f"{origin} declares {points} points, and its grid has {len(axes[0])}.")
    return np.stack(axes, axis=1)


def decode(
    origin: str, messages: Sequence[bytes], points: int
) -> Float32[np.ndarray, "field node"]:
    """The values of messages in any packing that ecCodes supports, NaN where missing.

    Args:
        origin: file and position of the first message, for errors.
        messages: all their bytes.
        points: that their headers declare.
    """
    blocks = _request(origin, "values", messages)[1]
    fields = [np.frombuffer(block, np.float32) for block in blocks]
    for field in fields:
        if len(field) != points:
            raise DataError(f"{origin} holds {len(field)} values for a grid of {points} points.")
    return np.stack(fields)


def _request(
    origin: str, task: str, messages: Sequence[bytes]
) -> tuple[dict[str, Any], list[bytes]]:
    """The reply of the helper process; `origin` names the message in errors."""
    if importlib.util.find_spec("eccodes") is None:
        raise UsageError(INSTALL)
    timeout = TIMEOUT * (1 + sum(map(len, messages)) / 2**24)
    try:
        content, blocks = SANDBOX.request({"task": task}, messages, timeout=timeout)
    except StartError:
        raise UsageError(f"{INSTALL} (It is installed, but does not start.)") from None
    except (CrashError, TimeoutError):
        content, blocks = {"error": "ecCodes crashed or took too long"}, []
    if "error" in content:
        raise DataError(
            f"{origin} cannot be decoded ({content['error']}). The message is damaged or of a rare "
            "kind; download the file again, or convert it: grib_to_netcdf or cdo -f nc copy."
        )
    return content, blocks
