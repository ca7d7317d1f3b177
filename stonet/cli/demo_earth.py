"""The demo on the simulated stations: what is trained, and the maps and intervals drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from stonet.calibration.conformal import Calibration
    from stonet.data.field import Dataset, Field
    from stonet.evaluation.metrics import Record
    from stonet.training.task import Task
    from stonet.training.trained_model import TrainedModel

DATA = "a year of weather at 300 stations on the Earth, 60 of them unseen"
TARGETS = "unseen stations with intervals, and a map of Europe"
SETTINGS = (
    "read.variables=air_temperature",
    "train.epochs=8",
    "train.steps=60",
    "data.stride=2",
)  # about two minutes on two cores
QUESTION = ("--at", "48.2,16.4", "--times", "+7h", "--intervals", "50,90")
INTERVALS = True
EUROPE = "grid:1,-8,38,41,55"
ISSUE_SHARE = 0.93  # of the record, within the test part: when the drawn forecast is issued
PAST_FRAMES = 120  # that a forecast and its correction may look back


def simulate() -> Dataset:
    """The data set."""
    from stonet.datasets.stations import stations

    return stations()


def draw(
    trained: TrainedModel,
    task: Task,
    records: list[Record],
    history: list[dict[str, Any]],
    calibration: Calibration | None,
) -> tuple[Field, dict[str, bytes]]:
    """The forecast at all stations from the seen ones, and the figures.

    Args:
        trained: the model.
        task: what it was trained for.
        records: its scores.
        history: of its training.
        calibration: gives the intervals.
    """
    from stonet.datasets.stations import earth_weather
    from stonet.evaluation.reliability import reliability
    from stonet.inference.calibrated import calibrated_forecast
    from stonet.inference.places import find_places
    from stonet.plotting import figures
    from stonet.plotting.reliability import reliability_figure

    (record,) = task.dataset.episodes
    issue = round(ISSUE_SHARE * len(record.times)) - 1
    window = record.between(max(0, issue - PAST_FRAMES), issue + trained.time_spec.horizon)
    past = window.between(0, min(issue, PAST_FRAMES)).take(task.dataset.seen)
    last = trained.time_spec.horizon - 1
    leads = sorted({0, last // 3, 2 * last // 3, last})
    everywhere = calibrated_forecast(trained, calibration, past, at=record.points)
    places, _ = find_places(EUROPE, past.points)
    europe = calibrated_forecast(trained, calibration, past, at=places)
    truth = earth_weather(europe.points, europe.times).sel(channel=list(europe.channels))
    drawn = {
        "map": figures.snapshots(
            truth, europe, leads, nodes=past.points, title="Simulated weather of Europe"
        ),
        "globe": _globe(everywhere, leads[-2]),
        "error_by_lead": figures.error_by_lead(
            records,
            title="Simulated stations: error by lead time, test part",
            step=trained.time_spec.step,
            unit=trained.units[0],
        ),
        "training": figures.training_curve(history, title="Training"),
    }
    if calibration is not None:
        drawn["series"] = _series(trained, calibration, past, window, task)
        part = reliability(trained, task, calibration)
        drawn["reliability"] = reliability_figure(part, "Intervals on the test part")
    return everywhere, {
        f"figures/{name}.png": figures.png(figure) for name, figure in drawn.items()
    }


def _globe(forecast: Field, lead: int) -> Figure:
    """All stations of the Earth, coloured by one lead of the forecast."""
    from matplotlib.figure import Figure

    from stonet.data.dates import time_label
    from stonet.plotting.figures import DPI, quantity_label
    from stonet.plotting.maps import MapProjection

    figure = Figure(figsize=(9, 4.6), dpi=DPI, layout="compressed")
    axes = figure.subplots()
    values = forecast.values[lead, :, 0].astype(float)
    MapProjection.of(forecast.points).draw_dots(axes, forecast.points, values, cmap="viridis")
    label = quantity_label(forecast.channels[0], forecast.units[0])
    figure.colorbar(axes.collections[0], ax=axes, label=label, shrink=0.8)
    axes.set_title(f"Forecast for {time_label(int(forecast.times[lead]), True)}")
    return figure


def _series(
    trained: TrainedModel, calibration: Calibration, past: Field, window: Field, task: Task
) -> Figure:
    """Forecast, intervals and truth at the unseen station that varies most."""
    import numpy as np

    from stonet.data.quantile_field import interval_quantiles
    from stonet.inference.calibrated import calibrated_forecast, quantile_forecast
    from stonet.plotting import figures

    issued = len(past.times)
    unseen = window.take(np.asarray(task.dataset.unseen, dtype=np.int64))
    future = unseen.between(issued, len(window.times))
    complete = unseen.observed[..., 0].mean(0) == unseen.observed[..., 0].mean(0).max()
    spread = np.where(complete, np.nanstd(unseen._filled()[..., 0], axis=0), -1.0)
    chosen = np.array([spread.argmax()])
    node = unseen.take(chosen)
    best = calibrated_forecast(trained, calibration, past, at=node.points)
    wanted = sorted({q for level in (50, 90) for q in interval_quantiles(level)})
    quantiles = quantile_forecast(trained, calibration, past, wanted, at=node.points)
    figure = figures.series(
        node.between(max(0, issued - 24), issued),
        best,
        0,
        truth=future.take(chosen),
        title=f"{node.points.names[0]}, a station that the model never saw",
    )
    (axes,) = figure.axes
    times = best.datetimes.astype("datetime64[ms]").astype(object)
    for level, alpha in ((90, 0.15), (50, 0.3)):
        low, high = (end.values[:, 0, 0] for end in quantiles.interval(level))
        axes.fill_between(
            times, low, high, color=figures.PALETTE[1], alpha=alpha, linewidth=0,
            label=f"{level} % interval",
        )  # fmt: skip
    axes.legend(frameon=False)
    return figure
