"""Pretraining of the residual network on samples of single points, before the training steps."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int64

from stonet.data.geometry import Points, curve_order
from stonet.data.windows import Windows
from stonet.models.residual_mlp import Augmentation, PointSamples, ResidualEnsemble, ResidualMLP
from stonet.system.progress import report_progress

FEWEST_ROWS, MOST_NUMBERS = 8_192, 10**8  # kept in memory; of all rows together
TEST_ROWS = 20_000
WINDOWS, AT_ONCE = 256, 4096  # read together, and rows that they give; some points of each
STRANGE = 0.3  # share of the rows that are shown with the site that neighbours suggest
TORN, MOST_GAPS = 6, 0.5  # every so many groups of rows have gaps; up to that share
CLEARLY = 0.995  # of the base's error: what counts as less
CALM = 1.02  # of the least error: in the end, when steps are small, chance has less of a say
PASSES = 3  # over the rows, where there is noise: few rows are soon known by heart
QUIET, MORE = 0.04, 4  # where the base leaves less over there is less noise: so many times more
LESSON = 1024  # rows of a step
DROPPED, NOISY = 0.2, 0.25  # share of their regressors; less where the base leaves less over
LOOKS = 20  # times that the validation rows are looked at
LR, DECAY, WARMUP = 3e-3, 1e-4, 30


# PointSamples of some windows at some of the nodes, with an augmentation.
Sample = Callable[
    [Windows, Int64[np.ndarray, " window"], Points, Int64[np.ndarray, " point"], Augmentation],
    PointSamples,
]


class PointPretrainer:
    """Draws point samples of the training windows, and trains the residual networks on them.

    Args:
        residuals: the members are trained one after another.
        sample: makes the samples of some windows at some points.
        windows: of the training part.
        nodes: the training points.
        seed: of the random draws.
        hidden_sensors: whether corrections at points without history are kept if they help.
        steps: for each member, at most.
        base_error: mean validation error of the linear base, in standard deviations.
    """

    def __init__(
        self,
        residuals: ResidualEnsemble,
        sample: Sample,
        windows: Windows,
        nodes: Points,
        seed: int,
        hidden_sensors: bool,
        steps: int,
        base_error: float,
    ) -> None:
        self.residuals, self.sample, self.nodes, self.seed = residuals, sample, nodes, seed
        self.hidden_sensors = hidden_sensors
        self.order = curve_order(nodes)  # points beside each other share their neighbours
        self.dropped = DROPPED * min(1.0, base_error / NOISY)
        passes = PASSES * min(max(QUIET / max(base_error, 1e-9), 1.0), MORE)
        wanted = max(math.ceil(steps * LESSON / passes), FEWEST_ROWS)
        one = self.members[0]
        most = MOST_NUMBERS // (one.first.in_features + 2 * math.prod(one.shape))
        most = min(most, len(windows) * len(nodes))
        self.rows = self._rows(windows, min(wanted, most), learned=True)
        self.max_steps = math.ceil(passes * most / LESSON)
        self.steps = min(steps, self.max_steps)

    @property
    def members(self) -> list[ResidualMLP]:
        return [member for member in self.residuals.members if isinstance(member, ResidualMLP)]

    def batch(self, step: int, member: int = 0) -> PointSamples:
        """The samples of a step, with dropout of their regressors."""
        count = max(1, len(self.rows) // LESSON - 1)  # lessons of a pass, which begins anywhere
        spare = max(0, len(self.rows) - count * LESSON)
        key = (self.seed, member)
        first = int(np.random.default_rng((*key, step // count)).integers(spare + 1))
        start = first + (step + member) % count * LESSON
        rows = self.rows.part(slice(start, start + LESSON))  # a view: they lie there in disorder
        draw, white = np.random.default_rng((*key, step, 1)), rows.features.white
        kept = torch.from_numpy(draw.random(white.shape, dtype=np.float32) >= self.dropped)
        return replace(
            rows, features=replace(rows.features, white=white * kept / (1 - self.dropped))
        )

    def fit(self, validation: Windows) -> None:
        """Train each member by itself, validated on the same samples."""
        tests = self._rows(validation, TEST_ROWS)
        far = self._rows(validation, TEST_ROWS // 4, silent=True) if self.hidden_sensors else None
        for number, member in enumerate(self.members):
            self._fit_member(number, member, tests)
            if self.steps:
                _judge_far(member, far)

    def _fit_member(self, number: int, residual: ResidualMLP, tests: PointSamples) -> None:
        """Train one member.

        Its final weights are kept unless an earlier validation was more than 2 % better. If
        neither clearly improves on the base alone, the initial weights are kept: no correction.
        """
        steps, total_steps = self.steps, self.steps * len(self.members)
        residual.requires_grad_(True)
        optimiser = torch.optim.AdamW(residual.parameters(), lr=LR, weight_decay=DECAY, fused=True)
        enough = best = error = CLEARLY * _error(tests, residual)
        kept = copy.deepcopy(residual.state_dict())
        for step in range(steps):
            report_progress(number * steps + step, total_steps)
            for group in optimiser.param_groups:
                warm = min(1.0, (step + 1) / WARMUP)
                group["lr"] = LR * warm * (0.01 + 0.495 * (1 + math.cos(math.pi * step / steps)))
            total, count = self.batch(step, number).error(residual)
            optimiser.zero_grad(set_to_none=True)
            (total / count.clamp(min=1)).backward()
            optimiser.step()
            if (step + 1) % max(1, steps // LOOKS) == 0 or step + 1 == steps:
                error = _error(tests, residual)
                if error < best:
                    best, kept = error, copy.deepcopy(residual.state_dict())
        residual.requires_grad_(False)
        if not error < min(enough, CALM * best):
            residual.load_state_dict(kept)

    def _rows(
        self, windows: Windows, most: int, silent: bool = False, learned: bool = False
    ) -> PointSamples:
        """Samples of groups of windows at a few points, shuffled.

        With `silent`, all as at new sites without history. With `learned`, some groups have gaps
        and some points the climatology of an unseen site.
        """
        draw = np.random.default_rng((self.seed, len(windows), most))
        pool, count = self.order, min(WINDOWS, len(windows))
        rows = min(most, len(windows) * len(pool))
        few = min(max(1, min(AT_ONCE, rows // (2 * TORN)) // count), len(pool))
        groups, start = math.ceil(rows / (count * few)), draw.integers(len(pool))
        hop = max(few, len(pool) // groups)  # few groups of many points are spread over them all
        order = torch.from_numpy(draw.permutation(groups * count * few)).split(count * few)
        result: PointSamples | None = None
        for number in range(groups):
            report_progress(number, groups)
            chosen = np.sort(draw.choice(len(windows), count, replace=False))
            points = pool[(start + hop * number + np.arange(few)) % len(pool)]
            as_unseen = draw.random((count, few)) < (STRANGE if learned else silent)
            has_gaps = learned and number % TORN == TORN - 1
            gaps = float(draw.uniform(0, MOST_GAPS)) if has_gaps else 0.0
            alone = torch.full((count, few), silent)
            part = self.sample(
                windows,
                chosen,
                self.nodes,
                points,
                Augmentation(alone, torch.from_numpy(as_unseen), gaps),
            )
            result = part.allocate(groups * len(part)) if result is None else result
            result.put(order[number], part)
        assert result is not None
        return result


def _judge_far(residual: ResidualMLP, tests: PointSamples | None) -> None:
    """Keep corrections at points without history only if they lower the validation error."""
    share = residual.far_share.zero_()
    if tests is not None:
        silent = _error(tests, residual)
        share.fill_(1.0)
        share.fill_(float(_error(tests, residual) < CLEARLY * silent))


@torch.no_grad()
def _error(rows: PointSamples, residual: ResidualMLP) -> float:
    total, count = rows.error(residual)
    return float(total / count.clamp(min=1))
