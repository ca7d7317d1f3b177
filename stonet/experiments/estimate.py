"""Before a long computation: are the files there, and how many hours will it take?"""

from __future__ import annotations

from collections.abc import Sequence

from stonet.errors import UsageError
from stonet.experiments.cell import Cell
from stonet.experiments.datasets import experiment_data, is_local
from stonet.experiments.runner import DatasetCache, in_order
from stonet.experiments.tables import unique
from stonet.system.progress import ProgressCallback, ignore_progress
from stonet.training.budget import Budget, train

REHEARSAL = Budget(epochs=1, steps=3)
MIN_EPOCHS = 10  # of a training that is worth a rehearsal


def check_files(cells: Sequence[Cell]) -> None:
    """Refuse to start where the files of a data set are not on this machine.

    Args:
        cells: that are to be computed.

    Raises:
        UsageError: naming all missing data sets and the commands that fetch them.
    """
    names = unique(cell.dataset for cell in cells)
    missing = unique(experiment_data(name).dataset for name in names if not is_local(name))
    if missing:
        commands = ", ".join(f"`stonet data fetch {name}`" for name in missing)
        raise UsageError(
            f"{len(missing)} data sets are not on this machine: {', '.join(missing)}. Fetch them "
            f"({commands}; `stonet data info NAME` says from where), or choose others with "
            "--datasets."
        )


def estimate_hours(
    cells: Sequence[Cell], cache: DatasetCache, watch: ProgressCallback = ignore_progress
) -> float:
    """Hours of training of one process after another; scoring comes on top.

    Minutes of a budget are added up. For epochs, each model takes three steps on the first of its
    data sets, and the time is scaled with points, frames and epochs.

    Args:
        cells: that are to be computed.
        cache: of data sets.
        watch: called with the cells done, their number and a title.
    """
    seconds, rates = 0.0, dict[tuple[str, str], float]()
    ordered = in_order(cells)
    for number, cell in enumerate(ordered):
        budget = cell.training
        if budget.minutes is not None:
            seconds += 60 * budget.minutes
        elif (budget.epochs or 0) >= MIN_EPOCHS:
            watch(number, len(ordered), f"{cell.model} on {cell.dataset}")
            dataset, key = cache.dataset(cell), (cell.model, cell.config.paper.decoder)
            size = len(dataset.seen) * sum(len(field.times) for field in dataset.episodes)
            if key not in rates:
                try:
                    cost = train(dataset, cell.config, REHEARSAL).cost
                except UsageError:  # the model cannot be run on these data
                    continue
                rates[key] = (cost.seconds_per_epoch or 0.0) / size
            seconds += rates[key] * size * (budget.epochs or 0)
    return seconds / 3600
