"""The inputs of the exported network: the graph of some stations and places, and their past."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int64

from stonet.data.batch import Values, make_batch
from stonet.data.display import listed
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import DataError
from stonet.graph.neighbours import Neighbours
from stonet.models.forecaster import narrow
from stonet.models.point_inputs import Sites, gaps
from stonet.models.stonet import STONetwork
from stonet.models.stonet_graphs import NodesGraph, QueriesGraph
from stonet.training.trained_model import TrainedModel

Arrays = dict[str, np.ndarray]


def graph_inputs(network: STONetwork, nodes: Points, queries: Points) -> Arrays:
    """Everything that depends on positions, by the name of the input.

    Args:
        network: a trained STONet.
        nodes: stations, all of which have a past.
        queries: places of the forecast.
    """
    graphs = network.graphs(nodes, queries)
    node, query = narrow(graphs.nodes, NodesGraph), narrow(graphs.queries, QueriesGraph)
    multipole, arrays = node.multipole, dict[str, np.ndarray]()
    for level, members in enumerate(multipole.members):
        arrays[f"members_{level}"] = members.numpy()
    arrays["restore"] = multipole.restore.numpy()
    for name in ("within", "up", "down"):
        for level, neighbours in enumerate(getattr(multipole, name)):
            arrays |= neighbour_table(neighbours, f"{name}_{level}")
    arrays |= neighbour_table(query.neighbours, "around")
    arrays["own"] = query.kriging.own.numpy()
    arrays["kriging_index"] = query.kriging.index.numpy()
    arrays["kriging_weight"] = query.kriging.weight.float().numpy()
    if query.stencil is not None:
        arrays["stencil_index"] = query.stencil.index.numpy()
        arrays["stencil_weight"] = query.stencil.weight[0].float().numpy()
    return arrays | _sites(node.sites, "node") | _sites(query.sites, "query")


@torch.no_grad()
def past_inputs(
    trained: TrainedModel,
    network: STONetwork,
    field: Field,
    issue: Int64[np.ndarray, " window"] | None = None,
) -> Arrays:
    """The past of every station without gaps, where it had some, and the issue times.

    Gaps are filled, and irregular times resampled, as the network itself does it.

    Args:
        trained: the model.
        network: its STONet.
        field: observations, of at least `past` times.
        issue: positions of the newest time of each window; None: the newest of all, one window.

    Raises:
        DataError: if the past is too short, or a station has no value in a window.
    """
    spec, times = trained.time_spec, field.times
    newest = np.array([len(times) - 1]) if issue is None else issue
    if newest.min() + 1 < spec.past:
        raise DataError(f"The past has {newest.min() + 1} times; the model needs {spec.past}.")

    def frames(index: Int64[np.ndarray, " frame"]) -> Values:
        observed = field.observed[index]
        values = np.where(observed, field.values[index], np.float32(0))
        return torch.from_numpy(trained.scaler.normalise(values) * observed), torch.from_numpy(
            observed
        )

    past = newest[:, None] + np.arange(1 - spec.past, 1)
    ahead = times[newest][:, None] + spec.step * np.arange(1, spec.horizon + 1)
    batch = make_batch(frames, times, past, ahead, spec)
    if not bool(batch.known.any(-1).all()):
        silent = np.flatnonzero(~batch.known.any(-1).all(0).numpy())
        raise DataError(
            f"{listed([field.points.names[i] for i in silent])} have no value in the past. Leave "
            "them out of the stations; they can be places of the forecast."
        )
    history, _ = network.history(batch, every_channel=True)
    mean, std = np.asarray(trained.scaler.mean), np.asarray(trained.scaler.std)
    arrays = {
        "values": (history.flip(1).numpy() * std + mean).astype(np.float32),
        "missing": gaps(batch).transpose(0, 1).contiguous().numpy(),
    }
    return arrays | ({"issue_time": times[newest]} if spec.periods else {})


def neighbour_table(neighbours: Neighbours, name: str) -> Arrays:
    """Neighbours as one table of targets; missing ones have the number of sources as index.

    Args:
        neighbours: of some targets.
        name: beginning of the names of both arrays.
    """
    width = max([block.index.shape[1] for block in neighbours.blocks], default=1)
    index = torch.full((len(neighbours.count), width), neighbours.num_sources)
    features = [block.features.shape[2] for block in neighbours.blocks]
    edge = torch.zeros(*index.shape, features[0] if features else 5)
    for block in neighbours.blocks:
        degree = block.index.shape[1]
        index[block.rows, :degree] = block.index
        edge[block.rows, :degree] = block.features.float()
    return {f"{name}_index": index.numpy(), f"{name}_edge": edge.numpy()}


def _sites(sites: Sites, kind: str) -> Arrays:
    parts = {"place": sites.place, "longitude": sites.longitude, "direction": sites.direction}
    return {f"{kind}_{name}": p.float().numpy() for name, p in parts.items() if p is not None}
