"""Errors that say what was expected, what was got, what it means and what to do next.

Each kind carries the exit code that the command line returns for it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class StonetError(Exception):
    """Anything this package refuses or fails to do, told in words a user can act on."""

    exit_code = 5


class DataError(StonetError, ValueError):
    """The data or the way it was asked for is wrong (exit code 2)."""

    exit_code = 2


class UsageError(DataError):
    """An option, a name or a configuration key is wrong (exit code 2)."""


class ModelFileError(StonetError, ValueError):
    """A run folder is damaged, foreign or does not fit what is asked of it (exit code 3)."""

    exit_code = 3


class ResourceError(StonetError):
    """Memory, disk or a lock is not to be had (exit code 4)."""

    exit_code = 4


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> UsageError:
    """The error for a name that is not one of the choices; it offers the nearest one."""
    options = sorted(choices)
    near = difflib.get_close_matches(name, options, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return UsageError(f"Unknown {kind} '{name}'. Choose one of: {', '.join(options)}.{hint}")
