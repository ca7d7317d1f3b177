"""The answer of /v1/model: what the model forecasts, where, when and how far."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from stonet._version import __version__
from stonet.data.durations import SECOND
from stonet.data.geometry import Points
from stonet.inference.forecast import MAX_LEAD
from stonet.inference.places import longitude_arc
from stonet.inference.support import silent_notes
from stonet.serving.limits import Limits
from stonet.serving.service import Run, Service
from stonet.serving.times import label
from stonet.training.trained_model import TrainedModel

LEVELS = (0.5, 0.9)  # of the intervals that the page draws
UNITS = {"sphere": ("degrees_north", "degrees_east"), "plane": ("", "")}
MARGIN = 0.05  # of the region around the stations, as a share of its extent
LEAST_MARGIN = {"sphere": 0.05, "plane": 0.0}
Document = dict[str, Any]


def about(service: Service, limits: Limits) -> Document:
    """The model, its channels, times and region.

    Args:
        service: of the model.
        limits: of requests.
    """
    run, now = service.run, service.snapshot
    trained, field = run.trained, now.field
    spec, calendar = trained.time_spec, field.calendar
    first, last = int(field.times[0]), int(field.times[-1])
    earliest = min(spec.past, len(field.times)) - 1
    window = field.between(max(0, len(field.times) - spec.past), len(field.times))
    return {
        "name": run.name,
        "version": __version__,
        "run": run.identity,
        "kind": field.points.kind,
        "axes": [
            {"name": name, "units": units}
            for name, units in zip(
                field.points.geometry.axes, UNITS[field.points.kind], strict=True
            )
        ],
        "distance_units": "km" if field.points.kind == "sphere" else "",
        "channels": channels(trained, {n: dict(a) for n, a in field.channel_attrs.items()}),
        "calendar": calendar,
        "period": {"start": label(first, calendar), "end": label(last, calendar)},
        "step_seconds": spec.step / SECOND,
        "past_steps": spec.past,
        "horizon": {
            "steps": spec.horizon,
            "leads_seconds": [spec.step * k / SECOND for k in range(1, spec.horizon + 1)],
            "longest_seconds": int(MAX_LEAD * spec.horizon * spec.step) / SECOND,
        },
        "issue_times": {
            "first": label(int(field.times[earliest]), calendar),
            "last": label(last, calendar),
            "latest": label(last, calendar),
            "count": len(field.times) - earliest,
        },
        "region": region(field.points),
        "stations": len(field.points),
        "levels": list(LEVELS),
        "quantiles_available": run.calibration is not None,
        "notes": list(silent_notes(window)),
        "limits": {
            name: value
            for name, value in asdict(limits).items()
            if name in ("sites", "times", "values", "body_bytes", "seconds")
        },
        "card": card(run),
    }


def channels(trained: TrainedModel, attributes: dict[str, Document]) -> list[Document]:
    """Name, unit, names after CF, range of forecasts and useful decimals of each channel.

    Args:
        trained: the model.
        attributes: CF attributes of the channels in the data.
    """
    scaler, documents = trained.scaler, []
    for c, (name, units) in enumerate(zip(trained.channels, trained.units, strict=True)):
        known = attributes.get(name, {})
        low, high = (ends[c] if ends else None for ends in (scaler.low, scaler.high))
        documents.append(
            {
                "name": name,
                "units": units,
                "long_name": str(known.get("long_name", "")),
                "standard_name": str(known.get("standard_name", "")),
                "bounds": None if low is None and high is None else [low, high],
                "decimals": decimals(scaler.std[c]),
            }
        )
    return documents


def decimals(deviation: float) -> int:
    """Decimals that show a hundredth of a standard deviation.

    Args:
        deviation: of the training data.
    """
    return max(0, min(9, math.ceil(-math.log10(deviation / 100)))) if deviation > 0 else 2


def region(points: Points) -> dict[str, list[float]]:
    """The region of the points with a margin; across the date line, east is above 180.

    Args:
        points: of the stations.
    """
    first, second = points.coordinates.T
    ends = [(float(first.min()), float(first.max())), (float(second.min()), float(second.max()))]
    if points.kind == "sphere":
        ends[1] = longitude_arc(second)
    least, wide = LEAST_MARGIN[points.kind], []
    for low, high in ends:
        margin = max(MARGIN * (high - low), least) or 1.0
        wide.append([low - margin, high + margin])
    if points.kind == "sphere":
        wide[0] = [max(wide[0][0], -90.0), min(wide[0][1], 90.0)]
        if wide[1][1] - wide[1][0] >= 360.0:
            wide[1] = [-180.0, 180.0]
    return dict(zip(points.geometry.axes, wide, strict=True))


def card(run: Run) -> Document:
    """What the run folder tells of the training.

    Args:
        run: folder and model.
    """
    trained = run.trained
    best = run.metrics.get("best_validation")
    return {
        "model": trained.config.model,
        "dataset": trained.dataset,
        "parameters": sum(p.numel() for p in trained.model.parameters()),
        "training_points": len(trained.nodes),
        "seed": trained.config.train.seed,
        "best_validation": best if isinstance(best, (int, float)) else None,
        "ranges": trained.scaler.describe(trained.channels, trained.units),
        "reference_forecasts": [str(choice) for choice in trained.choices],
        "text": run.card,
    }
