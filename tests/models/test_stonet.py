"""STONet's promises: any points, any times, whatever is missing; and every model's battery."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers.contracts import BATTERY, Case, ask, double, small_field, small_points, small_task

from stonet.config import load_config
from stonet.data.batch import Batch, make_batch
from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.models.registry import build_model
from stonet.models.stonet import STONetwork
from stonet.training.trained_model import TrainedModel

PAPER = (
    "network.sharp=false",
    "network.linear_path=false",
    'network.base="none"',
    "network.residual_width=0",
    "network.separable=false",
    "network.window_time=true",
    "network.terms=2",
)
VARIANTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "paper": PAPER,
    "persistence base": ("network.base=persistence",),
    "literal": ("network.decoder=literal",),
    "fixed": ("network.decoder=fixed",),
    "ode": ("network.decoder=ode",),
    "no residual": ("network.residual_width=0",),
    "no sun": ("network.sun=false",),
    "diag": ("network.kernel=diag", "network.layers=2", "graph.levels=1"),
}
PLACES = {"plane": ("plane", 1), "sphere, two channels": ("sphere", 2)}
INDUCTIVE = [name for name in VARIANTS if name != "fixed"]


@cache
def case_of(place: str, *settings: str) -> Case:
    """Made once for all tests; nobody changes its model."""
    relabels = "network.decoder=fixed" not in settings
    tolerance = 2e-3 if "network.decoder=ode" in settings else 1e-8  # its steps adapt to a batch
    return Case.of(small_field(*PLACES[place]), *settings, relabels=relabels, tolerance=tolerance)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["stonet", "linear", "persistence"])  # others: their own files
@pytest.mark.parametrize("truth", BATTERY, ids=lambda truth: truth.__name__)
def test_every_model_keeps_the_promises(truth, name: str, place: str) -> None:
    truth(case_of(place, f"model={name}"))


@pytest.mark.parametrize("truth", BATTERY, ids=lambda truth: truth.__name__)
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "default"])
def test_every_variant_of_the_network_keeps_them_too(truth, variant: str) -> None:
    place = "sphere, two channels" if variant in ("paper", "ode", "no sun") else "plane"
    truth(case_of(place, *VARIANTS[variant]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_node_asked_as_a_query_answers_as_the_node(variant: str) -> None:
    """Alone or with others, silent or not; and all at once is one at a time."""
    case = case_of("sphere, two channels", *VARIANTS[variant])
    model, batch, nodes = case.model(), case.batch(2), case.nodes
    every = ask(model, batch, nodes)
    chosen = np.array([0, 17])  # node 0 is silent
    mixed = nodes.take(chosen).joined(small_points(nodes.kind, 2, seed=9))
    together = ask(model, batch, nodes, mixed)
    case.same(together[:, :, :2], every[:, :, chosen])
    alone = [ask(model, batch, nodes, mixed.take(np.array([i]))) for i in range(len(mixed))]
    case.same(torch.cat(alone, dim=2), together)


@pytest.mark.parametrize("variant", VARIANTS)
def test_asking_for_times_one_by_one_is_asking_for_all(variant: str) -> None:
    case = case_of("sphere, two channels", *VARIANTS[variant])
    model, step = case.model(), case.run.time_spec.step
    leads = np.array([0.25, 1.0, 2.0, 3.9, 4.8])
    ask_at = np.rint(leads * step).astype(np.int64)
    together = ask(model, window(case, ask_at), case.nodes)
    alone = [ask(model, window(case, ask_at[i : i + 1]), case.nodes) for i in range(len(leads))]
    case.same(torch.cat(alone, dim=1), together)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "paper"])
def test_the_forecast_is_continuous_in_time(variant: str) -> None:
    """Within a term; also where a trained lead time is crossed, and beyond the horizon."""
    case = case_of("sphere, two channels", *VARIANTS[variant])
    model, step = case.model(), case.run.time_spec.step
    for lead in (0.5, 1.0, 3.0, 4.0, 4.7):
        around = np.rint((lead + np.array([-1e-4, 0, 1e-4])) * step).astype(np.int64)
        there = ask(model, window(case, around), case.nodes)
        assert (there - there[:, 1:2]).abs().max() < 0.02


def window(case: Case, leads: np.ndarray) -> Batch:
    """One window without gaps, asked at these leads in nanoseconds."""
    made, past = case.windows, np.arange(30, 30 + case.run.time_spec.past)[None]
    asked = made.times[past[:, -1], None] + leads
    return double(
        make_batch(made.at, made.times, past, asked, case.run.time_spec, made.window_time)
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_times_of_its_own_for_every_window(variant: str) -> None:
    """Windows whose inputs and questions lie at different times share a batch."""
    case = case_of("sphere, two channels", *VARIANTS[variant])
    made, time_spec = case.windows, case.run.time_spec
    jitter = np.random.default_rng(4).uniform(-0.3, 0.3, len(made.times))
    times = made.times + np.rint(jitter * time_spec.step).astype(np.int64)
    past = np.array([10, 40])[:, None] + np.arange(time_spec.past)
    leads = np.rint(np.array([[0.5, 2.2], [1.0, 3.9]]) * time_spec.step).astype(np.int64)

    def batch(rows: slice) -> Batch:
        asked = times[past[rows, -1], None] + leads[rows]
        return double(make_batch(made.at, times, past[rows], asked, time_spec, made.window_time))

    model = case.model()
    together = ask(model, batch(slice(None)), case.nodes)
    alone = torch.cat([ask(model, batch(slice(i, i + 1)), case.nodes) for i in range(2)])
    case.same(together, alone)


@pytest.mark.parametrize("variant", INDUCTIVE)
def test_a_point_beyond_every_radius_changes_nothing(variant: str) -> None:
    case = case_of("plane", *VARIANTS[variant])
    model, batch = case.model(), case.batch(2)
    far = case.nodes.joined(Points(np.array([[300.0, 300.0]]), names=("far",)))
    value = torch.full_like(batch.frames[:, :1], 50.0)
    there = torch.ones_like(value, dtype=torch.bool)
    wider = replace(
        batch,
        frames=torch.cat([batch.frames, value], dim=1),
        observed=torch.cat([batch.observed, there], dim=1),
    )
    case.same(ask(model, wider, far, case.nodes), ask(model, batch, case.nodes))


@pytest.mark.parametrize("variant", INDUCTIVE)
def test_new_points_join_with_their_past_and_silent_ones_change_nothing(variant: str) -> None:
    case = case_of("plane", *VARIANTS[variant])
    model, batch, new = case.model(), case.batch(2), small_points("plane", 5, seed=8)
    nodes = case.nodes.joined(new)
    level = model.graph(nodes).multipole.members
    assert set(range(24, 29)) <= set(level[0].tolist())
    frames = torch.cat([batch.frames, batch.frames[:, 5:10]], dim=1)

    def joined(seen: bool) -> torch.Tensor:
        more = torch.full_like(batch.observed[:, :5], seen)
        observed = torch.cat([batch.observed, more], dim=1)
        return ask(model, replace(batch, frames=frames * observed, observed=observed), nodes)

    without = ask(model, batch, case.nodes, nodes)
    heard = joined(seen=True)
    assert heard.isfinite().all() and not torch.allclose(heard, without)
    case.same(joined(seen=False), without)


@pytest.mark.parametrize("place", PLACES)
def test_another_network_of_sensors_altogether_is_divided_anew(place: str) -> None:
    case = case_of(place)
    model, nodes = case.model(), small_points(case.nodes.kind, 20, seed=11)
    members = model.graph(nodes).multipole.members
    assert [len(m) for m in members] == [10, 10]
    batch = case.batch(2)
    fewer = replace(batch, frames=batch.frames[:, :20], observed=batch.observed[:, :20])
    assert ask(model, fewer, nodes, case.nodes).isfinite().all()
    alone = replace(batch, frames=batch.frames[:, 5:6], observed=batch.observed[:, 5:6])
    assert ask(model, alone, nodes.take(np.array([0])), case.nodes).isfinite().all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_number_of_parameters_does_not_depend_on_the_number_of_points(variant: str) -> None:
    def size(nodes: int) -> int:
        task = small_task(small_field(nodes=nodes), *VARIANTS[variant])
        return sum(p.numel() for p in TrainedModel.untrained(task).model.parameters())

    assert (size(16) == size(30)) is (variant != "fixed")


def test_the_fixed_decoder_says_that_it_takes_no_other_points() -> None:
    case = case_of("plane", *VARIANTS["fixed"])
    assert not case.run.model.inductive
    with pytest.raises(UsageError, match=r"24 training points.*network.decoder=revised"):
        case.run.model.graph(case.nodes.take(np.arange(23)))


def test_an_untrained_network_on_a_base_is_the_base() -> None:
    """C and the residual start at zero: training can only improve on the linear operator."""
    case = case_of("plane")
    model = case.run.model.eval()
    assert isinstance(model, STONetwork) and model.base is not None
    batch = case.windows.inputs(np.arange(3))
    graphs = model.graphs(case.nodes)
    with torch.no_grad():
        torch.testing.assert_close(
            model(batch, graphs).forecast, model.base(batch, graphs.links.stencil)
        )


def test_few_points_are_given_fewer_levels() -> None:
    for count, levels in ((1, 1), (2, 1), (3, 1), (4, 2), (24, 2)):
        task = small_task(small_field(nodes=count))
        assert task.config.graph.levels == levels
        assert TrainedModel.untrained(task).model.graph(task.nodes).multipole is not None


def test_a_model_that_does_not_exist_is_named() -> None:
    config = load_config("tiny", settings=["model=stonett"])
    case = case_of("plane")
    with pytest.raises(UsageError, match=r"Unknown model 'stonett'.*Did you mean 'stonet'\?"):
        build_model(config, case.run.time_spec, 1, case.nodes)


def test_refining_the_points_converges() -> None:
    """The kernels' means become integrals: with each halving of the spacing less changes."""
    radii = ("graph.levels=1", "graph.within_radii=[0.3]", "graph.decoder_radius=0.3")
    case = case_of("plane", *radii, 'network.base="none"')
    model, asked = case.model(), window(case, case.run.time_spec.step * np.arange(1, 3))
    queries = small_points("plane", 20, seed=5)

    def forecast(side: int) -> torch.Tensor:
        x, y = np.meshgrid(*[(np.arange(side) + 0.5) / side] * 2)
        nodes = Points(np.stack([x.ravel(), y.ravel()], axis=1))
        t = torch.arange(case.run.time_spec.past).double()[:, None, None]
        place = torch.tensor(nodes.coordinates)[None, :, :1]
        return ask(model, replace(asked, frames=torch.sin(4 * place - 0.5 * t)), nodes, queries)

    answers = [forecast(side) for side in (5, 10, 20, 40)]
    changes = [float((b - a).abs().mean()) for a, b in pairwise(answers)]
    assert changes[0] > 1.5 * changes[1] > 1.5**2 * changes[2] > 0, changes


