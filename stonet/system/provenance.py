"""Which commit of stonet computed a result."""

from __future__ import annotations

import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def commit() -> str:
    """The commit of this stonet, with "+" if its code has been changed; "unknown" without git."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        changed = bool(commit) and _git("status", "--porcelain", "-uno", "--", ".")
    except OSError:
        return "unknown"
    return commit + ("+" if changed else "") or "unknown"


def _git(*command: str) -> str:
    result = subprocess.run(["git", *command], cwd=PACKAGE, capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else ""
