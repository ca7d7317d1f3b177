"""Session: a trained run that is asked again and again, in no more memory than it may have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from stonet.data.batch import Batch
from stonet.data.geometry import Points
from stonet.errors import ResourceError
from stonet.models.forecaster import Encoding, FrameEncoding, Graphs, QueryGraph, narrow
from stonet.system.resources import give_back, peak_mb, resident_mb
from stonet.system.spill import size_label
from stonet.training.trained_model import TrainedModel

QUERIES = 8192  # answered at a time; more would not be quicker
FEW = 256  # with how many to begin where memory is short
MARGIN = 1.1  # memory is not quite proportional
ENCODED = 2**17  # values of a channel that are encoded at a time, where frames do not mind
MB = 1.024e6  # bytes: what the system calls 1000 kB


class ChunkSize:
    """How many queries to answer at a time: ever more, as long as the memory allows.

    Args:
        memory: bytes that the process may take; None: no limit is given.
        kept: bytes of it that the answer will fill.
    """

    def __init__(self, memory: int | None = None, kept: int = 0) -> None:
        self.size = QUERIES if memory is None else min(FEW, QUERIES)
        self.memory, self.kept = memory, kept
        self.before, self.highest = resident_mb() * MB, peak_mb() * MB
        if memory is not None and self.before + kept >= memory:
            raise self._too_little(0.0)

    def observe(self, count: int) -> None:
        """Learn from a piece of so many queries what they take."""
        if self.memory is None:
            return
        peak, before = peak_mb() * MB, self.highest
        taken, self.highest = peak - self.before, peak
        free = self.memory - self.kept - self.before
        if peak > before and taken > free:  # by this piece, not by an earlier one
            if self.size <= FEW:
                raise self._too_little(taken)
            self.size //= 2
        elif count == self.size < QUERIES and MARGIN * 2 * taken <= free:
            self.size *= 2

    def _too_little(self, taken: float) -> ResourceError:
        kept = f", the answer {size_label(self.kept)}" if self.kept else ""
        piece = f", {self.size} points at a time {size_label(taken)}" if taken else ""
        enough = MARGIN * (self.before + self.kept + max(taken, 2**27))
        return ResourceError(
            f"A memory of {size_label(self.memory or 0)} is too little: program, model and data "
            f"take {size_label(self.before)}{kept}{piece}. Give at least "
            f"{np.ceil(enough / 2**20):.0f}M."
        )


class Session:
    """A trained run among its sensors: their graph is made once, and the last queries' links.

    Args:
        run: a trained model; it must not change meanwhile.
        nodes: where the sensors are.
    """

    def __init__(self, run: TrainedModel, nodes: Points) -> None:
        self.run, self.nodes, self.model = run, nodes, run.model.eval()
        self.graph = self.model.node_graph(nodes)
        every = (*self.model.parameters(), *self.model.buffers(), torch.zeros(0))
        self.device = every[0].device
        self._asked: tuple[Points, QueryGraph] | None = None

    @torch.inference_mode()
    def encode(self, batch: Batch) -> Encoding:
        """What the past says; frames by the dozen where each is encoded by itself."""
        batch = batch.to(self.device)
        step = max(1, ENCODED // len(self.nodes))
        if not self.model.frame_wise or len(batch.frames) <= step:
            return self.model.encode(batch, self.graph)
        parts = [frames_of(batch, i, i + step) for i in range(0, len(batch.frames), step)]
        encodings = (narrow(self.model.encode(p, self.graph), FrameEncoding) for p in parts)
        return FrameEncoding(torch.cat([encoding.latent for encoding in encodings]))

    @torch.inference_mode()
    def decode(
        self, encoded: Encoding, batch: Batch, queries: Points
    ) -> Float[Tensor, "batch future query channel"]:
        """The normalised forecast at these queries, all at once."""
        graphs = Graphs(self.graph, self.query_graph(queries))
        return self.model.decode(encoded, batch.to(self.device), graphs).cpu()

    def query_graph(self, queries: Points) -> QueryGraph:
        """What the model needs to know of the queries; made anew only if they are other ones."""
        if self._asked is None or (self._asked[0] is not queries and self._asked[0] != queries):
            self._asked = None  # the old ones go before the new ones come
            self._asked = queries, self.model.query_graph(self.nodes, queries)
        return self._asked[1]

    def answer(
        self, encoded: Encoding, batch: Batch, queries: Points, pace: ChunkSize
    ) -> Iterator[Float32[np.ndarray, "batch future query channel"]]:
        """The forecast in the data's units, a piece of the queries after another."""
        start = 0
        while start < len(queries):
            stop = min(start + pace.size, len(queries))
            piece = queries if stop - start == len(queries) else cut(queries, start, stop)
            yield self.run.scaler.denormalise(self.decode(encoded, batch, piece).numpy())
            pace.observe(stop - start)
            if piece is not queries:
                give_back()
            start = stop


def frames_of(batch: Batch, start: int, stop: int) -> Batch:
    """Some of the frames, to be encoded; the windows' own part is left as it is."""
    part = slice(start, stop)
    seen = None if batch.observed is None else batch.observed[part]
    time = batch.frame_time[part]
    return replace(batch, frames=batch.frames[part], observed=seen, frame_time=time, host=None)


def windows_of(batch: Batch, chosen: slice) -> Batch:
    """Some of the windows, with all the frames."""
    rows: dict[str, Any] = {
        name: value if len(value) == 1 else value[chosen]
        for name, value in (("lag", batch.lag), ("lead", batch.lead))
    }
    own = ("past", "future_time", "issue_time", "hour", *(() if batch.sun is None else ("sun",)))
    rows |= {name: getattr(batch, name)[chosen] for name in own}
    return replace(batch, **rows, host=None)


def cut(queries: Points, start: int, stop: int) -> Points:
    """The queries start <= i < stop."""
    return queries.take(np.arange(start, stop))
