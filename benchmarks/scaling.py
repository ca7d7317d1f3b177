r"""Scaling: cost per point as the number of points grows, two processes, tiles, and a cost law.

The cost law predicts the seconds of a training step from three fitted constants,

    seconds = a * operations + b * numbers moved + c

with N points, K neighbours, d latent, m hidden, r rank, L layers, F distinct frames and B windows
in a batch, n frames in and n' out, G groups of regressors at the 12 newest steps and two before,
w inputs and h hidden units of the residual network, and C channels:

    operations = 6 [ 9/4 L F N (K m d + m d^2 + d^2)      kernel integrals, three levels
                   + B N n n' d r  +  B N n' r d ]        time kernel, map
               + 2 B N (w h + h^2 + 2 h C n')             residual network, forward only
    moved      = 9/4 L F N K (2 m + 2 d)  +  B N n' r (K + 8)  +  2 B N (12 G + 2 older) K'

a, b and c are fitted to all measured steps at once.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from benchmarks.data import WEATHER, weather
from benchmarks.harness import Record, Watch, alternate, empty_record, in_process
from benchmarks.operator import Encoder
from benchmarks.training import step_call
from stonet.config import Config, load_config
from stonet.linear.local_polynomials import NUM_FITS, STENCIL_NODES
from stonet.linear.regression import MAX_WHITENED, RECENT_LAGS
from stonet.models.forecaster import narrow
from stonet.models.stonet import EncoderGraph
from stonet.training.budget import Stopwatch
from stonet.training.trained_model import TrainedModel
from stonet.training.trainer import Trainer

LAYER_SIZES = (2048, 8192, 32_768, 131_072)  # points
LAW_SIZES = (2048, 131_072, 1_000_000, 10_000_000)  # points
PROCESSES = 2
LEVELS = 9 / 4  # targets of an encoder layer per point: 1 within, 1/2 upwards, 3/4 downwards
COST_CASES = (  # points, settings
    (512, ()),
    (1024, ()),
    (2048, ()),
    (4096, ()),
    (2048, ("network.latent=16", "network.hidden=16")),
    (2048, ("network.latent=32", "network.hidden=32")),
    (2048, ("network.hidden=32",)),
    (2048, ("network.layers=2",)),
    (2048, ("graph.within_degree=24", "graph.between_degree=16", "graph.decoder_degree=24")),
    (2048, ("train.batch=4", "train.consecutive=4")),
    (2048, ("data.past=24",)),
    (2048, ("data.horizon=24",)),
)
BATCH = ("train.batch=8", "train.consecutive=8")


def run(watch: Watch) -> list[Record]:
    """From one kernel integral to complete trainings, then the cost law."""
    total = len(LAYER_SIZES) + 2
    records = []
    for number, n in enumerate(LAYER_SIZES):
        watch(number, total, f"encoder layer, {n} points")
        timing = alternate({"ours": Encoder(n, 64).build()["ours"]})["ours"]
        records.append(empty_record("linear", n, 64, 1, "none") | {"ours_seconds": timing.cpu})
    first = records[0]["ours_seconds"] / LAYER_SIZES[0]
    for record in records:
        record["per_point"] = record["ours_seconds"] / record["n"] / first
    watch(len(LAYER_SIZES), total, "two processes")
    records.append(_processes())
    watch(len(LAYER_SIZES) + 1, total, f"tiles, {LAYER_SIZES[-1]} points")
    tiles = in_process(tiled_training, {"n": LAYER_SIZES[-1]}, OMP_NUM_THREADS="2")
    records.append(empty_record("tiles", LAYER_SIZES[-1], 24, 2, "none") | tiles)
    return [*records, *_cost_law(watch)]


def _processes() -> Record:
    """Windows per second of two processes on one thread each, against one such process."""
    settings = {"settings": ["train.batch=16", "train.consecutive=8"]}
    one = in_process(step_seconds, settings, OMP_NUM_THREADS="1")["seconds"]
    two = in_process(step_seconds, settings, PROCESSES, OMP_NUM_THREADS="1")["seconds"]
    record = empty_record("processes", 2048, 24, 1, "one process")
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
        "points_with_halo": len(narrow(trainer.tiles[0].graphs.nodes, EncoderGraph).position),
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
    network, graph, train = config.network, config.graph, config.train
    d, m, r, h = network.latent, network.hidden, network.rank, network.residual_width
    batch, consecutive = train.batch, min(train.consecutive or 1, train.batch)
    encoded = min(network.frames or past, past)
    frames = batch // consecutive * (encoded + consecutive - 1)
    degree = (graph.within_degree + 1.25 * graph.between_degree) / LEVELS
    close = min(RECENT_LAGS, past)
    sun = network.sun * (2 * horizon + 1)
    whitened = min(MAX_WHITENED, 2 * past + (NUM_FITS - 2) * close + sun)
    inputs = whitened + horizon + sun + 13  # base, sun, position, time, site statistics
    targets, outputs = LEVELS * network.layers * frames * n, batch * n
    operations = 6 * (
        targets * (degree * m * d + m * d**2 + d**2) + outputs * horizon * r * d * (encoded + 1)
    )
    operations += 2 * outputs * (inputs * h + h**2 + 2 * h * horizon)  # one channel, not trained
    moved = (
        targets * degree * (2 * m + 2 * d)
        + outputs * horizon * r * (graph.decoder_degree + 8)
        + 2 * outputs * (close * NUM_FITS + 2 * (past - close)) * STENCIL_NODES
    )
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
    operations, moved = (part / 8 for part in cost_terms(n, config, 12, 12))
    graph = config.graph
    edges = graph.within_degree + 1.25 * graph.between_degree + graph.decoder_degree
    bytes_per_point = edges * (8 + 4 * 5) + STENCIL_NODES * (8 + 4 * NUM_FITS)
    return empty_record("growth", n, config.network.latent, 0, "none") | {
        "tera_operations": operations / 1e12,
        "giga_bytes_moved": 4 * moved / 1e9,
        "giga_bytes_of_graph": n * bytes_per_point / 1e9,
        "giga_bytes_of_window": n * 24 * 4 / 1e9,
    }
