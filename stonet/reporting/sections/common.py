"""What several sections share: labels, styles of models, tables of scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from stonet.data.display import short_time
from stonet.reporting.axes import lead_unit
from stonet.reporting.blocks import UNKNOWN, Legend
from stonet.reporting.results import Results

MAX_CHANNELS = 4  # with charts and maps of their own
REFERENCE_STYLES = {"persistence": "c1", "daily": "c2", "climatology": "c3", "linear": "c4"}
SIGNS = {"degC": "°C", "degF": "°F", "degree": "°"}
NAME_LENGTH = 40  # characters of a name in titles


def channels_shown(results: Results) -> Sequence[tuple[int, str]]:
    """Positions and names of the channels with charts and maps of their own.

    Args:
        results: of the model.
    """
    return list(enumerate(results.trained.channels[:MAX_CHANNELS]))


def unit_of(results: Results, channel: int) -> str:
    """The unit of a channel; empty where it has none.

    Args:
        results: of the model.
        channel: its position.
    """
    unit = results.trained.units[channel]
    return "" if unit in ("", "1") else SIGNS.get(unit, unit)


def with_unit(text: str, unit: str) -> str:
    """A label with its unit in brackets, if there is one.

    Args:
        text: the label.
        unit: empty: there is none.
    """
    return f"{text} ({unit})" if unit else text


def measured(value: float | None, unit: str) -> str:
    """A number with three significant digits and its unit.

    Args:
        value: None or NaN: unknown.
        unit: empty: there is none.
    """
    if value is None or not np.isfinite(value):
        return UNKNOWN
    return f"{value:.3g} {unit}".strip()


def style_of(results: Results, model: str) -> str:
    """The CSS classes of a model's line.

    Args:
        results: of the trained model.
        model: its name.
    """
    return "c0 own" if model == results.model else REFERENCE_STYLES.get(model, "c5")


def legend_of(results: Results, models: Sequence[str]) -> Legend:
    """A legend of models.

    Args:
        results: of the trained model.
        models: their names.
    """
    return [(name, style_of(results, name)) for name in models]


def leads_of(results: Results) -> tuple[Float64[np.ndarray, " lead"], str]:
    """The trained leads in a suitable unit, and the label of their axis.

    Args:
        results: of the model.
    """
    spec = results.trained.time_spec
    name, size = lead_unit(spec.step, spec.horizon)
    return np.arange(1, spec.horizon + 1) * size, f"lead ({name})"


def lead_text(results: Results, position: int) -> str:
    """A lead as text, such as +6 h.

    Args:
        results: of the model.
        position: from 0.
    """
    leads, label = leads_of(results)
    return f"+{leads[position]:g} {label.removeprefix('lead (').rstrip(')')}"


def date(results: Results, time: int) -> str:
    """A time as text, with its zone.

    Args:
        results: of the model.
        time: in nanoseconds.
    """
    calendar = results.trained.time_spec.calendar
    return short_time(time, calendar) + " UTC" * calendar
