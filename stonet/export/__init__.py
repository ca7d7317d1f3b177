"""Export: a trained STONet as an ONNX file, which other programs run without PyTorch or stonet.

Comes in: a trained model, the stations and the places of the forecasts. Goes out: `model.onnx`, the
network with its weights, for any number of stations, edges, places, windows and leads; and a
companion `.npz` with the graph of some stations and places, which is an input of the network. Start
reading at `network.py`.
"""
