"""Wave: a membrane driven by hidden sources, simulated, so that no download is needed.

    u_tt = c² Δu + v(x, y, t)    on the unit square, u = 0 on its border, u = u_t = 0 at the start

The grid has n x n interior nodes at (i + 1) dx with dx = 1/(n + 1), so that the first zero outside
lies exactly on the border. One to three sources v ≥ 0 drift, pulse or fade; only u is observed.
Lengths below are in grid steps dx and times in frames of dt = 1 ms, where c is √COURANT_SQUARED.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points, morton_order
from stonet.data.splits import spread_alike
from stonet.datasets.card import Card
from stonet.errors import DataError

SIZE = 64  # interior nodes along each side
STEP = 1_000_000  # dt in nanoseconds
COURANT_SQUARED = 0.1  # (c dt/dx)²: one medium for all sequences; c = 4.9 sides per second
DROPPED = 10  # frames before the first one kept, while the membrane is still flat
RISE = 8.0  # frames in which every source rises from zero, so that the start is smooth
LOAD = 0.045  # ∬ dt² v of a source at its maximum: sets the range of u, about [-.07, .40]
SEED = 2022

CARD = Card(
    name="wave",
    title="Wave: a membrane on the unit square, pushed by hidden sources",
    kind="simulated, without noise",
    source="stonet/datasets/wave.py, deterministic by seed",
    page="https://arxiv.org/abs/2004.06243",
    licence="Apache-2.0",
    channels="`u` (1)",
    shape="100 episodes of 200 x 1024 x 1",
    step="1 ms",
    period="no calendar",
    split="by episode, 70/10/20; 512 points for training and 512 unseen",
)


def laplacian(u: Float64[np.ndarray, "sequence y x"]) -> Float64[np.ndarray, "sequence y x"]:
    """dx² Δu by the five-point stencil, with zeros outside.

    Args:
        u: on a grid with unit spacing.
    """
    padded = np.pad(u, ((0, 0), (1, 1), (1, 1)))
    total = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1]  # summed in pairs, so that a mirrored u
    total += padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:]  # gives exactly the mirrored result
    return total - 4.0 * u


def propagate(
    previous: Float64[np.ndarray, "sequence y x"],
    current: Float64[np.ndarray, "sequence y x"],
    push_at: Callable[[int], Float64[np.ndarray, "sequence y x"]],
    courant_squared: float,
    steps: int,
) -> Iterator[Float64[np.ndarray, "sequence y x"]]:
    """Solve by leap-frog, of second order in space and time; yields u after each of the `steps`.

        u(t + dt) = 2 u(t) - u(t - dt) + (c dt/dx)² dx² Δu(t) + dt² v(t)

    Args:
        previous: u one step before the start.
        current: u at the start, step 0.
        push_at: dt² v at a step.
        courant_squared: (c dt/dx)², at most 1/2: beyond, the shortest waves grow without bound.
        steps: number of time steps.
    """
    if not 0.0 < courant_squared <= 0.5:
        raise DataError(
            f"(c dt/dx)² = {courant_squared:g}; the leap-frog scheme is stable in two dimensions "
            "only for 0 < (c dt/dx)² <= 0.5. Take a smaller time step or a coarser grid."
        )

    def leap(before: np.ndarray, now: np.ndarray) -> Iterator[np.ndarray]:
        for step in range(steps):
            after = 2.0 * now - before + courant_squared * laplacian(now) + push_at(step)
            before, now = now, after
            yield now

    return leap(previous, current)


@dataclass(frozen=True, eq=False)
class Sources:
    """The hidden v: Gaussians whose total load does not depend on their width.

        dt² v(x, t) = load · law(t) / (2π r²) · exp(-|x - centre(t)|² / 2r²)

    Here law = 1 for a drifting source, sin²(πt/pace) for a pulsing one, exp(-t/pace) for a fading
    one, all times 1 - exp(-(t/RISE)²). Only drifting sources move, on a small circle.

    Args:
        home: x, y.
        orbit: radius of the circle on which it drifts.
        angle: position on that circle at the start.
        speed: along the circle, in cells per frame.
        radius: r, in cells.
        load: zero for an absent source.
        pace: period of a pulsing source, decay time of a fading one; in frames.
        kind: 0 drifts, 1 pulses, 2 fades.
    """

    home: Float64[np.ndarray, "sequence source 2"]
    orbit: Float64[np.ndarray, "sequence source"]
    angle: Float64[np.ndarray, "sequence source"]
    speed: Float64[np.ndarray, "sequence source"]
    radius: Float64[np.ndarray, "sequence source"]
    load: Float64[np.ndarray, "sequence source"]
    pace: Float64[np.ndarray, "sequence source"]
    kind: Int64[np.ndarray, "sequence source"]

    @staticmethod
    def draw(seed: int, sequences: Sequence[int]) -> Sources:
        """The sources of some sequences; each is the same whichever others are drawn.

        Args:
            seed: of the data set.
            sequences: their numbers.
        """
        count = max(sequences, default=-1) + 1
        draws = np.random.default_rng([seed, 0]).random((count, 3, 10))[list(sequences)]
        kind = (3 * draws[..., 0]).astype(np.int64)
        present = np.arange(3) < 1 + (3 * draws[:, :1, 1]).astype(np.int64)
        return Sources(
            home=(SIZE - 1) * (0.2 + 0.6 * draws[..., 2:4]),
            orbit=4.0 + 4.0 * draws[..., 4],
            angle=2.0 * np.pi * draws[..., 5],
            speed=np.where(kind == 0, 0.04 + 0.08 * draws[..., 6], 0.0),
            radius=1.0 + 2.0 * draws[..., 7],
            load=np.where(present, LOAD * (0.5 + 0.5 * draws[..., 8]), 0.0),
            pace=40.0 + 80.0 * draws[..., 9],
            kind=kind,
        )

    def push(self, time: int | float) -> Float64[np.ndarray, "sequence y x"]:
        """dt² v on the grid at a time in frames.

        Args:
            time: since the start of the sequences.
        """
        pulse, fade = np.sin(np.pi * time / self.pace) ** 2, np.exp(-time / self.pace)
        law = np.choose(self.kind, [1.0, pulse, fade])
        height = self.load * law * -np.expm1(-((time / RISE) ** 2)) / (2.0 * np.pi * self.radius**2)
        angle = self.angle + self.speed / self.orbit * time
        shift = self.orbit[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        offset = np.arange(SIZE) - (self.home + shift)[..., None]  # (sequence, source, 2, node)
        bell = np.exp(-0.5 * (offset / self.radius[..., None, None]) ** 2)
        x, y = bell[:, :, 0], bell[:, :, 1] * height[..., None]
        return y.transpose(0, 2, 1) @ x  # Σ over sources: a Gaussian is a product of two


def simulate(
    seed: int,
    sequences: Sequence[int],
    frames: int,
    nodes: Int64[np.ndarray, " node"] | None = None,
    substeps: int = 1,
) -> Float32[np.ndarray, "sequence frame node"]:
    """U of some sequences, at some nodes of the grid or at all.

    Args:
        seed: of the sources.
        sequences: their numbers, from 0; each is the same whichever others are requested.
        frames: number of frames after the first `DROPPED`.
        nodes: row-major grid indices; all 4096 by default.
        substeps: solve, and return, in steps of dt / substeps. Every `substeps`-th frame agrees
            with the data set up to the error of the scheme in time (2e-5 on average).
    """
    if frames < 1 or substeps < 1 or min(sequences, default=0) < 0:
        raise DataError(
            f"{frames} frames, {substeps} substeps, sequences from {min(sequences, default=0)}; "
            "expected at least one frame, one substep, and sequence numbers from 0."
        )
    chosen = np.arange(SIZE**2) if nodes is None else nodes
    sources, rest = Sources.draw(seed, sequences), np.zeros((len(sequences), SIZE, SIZE))
    solution = propagate(
        rest,
        rest,
        lambda step: sources.push(step / substeps) / substeps**2,
        COURANT_SQUARED / substeps**2,
        (DROPPED + frames) * substeps,
    )
    maps = np.empty((len(sequences), (frames - 1) * substeps + 1, len(chosen)), dtype=np.float32)
    for frame, u in enumerate(solution, start=1 - (DROPPED + 1) * substeps):
        if frame >= 0:
            maps[:, frame] = u.reshape(-1, SIZE**2)[:, chosen]
    return maps


def wave(
    seed: int = SEED, sequences: int = 100, frames: int = 200, seen: int = 512, unseen: int = 512
) -> Dataset:
    """The data set: all sequences at random nodes of the grid.

    Args:
        seed: of the sources and of the nodes.
        sequences: number of episodes.
        frames: of each episode.
        seen: number of training points.
        unseen: number of further points.
    """
    if seen < 1 or unseen < 0 or seen + unseen > SIZE**2:
        raise DataError(
            f"{seen} seen and {unseen} unseen points of a grid with {SIZE**2} nodes; expected at "
            "least one seen point and no more points than the grid has."
        )
    drawn = np.random.default_rng([seed, 1]).permutation(SIZE**2)[: seen + unseen]
    ordered = drawn[morton_order(np.stack([drawn % SIZE, drawn // SIZE], axis=1))]
    nodes = np.concatenate(spread_alike(ordered, unseen))
    maps = simulate(seed, range(sequences), frames, nodes)
    points = _grid_points(nodes)
    episodes = tuple(_field(values, points, STEP, seed) for values in maps)
    return Dataset(episodes, "wave", tuple(range(seen, seen + unseen)))


def wave_on_grid(sequence: int, seed: int = SEED, frames: int = 200, substeps: int = 1) -> Field:
    """One sequence at all nodes of the grid, row by row.

    Args:
        sequence: its number.
        seed: of the sources.
        frames: number of frames of the data set.
        substeps: time steps per frame.
    """
    if STEP % max(substeps, 1):
        raise DataError(f"{substeps} substeps do not divide the frame's {STEP} ns. Choose e.g. 4.")
    values = simulate(seed, [sequence], frames, substeps=substeps)[0]
    return _field(values, _grid_points(np.arange(SIZE**2)), STEP // substeps, seed)


def _grid_points(nodes: Int64[np.ndarray, " node"]) -> Points:
    coordinates = np.stack([nodes % SIZE + 1, nodes // SIZE + 1], axis=1) / (SIZE + 1)  # x, y
    return Points(coordinates, "plane", tuple(f"p{node:04d}" for node in nodes))


def _field(values: Float32[np.ndarray, "time node"], points: Points, step: int, seed: int) -> Field:
    return Field(
        values=values[..., None],
        times=step * np.arange(len(values)),
        points=points,
        units=("1",),
        calendar=False,
        attrs={
            "title": "Wave: a membrane on the unit square, pushed by hidden sources",
            "source": f"simulated by stonet.datasets.wave, seed {seed}",
            "licence": "Apache-2.0",
        },
    )
