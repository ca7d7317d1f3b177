"""What every Forecaster promises: a battery of truths, and small data to try them on.

A test gives `Case`s, each a fitted but untrained model with its data; a truth is asked of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from stonet.config import load_config
from stonet.data.batch import Batch
from stonet.data.durations import SECOND
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Points
from stonet.data.windows import Windows
from stonet.models.forecaster import Forecaster, Graphs, masked_mae
from stonet.models.registry import build_model
from stonet.training.batches import hide_sensors
from stonet.training.run_folder import pack, unpack
from stonet.training.task import Task
from stonet.training.trained_model import TrainedModel

HOUR = 3600 * SECOND
START = 1_600_000_000 * SECOND // HOUR * HOUR


def small_points(kind: str, count: int, seed: int = 0) -> Points:
    unit = np.random.default_rng(seed).uniform(0, 1, (count, 2))
    return Points(unit) if kind == "plane" else Points(unit * [40, 60] + [20, -30], "sphere")


def small_field(
    kind: str = "plane", channels: int = 1, nodes: int = 24, frames: int = 120
) -> Field:
    """Waves through the points and a little noise; on a sphere hourly, with a calendar."""
    points = small_points(kind, nodes)
    generator = np.random.default_rng(1)
    t = np.arange(frames)[:, None, None]
    phase = (points.embedded @ generator.normal(size=(points.embedded.shape[1], channels)))[None]
    values = 20 + 5 * np.sin(2 * np.pi * t / 24 + 3 * phase) + 2 * np.cos(0.9 * t - 2 * phase)
    values = values + 0.3 * generator.normal(size=values.shape)
    calendar = kind == "sphere"
    times = START * calendar + (HOUR if calendar else SECOND) * np.arange(frames)
    names = tuple(f"u{i}" for i in range(channels))
    return Field(
        values.astype(np.float32), times, points, names, units=("K",) * channels, calendar=calendar
    )


def small_task(field: Field, *settings: str, unseen: tuple[int, ...] = ()) -> Task:
    return Task.of(Dataset((field,), "small", unseen), load_config("tiny", settings=settings))


def fitted_run(task: Task) -> TrainedModel:
    """As training starts: closed forms solved, no step taken."""
    run = TrainedModel.untrained(task)
    run.model.fit_closed_form(task.windows("train"), task.windows("validation"), run.nodes)
    return run


def stirred_run(*settings: str) -> TrainedModel:
    """Base and network, both saying something, on the sphere and two channels."""
    run = fitted_run(small_task(small_field("sphere", channels=2), *settings))
    stirred(run.model)
    return run


def stirred(model: Forecaster) -> Forecaster:
    """Every parameter moved a little, so that none is zero only because it starts so."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def double(batch: Batch) -> Batch:
    changed = {
        k: v.double()
        for k, v in vars(batch).items()
        if isinstance(v, torch.Tensor) and v.is_floating_point()
    }
    return replace(batch, **changed)


@dataclass(frozen=True)
class Case:
    """A model and windows to try it on."""

    run: TrainedModel
    windows: Windows
    relabels: bool = True  # whether the nodes may come in another order
    tolerance: float = 1e-8  # within which sums in another order, or solvers' steps, may differ

    @staticmethod
    def of(field: Field, *settings: str, relabels: bool = True, tolerance: float = 1e-8) -> Case:
        task = small_task(field, *settings)
        return Case(fitted_run(task), task.windows("train"), relabels, tolerance)

    @property
    def nodes(self) -> Points:
        return self.run.nodes

    def model(self) -> Forecaster:
        """A stirred copy in float64."""
        return stirred(fresh_copy(self.run)).double()

    def same(self, one: torch.Tensor, other: torch.Tensor) -> None:
        torch.testing.assert_close(one, other, rtol=self.tolerance, atol=self.tolerance)

    def batch(self, size: int = 3, missing: float = 0.2) -> Batch:
        """Windows with gaps, among them sensors that are silent throughout."""
        batch = self.windows.inputs(np.linspace(0, len(self.windows) - 1, size).astype(np.int64))
        return double(with_gaps(batch, missing))


class Elsewhere(torch.Tensor):
    """Numbers in the host's memory that say they are on a GPU: the way taken there, computed."""

    @property
    def device(self) -> torch.device:
        return torch.device("cuda")


def fresh_copy(run: TrainedModel) -> Forecaster:
    """The same weights in another object, by way of a file."""
    weights, _ = unpack(pack(run.model.state_dict(), {}), "the copy")
    copy = build_model(run.config, run.time_spec, len(run.channels), run.nodes)
    copy.load_state_dict(weights)
    return copy


def with_gaps(batch: Batch, missing: float) -> Batch:
    if not missing:
        return batch
    generator = torch.Generator().manual_seed(3)
    seen = torch.rand(batch.frames.shape, generator=generator) >= missing
    seen[:, :2] = False  # two silent sensors
    return replace(batch, frames=batch.frames * seen, observed=seen)


