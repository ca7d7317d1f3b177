"""What is claimed, what was measured, and whether it holds: computed from the tables.

Each claim is a number for each task that should lie on one side of a bound. It holds where all do,
holds partly where at least half do, and does not hold otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stonet.experiments.ablation import CHANCE
from stonet.experiments.markdown import DASH, percent
from stonet.models.registry import BASELINES, REFERENCE_FORECASTS

Line = dict[str, Any]
Tables = dict[str, list[Line]]
OURS = "stonet"
MARGIN = 9.0  # percent: by which the paper's STONet lies below the second best, on average
DEVIATION, GAIN = 4.0, 10.0  # percent: at unseen points at most; below interpolation at least
LABELS, MISSING = 5.0, 10.0  # percent more error at most: half of the labels; a quarter of inputs
QUARTER = 0.25
NEEDED = {*BASELINES, *REFERENCE_FORECASTS} - {"daily"}  # which some data have no days for
LUCK = 0.05


@dataclass(frozen=True)
class Claim:
    """A bound on a number of each task."""

    title: str
    goal: str
    values: dict[str, float]  # by task
    expected: int  # tasks that should have been measured
    least: float | None = None
    most: float | None = None
    mean_least: float | None = None  # a bound on the mean of all
    note: str = ""
    chance: float = 0.0  # percent: less is no difference
    whole: bool = True  # whether all that each task's number is the best of was measured

    def reached(self, value: float) -> bool:
        """Whether one task's number lies where it should, and not by chance."""
        above = self.least is None or value > self.least
        below = self.most is None or value <= self.most
        return above and below and abs(value) >= self.chance

    @property
    def verdict(self) -> str:
        if not self.values:
            return "not measured"
        if all(abs(value) < self.chance for value in self.values.values()):
            return "within chance"
        share = np.mean([self.reached(value) for value in self.values.values()])
        mean = np.mean(list(self.values.values()))
        far = self.mean_least is None or mean >= self.mean_least
        if share == 1 and far:
            whole = self.whole and len(self.values) >= self.expected
            return "holds" if whole else "holds where measured"
        return "holds partly" if share >= 0.5 else "does not hold"

    @property
    def measured(self) -> str:
        """Mean and range, and how many tasks reach it."""
        if not self.values:
            return DASH
        values = list(self.values.values())
        reached = sum(map(self.reached, values))
        mean, low, high = map(percent, (float(np.mean(values)), min(values), max(values)))
        return f"mean {mean}, {low} to {high}; {reached} of {len(values)} tasks"

    def row(self) -> list[str]:
        """A row of the table of claims."""
        return [self.title, self.goal, self.measured, f"**{self.verdict}**"]

    def paragraph(self) -> str:
        """The numbers behind the verdict."""
        if not self.values:
            return f"**{self.title}: not measured.**"
        each = ", ".join(f"{task} {percent(value)}" for task, value in self.values.items())
        missed = [task for task, value in self.values.items() if not self.reached(value)]
        text = f"**{self.title}: {self.verdict}.** Goal: {self.goal}. Measured: {each}."
        if self.mean_least is not None:
            mean = percent(float(np.mean(list(self.values.values()))))
            text += f" The mean is {mean}, the goal {percent(self.mean_least)}."
        if missed:
            text += f" Missed on {', '.join(missed)}."
        if len(self.values) < self.expected:
            text += f" {self.expected - len(self.values)} task(s) are not measured yet."
        return text + self.note


def claims_of(tables: Tables, tasks: Sequence[str], few: int) -> list[Claim]:
    """All of them; `few` is the number of tasks with ablations."""
    many = len(tasks)
    return [*_of_errors(tables, many), *_of_abilities(tables, many), *_of_parts(tables, few)]


