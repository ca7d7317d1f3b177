"""Claims and verdicts, computed from the tables of the experiments.

A claim is a number per data set with a bound. It holds if all numbers are within the bound, holds
partly if at least half are, and does not hold otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stonet.experiments.ablation import SEEDS
from stonet.experiments.tables import DASH, Line, percent, unique
from stonet.models.registry import BASELINES, REFERENCE_FORECASTS

Tables = dict[str, list[Line]]
OURS = "stonet"
MIN_MEAN_GAIN = 9.0  # percent: the paper's mean gain of STONet over the second best model
MAX_DEVIATION, MIN_GAIN = 4.0, 10.0  # percent: at unseen points; below interpolated forecasts
MAX_LABEL_COST, MAX_INPUT_COST = 5.0, 10.0  # percent: half of the labels, a quarter of the inputs
QUARTER = 0.25
REQUIRED = {*BASELINES, *REFERENCE_FORECASTS} - {"daily"}  # which needs a daily cycle
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Claim:
    """A bound on one number (in percent) per data set."""

    title: str
    goal: str
    values: dict[str, float]  # by data set
    expected: int  # data sets that should have been measured
    least: float | None = None
    most: float | None = None
    mean_least: float | None = None  # bound on the mean
    note: str = ""
    noise: float = 0.0  # smaller values are within the variation between seeds
    complete: bool = True  # whether all models that the value is about were measured

    def reached(self, value: float) -> bool:
        """Whether a value is within the bounds and beyond the noise."""
        above = self.least is None or value > self.least
        below = self.most is None or value <= self.most
        return above and below and abs(value) >= self.noise

    @property
    def mean(self) -> float:
        """The mean over the data sets."""
        return float(np.mean(list(self.values.values())))

    @property
    def missed(self) -> list[str]:
        """The data sets on which the goal is not reached."""
        return [dataset for dataset, value in self.values.items() if not self.reached(value)]

    @property
    def verdict(self) -> str:
        """Whether the claim holds."""
        if not self.values:
            return "not measured"
        if all(abs(value) < self.noise for value in self.values.values()):
            return "within seed variation"
        if not self.missed and (self.mean_least is None or self.mean >= self.mean_least):
            complete = self.complete and len(self.values) >= self.expected
            return "holds" if complete else "holds where measured"
        return "holds partly" if 2 * len(self.missed) <= len(self.values) else "does not hold"

    def row(self) -> list[str]:
        """A row of the table of claims: title, goal, measured, verdict."""
        summary = DASH
        if self.values:
            low, high = min(self.values.values()), max(self.values.values())
            count = f"{len(self.values) - len(self.missed)} of {len(self.values)} data sets"
            summary = f"mean {percent(self.mean)}, {percent(low)} to {percent(high)}; {count}"
        return [self.title, self.goal, summary, f"**{self.verdict}**"]

    def paragraph(self) -> str:
        """The values behind the verdict, with notes."""
        values = ", ".join(f"{dataset} {percent(v)}" for dataset, v in self.values.items())
        text = f"**{self.title}: {self.verdict}.** {values or 'No values'}."
        if self.missed:
            text += f" Missed on {', '.join(self.missed)}."
        if 0 < len(self.values) < self.expected:
            text += f" {self.expected - len(self.values)} data set(s) not measured yet."
        return text + self.note


def claims_of(tables: Tables, datasets: int, ablation_datasets: int) -> list[Claim]:
    """All claims.

    Args:
        tables: experiment -> lines; "longer" is the comparison with more time.
        datasets: number of data sets.
        ablation_datasets: number of data sets with ablations.
    """
    return [
        *_error_claims(tables, datasets),
        *_irregularity_claims(tables, datasets),
        *_component_claims(tables, ablation_datasets),
    ]


def _error_claims(tables: Tables, expected: int) -> list[Claim]:
    """STONet against baselines and reference forecasts."""
    lines = tables["comparison"]
    complete, longer = _with_models(lines, REQUIRED), _with_models(tables["longer"], REQUIRED)
    on_base, all_on_base = _on_base(lines)
    return [
        Claim(
            "STONet beats every baseline and reference forecast",
            f"MAE below the best other model, by {MIN_MEAN_GAIN:g} % on average",
            _ours(complete, "improvement"),
            expected,
            least=0.0,
            mean_least=MIN_MEAN_GAIN,
            note=_significant(lines),
        ),
        Claim(
            "STONet beats every published baseline in the same short time",
            f"MAE below the best of eight baselines, by {MIN_MEAN_GAIN:g} % on average",
            _below_baselines(lines),
            expected,
            least=0.0,
            mean_least=MIN_MEAN_GAIN,
        ),
        Claim(
            "STONet beats them with more time",
            "MAE below the best other model, all with the budget `long`",
            _ours(longer, "improvement"),
            expected,
            least=0.0,
            note=_significant(longer),
        ),
        Claim(
            "The gain is not due to the linear base",
            "MAE below the best baseline on the same base",
            _ours(lines, "improvement_on_base"),
            expected,
            least=0.0,
            note=_significant(lines, "_on_base") + on_base,
            complete=all_on_base,
        ),
    ]


def _irregularity_claims(tables: Tables, expected: int) -> list[Claim]:
    """Unseen points, few labels, missing inputs."""
    lines, irregular = _at_main_share(tables["inductive"]), tables["irregular"]
    inputs = f"a quarter missing costs at most {MAX_INPUT_COST:g} %"
    return [
        Claim(
            "Unseen points with a past are forecast as well as seen ones",
            f"Deviation at most {MAX_DEVIATION:g} %",
            _ours(lines, "deviation"),
            expected,
            most=MAX_DEVIATION,
            note=_harder_points(lines),
        ),
        Claim(
            "Direct forecasts at points without a past beat interpolated ones",
            f"MAE at least {MIN_GAIN:g} % below the best interpolated forecast",
            _ours(lines, "gain"),
            expected,
            least=MIN_GAIN,
            note=_out_of_reach(lines),
        ),
        Claim(
            "Half of the labels are enough",
            f"n_t' = n_t / 2 costs at most {MAX_LABEL_COST:g} %",
            _half_of_labels(irregular),
            expected,
            most=MAX_LABEL_COST,
        ),
        Claim(
            "Missing inputs are tolerated: single values",
            inputs,
            _by_dataset(irregular, "change", model=OURS, scenario="random", level=QUARTER),
            expected,
            most=MAX_INPUT_COST,
        ),
        Claim(
            "Missing inputs are tolerated: sensors",
            inputs,
            _by_dataset(irregular, "change", model=OURS, scenario="outage", level=QUARTER),
            expected,
            most=MAX_INPUT_COST,
        ),
    ]


def _component_claims(tables: Tables, expected: int) -> list[Claim]:
    """Components of the network."""
    alone = [line for line in tables["ablation"] if line["model"] == "operator"]
    by_seed = [_ablation_cost(alone, "seed", value) for value in SEEDS]
    changes = [abs(change) for values in by_seed for change in values.values()]
    noise = max(changes, default=math.inf)
    note = " For the operator alone, without linear base and residual network; " + (
        f"another seed changes its error by up to {noise:.1f} %."
        if changes
        else "the variation between seeds was not measured."
    )
    factors = (
        ("Three levels are better than one", "MAE with one level above that with three",
         _ablation_cost(alone, "levels", "1")),
        ("Reconstruction helps (alpha)", "MAE without it above that with it",
         _ablation_cost(alone, "alpha", "0.0")),
    )  # fmt: skip
    slower = {
        dataset: 100 * (times - 1)
        for dataset, times in _by_dataset(tables["cost"], "times", decoder="ode").items()
    }
    return [
        *(Claim(*factor, expected, least=0.0, noise=noise, note=note) for factor in factors),
        Claim(
            "The ODE decoder is slower",
            "time per epoch above that of the revised decoder",
            slower,
            expected,
            least=0.0,
        ),
    ]


def _by_dataset(lines: Iterable[Line], key: str, **conditions: object) -> dict[str, float]:
    """One value per data set, of the lines that meet the conditions and have it."""
    return {
        line["dataset"]: float(line[key])
        for line in lines
        if line.get(key) is not None and all(line[k] == v for k, v in conditions.items())
    }


def _ours(lines: Iterable[Line], key: str) -> dict[str, float]:
    """STONet's value per data set."""
    return _by_dataset(lines, key, model=OURS)


