"""The chapters of docs/results.md, one per experiment, in the layout of the paper's tables.

Errors are in the units of EXPERIMENT_DATA.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from stonet.experiments import ablation, cost, paper_tables
from stonet.experiments.cell import Result
from stonet.experiments.comparison import OURS
from stonet.experiments.datasets import experiment_data
from stonet.experiments.irregular import EVERY
from stonet.experiments.report_comparison import comparison_chapter
from stonet.experiments.tables import (
    Line,
    change,
    dataset_and_unit,
    error,
    number,
    p_value,
    percent,
    pivot,
    table,
    text,
    unique,
    unit_headings,
)

INDUCTIVE_NOTE = (
    "MAE of STONet. The alternative interpolates forecasts at the sensors to the unseen points. "
    "Where persistence deviates too, the unseen points themselves are easier or harder."
)
INDUCTIVE_COLUMNS = {
    "data set": dataset_and_unit,
    "held out": lambda line: _held_out(line),
    "MAE, seen": error("seen"),
    "RMSE, seen": error("seen_rmse"),
    "MAE, unseen with a past": error("unseen"),
    "RMSE, unseen with a past": error("unseen_rmse"),
    "Deviation": change("deviation"),
    "Deviation of persistence": change("persistence_deviation"),
    "Deviation in the paper": change("paper_deviation"),
    "MAE, unseen without a past": error("no_history"),
    "best alternative": text("alternative"),
    "its MAE": error("alternative_mae"),
    "gain": change("gain"),
    "gain in RMSE": change("gain_rmse"),
    "p": lambda line: p_value(line.get("p")),
}
RATIO_COLUMNS = {
    "data set": dataset_and_unit,
    "unseen/seen": text("ratio"),
    "unseen points": text("points"),
    "MAE with a past": error("unseen_mae"),
    "RMSE with a past": error("unseen_rmse"),
    "MAE without a past": error("no_history_mae"),
    "RMSE without a past": error("no_history_rmse"),
}
LOSSES = {
    "labels": "Labels per training window (n_t')",
    "random": "Share of single inputs missing",
    "outage": "Share of sensors missing",
    "thinned": "Share of input frames missing",
}
SUBSAMPLED = (
    f"MAE of models trained on every {EVERY}th frame, with a horizon {EVERY} times as long: not "
    "comparable with the errors above. "
)
TIMES = {
    "between": (
        "Times between the steps",
        "`model`: the model itself; `linear`, `cubic`: its forecasts interpolated in time; "
        "`ideal`: the truth interpolated in the same way.",
    ),
    "irregular inputs": (
        "Inputs at irregular times",
        "`regular`: inputs at regular times; otherwise at irregular ones, which the model knows "
        "(`true times`) or does not (`assumed regular`).",
    ),
}
ABLATION_NOTE = (
    "Test MAE, and its change against the model's own value (bold). The factor `seed` shows the "
    "variation between seeds. The factors of the paper's Table 5 are those of `paper` "
    "(`stonet-paper`, the paper's network) and `operator` (`stonet-operator`, the same "
    "architecture, well conditioned); the default network has factors of its own. "
    "`race`: chosen by a short race between settings where data are few, else the default."
)
COST_COLUMNS = {
    "data set": dataset_and_unit,
    "decoder": text("decoder"),
    "s/epoch": lambda line: number(line["seconds_per_epoch"]),
    "time over revised": lambda line: number(line["times"]),
    "peak memory (MB)": lambda line: f"{line['memory_mb']:.0f}",
    "test MAE": error("mae"),
    "training MAE": error("train_mae"),
}


def _held_out(line: Line) -> str:
    """Which points of a line were held out."""
    if line["share"] is None:
        return "own points"
    return f"{line['share']:.0%}" + (", whole regions" if line["region"] else "")


def inductive_chapter(
    lines: Sequence[Line], results: Sequence[Result], datasets: Sequence[str]
) -> list[str]:
    """The paper's Table 4 with points without a past, and its sweep of the ratio unseen/seen.

    Args:
        lines: of the experiment's table.
        results: from which the lines were made.
        datasets: in the order of the report.
    """
    paper = {name: row[2] for name, row in paper_tables.INDUCTIVE.items()}
    ours = [
        line | {"paper_deviation": paper.get(experiment_data(line["dataset"]).paper or "")}
        for line in lines
        if line["model"] == OURS
    ]
    ratios = [
        line
        | {"dataset": result.cell.dataset, "ratio": f"{line['ratio']:g}"}
        | {
            f"{key}_{metric}": line[key][metric]
            for key in ("unseen", "no_history")
            for metric in ("mae", "rmse")
        }
        for result in results
        for line in result.scores.get("ratios") or ()
    ]
    chapter = [INDUCTIVE_NOTE, "", *table(INDUCTIVE_COLUMNS, ours)]
    if ratios:
        title = "### One model, increasing numbers of unseen points"
        chapter += [title, "", *table(RATIO_COLUMNS, ratios)]
    return chapter


def irregular_chapter(
    lines: Sequence[Line], results: Sequence[Result], datasets: Sequence[str]
) -> list[str]:
    """The cost of fewer labels and missing inputs, and forecasts between the steps.

    Args:
        lines: of the experiment's table.
        results: from which the lines were made.
        datasets: in the order of the report.
    """
    chapter = ["Percentages: change of a model's own MAE against complete data.", ""]
    for scenario, title in LOSSES.items():
        here = [line for line in lines if line["scenario"] == scenario]
        count = Counter((line["dataset"], line["model"]) for line in here)
        here = [line for line in here if count[line["dataset"], line["model"]] > 1]
        levels = sorted({line["level"] for line in here})
        columns = {f"{x:g}" if scenario == "labels" else f"{x:.0%}": x for x in levels}
        if here:
            cells = {((x["dataset"], x["model"]), x["level"]): percent(x["change"]) for x in here}
            chapter += [f"### {title}", "", *pivot(["data set", "model"], columns, cells)]
    for scenario, (title, note) in TIMES.items():
        here = [line for line in lines if line["scenario"] == scenario]
        if here:
            cells = {((dataset_and_unit(x), x["model"]), x["level"]): error("mae")(x) for x in here}
            columns = {line["level"]: line["level"] for line in here}
            chapter += [f"### {title}", "", SUBSAMPLED + note, ""]
            chapter += pivot(["data set", "model"], columns, cells)
    return chapter


def ablation_chapter(
    lines: Sequence[Line], results: Sequence[Result], datasets: Sequence[str]
) -> list[str]:
    """The paper's Table 5 for the paper's network and the operator, and the default's factors.

    Args:
        lines: of the experiment's table.
        results: from which the lines were made.
        datasets: in the order of the report.
    """
    chapter = [ABLATION_NOTE, ""]
    for name in ablation.ABLATED_MODELS:
        here = [line for line in lines if line["model"] == name]
        if not here:
            continue
        labels = {ablation.label(name, f".{x['factor']}", x["value"]) for x in here} | {name}
        budgets = unique(r.cell.training for r in results if r.cell.label in labels)
        title = f"`{ablation.ABLATED_MODELS[name].model}`"
        chapter += [f"### {title}", "", f"Training: {'; '.join(map(str, budgets))}.", ""]
        columns: dict[str, str | int] = {**unit_headings(unique(x["dataset"] for x in here))}
        columns |= {"paper: Solar (MW)": 0, "paper: Temperature (K)": 1}
        cells: dict[tuple[tuple[str, str], str | int], str] = {}
        for line in here:
            own, value = line["default"], line["value"]
            row = line["factor"], f"**{value}**" if own else value
            suffix = "" if own else f" ({percent(line['change'])})"
            cells[row, line["dataset"]] = error("mae")(line) + suffix
            for column, mae in enumerate(paper_tables.ABLATION.get((line["factor"], value), ())):
                cells[row, column] = number(mae)
        chapter += pivot(["factor", "value"], columns, cells)
    return chapter


def cost_chapter(
    lines: Sequence[Line], results: Sequence[Result], datasets: Sequence[str]
) -> list[str]:
    """The paper's Table 6.

    Args:
        lines: of the experiment's table.
        results: from which the lines were made.
        datasets: in the order of the report.
    """
    paper = "; ".join(
        f"{name} {ode:g} min with the ODE and {plain:g} min without, a factor of {ode / plain:.1f}"
        for name, (ode, _, plain, _) in paper_tables.COST.items()
    )
    note = (
        "Decoders of `stonet-paper` have the paper's sizes and one term; `merged` has one branch "
        f"for all pairs of indices. `{cost.DEFAULT}` is the default network, whose epochs come "
        f"after its closed forms. Errors on at most {cost.MAX_WINDOWS} windows of each part. The "
        f"paper reports, per epoch on a V100: {paper}."
    )
    return [note, "", *table(COST_COLUMNS, lines)]


CHAPTERS: dict[str, Callable[[Sequence[Line], Sequence[Result], Sequence[str]], list[str]]] = {
    "comparison": comparison_chapter,
    "inductive": inductive_chapter,
    "irregular": irregular_chapter,
    "ablation": ablation_chapter,
    "cost": cost_chapter,
}