def _of_errors(tables: Tables, many: int) -> list[Claim]:
    """Against baselines and references."""
    on_base, all_on_base = _on_base(tables["comparison"])
    return [
        Claim(
            "STONet beats every baseline and reference forecast",
            f"MAE below the best other on all tasks, {MARGIN:g} % on average",
            _ours(_whole(tables["comparison"], NEEDED), "improvement"),
            many,
            least=0.0,
            mean_least=MARGIN,
            note=_luck(tables["comparison"]),
        ),
        Claim(
            "STONet beats every published baseline, in the same short time",
            f"MAE below the best of eight, {MARGIN:g} % on average",
            _below(_whole(tables["comparison"], {*BASELINES}), lambda model: model in BASELINES),
            many,
            least=0.0,
            mean_least=MARGIN,
        ),
        Claim(
            "It still does when they have more time",
            "MAE below the best baseline and reference forecast on all tasks, each with the budget `long`",
            _ours(_whole(tables["longer"], NEEDED), "improvement"),
            many,
            least=0.0,
            note=_luck(_whole(tables["longer"], NEEDED)),
        ),
        Claim(
            "The gain is STONet's own, not the base's",
            "MAE below the best baseline that stands on the same base",
            _ours(tables["comparison"], "improvement_based"),
            many,
            least=0.0,
            note=_luck(tables["comparison"], "_based") + on_base,
            whole=all_on_base,
        ),
    ]


def _of_abilities(tables: Tables, many: int) -> list[Claim]:
    """At new places, with few labels, with gaps."""
    return [
        Claim(
            "Points never seen, with a past, are forecast as well as seen ones",
            f"Deviation at most {DEVIATION:g} %",
            _ours(_main(tables["inductive"]), "deviation"),
            many,
            most=DEVIATION,
            note=_harder(tables["inductive"]),
        ),
        Claim(
            "Points without a past are better asked than interpolated",
            f"MAE at least {GAIN:g} % below the best interpolated forecast",
            _ours(_main(tables["inductive"]), "gain"),
            many,
            least=GAIN,
            note=_beyond(tables["inductive"]),
        ),
        Claim(
            "Half of the labels are enough",
            f"n_t' = n_t / 2 costs at most {LABELS:g} %",
            _half_of_labels(tables["irregular"]),
            many,
            most=LABELS,
        ),
        *(
            Claim(
                f"Missing inputs are tolerated, {what}",
                f"a quarter missing costs at most {MISSING:g} %",
                _change(tables["irregular"], ask, QUARTER),
                many,
                most=MISSING,
            )
            for what, ask in (("lost at random", "random"), ("silent sensors", "outage"))
        ),
    ]


def _harder(lines: Sequence[dict[str, Any]]) -> str:
    """Where the goal is missed and persistence, which learns nothing, misses it as well."""
    ours, references = (_ours(_main(lines), name) for name in ("deviation", "deviation_floor"))
    harder = {t: v for t, v in references.items() if min(v, ours.get(t, v)) > DEVIATION}
    each = ", ".join(f"{task} ({percent(value)})" for task, value in harder.items())
    return f" The unseen points are harder ones for persistence, too, on {each}." if each else ""


def _beyond(lines: Sequence[dict[str, Any]]) -> str:
    """Where even with a past the goal for points without one would be missed."""
    names = ("unseen", "alternative_mae")
    past, other = (_ours(_main(lines), name) for name in names)
    beyond = [task for task in past if past[task] > (1 - GAIN / 100) * other.get(task, math.inf)]
    return (
        f" With a past its error misses that goal, too, on {', '.join(beyond)}." if beyond else ""
    )


def _of_parts(tables: Tables, few: int) -> list[Claim]:
    """What the network is made of."""
    alone = [line for line in tables["ablation"] if line["whole"] == "operator"]
    seeds = [
        abs(change) for value in CHANCE[1] for change in _factor(alone, "seed", value).values()
    ]
    chance = max(seeds, default=math.inf)
    by_itself = " Of the operator by itself, without base and experts; " + (
        f"another seed changes its error by up to {chance:.1f} %."
        if seeds
        else "what another seed does was not measured."
    )
    return [
        Claim(
            "Three levels are better than one",
            "MAE with one level above that with three",
            _factor(alone, "levels", "1"),
            few,
            least=0.0,
            chance=chance,
            note=by_itself,
        ),
        Claim(
            "Reconstruction helps (alpha)",
            "MAE without it above that with it",
            _factor(alone, "alpha", "0.0"),
            few,
            least=0.0,
            chance=chance,
            note=by_itself,
        ),
        Claim(
            "The ODE decoder takes longer",
            "an epoch takes more than the revised decoder's",
            {
                line["dataset"]: 100 * (line["times"] - 1)
                for line in tables["cost"]
                if line["decoder"] == "ode" and line["times"]
            },
            few,
            least=0.0,
        ),
    ]


