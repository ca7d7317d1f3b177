"""A checksum of a data set, by which results on equal data are recognised."""

from __future__ import annotations

import hashlib

import numpy as np

from stonet.data.field import Dataset

FRAMES_PER_HASH = 512  # frames that are hashed at a time


def data_sha256(dataset: Dataset) -> str:
    """Hash of all that training and scoring can read of the data.

    Args:
        dataset: all episodes are read.
    """
    first = dataset.episodes[0]
    header = [first.quantity, first.calendar, first.points.kind, dataset.unseen]
    header += [dataset.past, dataset.horizon, dataset.stride]
    digest = hashlib.sha256(repr(header).encode())
    digest.update(first.points.coordinates.tobytes())
    for field in dataset.episodes:
        digest.update(field.times.tobytes())
        for start in range(0, len(field.times), FRAMES_PER_HASH):
            part = slice(start, start + FRAMES_PER_HASH)
            digest.update(field._filled(part).tobytes())
            digest.update(np.packbits(field.observed[part]).tobytes())
    return digest.hexdigest()