def _ablation_cost(lines: Iterable[Line], factor: str, value: str) -> dict[str, float]:
    """Change of the MAE with this value, in percent; nothing where it is the default."""
    return _by_dataset(lines, "change", factor=factor, value=value, default=False)


def _with_models(lines: Sequence[Line], required: set[str]) -> list[Line]:
    """The lines of data sets on which all required models were measured."""
    models: dict[str, set[str]] = {}
    for line in lines:
        models.setdefault(line["dataset"], set()).add(line["model"])
    return [line for line in lines if models[line["dataset"]] >= required]


def _below_baselines(lines: Sequence[Line]) -> dict[str, float]:
    """Percent by which STONet's MAE is below that of the best of all baselines."""
    complete = _with_models(lines, {*BASELINES})
    best: dict[str, float] = {}
    for model in BASELINES:
        for dataset, mae in _by_dataset(complete, "mae", model=model).items():
            best[dataset] = min(mae, best.get(dataset, math.inf))
    ours = _ours(complete, "mae")
    return {name: 100 * (1 - ours[name] / best[name]) for name in best if name in ours}


def _significant(lines: Sequence[Line], suffix: str = "") -> str:
    """The data sets with a significant difference, and those with too few windows."""
    p, gain = _ours(lines, f"p{suffix}"), _ours(lines, f"improvement{suffix}")
    groups = {
        "below": [name for name, value in p.items() if value < SIGNIFICANCE and gain[name] > 0],
        "above": [name for name, value in p.items() if value < SIGNIFICANCE and gain[name] <= 0],
    }
    parts = [f"{word} on {', '.join(names)}" for word, names in groups.items() if names]
    text = f" Significantly (p < {SIGNIFICANCE:g}) {' and '.join(parts)}." if parts else ""
    untested = [name for name in gain if name not in p]
    return text + (f" Too few windows for a test: {', '.join(untested)}." if untested else "")


