"""The model card of a run: what it forecasts, from which data, how well, and where its limits are.

It is written from what is in the run folder: settings, points, scaler and metrics.json, which has
the facts of the data (`facts`) and the course of the training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stonet._version import __version__
from stonet.data import display
from stonet.data.durations import YEAR, duration_label
from stonet.data.value_range import blocks
from stonet.training.task import Task

if TYPE_CHECKING:
    from stonet.training.trained_model import TrainedModel

ATTRIBUTES = ("title", "source", "licence")  # of the data, as `Field.attrs` has them
UNKNOWN = {
    "source": "not recorded in the data",
    "licence": "not recorded in the data; find it out before you pass the model on",
}


def facts(task: Task) -> dict[str, Any]:
    """What the card says of the data, as JSON types.

    Args:
        task: that a model was trained for.
    """
    fields = task.parts["train"]
    first, last = min(f.times[0] for f in fields), max(f.times[-1] for f in fields)
    observed = total = 0
    for _, mask in blocks(fields, task.dataset.seen):
        observed, total = observed + int(mask.sum()), total + mask.size
    attrs = task.dataset.episodes[0].attrs
    known = {name: str(attrs[name]) for name in ATTRIBUTES if attrs.get(name)}
    return known | {
        "first": display.short_time(int(first), fields[0].calendar),
        "last": display.short_time(int(last), fields[0].calendar),
        "span": int(last - first),
        "frames": sum(len(f.times) for f in fields),
        "missing": round(1 - observed / max(total, 1), 4),
        "held_out": len(task.dataset.unseen),
    }


def model_card(trained: TrainedModel, metrics: Mapping[str, Any]) -> str:
    """The card as Markdown.

    Args:
        trained: the model.
        metrics: how training went; without "data" the card says less.
    """
    spec, config = trained.time_spec, trained.config
    size = sum(p.numel() for p in trained.model.parameters())
    described = trained.scaler.describe(trained.channels, trained.units)
    rules = trained.scaler.rules or ("",) * len(described)
    ranges = [f"{text} ({rule})" for text, rule in zip(described, rules, strict=True)]
    lines = [
        f"# {config.model} trained on {trained.dataset}",
        "",
        f"- forecasts {display.channels_with_units(trained.channels, trained.units)}, "
        f"{spec.past} steps in, {spec.horizon} out, step {spec.step / 1e9:g} s",
        f"- {len(trained.nodes)} training points on a {trained.nodes.kind}; {size} parameters",
        f"- forecasts stay within {'; '.join(ranges)}",
        *_scores(trained, metrics),
        f"- {_budget(trained, metrics)}",
        f"- seed {config.train.seed}, stonet {__version__}",
        *_race(metrics.get("race")),
        *_refit(metrics.get("refit")),
        *(f"- validation favours a reference forecast: {choice}" for choice in trained.choices),
        *_section("Data", _data(metrics.get("data"))),
        *_section("Limits", _limits(trained, metrics.get("data") or {})),
        *_section("Use", _use()),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    """A heading with its lines; nothing without lines."""
    body = list(lines)
    return ["", f"## {title}", "", *body] if body else []


def _scores(trained: TrainedModel, metrics: Mapping[str, Any]) -> list[str]:
    """The validation error, in the unit of the data where there is one channel."""
    best = metrics.get("best_validation")
    lines = [f"- validation MAE (normalised): {best if best is None else format(best, '.5f')}"]
    if best is not None and len(trained.channels) == 1:
        unit = f" {trained.units[0]}" if trained.units[0] else ""
        value = f"{best * trained.scaler.std[0]:.4g}{unit}"
        lines.append(f"- that is {value}; it chose the weights, and a test error may be higher")
    return lines


def _budget(trained: TrainedModel, metrics: Mapping[str, Any]) -> str:
    """The length of the training."""
    train, steps = trained.config.train, metrics.get("steps")
    length = (
        display.counted(train.epochs, "epoch")
        if train.minutes is None
        else f"{train.minutes:g} CPU minutes"
    )
    return f"budget: {length} at most" + (f"; {steps} steps taken" if steps is not None else "")


def _data(data: Mapping[str, Any] | None) -> list[str]:
    """Origin, licence and extent of the training data."""
    if not data:
        return []
    title = [f"- title: {data['title']}"] if "title" in data else []
    origin = [f"- {name}: {data.get(name, UNKNOWN[name])}" for name in UNKNOWN]
    return [
        *title,
        *origin,
        f"- training part: {data['first']} to {data['last']}, {data['frames']} times; "
        f"{100 * data['missing']:.1f} % of the values missing",
        f"- stations held out from training: {data['held_out']}",
    ]


def _limits(trained: TrainedModel, data: Mapping[str, Any]) -> list[str]:
    """What the model was not trained for."""
    spec = trained.time_spec
    longest = duration_label(spec.step * spec.horizon)
    lines = [
        f"- leads up to {longest}; later ones are extrapolated",
        f"- places within {display.extent(trained.nodes)}; far from all stations, errors grow",
        "- a forecast alone tells nothing of its error: ask for quantiles as well",
        "- the scores are those of past data: a change of instruments or climate is not in them",
    ]
    if spec.calendar and "span" in data and data["span"] < YEAR:
        lines.insert(2, "- training saw less than a year: other seasons are unknown to the model")
    if not trained.model.inductive:
        lines.insert(2, "- training points only, in their order: the model has weights for each")
    return lines


def _use() -> list[str]:
    """How to load the run."""
    return [
        "`stonet predict FOLDER DATA -o forecast.nc`, or in Python "
        '`stonet.STONet.load("FOLDER").predict(field)`;',
        'from the Hugging Face Hub `stonet.STONet.from_pretrained("OWNER/NAME")`. '
        "`stonet evaluate FOLDER` scores it on the test part.",
        "`manifest.json` holds the sha256 of every file; loading verifies them.",
    ]


def _race(race: Mapping[str, Any] | None) -> list[str]:
    """Candidate settings and their validation errors."""
    if not race or not race["candidates"]:
        return []
    lines = [f"- settings chosen by a race: {_described(race['chosen'])}"]
    for entry in race["candidates"]:
        error = entry["validation"]
        result = "diverged" if error is None else f"validation MAE {error:.5f}"
        lines.append(f"  - {_described(entry['settings'])}: {result}, {entry['steps']} steps")
    return lines


def _refit(refit: Mapping[str, Any] | None) -> list[str]:
    """What a refit has changed, and what not."""
    if not refit:
        return []
    return [
        f"- refit on training and validation part ({refit['training_windows']} windows) with the "
        f"settings and the {refit['steps']} steps that validation had chosen. All scores named "
        "here are those of the model before the refit. So is the calibration, since the refit "
        "model has seen the validation part"
    ]


def _described(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items()) or "as configured"