@torch.no_grad()
def ask(
    model: Forecaster, batch: Batch, nodes: Points, queries: Points | None = None
) -> torch.Tensor:
    return model(batch, model.graphs(nodes, queries)).forecast


# The truths.


def a_batch_is_a_stack_of_singles(case: Case) -> None:
    model, windows = case.model(), case.windows
    chosen = np.array([0, 1, 7, 20])
    together = ask(model, double(windows.inputs(chosen)), case.nodes)
    alone = [ask(model, double(windows.inputs(chosen[i : i + 1])), case.nodes) for i in range(4)]
    case.same(together, torch.cat(alone))


def relabelling_the_nodes_relabels_the_forecast(case: Case) -> None:
    if not case.relabels:
        return
    model, batch = case.model(), case.batch()
    order = np.random.default_rng(0).permutation(len(case.nodes))
    seen = None if batch.observed is None else batch.observed[:, order]
    shuffled = replace(batch, frames=batch.frames[:, order], observed=seen)
    case.same(
        ask(model, shuffled, case.nodes.take(order)), ask(model, batch, case.nodes)[:, :, order]
    )


def nothing_after_the_issue_time_is_used(case: Case) -> None:
    model, windows, chosen = case.model(), case.windows, np.array([4])
    issue = windows.starts[4] + windows.time_spec.past
    whole = windows.fields[0]
    values = whole.values.copy()
    values[issue:] = 1e3
    changed = replace(windows, fields=(replace(whole, values=values), *windows.fields[1:]))
    before = ask(model, double(windows.inputs(chosen)), case.nodes)
    after = ask(model, double(changed.inputs(chosen)), case.nodes)
    assert torch.equal(before, after)


def the_same_question_has_the_same_answer(case: Case) -> None:
    model, batch = case.model(), case.batch()
    assert torch.equal(ask(model, batch, case.nodes), ask(model, batch, case.nodes))


def a_saved_model_is_the_same_model(case: Case) -> None:
    """To the last bit, in the precision it is trained in."""
    batch = case.windows.inputs(np.arange(3))
    here, there = case.run.model.eval(), fresh_copy(case.run).eval()
    assert torch.equal(ask(here, batch, case.nodes), ask(there, batch, case.nodes))


def every_parameter_learns(case: Case) -> None:
    """No one is left out of the graph; after a step, when no map is zero any more, all move.

    But for the residuals, which learn at school and nowhere else.
    """
    model = fresh_copy(case.run)
    learn(model, case, steps=3, hidden=0.3)
    named = dict(model.named_parameters())
    still = [n for n, p in learning(model).items() if p.numel() and not p.grad.any()]
    assert not still, f"{still} never learn"
    left = [name for name in named if name not in learning(model)]
    assert all(n.startswith("residuals.") and named[n].grad is None for n in left), left


def one_window_can_be_learned_by_heart(case: Case) -> None:
    losses = learn(fresh_copy(case.run), case, steps=15)
    assert not losses or losses[-1] < 0.8 * losses[0], losses


def learning(model: Forecaster) -> dict[str, torch.nn.Parameter]:
    """What steps may change."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def learn(model: Forecaster, case: Case, steps: int, hidden: float = 0.0) -> list[float]:
    """Some steps on one window, as training takes them; the last gradients stay."""
    named = learning(model)
    if not named:
        return []
    optimiser = torch.optim.Adam(named.values(), lr=2e-2)
    graphs, losses = model.graphs(case.nodes), []
    for step in range(steps):
        optimiser.zero_grad()
        loss = loss_of(model, case, graphs, hidden, step)
        loss.backward()
        lost = [name for name, p in named.items() if p.grad is None]
        assert not lost, f"no gradient reaches {lost}"
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def loss_of(
    model: Forecaster, case: Case, graphs: Graphs, hidden: float, step: int
) -> torch.Tensor:
    chosen = np.array([25])
    batch = hide_sensors(case.windows.inputs(chosen), hidden, (0, step))
    output = model(batch, graphs)
    error, count = masked_mae(output.forecast, *case.windows.targets(chosen))
    if output.reconstruction is None:
        return error / count
    seen = (
        torch.ones_like(batch.frames, dtype=torch.bool)
        if batch.observed is None
        else batch.observed
    )
    remade, frames = masked_mae(output.reconstruction, batch.frames, seen)
    return error / count + 0.1 * remade / frames


BATTERY: tuple[Callable[[Case], None], ...] = (
    a_batch_is_a_stack_of_singles,
    relabelling_the_nodes_relabels_the_forecast,
    nothing_after_the_issue_time_is_used,
    the_same_question_has_the_same_answer,
    a_saved_model_is_the_same_model,
    every_parameter_learns,
    one_window_can_be_learned_by_heart,
)
