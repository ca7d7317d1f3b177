"""Session: repeated forecasts of one model among the same sensors, in bounded memory."""

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
from stonet.system.resources import peak_mb, resident_mb, size_label, trim_memory
from stonet.training.trained_model import TrainedModel

MAX_QUERIES = 8192  # decoded together; more are not faster
INITIAL_QUERIES = 256  # decoded together at first, where memory is limited
MEMORY_MARGIN = 1.1  # since memory is not quite proportional to the number of queries
MAX_KEPT_QUERIES = 2**15  # whose links are kept, beside those of the last ones
MAX_ENCODED_VALUES = 2**17  # of a channel, encoded together where frames are independent
MIN_CHUNK_BYTES = 2**27  # of a chunk, assumed in the error message
MB = 1.024e6  # bytes; the system reports memory in units of 1000 kB


class ChunkSize:
    """The number of queries to decode together: doubled as long as the memory allows.

    Args:
        memory: bytes that the process may take (None: no limit).
        result_bytes: memory that the result will need.
        initial: queries of the first chunk, if there is a limit.
        maximum: queries of a chunk.

    Raises:
        ResourceError: if program, data and result alone exceed the limit.
    """

    def __init__(
        self,
        memory: int | None = None,
        result_bytes: int = 0,
        initial: int = INITIAL_QUERIES,
        maximum: int = MAX_QUERIES,
    ) -> None:
        self.initial, self.maximum = min(initial, maximum), maximum
        self.size = self.maximum if memory is None else self.initial
        self.memory, self.result_bytes = memory, result_bytes
        self.resident, self.peak = resident_mb() * MB, peak_mb() * MB
        if memory is not None and self.resident + result_bytes >= memory:
            raise self._too_small(0.0)

    def update(self, count: int) -> None:
        """Adapt the size to the memory that a chunk of `count` queries has taken.

        Args:
            count: queries in the last chunk.

        Raises:
            ResourceError: if the smallest chunk exceeds the limit.
        """
        if self.memory is None:
            return
        peak, previous = peak_mb() * MB, self.peak
        used, self.peak = peak - self.resident, peak
        free = self.memory - self.result_bytes - self.resident
        if peak > previous and used > free:  # because of this chunk
            if self.size <= self.initial:
                raise self._too_small(used)
            self.size //= 2
        elif count == self.size < self.maximum and MEMORY_MARGIN * 2 * used <= free:
            self.size *= 2

    def _too_small(self, used: float) -> ResourceError:
        """The error for a limit that cannot be kept, with one that can."""
        result = f", the result {size_label(self.result_bytes)}" if self.result_bytes else ""
        chunk = f", {self.size} points at a time {size_label(used)}" if used else ""
        enough = MEMORY_MARGIN * (self.resident + self.result_bytes + max(used, MIN_CHUNK_BYTES))
        return ResourceError(
            f"A memory of {size_label(self.memory or 0)} is too little: program, model and data "
            f"take {size_label(self.resident)}{result}{chunk}. Give at least "
            f"{np.ceil(enough / 2**20):.0f}M."
        )


