"""stonet plot: maps, series, errors and reliability of a trained model as a figure or a page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stonet.cli.options import (
    At,
    Feedback,
    Json,
    OptionalData,
    ReadSettings,
    RunArgument,
    Snap,
    check_positions,
    load_run,
    open_for,
    provenance,
    query_points,
    read_options,
)

if TYPE_CHECKING:
    from stonet.calibration.conformal import Calibration
    from stonet.data.field import Dataset
    from stonet.data.geometry import Points
    from stonet.reporting.issued import Issued
    from stonet.reporting.panels import Panel
    from stonet.training.trained_model import TrainedModel

OWN_OPTIONS = {  # of each kind of figure, beside --channel and --size
    "map": {"issue", "lead", "grid", "feedback"},
    "series": {"issue", "lead", "at", "feedback"},
    "errors": {"part", "metric", "feedback"},
    "reliability": {"part"},
}
WIDTHS = (2.0, 20.0)  # inches of a panel


@read_options
def plot(
    run: RunArgument,
    data: OptionalData = None,
    as_map: Annotated[
        bool, typer.Option("--map", help="Maps of the forecast field, with the stations.")
    ] = False,
    as_series: Annotated[
        bool, typer.Option("--series", help="Past and forecast with intervals at some places.")
    ] = False,
    as_errors: Annotated[
        bool, typer.Option("--errors", help="Error by lead, beside the reference forecasts.")
    ] = False,
    as_reliability: Annotated[
        bool, typer.Option("--reliability", help="How often intervals hold the observed value.")
    ] = False,
    channel: Annotated[
        str | None, typer.Option(help="Channel to draw; default: the first (errors: all).")
    ] = None,
    issue: Annotated[
        str | None,
        typer.Option(help="Last time with observations, such as 2024-06-01T12; default: the last."),
    ] = None,
    lead: Annotated[
        list[str] | None,
        typer.Option(help="Lead such as +6h, or a date; repeatable: one map each."),
    ] = None,
    at: At = None,
    snap: Snap = True,
    grid: Annotated[
        float | None, typer.Option(help="Step of the map's grid: 0.25; default: fine enough.")
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(help="Part that is scored: test, validation, train; errors also: all."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Error to draw: mae, rmse, mape or bias; default: mae.")
    ] = None,
    feedback: Feedback = True,
    size: Annotated[float, typer.Option(help="Width of each panel in inches.")] = 5.0,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="File to write: .png, .svg or .html (a page).")
    ] = Path("plot.png"),
    read: ReadSettings = (),
    as_json: Json = False,
) -> None:
    """Draw forecasts or scores of a trained model: --map, --series, --errors or --reliability."""
    from stonet.calibration.stored import load_calibration
    from stonet.cli.console import print_json, say
    from stonet.errors import UsageError
    from stonet.reporting.panels import check_panels, write_panels

    started = time.monotonic()
    wanted = {"map": as_map, "series": as_series, "errors": as_errors}
    kind = _kind(wanted | {"reliability": as_reliability})
    given = {"issue": issue, "lead": lead, "at": at, "grid": grid, "part": part, "metric": metric}
    _check_options(kind, given | {"feedback": None if feedback else True}, channel)
    check_panels(out)
    if not WIDTHS[0] <= size <= WIDTHS[1]:
        raise UsageError(f"--size {size:g}: expected {WIDTHS[0]:g} to {WIDTHS[1]:g} inches.")
    trained = load_run(run)
    calibration = load_calibration(trained, run)
    check_positions(at, trained)
    dataset = open_for(trained, data, read, as_json)
    if kind in ("map", "series"):
        model = _issued(trained, calibration, dataset, issue, feedback, as_json)
        places = query_points(at, None, trained, model.whole.points, snap, as_json)
        panels = _forecasts(kind, model, lead, places, channel, grid, size, as_json)
        caption = f"{trained.config.model}, {model.label}"
    else:
        scored = (trained, calibration if feedback else None, dataset)
        panels = _scores(kind, scored, part or "test", metric, channel, size, as_json)
        caption = f"{trained.config.model}, {part or 'test'} part of {dataset.name}"
    write_panels(panels, out, caption, f"stonet plot --{kind}, trained on {trained.dataset}")
    if as_json:
        facts = {"out": str(out), "kind": kind, "panels": [panel.name for panel in panels]}
        print_json(facts | provenance(trained.config, started))
    say(f"Wrote {out}: {len(panels)} panel{'s' * (len(panels) != 1)}.", as_json)


def _kind(flags: dict[str, bool]) -> str:
    """The one kind of figure that is wanted."""
    from stonet.errors import UsageError

    chosen = [name for name, wanted in flags.items() if wanted]
    if len(chosen) != 1:
        names = ", ".join(f"--{name}" for name in flags)
        raise UsageError(f"{len(chosen)} kinds of figure were requested; give one of {names}.")
    return chosen[0]


def _check_options(kind: str, given: dict[str, Any], channel: str | None) -> None:
    """Refuse options that would have no effect on this kind of figure."""
    from stonet.errors import UsageError

    useless = [name for name, value in given.items() if value and name not in OWN_OPTIONS[kind]]
    useless += ["channel"] if channel is not None and kind == "reliability" else []
    if useless:
        shown = ", ".join(
            "--no-feedback" if name == "feedback" else f"--{name}" for name in useless
        )
        raise UsageError(f"{shown} has no effect with --{kind}. Omit it.")


def _issued(
    trained: TrainedModel,
    calibration: Calibration | None,
    dataset: Dataset,
    issue: str | None,
    feedback: bool,
    quiet: bool,
) -> Issued:
    """The model at the issue time; notes on its inputs are printed."""
    from stonet.cli.console import say
    from stonet.inference.forecast import latest_frames
    from stonet.inference.inputs import check_inputs
    from stonet.reporting.issued import Issued

    model = Issued.of(trained, calibration, dataset, issue, feedback)
    for note in check_inputs(trained, latest_frames(trained, model.past, screened=False)):
        say(f"note: {note}", quiet)
    return model


def _forecasts(
    kind: str,
    model: Issued,
    leads: list[str] | None,
    places: Points | None,
    channel: str | None,
    grid: float | None,
    size: float,
    quiet: bool,
) -> Sequence[Panel]:
    """Maps or series."""
    import warnings

    from stonet.cli.console import counting_bar
    from stonet.inference.inputs import InputWarning
    from stonet.reporting.model_plots import map_panels, series_panels
    from stonet.system.progress import reporting_to

    warnings.simplefilter("ignore", InputWarning)  # printed as notes
    with counting_bar("forecast", quiet, delay=2.0) as bar, reporting_to(bar):
        if kind == "map":
            return map_panels(model, leads, channel, grid, size)
        return series_panels(model, places, channel, leads, size)


def _scores(
    kind: str,
    model: tuple[TrainedModel, Calibration | None, Dataset],
    part: str,
    metric: str | None,
    channel: str | None,
    size: float,
    quiet: bool,
) -> Sequence[Panel]:
    """Errors or reliability."""
    from stonet.cli.console import counting_bar
    from stonet.data.windows import PARTS
    from stonet.errors import unknown_name
    from stonet.evaluation.task import ALL, scored_task
    from stonet.inference.calibrated import required
    from stonet.reporting.model_plots import error_panels, reliability_panels
    from stonet.system.progress import reporting_to

    trained, calibration, dataset = model
    parts = (*PARTS, ALL) if kind == "errors" else PARTS
    if part not in parts:
        raise unknown_name("part", part, parts)
    task = scored_task(trained, dataset, part)
    with counting_bar("scoring", quiet, delay=2.0) as bar, reporting_to(bar):
        if kind == "errors":
            arguments = trained, calibration, task, part, metric or "mae", channel, size
            return error_panels(*arguments)
        return reliability_panels(trained, required(calibration), task, part, size)
