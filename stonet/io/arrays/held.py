"""A data set that is opened when it is needed and kept open from one block to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stonet.io.safety import readable

if TYPE_CHECKING:
    import xarray as xr


class Held:
    """Opening costs more than reading a block, so a file stays open until its last frame is read.

    Args:
        origin: the file, for messages.
        opened: opens it.
        closing: whether it is ours to close.
    """

    def __init__(self, origin: str, opened: Callable[[], xr.Dataset], closing: bool = True) -> None:
        self.origin, self.opened, self.closing = origin, opened, closing
        self._dataset: xr.Dataset | None = None

    @property
    def dataset(self) -> xr.Dataset:
        """Open."""
        if self._dataset is None:
            self._dataset = self.opened()
        return self._dataset

    @contextmanager
    def reading(self, last: bool) -> Iterator[xr.Dataset]:
        """For one block; closed after the `last` one, and whenever something goes wrong."""
        try:
            with readable(self.origin, "a data set"):
                yield self.dataset
        except BaseException:
            self.close()
            raise
        if last:
            self.close()

    def close(self) -> None:
        """Let the file go; it is opened again when it is needed."""
        if self._dataset is not None and self.closing:
            self._dataset.close()
        self._dataset = None
