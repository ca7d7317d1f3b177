"""Claims and verdicts, computed from the tables of the experiments.

A claim is a number per data set with a bound. It holds if all numbers are within the bound, holds
partly if at least half are, and does not hold otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stonet.experiments.ablation import ABLATED_MODELS, SEEDS
from stonet.experiments.tables import DASH, Line, markdown_table, percent, unique
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
    """A bound on one number (in percent) per data set.

    Args:
        title: what is compared.
        goal: the bound as text.
        values: by data set.
        expected: data sets that should have been measured.
        least: the goal's lower bound.
        most: the goal's upper bound.
        mean_least: bound on the mean.
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
    mean_least: float | None = None
    note: str = ""
    noise: float = 0.0
    complete: bool = True

    def reached(self, value: float) -> bool:
        """Whether a value is within the bounds and beyond the noise.

        Args:
            value: in percent.
        """
        above = self.least is None or value > self.least
        below = self.most is None or value <= self.most
        return above and below and abs(value) >= self.noise

    @property
    def mean(self) -> float | None:
        """The mean over the data sets; None without values."""
        return float(np.mean(list(self.values.values()))) if self.values else None

    @property
    def verdict(self) -> str:
        """Whether the claim holds."""
        values = self.values.values()
        if self.mean is None:
            return "not measured"
        if all(abs(value) < self.noise for value in values):
            return "within seed variation"
        reached = sum(self.reached(value) for value in values)
        if reached == len(values) and (self.mean_least is None or self.mean >= self.mean_least):
            complete = self.complete and len(values) >= self.expected
            return "holds" if complete else "holds where measured"
        return "holds partly" if 2 * reached >= len(values) else "does not hold"

    def cell(self, dataset: str) -> str:
        """The value of a data set, in bold where the goal is reached.

        Args:
            dataset: its name.
        """
        value = self.values.get(dataset)
        if value is None:
            return DASH
        return f"**{percent(value)}**" if self.reached(value) else percent(value)


def claims_section(claims: Sequence[Claim], datasets: Sequence[str]) -> list[str]:
    """The table of claims with their values by data set, and the notes.

    Args:
        claims: the rows.
        datasets: the columns.
    """
    rows = [
        [c.title, c.goal, *map(c.cell, datasets), percent(c.mean), f"**{c.verdict}**"]
        for c in claims
    ]
    notes = [f"- {claim.title}: {claim.note.strip()}" for claim in claims if claim.note]
    table = markdown_table(["claim", "goal", *datasets, "mean", "verdict"], rows)
    return [
        "Changes in the quantity of the goal; values that reach it are bold.",
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
    lines = tables["comparison"]
    complete, longer = _with_models(lines, REQUIRED), _with_models(tables["longer"], REQUIRED)
    on_base, all_on_base = _on_base(lines)
    margin = f", by {MIN_MEAN_GAIN:g} % on average"
    return [
        Claim("STONet beats every baseline and reference forecast",
              f"MAE below the best other model{margin}", _ours(complete, "improvement"), expected,
              least=0.0, mean_least=MIN_MEAN_GAIN, note=_significant(lines)),
        Claim("STONet beats every published baseline in the same short time",
              f"MAE below the best of eight baselines{margin}", _below_baselines(lines), expected,
              least=0.0, mean_least=MIN_MEAN_GAIN),
        Claim("STONet beats them with more time",
              "MAE below the best other model, all with the budget `long`",
              _ours(longer, "improvement"), expected, least=0.0, note=_significant(longer)),
        Claim("STONet beats baselines that correct the linear forecast",
              "MAE below the best of them",
              _ours(lines, "improvement_on_base"), expected, least=0.0, complete=all_on_base,
              note=_significant(lines, "_on_base") + on_base),
    ]  # fmt: skip


def _irregularity_claims(tables: Tables, expected: int) -> list[Claim]:
    """Unseen points, few labels, missing inputs."""
    lines, irregular = _at_main_share(tables["inductive"]), tables["irregular"]
    return [
        Claim("Unseen points with a past are forecast as well as seen ones",
              f"Deviation at most {MAX_DEVIATION:g} %", _ours(lines, "deviation"), expected,
              most=MAX_DEVIATION),
        Claim("Direct forecasts at points without a past beat interpolated ones",
              f"MAE at least {MIN_GAIN:g} % below the best interpolated forecast",
              _ours(lines, "gain"), expected, least=MIN_GAIN),
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
        *levels,
        *alpha,
        Claim("The ODE decoder is slower", "time per epoch above that of the revised decoder",
              {name: 100 * (ratio - 1) for name, ratio in times.items()}, expected, least=0.0),
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


def _with_models(lines: Sequence[Line], required: set[str]) -> list[Line]:
    """The lines of data sets on which all required models were measured."""
    models: dict[str, set[str]] = {}
    for line in lines:
        models.setdefault(line["dataset"], set()).add(line["model"])
    return [line for line in lines if models[line["dataset"]] >= required]


def _below_baselines(lines: Sequence[Line]) -> dict[str, float]:
    """Percent by which STONet's MAE is below that of the best of all baselines."""
    complete = _with_models(lines, {*BASELINES})
    maes = [_by_dataset(complete, "mae", model=model) for model in BASELINES]
    return {
        name: 100 * (1 - mae / min(values[name] for values in maes if name in values))
        for name, mae in _ours(complete, "mae").items()
    }


def _significant(lines: Sequence[Line], suffix: str = "") -> str:
    """The data sets with a significant difference, and those with too few windows."""
    p, gain = _ours(lines, f"p{suffix}"), _ours(lines, f"improvement{suffix}")
    sure = [name for name, value in p.items() if value < SIGNIFICANCE]
    groups = {
        f"significantly (p < {SIGNIFICANCE:g}) below on": [n for n in sure if gain[n] > 0],
        f"significantly (p < {SIGNIFICANCE:g}) above on": [n for n in sure if gain[n] <= 0],
        "too few windows for a test on": [name for name in gain if name not in p],
    }
    parts = [f"{words} {', '.join(names)}" for words, names in groups.items() if names]
    return f"{'; '.join(parts)}." if parts else ""


def _on_base(lines: Sequence[Line]) -> tuple[str, bool]:
    """A note on baselines on the linear forecast that are missing or stale; whether none is."""
    on_base = [line for line in lines if line["model"].endswith("+base")]
    stale = sorted({commit for line in on_base for commit in line.get("stale", ())})
    note = (
        f" Baselines on the linear forecast are stale (commits {', '.join(stale)})."
        if stale
        else ""
    )
    counts = {
        name: sum(x["dataset"] == name and x["mae"] is not None for x in on_base)
        for name in unique(line["dataset"] for line in lines)
    }
    if min(counts.values(), default=0) == len(BASELINES):
        return note, not stale
    each = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f" Measured on the linear forecast, of {len(BASELINES)} baselines: {each}.{note}", False


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
