"""Section on the training: loss over the steps, candidate settings, choices of references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stonet.reporting.axes import Axes
from stonet.reporting.blocks import (
    Block,
    Cell,
    Facts,
    Figure,
    Figures,
    Note,
    Row,
    Section,
    Table,
    value_cell,
)
from stonet.reporting.charts import Line, line_chart
from stonet.reporting.results import Results

WIDE = 780.0  # of the drawing
RECORDED = {
    "steps": "Steps",
    "best_step": "Best step",
    "skipped_steps": "Skipped steps",
    "isolated_points": "Points without a neighbour",
}


def training_section(results: Results) -> Section:
    """The course of the training.

    Args:
        results: of the model.
    """
    metrics = results.origin.metrics
    size = sum(parameter.numel() for parameter in results.trained.model.parameters())
    facts = {"Model": results.model, "Parameters": f"{size:,}", "Budget": budget(results)}
    for key, name in RECORDED.items():
        if metrics.get(key) is not None:
            facts[name] = f"{metrics[key]:,}"
    best = metrics.get("best_validation")
    if isinstance(best, float):
        facts["Best validation error"] = f"{best:.4g} (MAE in standard deviations)"
    blocks: list[Block] = [Facts(facts)]
    history = [entry for entry in metrics.get("history") or [] if isinstance(entry, Mapping)]
    if history:
        blocks.append(Figures([_curve(history)]))
    else:
        text = "No training curve: this model has no gradient steps, or its run was not recorded."
        blocks.append(Note(text, "missing"))
    blocks += [Note(f"Validation favours a reference forecast. {c}.", "warning")
               for c in results.trained.choices]  # fmt: skip
    blocks += _race(metrics.get("race"))
    lead = "The closed-form part is fitted first; gradient steps follow until the budget is spent."
    return Section("training", "Training", lead, blocks)


def budget(results: Results) -> str:
    """The budget of the training in words.

    Args:
        results: of the model.
    """
    train = results.trained.config.train
    if train.minutes is not None:
        clock = "wall" if train.device == "cuda" else "CPU"
        return f"{train.minutes:g} {clock} minute" + "s" * (train.minutes != 1)
    return f"{train.epochs} epochs" + (f" of {train.steps} steps" if train.steps else "")


def _curve(history: list[Mapping[str, Any]]) -> Figure:
    """Training and validation loss."""
    step = np.array([entry["step"] for entry in history], dtype=np.float64)
    lines = []
    for name, style in (("train", "c1"), ("validation", "c0 own")):
        loss = np.array([entry.get(name) for entry in history], dtype=np.float64)
        known = np.isfinite(loss)
        if known.any():
            lines.append(Line(name, step[known], loss[known], style))
    label = "loss (standard deviations)"
    axes = Axes("Loss over the training steps", "step", label, width=WIDE)
    lines.reverse()
    note = "The training loss includes random hiding of sensors, so that it may lie above."
    legend = [(line.name, line.style) for line in lines]
    return Figure("Loss", line_chart(lines, axes), note, legend, "double")


def _race(race: Mapping[str, Any] | None) -> list[Block]:
    """A table of the candidate settings that competed first."""
    if not race or not race.get("candidates"):
        return []
    rows = []
    for entry in race["candidates"]:
        settings = ", ".join(f"{k}={v}" for k, v in entry["settings"].items()) or "as configured"
        chosen = entry["settings"] == race.get("chosen")
        error = value_cell(entry["validation"], best=chosen)
        rows.append(Row([Cell(settings), Cell(str(entry["steps"]), entry["steps"]), error]))
    columns = ("settings", "steps", "validation MAE")
    note = "Candidate settings trained for a share of the budget; the best one went on."
    return [Table("Race of settings", columns, rows, note)]
