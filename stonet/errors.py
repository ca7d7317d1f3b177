"""Errors that state what was expected, what was given, what it means and what to do.

Each type has the exit code that the command line returns for it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class StonetError(Exception):
    """Base of all errors of this package; the message tells a user what to do."""

    exit_code = 5


class DataError(StonetError, ValueError):
    """Data are damaged, contradictory or unsuitable (exit code 2)."""

    exit_code = 2


class UsageError(DataError):
    """An option, a name or a setting is invalid (exit code 2)."""


class ModelFileError(StonetError, ValueError):
    """A run folder is damaged, foreign or unsuitable for the data (exit code 3)."""

    exit_code = 3


class DivergedError(StonetError):
    """A training diverged."""


class ResourceError(StonetError):
    """Memory, disk space or a lock is not available (exit code 4)."""

    exit_code = 4


def unknown_name(kind: str, name: str, choices: Iterable[str]) -> UsageError:
    """The error for a name that is not one of the choices; it suggests the nearest one.

    Args:
        kind: of thing that the name stands for, e.g. "model".
        name: as given.
        choices: all valid names.

    Example:
        >>> str(unknown_name("model", "dcrn", ["agcrn", "dcrnn"]))
        "Unknown model 'dcrn'. Choose one of: agcrn, dcrnn. Did you mean 'dcrnn'?"
    """
    options = sorted(choices)
    near = difflib.get_close_matches(name, options, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return UsageError(f"Unknown {kind} '{name}'. Choose one of: {', '.join(options)}.{hint}")
