"""Claims and verdicts, computed from the tables of the experiments.

A claim is a number per data set with a bound. It holds if as many numbers as its goal asks for are
within the bound (all, if it asks for none), holds partly if at least half are, and does not hold
otherwise. Where the claim is that one model is better than another, a number counts only if the
difference is significant: paired block bootstrap, adjusted for the number of data sets after Holm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stonet.evaluation.significance import holm
from stonet.experiments.ablation import ABLATED_MODELS, SEEDS
from stonet.experiments.comparison import OPERATOR, OURS
from stonet.experiments.tables import DASH, Line, markdown_table, percent, unique
from stonet.models.registry import BASELINES, PAPER_BASELINES, REFERENCE_FORECASTS

Tables = dict[str, list[Line]]
MIN_MEDIAN_GAIN = 6.0  # percent below the best other model
MAX_DEVIATION, MIN_GAIN = 4.0, 5.0  # percent: at unseen points; below interpolated forecasts
MAX_LABEL_COST, MAX_INPUT_COST = 3.0, 8.0  # percent: half of the labels, a quarter of the inputs
MIN_KERNEL_GAIN = 2.0  # percent: what graph kernels must be worth
QUARTER, WHOLE = 0.25, 1.0
OTHERS = (*BASELINES, *REFERENCE_FORECASTS)
SIGNIFICANCE = 0.05
RATIO_TOLERANCE = 0.05


@dataclass(frozen=True)
class Claim:
    """A bound on one number (in percent) per data set.

    Args:
        title: what is compared.
        goal: the bound as text.
        values: by data set.
        expected: data sets that should have been measured.
        least: the goal's lower bound.
        most: the goal's upper bound.
        median_least: bound on the median.
        enough: number of data sets that must reach the bound (None: all).
        p: adjusted probability of the difference by data set; None: no test.
        note: on how the values were obtained.
        noise: smaller values are within the variation between seeds.
        complete: whether all models that the value is about were measured.
    """

    title: str
    goal: str
    values: dict[str, float]
    expected: int
    least: float | None = None
    most: float | None = None
    median_least: float | None = None
    enough: int | None = None
    p: Mapping[str, float] | None = None
    note: str = ""
    noise: float = 0.0
    complete: bool = True

    def within(self, value: float) -> bool:
        """Whether a value is within the bounds and beyond the noise.

        Args:
            value: in percent.
        """
        above = self.least is None or value > self.least
        below = self.most is None or value <= self.most
        return above and below and abs(value) >= self.noise

    @property
    def reached(self) -> list[str]:
        """The data sets that reach the bound, significantly where the claim has a test."""
        return [
            name
            for name, value in self.values.items()
            if self.within(value) and (self.p is None or self.p.get(name, 1.0) < SIGNIFICANCE)
        ]

    @property
    def mean(self) -> float | None:
        """The mean over the data sets; None without values."""
        return float(np.mean(list(self.values.values()))) if self.values else None

    @property
    def median(self) -> float | None:
        """The median over the data sets; None without values."""
        return float(np.median(list(self.values.values()))) if self.values else None

    @property
    def verdict(self) -> str:
        """Whether the claim holds."""
        if self.median is None:
            return "not measured"
        count, measured = len(self.reached), len(self.values)
        if all(abs(value) < self.noise for value in self.values.values()):
            return "within seed variation"
        needed = measured if self.enough is None else min(self.enough, measured)
        where = "" if self.complete and measured >= self.expected else " where measured"
        if count >= needed and (self.median_least is None or self.median >= self.median_least):
            return f"holds{where}"
        return f"holds partly{where}" if 2 * count >= measured else f"does not hold{where}"

    def cell(self, dataset: str) -> str:
        """The value of a data set, in bold where the goal is reached.

        Args:
            dataset: its name.
        """
        value = self.values.get(dataset)
        if value is None:
            return DASH
        return f"**{percent(value)}**" if dataset in self.reached else percent(value)


def claims_section(claims: Sequence[Claim], datasets: Sequence[str]) -> list[str]:
    """The table of claims with their values by data set, and the notes.

    Args:
        claims: the rows.
        datasets: the columns.
    """
    rows = [
        [
            c.title,
            c.goal,
            *map(c.cell, datasets),
            percent(c.mean),
            percent(c.median),
            f"{len(c.reached)} of {len(c.values)}",
            f"**{c.verdict}**",
        ]
        for c in claims
    ]
    notes = [f"- {claim.title}: {claim.note.strip()}" for claim in claims if claim.note]
    head = ["claim", "goal", *datasets, "mean", "median", "reached on", "verdict"]
    table = markdown_table(head, rows)
    return [
        "Changes in the quantity of the goal. Values that reach it are bold; where two models are "
        f"compared, only if the difference is significant (p < {SIGNIFICANCE:g}, paired block "
        "bootstrap over windows, adjusted after Holm for the number of data sets).",
        "",
        *table,
        *notes,
        "",
    ]


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
    lines, longer = tables["comparison"], tables["longer"]
    most = f"on at least {_most(expected)} of {expected} data sets, median {MIN_MEDIAN_GAIN:g} %"
    return [
        Claim("STONet beats all other models", f"MAE below the best other model {most}",
              _ours(lines, "improvement"), expected, least=0.0, median_least=MIN_MEDIAN_GAIN,
              enough=_most(expected), p=_adjusted(lines), complete=_complete(lines),
              note=_missing_note(lines) + _significance_note(lines)),
        Claim("STONet beats the best of them with more time", f"all with the budget `long`, {most}",
              _ours(longer, "improvement"), expected, least=0.0, median_least=MIN_MEDIAN_GAIN,
              enough=_most(expected), p=_adjusted(longer), note=_significance_note(longer)),
        Claim("The operator alone beats the baselines of the paper and the linear forecast",
              "MAE of `stonet-operator` below the best of them",
              _below(lines, OPERATOR, (*PAPER_BASELINES, "linear")), expected, least=0.0),
        Claim("More time helps", "MAE of `stonet` with the budget `long` below that with less",
              _gain_of_time(lines, longer), expected, least=0.0, enough=_most(expected)),
        Claim("Feedback of recent errors helps", "MAE with feedback below that without",
              _gain_of_feedback(lines), expected, least=0.0),
    ]  # fmt: skip


def _irregularity_claims(tables: Tables, expected: int) -> list[Claim]:
    """Unseen points, few labels, missing inputs."""
    inductive, irregular = tables["inductive"], tables["irregular"]
    lines = [line for line in inductive if not line["region"]]
    half = [line for line in lines if _is_ratio(line, WHOLE)]
    main, regions = _at_main_share(lines), [line for line in inductive if line["region"]]
    return [
        Claim("Unseen points with a past are forecast as well as seen ones",
              f"Deviation at most {MAX_DEVIATION:g} % where half of the points are unseen",
              _ours(half, "deviation"), expected, most=MAX_DEVIATION, enough=expected - 1),
        Claim("Direct forecasts at points without a past beat interpolated ones",
              f"MAE at least {MIN_GAIN:g} % below the best interpolated forecast",
              _ours(main, "gain"), expected, least=MIN_GAIN, p=_adjusted(main)),
        Claim("They do so in whole regions without a sensor", f"at least {MIN_GAIN:g} % below",
              _ours(regions, "gain"), expected, least=MIN_GAIN, p=_adjusted(regions)),
        Claim("Half of the labels are enough",
              f"n_t' = n_t / 2 costs at most {MAX_LABEL_COST:g} %", _half_of_labels(irregular),
              expected, most=MAX_LABEL_COST),
        *(Claim(f"Missing inputs are tolerated: {what}",
                f"a quarter missing costs at most {MAX_INPUT_COST:g} %",
                _by_dataset(irregular, "change", model=OURS, scenario=scenario, level=QUARTER),
                expected, most=MAX_INPUT_COST)
          for what, scenario in (("single values", "random"), ("sensors", "outage"))),
    ]  # fmt: skip


def _component_claims(tables: Tables, expected: int) -> list[Claim]:
    """Components of the networks."""
    times = _by_dataset(tables["cost"], "times", decoder="ode")
    kernels = _component(tables, expected, "default", "layers", "0", "Graph kernels help",
                         "MAE without them above that with them")  # fmt: skip
    levels = [
        _component(tables, expected, name, "levels", "1", "Three levels are better than one",
                   "MAE with one level above that with three")
        for name in ABLATED_MODELS
    ]  # fmt: skip
    alpha = [
        _component(tables, expected, name, "alpha", "0.0", "Reconstruction helps (alpha)",
                   "MAE without it above that with it")
        for name, model in ABLATED_MODELS.items()
        if "train.alpha" in model.factors
    ]  # fmt: skip
    return [
        replace(kernels, least=MIN_KERNEL_GAIN),
        *levels,
        *alpha,
        Claim("The ODE decoder is slower", "time per epoch above that of the revised decoder",
              {name: 100 * (ratio - 1) for name, ratio in times.items()}, len(times), least=0.0),
    ]  # fmt: skip


def _component(
    tables: Tables, expected: int, name: str, factor: str, value: str, title: str, goal: str
) -> Claim:
    """The cost of a value of a factor of an ablated model, against the variation of its seeds."""
    lines = [line for line in tables["ablation"] if line["model"] == name]
    by_seed = [_ablation_cost(lines, "seed", seed) for seed in SEEDS]
    changes = [abs(change) for values in by_seed for change in values.values()]
    noise = max(changes, default=math.inf)
    variation = f"changes its error by up to {noise:.1f} %" if changes else "was not measured"
    return Claim(
        title=f"{title}: `{ABLATED_MODELS[name].model}`",
        goal=goal,
        values=_ablation_cost(lines, factor, value),
        expected=expected,
        least=0.0,
        noise=noise,
        note=f"another seed {variation}." if lines else "",
    )


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


def _most(expected: int) -> int:
    """How many data sets are most of them: seven of nine."""
    return math.ceil(7 * expected / 9)


def _complete(lines: Sequence[Line]) -> bool:
    """Whether all models were measured on all data sets; a daily cycle may be absent."""
    datasets = unique(line["dataset"] for line in lines)
    there = {(line["dataset"], line["model"]) for line in lines}
    return all((d, m) in there for d in datasets for m in OTHERS if m != "daily")


def _missing_note(lines: Sequence[Line]) -> str:
    """The other models that were measured nowhere, or not everywhere."""
    datasets = unique(line["dataset"] for line in lines)
    there = {(line["dataset"], line["model"]) for line in lines}
    missing = [m for m in OTHERS if m != "daily" and any((d, m) not in there for d in datasets)]
    return f"not measured, or not on all data sets: {', '.join(missing)}. " if missing else ""


def _below(lines: Sequence[Line], model: str, others: Sequence[str]) -> dict[str, float]:
    """Percent by which a model's MAE is below that of the best of others that were all measured."""
    mae = {(line["dataset"], line["model"]): line["mae"] for line in lines}
    return {
        name: 100 * (1 - mae[name, model] / min(mae[name, other] for other in others))
        for name in unique(line["dataset"] for line in lines)
        if all((name, each) in mae for each in (model, *others))
    }