def _ours(lines: Sequence[Line], key: str) -> dict[str, float]:
    return {
        line["dataset"]: float(line[key])
        for line in lines
        if line["model"] == OURS and line.get(key) is not None
    }


def _luck(lines: Sequence[Line], kind: str = "") -> str:
    """Where the difference to the best other could be luck; each task by itself."""
    p, gain = _ours(lines, f"p{kind}"), _ours(lines, f"improvement{kind}")
    sure = {
        "below": [task for task, value in p.items() if value < LUCK and gain[task] > 0],
        "above": [task for task, value in p.items() if value < LUCK and gain[task] <= 0],
    }
    told = [f"{word} on {', '.join(tasks)}" for word, tasks in sure.items() if tasks]
    few = [task for task in gain if task not in p]
    text = f" Significantly (p < {LUCK:g}) {' and '.join(told)}." if told else ""
    return text + (f" Too few windows for a test: {', '.join(few)}." if few else "")


def _whole(lines: Sequence[Line], needed: set[str]) -> list[Line]:
    """Of the tasks on which all of these models were measured."""
    found: dict[str, set[str]] = {}
    for line in lines:
        found.setdefault(line["dataset"], set()).add(line["model"])
    return [line for line in lines if found[line["dataset"]] >= needed]


def _on_base(lines: Sequence[Line]) -> tuple[str, bool]:
    """Which baselines on the base are missing or of other code, and whether none is."""
    based = [line for line in lines if line["model"].endswith("+base")]
    old = sorted({commit for line in based for commit in line.get("stale", ())})
    made = (
        f" Baselines on the base are of other code than today's ({', '.join(old)})." if old else ""
    )
    found = {line["dataset"]: 0 for line in lines}
    for line in lines:
        found[line["dataset"]] += line["model"].endswith("+base") and line["mae"] is not None
    if min(found.values(), default=0) == len(BASELINES):
        return made, not old
    told = ", ".join(f"{task} {count}" for task, count in found.items())
    return f" Of {len(BASELINES)} baselines there are on the base: {told}.{made}", False


def _main(lines: Sequence[Line]) -> list[Line]:
    """At the share of unseen points at which every model is asked: the first of STONet's."""
    shares = {line["share"] for line in lines if line["model"] != OURS}
    return [line for line in lines if line["share"] in shares]


def _below(lines: Sequence[Line], among: Callable[[str], bool]) -> dict[str, float]:
    """How far ours lies below the best of some models, in percent."""
    found = {}
    for dataset in dict.fromkeys(line["dataset"] for line in lines):
        mae = {line["model"]: line["mae"] for line in lines if line["dataset"] == dataset}
        others = [value for model, value in mae.items() if among(model) and value is not None]
        if others and OURS in mae:
            found[dataset] = 100 * (1 - mae[OURS] / min(others))
    return found


def _change(lines: Sequence[Line], ask: str, level: float) -> dict[str, float]:
    return {
        line["dataset"]: float(line["change"])
        for line in lines
        if (line["model"], line["ask"], line["level"]) == (OURS, ask, level)
        and line["change"] is not None
    }


def _half_of_labels(lines: Sequence[Line]) -> dict[str, float]:
    found = {}
    mine = [line for line in lines if (line["model"], line["ask"]) == (OURS, "labels")]
    for dataset in dict.fromkeys(line["dataset"] for line in mine):
        by_level = {line["level"]: line["change"] for line in mine if line["dataset"] == dataset}
        half = max(by_level) // 2
        if by_level.get(half) is not None:
            found[dataset] = float(by_level[half])
    return found


def _factor(lines: Sequence[Line], factor: str, value: str) -> dict[str, float]:
    """How much a value costs against the default, in percent; nothing where it is the default."""
    return {
        line["dataset"]: float(line["change"])
        for line in lines
        if (line["factor"], line["value"]) == (factor, value)
        and not line["default"]
        and line["change"] is not None
    }
