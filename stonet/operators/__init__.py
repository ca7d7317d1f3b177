"""The paper's operators: graph kernel integrals, the encoder on multipole levels, branch x trunk.

Comes in: latent values at nodes and a graph. Goes out: latent values at nodes or queries. Start
reading at `graph_kernel.py`, then `encoder.py` and `decoder.py`.
"""
