"""Benchmarks of stonet against peers and baselines, run from a clone; not part of the wheel.

Comes in: the name of a benchmark, `python -m benchmarks operator`. Goes out: records of ratios
(peer over ours) and docs/performance.md. Start reading at `harness.py`.
"""
