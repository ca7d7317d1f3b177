"""Series: the frames before a part of the data, whose errors are known when it is forecast."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int64

from stonet.calibration.past_forecasts import Issues
from stonet.data.field import Field
from stonet.data.windows import MAX_STRETCH
from stonet.training.task import Task


def series_of(task: Task, part: str) -> Iterator[tuple[Field, int, Field]]:
    """(episode, position of the first frame of the part in it, field of the part).

    Args:
        task: the data.
        part: "train", "validation", "test" or "all".
    """
    for field in task.parts[part]:
        whole = next((e for e in task.dataset.episodes if field.is_part_of(e)), field)
        yield whole, int(np.searchsorted(whole.times, field.times[0])), field


def issues_within(task: Task, field: Field) -> Issues:
    """Positions of the issue times whose windows, inputs and targets, lie in a field.

    Args:
        task: gives the lengths of inputs and forecast.
        field: a part of an episode.
    """
    time_spec = task.time_spec
    need = time_spec.past + time_spec.horizon
    first = np.arange(max(0, len(field.times) - need + 1))
    span = field.times[first + need - 1] - field.times[first] if len(first) else first
    return first[span <= MAX_STRETCH * (need - 1) * time_spec.step] + time_spec.past - 1


def independent_windows(task: Task, times: Int64[np.ndarray, " issue"]) -> int:
    """The number of windows among these issue times whose targets do not overlap.

    Args:
        task: gives the length of the forecast.
        times: of issue, in nanoseconds.
    """
    return len(np.unique(times // (task.time_spec.horizon * task.time_spec.step)))
