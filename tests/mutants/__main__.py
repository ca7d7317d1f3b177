"""python -m tests.mutants: every mutant of the model must fail the pinning tests.

The package is copied to a temporary folder. For each mutant one text is replaced there, and the
tests run on the copy in a process of their own. A mutant that survives, a text that is not found
exactly once, or tests that fail on the unchanged source end with an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
PINNING = ("tests/models/test_paper.py",)
CHOSEN = "formula or pinned or offsets or unit"
SECONDS = 300  # most of one run


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """The pinning tests on the copy in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", CHOSEN]
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *PINNING],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def copy(folder: Path) -> None:
    """The package, its tests and their settings."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("stonet", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)


@contextmanager
def mutated(folder: Path, mutant: Mutant) -> Iterator[None]:
    """The copy with the text of a mutant replaced; afterwards as before.

    Raises:
        SystemExit: if the text does not occur exactly once.
    """
    path = folder / "stonet" / mutant.file
    source = path.read_text(encoding="utf-8")
    if source.count(mutant.text) != 1:
        raise SystemExit(
            f"Mutant '{mutant.name}': {mutant.file} holds its text {source.count(mutant.text)} "
            "times; expected once. Bring tests/mutants/mutants.py up to date."
        )
    path.write_text(source.replace(mutant.text, mutant.becomes), encoding="utf-8")
    yield
    path.write_text(source, encoding="utf-8")


def fails(folder: Path) -> bool:
    """Whether the tests fail on the copy.

    Raises:
        SystemExit: if they could not run.
    """
    result = run(folder)
    if result.returncode not in (0, 1):  # 1: tests failed
        raise SystemExit(f"The tests did not run:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.returncode == 1


def main() -> None:
    """Run all mutants, or those whose names contain one of the arguments."""
    wanted = sys.argv[1:] or [""]
    chosen = [mutant for mutant in MUTANTS if any(text in mutant.name for text in wanted)]
    if not chosen:
        raise SystemExit(f"No mutant's name contains {' or '.join(wanted)}.")
    survivors = []
    with tempfile.TemporaryDirectory(prefix="stonet-mutants-") as name:
        folder = Path(name)
        copy(folder)
        if fails(folder):
            raise SystemExit("The tests fail on the unchanged source: mend that first.")
        for mutant in chosen:
            started = time.monotonic()
            with mutated(folder, mutant):
                killed = fails(folder)
            survivors += [] if killed else [mutant.name]
            verdict = "killed" if killed else "SURVIVED"
            print(f"{verdict:9}{time.monotonic() - started:5.0f} s  {mutant.name}", flush=True)
    if survivors:
        raise SystemExit(f"{len(survivors)} of {len(chosen)} mutants survived: {survivors}")
    print(f"All {len(chosen)} mutants were killed.")


if __name__ == "__main__":
    main()
