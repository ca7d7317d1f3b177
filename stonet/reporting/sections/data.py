"""Section on the data: what was observed, where and when."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32

from stonet.data import display
from stonet.data.field import Field
from stonet.reporting.axes import Axes, time_axis
from stonet.reporting.blocks import Block, Drawing, Facts, Figure, Figures, Note, Section
from stonet.reporting.charts import image_chart
from stonet.reporting.maps import Canvas
from stonet.reporting.results import Results
from stonet.reporting.svg import ColourScale

MAX_ROWS = 160  # of the availability; more stations share a row
MAX_BINS = 240  # of time
WIDE = 780.0  # of the drawing
DESCRIBED = ("title", "source", "licence", "license", "institution", "references")  # attributes


def data_section(results: Results, canvas: Canvas) -> Section:
    """The data card, a map and the availability.

    Args:
        results: of the model.
        canvas: of all maps.
    """
    dataset = results.task.dataset
    share = availability(dataset.episodes)
    scale = ColourScale(0.0, 1.0, "viridis", "share of values observed")
    point_map = canvas.map(share.mean(0).astype(np.float64), scale, "Map of all stations")
    outlined = "Outlined: held out of training. " * bool(dataset.unseen)
    figures = Figures(
        [
            Figure("Stations", point_map, f"{outlined}Hollow: no value at all."),
            Figure(
                "Availability",
                _availability(results, share, scale),
                _order_note(results),
                size="double",
            ),
        ]
    )
    blocks: list[Block] = [Facts(card(results)), figures]
    blocks += [Note(note) for note in results.notes]
    kind = "The data of the training" if results.own_data else "Data that the model is applied to"
    count = display.counted(len(dataset.points), "station")
    lead = f"{kind}: {display.channels_with_units(*_quantities(dataset.episodes[0]))} at {count}."
    return Section("data", "Data", lead, blocks)


def card(results: Results) -> dict[str, str]:
    """Facts about the data by name.

    Args:
        results: of the model.
    """
    dataset, first = results.task.dataset, results.task.dataset.episodes[0]
    described = {key: str(first.attrs[key]) for key in DESCRIBED if first.attrs.get(key)}
    seen, unseen = len(dataset.seen), len(dataset.unseen)
    split = f"{seen} in training, {unseen} held out" if unseen else f"{seen}, none held out"
    scored = display.period(results.fields)
    episodes = len(results.fields)
    facts = {
        "Data set": dataset.name,
        **{key.capitalize(): display.shortened(text, 300) for key, text in described.items()},
        "Channels": display.channels_with_units(*_quantities(first)),
        "Period": display.period(dataset.episodes),
        "Stations": split,
        "Extent": display.extent(dataset.points),
        "Missing": display.missing_share(dataset.episodes),
        "Scored": f"{results.part} part: {scored}"
        + (f" ({display.counted(episodes, 'episode')})" if episodes > 1 else ""),
    }
    if len(dataset.episodes) > 1:
        facts["Episodes"] = str(len(dataset.episodes))
    return facts


def _quantities(field: Field) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return field.channels, field.units


def availability(episodes: tuple[Field, ...]) -> Float32[np.ndarray, "bin point"]:
    """The share of values observed at each point, in bins of consecutive frames.

    Args:
        episodes: one after the other.
    """
    frames = sum(len(field.times) for field in episodes)
    bins = min(MAX_BINS, frames)
    total, count = np.zeros((bins, len(episodes[0].points))), np.zeros(bins)
    start = 0
    for field in episodes:
        member = np.arange(start, start + len(field.times)) * bins // frames
        for number in np.unique(member).tolist():
            first, last = np.searchsorted(member, (number, number + 1)).tolist()
            observed = field.observed[first:last]
            total[number] += observed.mean(2).sum(0)
            count[number] += last - first
        start += len(field.times)
    return (total / count[:, None]).astype(np.float32)


def _availability(
    results: Results, share: Float32[np.ndarray, "bin point"], scale: ColourScale
) -> Drawing:
    """The image of the availability, the most complete record first."""
    rows = share[:, np.argsort(-share.mean(0), kind="stable")].T
    if len(rows) > MAX_ROWS:
        starts = np.arange(MAX_ROWS) * len(rows) // MAX_ROWS
        rows = np.add.reduceat(rows, starts) / np.diff(np.append(starts, len(rows)))[:, None]
    episodes = results.task.dataset.episodes
    calendar = results.trained.time_spec.calendar
    if len(episodes) > 1:
        limits, ticks, label = (0.0, float(len(episodes))), None, "episodes, one after another"
    else:
        place, ticks = time_axis(episodes[0].times[[0, -1]], calendar)
        limits, label = (float(place[0]), float(place[1])), "time (UTC)" if calendar else "time (s)"
    axes = Axes("Availability of every station over time", label, "stations", ticks, width=WIDE)
    return image_chart(rows.astype(np.float64), limits, scale, axes, share.shape[1])


def _order_note(results: Results) -> str:
    merged = "; a row is the mean of several" * (len(results.task.dataset.points) > MAX_ROWS)
    return f"The most complete record is at the top{merged}."
