"""A stream forecasts as a field of the same frames does, at the cost of encoding one frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.contracts import HOUR, fitted_run, small_field, small_points, small_task, stirred_run

import stonet
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError, UsageError
from stonet.inference.forecast import forecast, latest_batch
from stonet.inference.session import Session, select_frames
from stonet.inference.stream import Stream
from stonet.training.trained_model import TrainedModel

FRAME_WISE = ("model=stonet-paper", "paper.window_time=false")
PAST = 6


@pytest.fixture(scope="module")
def field() -> Field:
    """Hourly, on a sphere, two channels, with gaps and irregular times."""
    whole = small_field("sphere", channels=2).between(0, 40)
    generator = np.random.default_rng(0)
    mask = generator.random(whole.values.shape) < 0.8
    mask[12] = False  # a frame without any value
    shift = generator.integers(-HOUR // 10, HOUR // 10, len(whole.times))
    shift[30:] += 20 * HOUR  # a long gap
    return replace(whole, mask=mask, times=whole.times + shift)


@pytest.fixture(scope="module")
def trained() -> TrainedModel:
    return stirred_run()


def observe(stream: Stream, field: Field, frame: int) -> None:
    values = np.where(field.observed[frame], field.values[frame], np.nan)
    stream.observe(int(field.times[frame]), values)


def same(one: Field, other: Field) -> None:
    np.testing.assert_allclose(one.values, other.values, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(one.times, other.times)
    assert one.points == other.points and one.quantity == other.quantity
    assert one.reference_time == other.reference_time and one.attrs == other.attrs
    for name in ("nearest_observation", "support"):
        np.testing.assert_array_equal(one.sites[name], other.sites[name])


@pytest.mark.parametrize(
    "settings",
    [(), ("model=stonet-paper",), FRAME_WISE, ("model=linear",), ("model=gcgru",)],
    ids=["stonet", "paper", "frame-wise", "linear", "gcgru"],
)
def test_a_stream_forecasts_as_the_field_does(field: Field, settings: tuple[str, ...]) -> None:
    """From the first frame on, with gaps, irregular times and a long interruption."""
    trained = stirred_run(*settings)
    stream, sites = Stream(trained, field.points), small_points("sphere", 5, seed=7)
    for frame in range(len(field.times)):
        observe(stream, field, frame)
        if frame in (0, 3, 12, 20, 31, 39):
            so_far = field.between(0, frame + 1)
            same(stream.forecast(), forecast(trained, so_far))
            request = {"at": sites, "times": ["+90min", "+5h"]}
            same(stream.forecast(**request), forecast(trained, so_far, **request))


def test_sensors_need_not_be_the_training_points(trained: TrainedModel, field: Field) -> None:
    joined = field.joined(replace(field.take(np.arange(3)), points=small_points("sphere", 3, 7)))
    stream = Stream(trained, joined.points)
    for frame in range(PAST):
        observe(stream, joined, frame)
    same(stream.forecast(), forecast(trained, joined.between(0, PAST)))


def test_a_new_frame_costs_the_encoding_of_one_frame(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model that encodes frame by frame."""
    trained = stirred_run(*FRAME_WISE)
    encoded, made = [], {"node_graph": 0, "query_graph": 0}
    encode = trained.model.encode
    monkeypatch.setattr(
        trained.model, "encode", lambda b, s: encoded.append(len(b.frames)) or encode(b, s)
    )
    for name in made:
        inner = getattr(trained.model, name)

        def counted(*points: Points, name=name, inner=inner) -> object:
            made[name] += 1
            return inner(*points)

        monkeypatch.setattr(trained.model, name, counted)
    stream = Stream(trained)
    for frame in range(3 * PAST):
        observe(stream, field, frame)
        stream.forecast()
    assert encoded == [1] * 3 * PAST and made == {"node_graph": 1, "query_graph": 1}
    assert len(stream.field.times) == PAST  # older frames are dropped


def test_a_frame_s_encoding_does_not_depend_on_the_others(field: Field) -> None:
    """So that it can be cached, if the model declares it as frame-wise."""
    trained = stirred_run(*FRAME_WISE)
    session = Session(trained, field.points)
    batch = latest_batch(trained, field.between(20, 26), field.times[26:27])
    together = session.encode(batch).latent
    for frame in range(PAST):
        alone = session.encode(select_frames(batch, frame, frame + 1)).latent[0]
        present = batch.present[frame]  # latents of other nodes are never used
        torch.testing.assert_close(together[frame][present], alone[present], rtol=0, atol=1e-5)
    assert trained.model.frame_wise
    assert not any(stirred_run(*s).model.frame_wise for s in ((), FRAME_WISE[:1]))


def test_frames_that_do_not_fit_are_refused(trained: TrainedModel, field: Field) -> None:
    stream = Stream(trained)
    with pytest.raises(DataError, match=r"Nothing was observed yet; call observe"):
        stream.forecast()
    stream.observe("2026-11-16T04:00", np.full((24, 2), np.nan))
    with pytest.raises(DataError, match=r"No value was observed in the last 6 steps before 2026"):
        stream.forecast()
    for time in ("2026-11-16T04:00", np.datetime64("2026-11-16T03:59")):
        with pytest.raises(DataError, match=r"is not after 2026-11-16T04:00:00Z, the time of the"):
            stream.observe(time, np.zeros((24, 2)))
    with pytest.raises(UsageError, match=r"'\+1h' is not a date"):
        stream.observe("+1h", np.zeros((24, 2)))
    with pytest.raises(DataError, match=r"shape \(24,\); expected \(24, 2\): a value for each"):
        stream.observe("2026-11-16T05:00", np.zeros(24))
    with pytest.raises(DataError, match=r"1 values are infinite"):
        stream.observe("2026-11-16T05:00", [[np.inf, 0.0], *[[0.0, 0.0]] * 23])
    stream.observe("2026-11-16T05:00", np.full((24, 2), 20.0))  # and the stream continues
    assert len(stream.field.times) == 2
    with pytest.raises(UsageError, match=r"query points lie on a plane; the data lie on a sphere"):
        stream.forecast(at=Points(np.zeros((1, 2))))
    with pytest.raises(DataError, match=r"lie on a plane; this model was trained on a sphere"):
        Stream(trained, small_points("plane", 24))


def test_values_of_a_single_channel_need_no_channel_axis() -> None:
    field = small_field("plane")
    trained = fitted_run(small_task(field, "model=linear"))
    streams = [stonet.Stream(trained), stonet.Stream(trained)]
    for frame in range(PAST):
        streams[0].observe(int(field.times[frame]), field.values[frame])
        streams[1].observe(int(field.times[frame]), field.values[frame, :, 0].tolist())
    same(streams[0].forecast(), streams[1].forecast())
