"""Task: a data set made ready for training: its time_spec, its scaler, the windows of each part."""

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
from stonet.errors import unknown_name
from stonet.graph.multipole import resolve_graph

MOST_OF_A_YEAR = int(0.95 * YEAR)  # that training must span for the season to mean something


@dataclass(frozen=True)
class Task:
    """What is learned from what. Scaler and graph come from training points and times only."""

    dataset: Dataset
    config: Config  # resolved: lengths in steps, radii found
    time_spec: TimeSpec
    scaler: Scaler
    parts: dict[str, tuple[Field, ...]]  # train, validation, test; all points

    @staticmethod
    def of(dataset: Dataset, config: Config) -> Task:
        """Resolve what the configuration leaves to the data, before any long work."""
        dataset = hold_out(dataset, config.data.unseen)
        time_spec = resolve_time_spec(dataset, config)
        stride = config.data.stride or dataset.stride or 1
        parts = split(dataset, time_spec, config.data.split, stride)
        sunny = config.network.sun and time_spec.daily and dataset.points.kind == "sphere"
        time_spec = replace(time_spec, yearly=_span(parts["train"]) >= MOST_OF_A_YEAR, sunny=sunny)
        seen = dataset.seen
        scaler = Scaler.fit(parts["train"], seen)
        lengths = {"past": time_spec.past, "horizon": time_spec.horizon, "stride": stride}
        data = config.data.model_copy(update=lengths)
        resolved = resolve_graph(
            config.model_copy(update={"data": data}), dataset.points.take(seen)
        )
        return Task(dataset, resolved, time_spec, scaler, parts)

    @property
    def nodes(self) -> Points:
        """The points that training sees."""
        return self.dataset.points.take(self.dataset.seen)

    def windows(
        self,
        part: str,
        stride: int = 1,
        points: Int64[np.ndarray, " chosen"] | None = None,
        raw: bool = False,
    ) -> Windows:
        """The windows of a part at some of the points (None: those that training sees).

        `raw` leaves the values in their units: scores use labels that were never rescaled, since
        a zero does not survive the way there and back, and the MAPE must know it.
        """
        if part not in self.parts:
            raise unknown_name("part", part, self.parts)
        index = self.dataset.seen if points is None else points
        scaler = Scaler.identity(len(self.scaler.mean)) if raw else self.scaler
        window_time, kept = self.config.network.window_time, self.config.data.labels
        windows = cut(self.parts[part], scaler, self.time_spec, stride, window_time, index)
        if kept is None or raw or part == "test":
            return windows
        seed = self.config.train.seed + PARTS.index(part)
        return replace(
            windows, labels=kept_labels(len(windows), self.time_spec.horizon, kept, seed)
        )

    @property
    def stride(self) -> int:
        """Frames between the starts of two training windows."""
        return self.config.data.stride or 1

    @property
    def scoring_stride(self) -> int:
        """Frames between two scored windows: every target time is scored once."""
        return max(self.stride, self.time_spec.horizon)


def _span(fields: tuple[Field, ...]) -> int:
    """From the first time to the last, in nanoseconds."""
    return int(max(f.times[-1] for f in fields) - min(f.times[0] for f in fields))
