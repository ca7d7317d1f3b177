r"""What a training step costs, on paper: the growth in every size, beside measured steps.

    seconds = a * operations + b * numbers moved + c

with (N points, K neighbours, d latent, m hidden, r rank, L layers, F distinct frames and B windows
in a batch, n seen by the network and n' out, G groups of regressors at the 12 newest steps
and two before, w inputs and h hidden of the expert, C channels)

    operations = 6 [ 9/4 L F N (K m d + m d^2 + d^2)      kernel integrals, three levels
                   + B N n n' d r  +  B N n' r d ]        time kernel, map
               + 2 B N (w h + h^2 + 2 h C n')             expert, forward only
    moved      = 9/4 L F N K (2 m + 2 d)  +  B N n' r (K + 8)  +  2 B N (12 G + 2 older) K'

a, b and c are fitted to all measured steps at once: three numbers for all sizes.
"""

from __future__ import annotations

import numpy as np

from benchmarks.data import WEATHER, weather
from benchmarks.harness import Record, Watch, alternate, empty_record
from benchmarks.training import stepper
from stonet.config import Config, load_config
from stonet.linear.local_polynomials import NUM_FITS, STENCIL_NODES
from stonet.linear.regression import MAX_WHITENED, RECENT_LAGS

LEVELS = 9 / 4  # targets of an encoder layer over points: 1 within, 1/2 upwards, 3/4 downwards
SIZES = (
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


def terms(n: int, config: Config, past: int, horizon: int) -> tuple[float, float]:
    """Operations and numbers moved of one training step."""
    network, graph, train = config.network, config.graph, config.train
    d, m, r, h = network.latent, network.hidden, network.rank, network.residual_width
    batch, run = train.batch, min(train.consecutive or 1, train.batch)
    seen = min(network.frames or past, past)
    frames = batch // run * (seen + run - 1)
    degree = (graph.within_degree + 1.25 * graph.between_degree) / LEVELS
    close = min(RECENT_LAGS, past)
    sun = network.sun * (2 * horizon + 1)
    white = min(MAX_WHITENED, 2 * past + (NUM_FITS - 2) * close + sun)
    heard = (
        white + horizon + sun + 13
    )  # by the expert: base, sun, place, time_spec, portrait as well
    targets, asked = LEVELS * network.layers * frames * n, batch * n
    operations = 6 * (
        targets * (degree * m * d + m * d**2 + d**2) + asked * horizon * r * d * (seen + 1)
    )
    operations += 2 * asked * (heard * h + h**2 + 2 * h * horizon)  # one channel, learns nothing
    moved = (
        targets * degree * (2 * m + 2 * d)
        + asked * horizon * r * (graph.decoder_degree + 8)
        + 2 * asked * (close * NUM_FITS + 2 * (past - close)) * STENCIL_NODES
    )
    return operations, moved


def run(watch: Watch) -> list[Record]:
    """Measured and predicted seconds of a step for every size."""
    records, rows = [], []
    for number, (n, settings) in enumerate(SIZES):
        watch(number, len(SIZES), f"cost, {n} points {' '.join(settings)}")
        told = ("train.batch=8", "train.consecutive=8", *settings)
        task = weather(n, *told)
        rows.append((*terms(n, task.config, task.time_spec.past, task.time_spec.horizon), 1.0))
        seconds = alternate({"step": stepper(n, *told)})["step"].cpu
        record = empty_record("cost", n, task.config.network.latent, 1, "none")
        records.append(record | {"settings": " ".join(settings), "seconds": seconds})
    measured = np.array([record["seconds"] for record in records])
    for record, seconds in zip(records, predicted(np.array(rows), measured), strict=True):
        record |= {
            "predicted": float(seconds),
            "error": abs(float(seconds / record["seconds"] - 1)),
        }
    return records + [growth(n) for n in (2048, 131_072, 1_000_000, 10_000_000)]


def predicted(rows: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """The law fitted to all sizes, by relative error, with no negative coefficient."""
    from scipy.optimize import nnls

    scale = rows.max(0)
    found, _ = nnls(rows / scale / measured[:, None], np.ones(len(rows)))
    return np.asarray(rows / scale @ found)


def growth(n: int, *settings: str) -> Record:
    """The law at a size that cannot be run here: one window, forward and backward."""
    config = load_config(settings=[*WEATHER, "train.batch=8", "train.consecutive=8", *settings])
    operations, moved = (part / 8 for part in terms(n, config, 12, 12))
    graph = config.graph
    edges = graph.within_degree + 1.25 * graph.between_degree + graph.decoder_degree
    bytes_each = edges * (8 + 4 * 5) + STENCIL_NODES * (
        8 + 4 * NUM_FITS
    )  # index, features, weights
    return empty_record("growth", n, config.network.latent, 0, "none") | {
        "tera_operations": operations / 1e12,
        "giga_bytes_moved": 4 * moved / 1e9,
        "giga_bytes_of_graph": n * bytes_each / 1e9,
        "giga_bytes_of_window": n * 24 * 4 / 1e9,
    }