@pytest.mark.parametrize("place", ["plane", "sphere"])
def test_frames_that_the_network_does_not_see_need_not_be_encoded(place: str) -> None:
    """In one go, or step by step with all frames encoded: the same answer."""
    case = Case.of(small_field(place), "network.frames=4")  # of the six that the base looks at
    model, batch = case.model(), case.batch()
    graphs = model.graphs(case.nodes)
    output = model(batch, graphs)
    assert output.inputs is not None
    assert output.inputs.past.shape[1] == 4
    assert len(output.inputs.frames) < len(batch.frames)
    encoded = model.encode(batch, graphs)
    case.same(output.forecast, model.decode(encoded, batch, graphs))
    kept = torch.unique(batch.past[:, -4:])
    case.same(output.reconstruction, model.reconstruct(encoded)[kept])


def test_the_network_alone_knows_nothing_older_than_it_sees() -> None:
    case = Case.of(small_field(), "network.frames=3", "network.base=none")
    model, batch = case.model(), case.batch(size=1, missing=0.0)
    graphs = model.graphs(case.nodes)
    old = torch.arange(len(batch.frames)) < 3
    other = replace(batch, frames=torch.where(old[:, None, None], 7.0, batch.frames))
    assert torch.equal(model(batch, graphs).forecast, model(other, graphs).forecast)
