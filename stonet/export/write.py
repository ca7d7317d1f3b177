"""Writing the ONNX file and its companion."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stonet._version import __version__
from stonet.data.field import Field
from stonet.data.geometry import Points
from stonet.errors import UsageError
from stonet.export.inputs import Arrays, graph_inputs, past_inputs
from stonet.export.network import OnnxNetwork
from stonet.models.combination import NETWORK, Combination
from stonet.models.forecaster import Forecaster
from stonet.models.stonet import STONetwork
from stonet.system.atomic import write_atomic
from stonet.training.trained_model import TrainedModel

OPSET = 18
FORECAST = "forecast"  # name of the output
MIN_SIZE = 2  # of free axes in the traced example: a size of 1 would be taken for a constant


def export(
    trained: TrainedModel,
    path: Path,
    field: Field,
    queries: Points | None = None,
    network_only: bool = False,
) -> tuple[Path, Path]:
    """Write the network as ONNX, and beside it the inputs of these stations and places.

    The network takes any number of stations, edges, places, windows and leads; the field serves as
    example. The companion `.npz` holds the graph of its stations, and their newest past.

    Args:
        trained: a trained STONet.
        path: of the `.onnx` file.
        field: observations of the stations.
        queries: places of the forecast; None: the stations.
        network_only: leave out reference forecasts that take part in the run's forecasts.

    Returns:
        the ONNX file and the companion.

    Raises:
        UsageError: if the model is no STONet, or forecasts with other models beside it.

    Example:
        >>> export(trained, Path("model.onnx"), field)
    """
    library = _onnx()
    network = exportable(trained.model, network_only)
    given = all_inputs(trained, network, field, queries)
    content = _converted(trained, network, given)
    model = library.load_model_from_string(content)
    library.helper.set_model_props(model, {"stonet": json.dumps(describe(trained))})
    library.checker.check_model(model)
    fixed = _fixed_axes(model, given)
    if fixed:  # the converter makes constants of what it cannot keep free
        raise RuntimeError(f"The converter fixed the sizes of {', '.join(fixed)}.")
    companion = path.with_suffix(".npz")
    packed = io.BytesIO()
    np.savez_compressed(packed, **given)  # type: ignore[arg-type]
    write_atomic(path, model.SerializeToString())
    write_atomic(companion, packed.getvalue())
    return path, companion


def exportable(model: Forecaster, network_only: bool = False) -> STONetwork:
    """The network of a model, if it can be exported.

    Args:
        model: of a run.
        network_only: leave out reference forecasts that take part.

    Raises:
        UsageError: if it is another model, or a combination with reference forecasts.
    """
    if isinstance(model, Combination):
        if model.used != (NETWORK,) and not network_only:
            others = ", ".join(name for name in model.used if name != NETWORK)
            raise UsageError(
                f"This run forecasts by STONet and by {others}, where validation favoured it; only "
                "STONet can be exported. Export it without them (--network-only; its forecasts are "
                "worse there), or fit it alone: stonet fit ... --set train.fallback=false."
            )
        model = model.member(NETWORK)
    if not isinstance(model, STONetwork):
        raise UsageError(
            f"Only the model 'stonet' can be exported; this run holds {type(model).__name__}."
        )
    return model


def all_inputs(
    trained: TrainedModel, network: STONetwork, field: Field, queries: Points | None = None
) -> Arrays:
    """Every input of the network, for the newest times of a field and all trained leads.

    Args:
        trained: the model.
        network: its STONet.
        field: observations of the stations.
        queries: places of the forecast; None: the stations.
    """
    places = field.points if queries is None else queries
    lead = np.arange(1, trained.time_spec.horizon + 1, dtype=np.float32)
    past = past_inputs(trained, network, field)
    return past | {"lead": lead} | graph_inputs(network, field.points, places)


def describe(trained: TrainedModel) -> dict[str, Any]:
    """What a user of the file must know, as stored in its metadata.

    Args:
        trained: the model.
    """
    spec = trained.time_spec
    return {
        "channels": list(trained.channels),
        "units": list(trained.units),
        "step_seconds": spec.step / 1e9,
        "past": spec.past,
        "horizon": spec.horizon,
        "calendar": spec.calendar,
        "geometry": trained.nodes.kind,
        "left_out": [str(choice) for choice in trained.choices],  # reference forecasts
        "version": __version__,
    }


def _converted(trained: TrainedModel, network: STONetwork, given: Arrays) -> bytes:
    """The network as ONNX."""
    names = tuple(given)
    module = OnnxNetwork(network, trained.scaler, names).eval()
    example = {name: torch.from_numpy(widened(name, array)) for name, array in given.items()}
    axes = free_axes(given)
    dimensions = {
        name: torch.export.Dim(name)
        for name in sorted({n for row in axes.values() for n in row.values()})
    }
    shapes = tuple({axis: dimensions[name] for axis, name in axes[key].items()} for key in names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the converter, on its own workings
        program = torch.onnx.export(
            module,
            tuple(example.values()),
            input_names=list(names),
            output_names=[FORECAST],
            dynamic_shapes=(shapes,),
            opset_version=OPSET,
            dynamo=True,
            optimize=False,  # it loses a constant of a clip; onnxruntime optimises when it loads
            verbose=False,
        )
    assert program is not None
    return bytes(program.model_proto.SerializeToString())


def free_axes(given: Mapping[str, np.ndarray]) -> dict[str, dict[int, str]]:
    """The axes of every input whose size is free, by name; equal names have equal sizes.

    Args:
        given: the inputs.
    """
    axes: dict[str, dict[int, str]] = {
        "values": {0: "window", 2: "node"},
        "missing": {0: "window", 1: "node"},
        "issue_time": {0: "window"},
        "lead": {0: "future"},
        "restore": {0: "node"},
        "own": {0: "query"},
        "kriging_index": {0: "query", 1: "near"},
        "kriging_weight": {0: "query", 1: "near"},
        "stencil_index": {0: "query", 1: "around"},
        "stencil_weight": {0: "query", 2: "around"},
    }
    for kind in ("node", "query"):
        axes |= {f"{kind}_{name}": {0: kind} for name in ("place", "longitude", "direction")}
    for name in given:
        stem, _, last = name.rpartition("_")
        if stem == "members":
            axes[name] = {0: f"level_{last}"}
        elif name not in axes:  # a table of neighbours
            family, _, level = stem.partition("_")
            target = f"level_{int(level) + (family == 'up')}" if level else "query"
            axes[name] = {0: target, 1: f"degree_{stem}"}
    return {name: axes[name] for name in given}


def _fixed_axes(model: Any, given: Arrays) -> list[str]:
    """Inputs of the converted network with an axis whose size is not free but should be."""
    axes = free_axes(given)
    shapes = {each.name: each.type.tensor_type.shape.dim for each in model.graph.input}
    return [name for name, dim in shapes.items() if any(not dim[a].dim_param for a in axes[name])]


def widened(name: str, array: np.ndarray) -> np.ndarray:
    """The example with at least two entries on every free axis, as the tracer needs it.

    Args:
        name: of the input.
        array: as prepared.
    """
    for axis in free_axes({name: array})[name]:
        if array.shape[axis] < MIN_SIZE:
            pads = [(0, 0)] * array.ndim
            pads[axis] = (0, MIN_SIZE - array.shape[axis])
            array = np.pad(array, pads)
    return array


def _onnx() -> Any:
    """The package `onnx`, an optional dependency; `onnxscript` is needed by PyTorch."""
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError:
        raise UsageError(
            "Exporting needs the packages onnx and onnxscript: pip install 'stonet[export]'."
        ) from None
    return onnx
