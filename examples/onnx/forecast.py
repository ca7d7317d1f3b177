"""A forecast with onnxruntime and numpy alone: python forecast.py model.onnx [past.npy TIME].

model.npz beside the model has the graph of the stations and places, and the past at the time of the
export. past.npy has another one: (past, station, channel), oldest first, NaN where missing; TIME is
that of its last row, such as 2026-03-01T12:00 (UTC).
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def past_inputs(values: np.ndarray, newest: str) -> dict[str, np.ndarray]:
    past, known, step = len(values), ~np.isnan(values), np.arange(len(values))
    filled = values.astype(np.float32)
    for station, channel in np.ndindex(values.shape[1:]):  # linear in time
        some = known[:, station, channel]
        filled[:, station, channel] = np.interp(step, step[some], values[some, station, channel])
    age = np.where(known, step[::-1, None, None], past).min(0) / past  # of the newest value
    missing = np.concatenate([age, 1 - known.mean(0)], axis=-1).astype(np.float32)
    time = np.datetime64(newest, "ns").astype(np.int64)
    return {"values": filled[None], "missing": missing[None], "issue_time": np.array([time])}


model = Path(sys.argv[1])
onnxruntime.set_default_logger_severity(3)  # errors only
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
about = json.loads(session.get_modelmeta().custom_metadata_map["stonet"])
inputs = dict(np.load(model.with_suffix(".npz"), allow_pickle=False))
if len(sys.argv) > 2:
    inputs |= past_inputs(np.load(sys.argv[2], allow_pickle=False), sys.argv[3])
wanted = {each.name for each in session.get_inputs()}
(forecast,) = session.run(None, {name: inputs[name] for name in wanted})
np.save("forecast.npy", forecast[0])  # (lead, place, channel), in the units of the data
print(about["channels"], about["units"], forecast[0].shape, forecast[0].mean((1, 2)))
