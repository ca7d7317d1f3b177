"""Task: a data set prepared for training: time specification, scaler, windows of each part."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from stonet.config import Config
from stonet.data.durations import YEAR
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.data.scaling import Scaler
from stonet.data.splits import hold_out, kept_labels
from stonet.data.time_spec import TimeSpec, resolve_time_spec
from stonet.data.windows import PARTS, Windows, cut, split
from stonet.errors import DataError, unknown_name
from stonet.graph.multipole import resolve_graph

MIN_SEASONAL_SPAN = int(0.95 * YEAR)  # of training times in ns, for the season to be a feature


@dataclass(frozen=True)
class Task:
    """The data of a training. Scaler and graph depend on training points and times only.

    Args:
        dataset: all points, with those held out.
        config: resolved: lengths in steps, graph radii.
        time_spec: step, past and horizon.
        scaler: fitted to the training part.
        parts: train, validation, test; all points.

    Example:
        >>> task = Task.of(Dataset((field,)), load_config())
        >>> task.windows("validation").inputs(np.arange(4))
    """

    dataset: Dataset
    config: Config
    time_spec: TimeSpec
    scaler: Scaler
    parts: dict[str, tuple[Field, ...]]

    @staticmethod
    def of(dataset: Dataset, config: Config) -> Task:
        """Prepare a data set; settings that depend on the data are resolved.

        Args:
            dataset: as opened.
            config: as given.

        Raises:
            DataError: if the series is too short, a channel has no observed value, or is an angle.
            UsageError: if a length is not a multiple of the data's step.
        """
        if not config.data.allow_angles:
            _refuse_angles(dataset.episodes[0])
        dataset = hold_out(dataset, config.data.unseen, config.data.unseen_regions)
        time_spec = resolve_time_spec(dataset, config)
        stride = config.data.stride or dataset.stride or 1
        parts = split(dataset, time_spec, config.data.split, stride)
        sunny = config.network.sun and time_spec.daily and dataset.points.kind == "sphere"
        time_spec = replace(
            time_spec, yearly=_span(parts["train"]) >= MIN_SEASONAL_SPAN, sunny=sunny
        )
        seen = dataset.seen
        data = config.data
        scaler = Scaler.fit(parts["train"], seen, data.bounds, data.range_margin)
        lengths = {"past": time_spec.past, "horizon": time_spec.horizon, "stride": stride}
        data = data.model_copy(update=lengths)
        resolved = resolve_graph(
            config.model_copy(update={"data": data}), dataset.points.take(seen)
        )
        return Task(dataset, resolved, time_spec, scaler, parts)

    @property
    def nodes(self) -> Points:
        """The training points."""
        return self.dataset.points.take(self.dataset.seen)

    def windows(
        self,
        part: str,
        stride: int = 1,
        points: Int64[np.ndarray, " chosen"] | None = None,
        raw: bool = False,
    ) -> Windows:
        """The windows of a part.

        Args:
            part: "train", "validation" or "test".
            stride: frames between the starts of two windows.
            points: positions of the points (None: the training points).
            raw: whether values stay in their own units. Scores use such labels: a zero does not
                survive scaling and back, and the MAPE leaves zeros out.

        Raises:
            UsageError: if there is no such part.
        """
        if part not in self.parts:
            raise unknown_name("part", part, self.parts)
        index = self.dataset.seen if points is None else points
        scaler = Scaler.identity(len(self.scaler.mean)) if raw else self.scaler
        labels = self.config.data.labels
        windows = cut(self.parts[part], scaler, self.time_spec, stride, index)
        if labels is None or raw or part == "test":
            return windows
        seed = self.config.train.seed + PARTS.index(part)
        return replace(
            windows, labels=kept_labels(len(windows), self.time_spec.horizon, labels, seed)
        )

    def joined(self) -> Task:
        """The same task with the validation part as the end of the training part.

        Its scaler is fitted to both; the time specification is kept. The test part is as before.
        """
        train = []
        for episode in self.dataset.episodes:
            own = [
                f
                for name in ("train", "validation")
                for f in self.parts[name]
                if f.is_part_of(episode)
            ]
            if own:
                start = int(np.searchsorted(episode.times, own[0].times[0]))
                stop = int(np.searchsorted(episode.times, own[-1].times[-1], side="right"))
                train.append(episode.between(start, stop))
        data = self.config.data
        scaler = Scaler.fit(train, self.dataset.seen, data.bounds, data.range_margin)
        return replace(self, parts=self.parts | {"train": tuple(train)}, scaler=scaler)

    @property
    def validation_windows(self) -> Windows:
        """The windows that decide in a training: a random choice from the validation part."""
        windows = self.windows("validation", self.stride)
        return windows.draw(self.config.train.validation_windows)

    @property
    def stride(self) -> int:
        """Frames between the starts of two training windows."""
        return self.config.data.stride or 1

    @property
    def scoring_stride(self) -> int:
        """Frames between the starts of two scored windows: each target time is scored once."""
        return max(self.stride, self.time_spec.horizon)


def _refuse_angles(field: Field) -> None:
    """Refuse directions in degrees, of which errors and means mislead."""
    for name in field.angles():
        others = [channel for channel in field.channels if channel != name]
        leave_out = f", or leave it out (--variables {','.join(others)})" if others else ""
        raise DataError(
            f"'{name}' is a direction in degrees: 359 and 1 are 2 degrees apart, but 358 as "
            f"numbers. Read components instead (--wind-components SPEED,{name}){leave_out}. To "
            "train on the numbers nevertheless: --set data.allow_angles=true."
        )


def _span(fields: tuple[Field, ...]) -> int:
    """From the first time to the last, in nanoseconds."""
    return int(max(f.times[-1] for f in fields) - min(f.times[0] for f in fields))
