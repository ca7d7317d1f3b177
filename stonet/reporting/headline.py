"""The head of the report: a few large numbers, and one sentence on what they mean."""

from __future__ import annotations

from dataclasses import dataclass

from stonet.data.display import counted, shortened
from stonet.data.durations import duration_label
from stonet.evaluation.scoring import Group
from stonet.reporting.results import GROUPS, Results
from stonet.reporting.sections.common import measured, unit_of
from stonet.reporting.sections.scores import skill

MINUS = "\N{MINUS SIGN}"
NOMINAL, TOLERANCE = 0.9, 0.05  # coverage of intervals, and how far it may be off


@dataclass(frozen=True)
class Tile:
    """A large number.

    Args:
        label: what it is.
        value: as text.
        note: what it compares with.
        tone: "good", "bad" or empty.
    """

    label: str
    value: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Headline:
    """The head of the report.

    Args:
        title: of the page.
        subtitle: model, channels and leads.
        summary: what the numbers mean.
        tiles: large numbers.
    """

    title: str
    subtitle: str
    summary: str
    tiles: tuple[Tile, ...]


def headline(results: Results, title: str | None = None) -> Headline:
    """The head of the report.

    Args:
        results: of the model.
        title: of the page (None: model and data).
    """
    trained, spec = results.trained, results.trained.time_spec
    channel, unit = _main_channel(results)
    first, last = duration_label(spec.step), duration_label(spec.step * spec.horizon)
    name = shortened(results.task.dataset.name.rsplit("/", 1)[-1], 60)
    subtitle = (
        f"{', '.join(shortened(c, 40) for c in trained.channels[:6])} at "
        f"{counted(len(results.task.dataset.points), 'station')}, {first} to {last} ahead"
    )
    tiles = [_error_tile(results, group, channel, unit) for group in results.groups
             if group != "unseen"]  # fmt: skip
    tiles += _skill_tiles(results, channel)
    coverage = results.score(results.model, "seen", channel, "coverage_90")
    if coverage is not None:
        tone = "good" if abs(coverage - NOMINAL) <= TOLERANCE else "bad"
        verdict = "" if tone == "good" else ": too wide" if coverage > NOMINAL else ": too narrow"
        note = f"of values in the 90 % interval{verdict}"
        tiles.append(Tile("Reliability", f"{100 * coverage:.0f} %", note, tone))
    return Headline(
        title or f"{trained.config.model} on {name}",
        subtitle,
        _summary(results, channel, unit, first, last),
        tuple(tiles),
    )


def _main_channel(results: Results) -> tuple[str, str]:
    """The channel of the large numbers, and its unit; "all" channels of several units have none."""
    channels = results.trained.channels
    if len(channels) == 1:
        return channels[0], unit_of(results, 0)
    units = set(results.trained.units)
    if len(units) == 1:
        return "all", unit_of(results, 0)
    return "all", "standard deviations"


def _error_tile(results: Results, group: Group, channel: str, unit: str) -> Tile:
    """The mean error at a group of points."""
    value = results.score(results.model, group, channel)
    return Tile("Mean error", measured(value, unit), f"at points {GROUPS[group]}")


def _skill_tiles(results: Results, channel: str) -> list[Tile]:
    """How much better the model is than persistence, and than the best reference."""
    best = best_reference(results, channel)
    tiles = []
    for name in dict.fromkeys(("persistence", best)):
        gain = None if name is None else skill(results, results.model, "seen", channel, name)
        if name is None or gain is None:
            continue
        tone = "good" if gain > 0 else "bad"
        note = "the best reference, at points seen" if name == best else "at points seen"
        tiles.append(Tile(f"Error against {name}", _change(gain), note, tone))
    return tiles


def best_reference(results: Results, channel: str) -> str | None:
    """The reference forecast with the least error at seen points; None if there is none.

    Args:
        results: of the model.
        channel: its name, or "all".
    """
    scores = {m: results.score(m, "seen", channel) for m in results.models if m != results.model}
    known = {m: value for m, value in scores.items() if value is not None}
    return min(known, key=lambda m: known[m]) if known else None


def _change(gain: float) -> str:
    """A change of the error, such as -12 %."""
    return f"{MINUS if gain > 0 else '+'}{100 * abs(gain):.3g} %"


def _summary(results: Results, channel: str, unit: str, first: str, last: str) -> str:
    """One or two sentences for readers in a hurry."""
    own = results.score(results.model, "seen", channel)
    text = (
        f"In the {results.part} part, forecasts {first} to {last} ahead are off by "
        f"{measured(own, unit)} on average at points seen in training"
    )
    best = best_reference(results, channel)
    gain = None if best is None else skill(results, results.model, "seen", channel, best)
    if gain is None or best is None:
        text += "."
    elif gain > 0:
        text += f", {100 * gain:.3g} % less than the best reference forecast ({best})."
    else:
        text += f", {-100 * gain:.3g} % more than the best reference forecast ({best})."
    unseen = results.score(results.model, "unseen-no-history", channel)
    if unseen is not None:
        text += f" At places without a sensor it is {measured(unseen, unit)}."
    return text
