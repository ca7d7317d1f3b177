r"""Scaling: cost per point as the number of points grows, two processes, tiles, and a cost law.

The cost law predicts the seconds of a training step from three fitted constants,

    seconds = a * operations + b * numbers moved + c

with N points and B windows in a batch; d latent, k products in a kernel, R rank, L layers, n' leads
and C channels; E_e and E_d edges of an encoder layer and the decoder; w numbers of a history, i
inputs of the lift, s of the state, p parametric outputs, m hidden units of a kernel, M of a trunk:

    operations = 6 [ B L (E_e k d + 9/4 N (k + 1) d^2)       kernel sums, three levels
                   + B (E_d k d + N (k d R + 2 s R + R^2))   branch
                   + B N (i d + 3 p^2)                       lift, parametric network
                   + 2 B N n' C R  +  N n' C R M             trunk x branch, trunk
                   + (L E_e + E_d) m (k + 5) ]               networks of the kernels
               + 2 B N w^2                                   modes, forward only
    moved      = 3 B d (L E_e + E_d)  +  B N (8 R + 3 (i + s))  +  3 N n' (C R + M)

a, b and c are fitted to all measured steps at once.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from benchmarks.data import LATENT, WEATHER, weather
from benchmarks.harness import Record, Watch, alternate, empty_record, in_process
from benchmarks.operator import Sum
from benchmarks.training import step_call
from stonet.config import Config, load_config
from stonet.graph.neighbours import edge_width
from stonet.linear.kriging_graph import CANDIDATES
from stonet.models.forecaster import narrow
from stonet.models.stonet_graphs import NodesGraph
from stonet.operators.branch_trunk import TRUNK_HIDDEN
from stonet.training.budget import Stopwatch
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

LAYER_SIZES = (2048, 8192, 32_768, 131_072)  # points
LAW_SIZES = (2048, 131_072, 1_000_000, 10_000_000)  # points
PROCESSES = 2
EDGE_WIDTH = edge_width("sharp", 3)  # features of an edge
LEVELS = 9 / 4  # targets of an encoder layer per point: 1 within, 1/2 upwards, 3/4 downwards
COST_CASES = (  # points, settings
    (512, ()),
    (1024, ()),
    (2048, ()),
    (4096, ()),
    (2048, ("network.latent=32",)),
    (2048, ("network.rank=64",)),
    (2048, ("network.kernels=8", "network.hidden=64")),
    (2048, ("network.layers=2",)),
    (2048, ("graph.within_degree=24", "graph.between_degree=16", "graph.decoder_degree=24")),
    (2048, ("train.batch=4",)),
    (2048, ("data.past=24",)),
    (2048, ("data.horizon=24",)),
)
WINDOWS = 8
BATCH = (f"train.batch={WINDOWS}",)


def run(watch: Watch) -> list[Record]:
    """From one kernel sum to complete trainings, then the cost law."""
    total = len(LAYER_SIZES) + 2
    records = []
    for number, n in enumerate(LAYER_SIZES):
        watch(number, total, f"kernel sum, {n} points")
        timing = alternate({"ours": Sum(n, LATENT).build()["ours"]})["ours"]
        records.append(empty_record("linear", n, LATENT, 1, "none") | {"ours_seconds": timing.cpu})
    first = records[0]["ours_seconds"] / LAYER_SIZES[0]
    for record in records:
        record["per_point"] = record["ours_seconds"] / record["n"] / first
    watch(len(LAYER_SIZES), total, "two processes")
    records.append(_processes())
    watch(len(LAYER_SIZES) + 1, total, f"tiles, {LAYER_SIZES[-1]} points")
    tiles = in_process(tiled_training, {"n": LAYER_SIZES[-1]}, OMP_NUM_THREADS="2")
    records.append(empty_record("tiles", LAYER_SIZES[-1], LATENT, 2, "none") | tiles)
    return [*records, *_cost_law(watch)]


def _processes() -> Record:
    """Windows per second of two processes on one thread each, against one such process."""
    settings = {"settings": ["train.batch=16"]}
    one = in_process(step_seconds, settings, OMP_NUM_THREADS="1")["seconds"]
    two = in_process(step_seconds, settings, PROCESSES, OMP_NUM_THREADS="1")["seconds"]
    record = empty_record("processes", 2048, LATENT, 1, "one process")
    return record | {"time_ratio": one / two, "processes": PROCESSES}


def step_seconds(settings: list[str]) -> Record:
    """In one child or several: the median seconds of a training step."""
    task = weather(2048, *settings, "train.epochs=1", "train.steps=8")
    trainer, stopwatch = Trainer(TrainedModel.untrained(task), task), Stopwatch()
    trainer.fit(on_progress=stopwatch)
    return {"seconds": stopwatch.per_step}


def tiled_training(n: int) -> Record:
    """In a child: a training with so many sensors that each step takes one tile of them."""
    from stonet.system.resources import peak_mb

    started = time.perf_counter()
    short = ("train.epochs=1", "train.steps=6", "train.batch=2", "train.validation_windows=1")
    task = weather(n, *short, "data.split=[0.4,0.3,0.3]", frames=80)
    trainer, stopwatch = Trainer(TrainedModel.untrained(task), task), Stopwatch()
    trainer.fit(on_progress=stopwatch)
    return {
        "step_seconds": median(stopwatch.steps),
        "tiles": len(trainer.tiles),
        "points_with_halo": len(
            narrow(trainer.tiles[0].graphs.nodes, NodesGraph).multipole.restore
        ),
        "all_seconds": time.perf_counter() - started,
        "peak_gb": peak_mb() / 1e3,
    }


def cost_terms(n: int, config: Config, past: int, horizon: int) -> tuple[float, float]:
    """Operations and numbers moved of one training step.

    Args:
        n: number of points.
        config: sizes of the network, the graph and the batch.
        past: input frames.
        horizon: output frames.
    """
    network, graph, batch = config.network, config.graph, config.train.batch or WINDOWS
    d, k, r, m, p = (
        network.latent,
        network.kernels,
        network.rank,
        network.hidden,
        network.parametric,
    )
    encoder = network.layers * n * (graph.within_degree + 1.25 * graph.between_degree)
    decoder = n * graph.decoder_degree
    sun = network.sun * (horizon + 1)
    inputs = past + p + sun + 2  # of the lift; one channel
    state = d + past + p + sun
    outputs = batch * n
    operations = 6 * (
        batch * (encoder * k * d + network.layers * LEVELS * n * (k + 1) * d**2)
        + batch * decoder * k * d
        + outputs * (k * d * r + 2 * state * r + r**2)
        + outputs * (inputs * d + 3 * p**2)
        + 2 * outputs * horizon * r
        + n * horizon * r * TRUNK_HIDDEN
        + (encoder + decoder) * m * (k + EDGE_WIDTH)
    )
    operations += 2 * outputs * past**2
    moved = 3 * batch * d * (encoder + decoder) + outputs * (8 * r + 3 * (inputs + state))
    moved += 3 * n * horizon * (r + TRUNK_HIDDEN)
    return operations, moved


def _cost_law(watch: Watch) -> list[Record]:
    """Measured and predicted seconds of a step for every case, and the law at large sizes."""
    records, rows = [], []
    for number, (n, settings) in enumerate(COST_CASES):
        watch(number, len(COST_CASES), f"cost, {n} points {' '.join(settings)}")
        task = weather(n, *BATCH, *settings)
        spec = task.time_spec
        rows.append((*cost_terms(n, task.config, spec.past, spec.horizon), 1.0))
        seconds = alternate({"step": step_call(n, *BATCH, *settings)})["step"].cpu
        record = empty_record("cost", n, task.config.network.latent, 1, "none")
        records.append(record | {"settings": " ".join(settings), "seconds": seconds})
    measured = np.array([record["seconds"] for record in records])
    for record, seconds in zip(records, fit_cost_law(np.array(rows), measured), strict=True):
        record["predicted"] = float(seconds)
        record["error"] = abs(float(seconds / record["seconds"] - 1))
    return records + [_extrapolated(n) for n in LAW_SIZES]


def fit_cost_law(rows: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Predicted seconds of all cases: least relative squares, no negative coefficient."""
    from scipy.optimize import nnls

    scale = rows.max(0)
    coefficients, _ = nnls(rows / scale / measured[:, None], np.ones(len(rows)))
    return np.asarray(rows / scale @ coefficients)


def _extrapolated(n: int, *settings: str) -> Record:
    """The cost law for one window, forward and backward, at a size too large to run here."""
    config = load_config(settings=[*WEATHER, *BATCH, *settings])
    operations, moved = (part / WINDOWS for part in cost_terms(n, config, 12, 12))
    graph = config.graph
    edges = graph.within_degree + 1.25 * graph.between_degree + graph.decoder_degree
    bytes_per_point = edges * (8 + 4 * EDGE_WIDTH) + 8 * CANDIDATES
    return empty_record("growth", n, config.network.latent, 0, "none") | {
        "tera_operations": operations / 1e12,
        "giga_bytes_moved": 4 * moved / 1e9,
        "giga_bytes_of_graph": n * bytes_per_point / 1e9,
        "giga_bytes_of_window": n * 24 * 4 / 1e9,
    }
