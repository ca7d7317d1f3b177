"""The demo on waves: what is simulated, how long is trained, and what is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stonet.calibration.conformal import Calibration
    from stonet.data.field import Dataset, Field
    from stonet.evaluation.metrics import Record
    from stonet.training.task import Task
    from stonet.training.trained_model import TrainedModel

DATA = "waves: 100 episodes, 512 sensors, 512 unseen points"
TARGETS = "every grid point from the sensors"
SETTINGS = ("train.epochs=16", "train.steps=60")  # about two minutes on two cores
QUESTION = ("--at", "0.5,0.5", "--times", "+0.0035s")
INTERVALS = False
EPISODE, ISSUE_FRAME = 93, 50  # the test episode that is drawn, and the frame it is forecast from


def simulate() -> Dataset:
    """The data set."""
    from stonet.datasets.wave import wave

    return wave()


def draw(
    trained: TrainedModel,
    task: Task,
    records: list[Record],
    history: list[dict[str, Any]],
    calibration: Calibration | None,
) -> tuple[Field, dict[str, bytes]]:
    """The forecast at all 4096 grid points, most of them without a sensor, and the figures.

    Args:
        trained: the model.
        task: what it was trained for.
        records: its scores.
        history: of its training.
        calibration: not used.
    """
    import numpy as np

    from stonet.datasets.wave import wave_on_grid
    from stonet.inference.forecast import forecast
    from stonet.plotting import figures

    full_grid = wave_on_grid(EPISODE)
    observed = task.dataset.episodes[EPISODE].take(task.dataset.seen)
    past, end = observed.between(0, ISSUE_FRAME), ISSUE_FRAME + trained.time_spec.horizon
    on_grid = forecast(trained, past, at=full_grid.points)
    around = observed.values[ISSUE_FRAME - 12 : ISSUE_FRAME + 12, :, 0]
    most_variable = int(np.abs(np.diff(around, axis=0)).sum(0).argmax())
    last = trained.time_spec.horizon - 1
    leads = sorted({0, last // 3, 2 * last // 3, last})
    drawn = {
        "snapshots": figures.snapshots(
            full_grid.between(ISSUE_FRAME, end),
            on_grid,
            leads,
            nodes=past.points,
            title="Wave, forecast from 512 sensors",
        ),
        "error_by_lead": figures.error_by_lead(
            records,
            title="Wave: error by lead time, test episodes",
            step=trained.time_spec.step,
        ),
        "training": figures.training_curve(history, title="Training"),
        "series": figures.series(
            past.between(ISSUE_FRAME - 24, ISSUE_FRAME),
            forecast(trained, past),
            most_variable,
            truth=observed.between(ISSUE_FRAME, end),
        ),
    }
    return on_grid, {f"figures/{name}.png": figures.png(figure) for name, figure in drawn.items()}