class Session:
    """A trained model among its sensors. The graph is built once; the last links are kept.

    Args:
        trained: a trained model, which must not change meanwhile.
        nodes: positions of the sensors.
        initial_queries: decoded together at first, where memory is limited.
        max_queries: decoded together.
        kept_links: sets of queries whose links to the sensors are kept, the latest ones; at least
            one.

    Example:
        >>> session = Session(trained, field.points)
        >>> forecast(trained, field, session=session)
    """

    def __init__(
        self,
        trained: TrainedModel,
        nodes: Points,
        initial_queries: int = INITIAL_QUERIES,
        max_queries: int = MAX_QUERIES,
        kept_links: int = 1,
    ) -> None:
        self.trained, self.nodes, self.model = trained, nodes, trained.model.eval()
        self.initial_queries, self.max_queries = initial_queries, max_queries
        self.graph = self.model.node_graph(nodes)
        tensors = (*self.model.parameters(), *self.model.buffers(), torch.zeros(0))
        self.device = tensors[0].device
        self._kept_links = kept_links
        self._links: tuple[tuple[Points, QueryGraph], ...] = ()

    @torch.inference_mode()
    def encode(self, batch: Batch) -> Encoding:
        """The model's encoding of the past; independent frames are encoded in groups.

        Args:
            batch: inputs at the sensors.
        """
        batch = batch.to(self.device)
        size = max(1, MAX_ENCODED_VALUES // len(self.nodes))
        if not self.model.frame_wise or len(batch.frames) <= size:
            return self.model.encode(batch, self.graph)
        groups = [select_frames(batch, i, i + size) for i in range(0, len(batch.frames), size)]
        encodings = (narrow(self.model.encode(g, self.graph), FrameEncoding) for g in groups)
        return FrameEncoding(torch.cat([encoding.latent for encoding in encodings]))

    @torch.inference_mode()
    def decode(
        self, encoded: Encoding, batch: Batch, queries: Points
    ) -> Float[Tensor, "batch future query channel"]:
        """The normalised forecast at all these queries.

        Args:
            encoded: by `encode`, of the same batch.
            batch: gives the leads.
            queries: points of the forecast.
        """
        graphs = Graphs(self.graph, self.query_graph(queries))
        return self.model.decode(encoded, batch.to(self.device), graphs).cpu()

    def query_graph(self, queries: Points) -> QueryGraph:
        """The model's links from nodes to queries; those of the last queries are kept.

        Args:
            queries: points of the forecast.
        """
        for place, (points, found) in enumerate(self._links):
            if points is queries or points == queries:
                others = self._links[:place] + self._links[place + 1 :]
                self._links = (*others, (points, found))  # the latest last
                return found
        while len(self._links) >= self._kept_links or (
            sum(len(points) for points, _ in self._links) > MAX_KEPT_QUERIES
        ):
            self._links = self._links[1:]  # free memory first
        found = self.model.query_graph(self.nodes, queries)
        self._links = (*self._links, (queries, found))
        return found

    def chunk_size(self, memory: int | None = None, result_bytes: int = 0) -> ChunkSize:
        """The chunk size for `forecast_chunks`; see `ChunkSize`.

        Args:
            memory: bytes that the process may take; None: no limit.
            result_bytes: memory that the result will need.
        """
        return ChunkSize(memory, result_bytes, self.initial_queries, self.max_queries)

    def forecast_chunks(
        self, encoded: Encoding, batch: Batch, queries: Points, chunk_size: ChunkSize
    ) -> Iterator[Float32[np.ndarray, "batch future query channel"]]:
        """The forecast in the data's units, one chunk of consecutive queries after another.

        Args:
            encoded: by `encode`, of the same batch.
            batch: gives the leads.
            queries: points of the forecast.
            chunk_size: queries to decode together.
        """
        start = 0
        while start < len(queries):
            stop = min(start + chunk_size.size, len(queries))
            single = stop - start == len(queries)
            chunk = queries if single else select_queries(queries, start, stop)
            yield self.trained.scaler.denormalise(self.decode(encoded, batch, chunk).numpy())
            chunk_size.update(stop - start)
            if not single:
                trim_memory()
            start = stop


def select_frames(batch: Batch, start: int, stop: int) -> Batch:
    """The frames start <= i < stop, to be encoded; the windows are left as they are.

    Args:
        batch: of which frames are taken.
        start: first frame.
        stop: frame after the last.
    """
    part = slice(start, stop)
    return replace(
        batch,
        frames=batch.frames[part],
        observed=None if batch.observed is None else batch.observed[part],
        frame_time=batch.frame_time[part],
        host=None,
    )


def select_windows(batch: Batch, chosen: slice) -> Batch:
    """Some of the windows, with all frames.

    Args:
        batch: of which windows are taken.
        chosen: consecutive windows.
    """
    changes: dict[str, Any] = {
        name: value if len(value) == 1 else value[chosen]
        for name, value in (("lag", batch.lag), ("lead", batch.lead))
    }
    names = ("past", "future_time", "issue_time", "hour", *(() if batch.sun is None else ("sun",)))
    changes |= {name: getattr(batch, name)[chosen] for name in names}
    return replace(batch, **changes, host=None)


def select_queries(queries: Points, start: int, stop: int) -> Points:
    """The queries start <= i < stop.

    Args:
        queries: of which some are taken.
        start: first query.
        stop: query after the last.
    """
    return queries.take(np.arange(start, stop))
