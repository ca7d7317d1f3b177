"""Your own model in the comparison: a class of 30 lines beside stonet, baselines and references."""

# %%
# ## The model
#
# A model is a `Forecaster`. Values come in normalised units; missing ones are 0 in `batch.frames`
# and False in `batch.observed`. This one weighs the past of the nearest station; the weights are
# trained, and depend on the lead, which may be any real number.

import os
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

import stonet
from stonet.graph.neighbours import nearest_nodes
from stonet.models.forecaster import Forecaster, QueryGraph, narrow

small = os.environ.get("TUTORIAL") == "small"  # the tests: few stations, seconds of training


@dataclass(frozen=True)
class NearestNode(QueryGraph):
    """The position of the node nearest to each query."""

    index: Int64[Tensor, " query"]


class Lags(Forecaster):
    """u(x, t + l) = b(l) + Σ w_j(l) u(nearest node, t - j), w and b quadratic in the lead l."""

    def __init__(self, config, time_spec, channels, nodes):
        super().__init__()
        self.horizon = time_spec.horizon
        self.weight = torch.nn.Parameter(torch.zeros(3, time_spec.past, channels))
        self.bias = torch.nn.Parameter(torch.zeros(3, channels))

    def query_graph(self, nodes, queries):
        _, index = nearest_nodes(queries, nodes)
        return NearestNode(torch.from_numpy(index[:, 0]))

    def decode(self, encoding, batch, graphs):
        index = narrow(graphs.queries, NearestNode).index
        past = batch.frames[batch.past][:, :, index]  # (batch, past, query, channel)
        lead = batch.lead / self.horizon  # (rows, future): a single row if all windows agree
        powers = torch.stack([lead**0, lead, lead**2]).expand(-1, len(past), -1)
        weight = torch.einsum("kbf,kpc->bfpc", powers, self.weight)
        bias = torch.einsum("kbf,kc->bfc", powers, self.bias)
        return torch.einsum("bfpc,bpqc->bfqc", weight, past) + bias[:, :, None]


# %%
# ## The contract
#
# The same checks as for every built-in model: windows of a batch do not influence each other, the
# order of stations does not matter, nothing after the issue time is used, all parameters are
# trained, and a saved model is the same model.

from stonet.models.contract import check_forecaster
from stonet.models.registry import register_model

register_model("lags", Lags)
check_forecaster(Lags)
print("the contract holds")

# %%
# ## The comparison
#
# The same windows, scaler, loss and budget for all; `persistence`, `daily` and `linear` are closed
# forms. At the command line this is `stonet compare stations --models lags,stonet,linear`, once
# the class is declared as an entry point (see the page on extending).

from stonet.evaluation.comparison import compare, summary
from stonet.training.budget import Budget

earth = stonet.open_dataset("stations", count=40 if small else 150, days=30 if small else 120)
temperature = stonet.Dataset(
    (earth.episodes[0].sel(channel="air_temperature"),), "stations", earth.unseen
)
names = ["lags", "stonet", "linear", "daily", "persistence"]
if small:
    comparison = compare(temperature, stonet.load_config("tiny"), names, Budget(epochs=1))
else:
    config = stonet.load_config(settings=["data.stride=2"])
    comparison = compare(temperature, config, names, Budget(minutes=0.25))

# %%
# The table has the lowest error first; `unseen-no-history` are stations that no model saw.

import pandas as pd

for points in ("seen", "unseen-no-history"):
    lines = pd.DataFrame(summary(comparison, points)).set_index("model")
    print(lines[["points", "mae", "rmse", "skill"]].round(3), end="\n\n")

# %%

from stonet.plotting.figures import error_by_lead

seen = [record for record in comparison.records if record["points"] == "seen"]
error_by_lead(seen, title="Simulated stations", step=earth.episodes[0].step, unit="K").savefig(
    "comparison.png", dpi=70
)
