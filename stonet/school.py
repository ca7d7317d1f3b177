"""The experts' schooling: many windows, few points each, before the network learns whole frames."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int64

from stonet.expert import Expert, Experts, Guise, Rows
from stonet.geometry import Points, curve_order
from stonet.progress import tell
from stonet.windows import Windows

FEWEST_ROWS, MOST_NUMBERS = 8_192, 10**8  # kept in memory; of all rows together
TEST_ROWS = 20_000
WINDOWS, AT_ONCE = 256, 4096  # read together, and rows that they give; some points of each
SILENT = 0.25  # share of the rows that are seen without a past of their own, if any are
STRANGE, AS_NEW = 0.3, 0.7  # share that is shown with the portrait that neighbours suggest: of rows
# with a past, of those without, which may be a known sensor's that failed
ASIDE = 5  # every so many points never are, to judge what is learned of places without a past
TORN, MOST_GAPS = 6, 0.5  # every so many groups of rows have gaps; up to that share
CLEARLY = 0.995  # of the base's error: what counts as less
CALM = 1.02  # of the least error: in the end, when steps are small, chance has less of a say
PASSES = 3  # over the rows, where there is noise: few rows are soon known by heart
QUIET, MORE = 0.04, 4  # where the base leaves less over there is less noise: so many times more
LESSON = 1024  # rows of a step
DROPPED, NOISY = 0.2, 0.25  # share of their regressors; less where the base leaves less over
LOOKS = 20  # times that the validation rows are looked at
LR, DECAY, WARMUP = 3e-3, 1e-4, 30


# Rows of some windows at some of the nodes, in a guise.
Show = Callable[
    [Windows, Int64[np.ndarray, " window"], Points, Int64[np.ndarray, " point"], Guise], Rows
]


class School:
    """Rows of the training windows, from which the experts learn, as many as the steps ask for.

    Args:
        experts: who learn, one after another.
        show: makes rows.
        windows: for training.
        nodes: the points that these are at.
        seed: decides which rows are drawn.
        outage: whether any are seen without a past; how many is the school's choice.
        steps: of each one's schooling.
        left: what the base leaves over on validation, in standard deviations of the field.
    """

    def __init__(
        self,
        experts: Experts,
        show: Show,
        windows: Windows,
        nodes: Points,
        seed: int,
        outage: bool,
        steps: int,
        left: float,
    ) -> None:
        self.experts, self.show, self.nodes, self.seed = experts, show, nodes, seed
        self.order = curve_order(nodes)  # points beside each other share their neighbours
        self.aside = np.zeros(len(nodes), dtype=bool)
        self.aside[self.order[ASIDE - 1 :: ASIDE]] = True
        self.dropped = DROPPED * min(1.0, left / NOISY)
        passes = PASSES * min(max(QUIET / max(left, 1e-9), 1.0), MORE)
        wanted = max(math.ceil(steps * LESSON / passes), FEWEST_ROWS)
        one = self.members[0]
        most = MOST_NUMBERS // (one.own.in_features + 2 * math.prod(one.shape))
        most = min(most, len(windows) * len(nodes))
        self.rows = self._rows(windows, min(wanted, most), SILENT if outage else 0.0, True)
        self.limit = math.ceil(passes * most / LESSON)  # of the steps, if more were asked for
        self.steps = min(steps, self.limit)

    @property
    def members(self) -> list[Expert]:
        return [member for member in self.experts.members if isinstance(member, Expert)]

    def lesson(self, step: int, member: int = 0) -> Rows:
        """The rows of a step, some of what they show dropped so that none is relied on."""
        count = max(1, len(self.rows) // LESSON - 1)  # lessons of a pass, which begins anywhere
        spare = max(0, len(self.rows) - count * LESSON)
        key = (self.seed, member)
        first = int(np.random.default_rng((*key, step // count)).integers(spare + 1))
        start = first + (step + member) % count * LESSON
        rows = self.rows.part(slice(start, start + LESSON))  # a view: they lie there in disorder
        draw, white = np.random.default_rng((*key, step, 1)), rows.sight.white
        kept = torch.from_numpy(draw.random(white.shape, dtype=np.float32) >= self.dropped)
        return replace(rows, sight=replace(rows.sight, white=white * kept / (1 - self.dropped)))

    def teach(self, judges: Windows) -> None:
        """Each expert by itself, judged by the same rows."""
        tests = self._rows(judges, TEST_ROWS)
        far = self._rows(judges, TEST_ROWS // 4, silence=1.0) if self.aside.any() else None
        for number, member in enumerate(self.members):
            self._teach(number, member, tests)
            if self.steps:
                _judge_far(member, far)

    def _teach(self, number: int, expert: Expert, tests: Rows) -> None:
        """Leaves the expert as it is in the end, or as it was when it erred far less on the tests.

        If that is not clearly less than the base alone errs, it stays as it came: without advice.
        """
        steps, total_steps = self.steps, self.steps * len(self.members)
        expert.requires_grad_(True)
        optimiser = torch.optim.AdamW(expert.parameters(), lr=LR, weight_decay=DECAY, fused=True)
        enough = best = error = CLEARLY * _error(tests, expert)
        kept = copy.deepcopy(expert.state_dict())
        for step in range(steps):
            tell(number * steps + step, total_steps)
            for group in optimiser.param_groups:
                warm = min(1.0, (step + 1) / WARMUP)
                group["lr"] = LR * warm * (0.01 + 0.495 * (1 + math.cos(math.pi * step / steps)))
            total, count = self.lesson(step, number).error(expert)
            optimiser.zero_grad(set_to_none=True)
            (total / count.clamp(min=1)).backward()
            optimiser.step()
            if (step + 1) % max(1, steps // LOOKS) == 0 or step + 1 == steps:
                error = _error(tests, expert)
                if error < best:
                    best, kept = error, copy.deepcopy(expert.state_dict())
        expert.requires_grad_(False)
        if not error < min(enough, CALM * best):
            expert.load_state_dict(kept)

    def _rows(
        self, windows: Windows, most: int, silence: float = 0.0, learned: bool = False
    ) -> Rows:
        """Groups of windows at a few points; a share as if without a past.

        Those that are learned from: some groups with gaps, some points strange.

        In disorder: a lesson is to be of many groups.

        Silent are only points that are not set aside; if all are to be, only those that are.
        """
        draw = np.random.default_rng((self.seed, len(windows), most))
        pool = self.order[self.aside[self.order]] if silence == 1 else self.order
        count, rows = min(WINDOWS, len(windows)), min(most, len(windows) * len(pool))
        few = min(max(1, min(AT_ONCE, rows // (2 * TORN)) // count), len(pool))
        groups, start = math.ceil(rows / (count * few)), draw.integers(len(pool))
        order = torch.from_numpy(draw.permutation(groups * count * few)).split(count * few)
        result: Rows | None = None
        for number in range(groups):
            tell(number, groups)
            chosen = np.sort(draw.choice(len(windows), count, replace=False))
            points = pool[(start + few * number + np.arange(few)) % len(pool)]
            silent = draw.random((count, few)) < silence
            silent &= (silence == 1) | ~self.aside[points]
            odds = np.where(silent, AS_NEW, STRANGE) if learned else silent
            strange = draw.random((count, few)) < odds
            has_gaps = learned and number % TORN == TORN - 1
            gaps = float(draw.uniform(0, MOST_GAPS)) if has_gaps else 0.0
            guise = Guise(torch.from_numpy(silent), torch.from_numpy(strange), gaps)
            part = self.show(windows, chosen, self.nodes, points, guise)
            result = part.room(groups * len(part)) if result is None else result
            result.put(order[number], part)
        assert result is not None
        return result


def _judge_far(expert: Expert, tests: Rows | None) -> None:
    """No advice without a past, unless it helps where nobody learned from such rows."""
    share = expert.far_share.zero_()
    if tests is not None:
        silent = _error(tests, expert)
        share.fill_(1.0)
        share.fill_(float(_error(tests, expert) < CLEARLY * silent))


@torch.no_grad()
def _error(rows: Rows, expert: Expert) -> float:
    total, count = rows.error(expert)
    return float(total / count.clamp(min=1))