def _on_base(lines: Sequence[Line]) -> tuple[str, bool]:
    """A note on baselines on the base that are missing or stale, and whether none is."""
    on_base = [line for line in lines if line["model"].endswith("+base")]
    stale = sorted({commit for line in on_base for commit in line.get("stale", ())})
    note = f" Baselines on the base are stale (commits {', '.join(stale)})." if stale else ""
    counts = {
        name: sum(x["dataset"] == name and x["mae"] is not None for x in on_base)
        for name in unique(line["dataset"] for line in lines)
    }
    if min(counts.values(), default=0) == len(BASELINES):
        return note, not stale
    each = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f" Measured on the base, of {len(BASELINES)} baselines: {each}.{note}", False


def _at_main_share(lines: Sequence[Line]) -> list[Line]:
    """The lines at the share of unseen points at which all models were measured."""
    shares = {line["share"] for line in lines if line["model"] != OURS}
    return [line for line in lines if line["share"] in shares]


def _harder_points(lines: Sequence[Line]) -> str:
    """Data sets on which persistence, too, has larger errors at the unseen points."""
    ours = _ours(lines, "deviation")
    harder = {
        name: value
        for name, value in _ours(lines, "persistence_deviation").items()
        if min(value, ours.get(name, value)) > MAX_DEVIATION
    }
    each = ", ".join(f"{name} ({percent(value)})" for name, value in harder.items())
    return f" The unseen points are harder for persistence, too, on {each}." if each else ""


def _out_of_reach(lines: Sequence[Line]) -> str:
    """Data sets on which even forecasts with a past would miss the goal."""
    past, other = _ours(lines, "unseen"), _ours(lines, "alternative_mae")
    limit = 1 - MIN_GAIN / 100
    names = [name for name in past if past[name] > limit * other.get(name, math.inf)]
    return f" With a past, too, the goal is missed on {', '.join(names)}." if names else ""


def _half_of_labels(lines: Sequence[Line]) -> dict[str, float]:
    """Change of the MAE with half of the labels, in percent."""
    ours = [line for line in lines if (line["model"], line["scenario"]) == (OURS, "labels")]
    changes = {}
    for dataset in unique(line["dataset"] for line in ours):
        by_level = {line["level"]: line["change"] for line in ours if line["dataset"] == dataset}
        half = by_level.get(max(by_level) // 2)
        if half is not None:
            changes[dataset] = float(half)
    return changes