def _gain_of_time(lines: Sequence[Line], longer: Sequence[Line]) -> dict[str, float]:
    """Percent by which our MAE falls with more time."""
    short = _ours(lines, "mae")
    return {n: 100 * (1 - mae / short[n]) for n, mae in _ours(longer, "mae").items() if n in short}


def _gain_of_feedback(lines: Sequence[Line]) -> dict[str, float]:
    """Percent by which feedback lowers our MAE."""
    mae = _ours(lines, "mae")
    return {n: 100 * (1 - fed / mae[n]) for n, fed in _ours(lines, "feedback_mae").items()}


def _adjusted(lines: Sequence[Line]) -> dict[str, float]:
    """Adjusted probability of our gain by data set."""
    return holm(_ours(lines, "p"))


def _significance_note(lines: Sequence[Line]) -> str:
    """The data sets where we are significantly worse, and those without a test."""
    p, gain = _adjusted(lines), _ours(lines, "improvement")
    groups = {
        "significantly above the best other model on": [
            name for name, value in p.items() if value < SIGNIFICANCE and gain[name] <= 0
        ],
        "no significant difference on": [n for n, value in p.items() if value >= SIGNIFICANCE],
        "too few windows for a test on": [name for name in gain if name not in p],
    }
    parts = [f"{words} {', '.join(names)}" for words, names in groups.items() if names]
    return f"{'; '.join(parts)}." if parts else ""


def _is_ratio(line: Line, ratio: float) -> bool:
    """Whether so many points are unseen for each seen one."""
    return abs(line["ratio"] - ratio) < RATIO_TOLERANCE


def _at_main_share(lines: Sequence[Line]) -> list[Line]:
    """The lines at the share of unseen points at which all models were measured."""
    shares = {line["share"] for line in lines if line["model"] != OURS}
    return [line for line in lines if line["share"] in shares]


def _half_of_labels(lines: Sequence[Line]) -> dict[str, float]:
    """Change of the MAE with half of the labels, in percent."""
    ours = [line for line in lines if (line["model"], line["scenario"]) == (OURS, "labels")]
    levels: dict[str, list[int]] = {}
    for line in ours:
        levels.setdefault(line["dataset"], []).append(line["level"])
    half = [line for line in ours if line["level"] == max(levels[line["dataset"]]) // 2]
    return _by_dataset(half, "change")
