"""Contract checks: the guarantees of every `Forecaster`, on small synthetic data.

For a model of one's own, in any test framework:

    >>> from stonet.models.contract import check_forecaster
    >>> check_forecaster(Nearest)

Each check is a plain function of a `Case` that raises AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from stonet.config import load_config
from stonet.data.batch import Batch
from stonet.data.durations import SECOND
from stonet.data.field import Dataset, Field
from stonet.data.geometry import Kind, Points
from stonet.data.scaling import Scaler
from stonet.data.time_spec import resolve_time_spec
from stonet.data.windows import Windows, cut, split
from stonet.graph.multipole import resolve_graph
from stonet.models.forecaster import Builder, Forecaster, Graphs, masked_mae

HOUR = 3600 * SECOND
START = 1_600_000_000 * SECOND // HOUR * HOUR  # of fields with a calendar


def check_forecaster(
    build: Builder,
    settings: Sequence[str] = (),
    kinds: Sequence[Kind] = ("plane", "sphere"),
    frames: int = 120,
) -> None:
    """Run all checks on a plane with one channel and on a sphere with two channels and a calendar.

    Args:
        build: makes an untrained model, as for `stonet.models.registry.register_model`.
        settings: of the configuration, beyond the preset "tiny".
        kinds: geometries that the model supports.
        frames: of the field.

    Raises:
        AssertionError: if a guarantee is broken; the message names it.

    Example:
        >>> check_forecaster(Daily, ["data.past=24"], ["sphere"], frames=320)
    """
    for kind in kinds:
        field = small_field(kind, 1 if kind == "plane" else 2, frames=frames)
        case = make_case(build, field, settings)
        for check in CHECKS:
            try:
                check(case)
            except AssertionError as error:
                raise AssertionError(f"{check.__name__} on a {kind}: {error}") from error


@dataclass(frozen=True)
class Case:
    """A model with closed forms fitted but no training step taken, and windows to check it on.

    Sums in another order, or steps of an adaptive solver, may differ within the tolerance.

    Args:
        fitted: the model.
        rebuild: the same model with initial weights.
        windows: of both parts.
        nodes: their points.
        tolerance: relative and absolute.
    """

    fitted: Forecaster
    rebuild: Callable[[], Forecaster]
    windows: Windows
    nodes: Points
    tolerance: float = 1e-8

    def copy(self) -> Forecaster:
        """The same weights in another object, through the bytes of a file."""
        stored = save({name: t.contiguous() for name, t in self.fitted.state_dict().items()})
        model = self.rebuild()
        model.load_state_dict(load(stored))
        return model

    def model(self) -> Forecaster:
        """A copy in float64 with perturbed parameters."""
        return perturb(self.copy()).double()

    def batch(self, size: int = 3, missing: float = 0.2) -> Batch:
        """Windows with gaps, and two sensors without any value.

        Args:
            size: number of windows.
            missing: share of missing values.
        """
        batch = self.windows.inputs(np.linspace(0, len(self.windows) - 1, size).astype(np.int64))
        return as_float64(with_gaps(batch, missing))

    def assert_equal(self, one: Tensor, other: Tensor) -> None:
        """Equal within the tolerance.

        Args:
            one: a result.
            other: a result.
        """
        torch.testing.assert_close(one, other, rtol=self.tolerance, atol=self.tolerance)


def make_case(build: Builder, field: Field, settings: Sequence[str] = ()) -> Case:
    """A case for a model, with the preset "tiny" and the given settings.

    Args:
        build: constructs the model.
        field: observations.
        settings: that differ from the preset.
    """
    dataset, config = Dataset((field,), "contract"), load_config("tiny", settings=settings)
    time_spec = resolve_time_spec(dataset, config)
    parts = split(dataset, time_spec, config.data.split)
    time_spec = replace(time_spec, yearly=False, sunny=field.calendar)
    config = resolve_graph(config, field.points)
    scaler = Scaler.fit(parts["train"], np.arange(len(field.points)))
    train, validation = (cut(parts[part], scaler, time_spec) for part in ("train", "validation"))

    def rebuild() -> Forecaster:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.train.seed)
            return build(config, time_spec, len(field.channels), field.points)

    model = rebuild()
    model.fit_closed_form(train, validation, field.points)
    return Case(model, rebuild, train, field.points)


def small_points(kind: Kind, count: int, seed: int = 0) -> Points:
    """Random points in the unit square, or between 20 and 60 N, 30 W and 30 E.

    Args:
        kind: the geometry.
        count: number of points.
        seed: of the positions.
    """
    unit = np.random.default_rng(seed).uniform(0, 1, (count, 2))
    return Points(unit) if kind == "plane" else Points(unit * [40, 60] + [20, -30], "sphere")


def small_field(
    kind: Kind = "plane", channels: int = 1, nodes: int = 24, frames: int = 120
) -> Field:
    """Travelling waves with a little noise; hourly with a calendar on a sphere.

    Args:
        kind: the geometry.
        channels: number of channels.
        nodes: number of points.
        frames: number of times.
    """
    points = small_points(kind, nodes)
    generator = np.random.default_rng(1)
    t = np.arange(frames)[:, None, None]
    phase = (points.embedded @ generator.normal(size=(points.embedded.shape[1], channels)))[None]
    waves = 5 * np.sin(2 * np.pi * t / 24 + 3 * phase), 2 * np.cos(0.9 * t - 2 * phase)
    values = 20 + waves[0] + waves[1] + 0.3 * generator.normal(size=waves[0].shape)
    calendar = kind == "sphere"
    times = START * calendar + (HOUR if calendar else SECOND) * np.arange(frames)
    names = tuple(f"u{i}" for i in range(channels))
    return Field(
        values.astype(np.float32), times, points, names, units=("K",) * channels, calendar=calendar
    )


def perturb(model: Forecaster) -> Forecaster:
    """Add noise to every parameter, so that none is zero as at initialisation; in eval mode.

    Args:
        model: changed in place.
    """
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def as_float64(batch: Batch) -> Batch:
    """The batch in float64.

    Args:
        batch: of any precision.
    """
    changed: dict[str, Any] = {
        name: value.double()
        for name, value in vars(batch).items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    return replace(batch, **changed)


def with_gaps(batch: Batch, missing: float) -> Batch:
    """The batch without a share of its values, and without two of its sensors.

    Args:
        batch: without gaps.
        missing: share of missing values.
    """
    if not missing:
        return batch
    generator = torch.Generator().manual_seed(3)
    observed = torch.rand(batch.frames.shape, generator=generator) >= missing
    observed[:, :2] = False
    return replace(batch, frames=batch.frames * observed, observed=observed)


@torch.no_grad()
def forecast(
    model: Forecaster, batch: Batch, nodes: Points, queries: Points | None = None
) -> Tensor:
    """The forecast at the queries, or at the nodes.

    Args:
        model: in any state.
        batch: inputs.
        nodes: points of the inputs.
        queries: points of the forecast; None: the nodes.
    """
    return model(batch, model.graphs(nodes, queries)).forecast


def windows_are_independent(case: Case) -> None:
    """The forecast of a batch is that of each window by itself.

    Args:
        case: of the model.
    """
    model, chosen = case.model(), np.array([0, 1, 7, 20])
    batches = [case.windows.inputs(chosen), *(case.windows.inputs(chosen[[i]]) for i in range(4))]
    together, *alone = (forecast(model, as_float64(batch), case.nodes) for batch in batches)
    case.assert_equal(together, torch.cat(alone))


def node_order_does_not_matter(case: Case) -> None:
    """Permuted nodes give a permuted forecast; models with weights per node are exempt.

    Args:
        case: of the model.
    """
    model, batch = case.model(), case.batch()
    if not model.inductive:
        return
    order = np.random.default_rng(0).permutation(len(case.nodes))
    observed = None if batch.observed is None else batch.observed[:, order]
    permuted = replace(batch, frames=batch.frames[:, order], observed=observed)
    expected = forecast(model, batch, case.nodes)[:, :, order]
    case.assert_equal(forecast(model, permuted, case.nodes.take(order)), expected)


def no_future_value_is_used(case: Case) -> None:
    """Changes after the issue time do not change the forecast.

    Args:
        case: of the model.
    """
    model, windows, chosen = case.model(), case.windows, np.array([4])
    issue = windows.starts[4] + windows.time_spec.past
    field = windows.fields[0]
    values = field.values.copy()
    values[issue:] = 1e3
    changed = replace(windows, fields=(replace(field, values=values), *windows.fields[1:]))
    before, after = (
        forecast(model, as_float64(part.inputs(chosen)), case.nodes) for part in (windows, changed)
    )
    assert torch.equal(before, after), "values after the issue time change the forecast"


def forecasts_are_deterministic(case: Case) -> None:
    """The same arguments give the same bits.

    Args:
        case: of the model.
    """
    model, batch = case.model(), case.batch()
    one, other = (forecast(model, batch, case.nodes) for _ in range(2))
    assert torch.equal(one, other), "two calls with equal arguments differ"


def a_saved_model_is_equal(case: Case) -> None:
    """The loaded model gives the same bits, in the precision of training.

    Args:
        case: of the model.
    """
    batch = case.windows.inputs(np.arange(3))
    one, other = (forecast(m.eval(), batch, case.nodes) for m in (case.fitted, case.copy()))
    assert torch.equal(one, other), "the forecast changes by saving and loading"


def every_parameter_is_trained(case: Case) -> None:
    """Every parameter that requires a gradient gets one; after a few steps none is zero.

    Args:
        case: of the model.
    """
    model = case.copy()
    train_steps(model, case, steps=3, hidden=0.3)
    gradients = {n: p.grad for n, p in trainable(model).items() if p.numel()}
    zero = [name for name, gradient in gradients.items() if gradient is None or not gradient.any()]
    assert not zero, f"the gradient of {zero} is always zero"
    frozen = [n for n, p in model.named_parameters() if not p.requires_grad and p.grad is not None]
    assert not frozen, f"{frozen} require no gradient but have one"


def one_window_can_be_fitted(case: Case) -> None:
    """The loss on a single window decreases.

    Args:
        case: of the model.
    """
    losses = train_steps(case.copy(), case, steps=15)
    assert not losses or losses[-1] < 0.8 * losses[0], f"losses on one window: {losses}"


CHECKS: tuple[Callable[[Case], None], ...] = (
    windows_are_independent,
    node_order_does_not_matter,
    no_future_value_is_used,
    forecasts_are_deterministic,
    a_saved_model_is_equal,
    every_parameter_is_trained,
    one_window_can_be_fitted,
)


def trainable(model: Forecaster) -> dict[str, torch.nn.Parameter]:
    """The parameters that training changes.

    Args:
        model: of any kind.
    """
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def train_steps(model: Forecaster, case: Case, steps: int, hidden: float = 0.0) -> list[float]:
    """Train on one window; the losses of all steps. The last gradients are kept.

    Args:
        model: changed in place.
        case: gives the window.
        steps: number of steps.
        hidden: share of hidden sensors.
    """
    parameters = trainable(model)
    if not parameters:
        return []
    optimiser = torch.optim.Adam(parameters.values(), lr=2e-2)
    graphs, losses = model.graphs(case.nodes), []
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        optimiser.zero_grad()
        batch = case.windows.inputs(np.array([25]))
        shown = torch.rand(batch.frames.shape[1], 1, generator=generator) >= hidden
        if hidden:  # whole sensors, as in training
            observed = batch.seen & shown
            batch = replace(batch, frames=batch.frames * observed, observed=observed)
        loss = _loss(model, case, batch, graphs)
        loss.backward()
        without = [name for name, p in parameters.items() if p.grad is None]
        assert model.skips_weights or not without, f"no gradient reaches {without}"
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def _loss(model: Forecaster, case: Case, batch: Batch, graphs: Graphs) -> Tensor:
    """The masked MAE of forecast and reconstruction."""
    output = model(batch, graphs)
    error, count = masked_mae(output.forecast, *case.windows.targets(np.array([25])))
    if output.reconstruction is None:
        return error / count
    inputs = batch if output.inputs is None else output.inputs
    residual, values = masked_mae(output.reconstruction, inputs.frames, inputs.seen)
    return error / count + 0.1 * residual / values
