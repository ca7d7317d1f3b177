"""`python -m benchmarks.study wave --set network.anchor=blend`: one training for docs/study.md.

Comes in: data by the names of the experiments, settings, CPU minutes. Goes out: a row of
docs/study.json with the error of the validation part; with `--test` also that of the test part, and
with reference forecasts where validation favours them ("safe"). `python -m benchmarks.study table`
writes all rows into docs/study.md. A row is repeated at the commit that it names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from stonet.cli.options import HELP
from stonet.errors import StonetError

DOCS = Path(__file__).parent.parent / "docs"
ROWS, PAGE = DOCS / "study.json", DOCS / "study.md"
BEGIN, END = "<!-- trail: begin -->\n", "<!-- trail: end -->\n"
POINTS = 120
TABLE, SURPRISE = "table", "surprise"  # instead of the name of data
Row = dict[str, Any]
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings=HELP)


@app.command()
def study(
    data: Annotated[str, typer.Argument(help=f"Data of an experiment, {TABLE} or {SURPRISE}.")],
    label: Annotated[str, typer.Option(help="Name of the variant in the table.")] = "default",
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value")] = None,
    minutes: Annotated[float, typer.Option(help="CPU minutes of the training.")] = 2.0,
    seed: Annotated[int, typer.Option(help="Of the training.")] = 0,
    test: Annotated[bool, typer.Option(help="Score the test part, too.")] = False,
    keep: Annotated[bool, typer.Option(help="Store the row.")] = True,
) -> None:
    """Train once and note the error; or write the table; or print how smooth in time data are."""
    if data == SURPRISE:
        typer.echo(json.dumps(surprises()))
        return
    rows: list[Row] = json.loads(ROWS.read_text()) if ROWS.is_file() else []
    if data == TABLE:
        before, rest = PAGE.read_text().split(BEGIN)
        after = rest.split(END)[1]
        PAGE.write_text(before + BEGIN + table(rows) + END + after)
        return
    row = measured(data, label, settings or [], minutes, seed, test)
    typer.echo(json.dumps(row))
    if keep:
        ROWS.write_text(json.dumps(with_row(rows, row), indent=1) + "\n")


def measured(
    data: str, label: str, settings: Sequence[str], minutes: float, seed: int, test: bool
) -> Row:
    """The row of one training.

    Args:
        data: name in EXPERIMENT_DATA.
        label: of the variant.
        settings: "key=value".
        minutes: of CPU time.
        seed: of the training.
        test: whether the test part is scored, too.
    """
    import torch

    from stonet.config import load_config
    from stonet.evaluation.scoring import evaluate
    from stonet.experiments.datasets import experiment_data, open_experiment_data
    from stonet.system.provenance import commit
    from stonet.training.budget import Budget, train
    from stonet.training.fallback import with_fallback
    from stonet.training.references import references_of

    torch.set_num_threads(1)
    entry = experiment_data(data)
    chosen = (*entry.settings, f"read.points={POINTS}", f"train.seed={seed}", *settings)
    config = load_config("default", None, chosen)
    result = train(open_experiment_data(data, config.read), config, Budget(minutes=minutes))
    trained, task = result.trained, result.task
    models = {"network": trained.model}
    row: Row = {"data": data, "label": label, "settings": list(settings), "minutes": minutes}
    row |= {"seed": seed, "steps": result.cost.steps, "commit": commit()}
    row |= {"date": time.strftime("%Y-%m-%d", time.gmtime()), "unit": entry.unit}
    for part in ("validation", "test") if test else ("validation",):
        records = evaluate(trained, task, part, models)
        row[part] = _overall(records, "network") / entry.per_unit
    if test:
        safe = with_fallback(trained, task, references_of(trained, task))
        row["choices"] = [str(choice) for choice in safe.choices]
        records = evaluate(safe, task, "test", {"network": safe.model})
        row["safe_test"] = _overall(records, "network") / entry.per_unit
    return row


def surprises() -> dict[str, float]:
    """`History.surprise` of the data of the experiments, by name."""
    from stonet.config import load_config
    from stonet.experiments.datasets import PUBLISHED, experiment_data, open_experiment_data
    from stonet.linear.history import History
    from stonet.training.task import Task

    found = {}
    for name in PUBLISHED:
        settings = *experiment_data(name).settings, f"read.points={POINTS}"
        config = load_config("default", None, settings)
        task = Task.of(open_experiment_data(name, config.read), config)
        history = History(task.time_spec, len(task.scaler.mean))
        history.fit(task.windows("train", task.stride), len(task.nodes))
        found[name] = round(history.surprise, 4)
    return found


def _overall(records: Sequence[Row], model: str) -> float:
    """The mean absolute error over all leads and channels."""
    found = {
        r["channel"]: float(r["value"])
        for r in records
        if (r["model"], r["points"], r["lead"], r["metric"]) == (model, "seen", "all", "mae")
    }
    return found["all"] if "all" in found else next(iter(found.values()))


def with_row(rows: Sequence[Row], row: Row) -> list[Row]:
    """The rows with this one, in place of one of the same training.

    Args:
        rows: stored.
        row: new.
    """
    same = ("data", "label", "minutes", "seed")
    others = [other for other in rows if any(other[key] != row[key] for key in same)]
    return [*others, row]


def table(rows: Sequence[Row]) -> str:
    """The table as Markdown.

    Args:
        rows: stored.
    """
    head = ["data", "variant", "settings", "min", "seed", "steps"]
    head += ["validation", "test", "safe", "commit"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in sorted(rows, key=lambda row: (row["data"], row["minutes"], row["label"])):
        scores = [f"{row[key]:.4g}" if key in row else "" for key in ("test", "safe_test")]
        settings = ", ".join(row["settings"])  # as of the commit, so not as names of settings
        cells = [f"{row['data']}, {row['unit']}", row["label"], settings, f"{row['minutes']:g}"]
        cells += [str(row["seed"]), str(row["steps"]), f"{row['validation']:.4g}", *scores]
        lines.append("| " + " | ".join([*cells, f"`{row['commit']}`"]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the command; an error is one message and the exit code of its kind."""
    try:
        app(prog_name="python -m benchmarks.study")
    except StonetError as error:
        typer.echo(f"study: {error}", err=True)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
