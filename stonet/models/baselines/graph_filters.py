"""The graph of the baselines, and sparse matrices on it: nearest neighbours, Laplacians, walks."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.sparse.linalg import eigsh
from torch import Tensor

from stonet.data.geometry import Points
from stonet.graph.neighbours import nearest_nodes
from stonet.system.devices import in_float32

Matrix = csr_array  # (target, source), float64


def nearest(points: Points, count: int) -> Int64[np.ndarray, "node near"]:
    """The `count` nearest points of each point, itself first; all points if there are fewer.

    Args:
        points: nodes of the graph.
        count: number of neighbours, itself included.
    """
    _, index = nearest_nodes(points, points, count)
    itself = np.arange(len(points))[:, None]
    # among points that coincide, a point may come later than others, or not at all
    index = np.take_along_axis(index, np.argsort(index != itself, axis=1, kind="stable"), axis=1)
    index[:, 0] = itself[:, 0]
    return index


def directed(points: Points, count: int) -> Matrix:
    """A matrix with 1 from each point (row) to the others among its `count` nearest.

    Args:
        points: nodes of the graph.
        count: number of neighbours, itself included.
    """
    index = nearest(points, count)[:, 1:]
    rows = np.repeat(np.arange(len(points)), index.shape[1])
    shape = (len(points), len(points))
    return csr_array((np.ones(index.size), (rows, index.ravel())), shape=shape)


def adjacency(points: Points, count: int) -> Matrix:
    """A matrix with 1 between nearest neighbours, in either direction; symmetric, no loops.

    Args:
        points: nodes of the graph.
        count: number of neighbours, itself included.
    """
    a = directed(points, count)
    return a.maximum(a.T).tocsr()


def symmetric(a: Matrix, loops: bool) -> Matrix:
    """D^-1/2 (A [+ I]) D^-1/2, the normalisation of GCN; `loops` adds I.

    Args:
        a: an adjacency matrix.
        loops: whether each node is a neighbour of itself.
    """
    a = a + eye_array(a.shape[0]) if loops else a
    return _scaled(a, _degree(a) ** -0.5, _degree(a) ** -0.5)


def random_walk(a: Matrix) -> Matrix:
    """D^-1 A, the transition matrix of a random walk.

    Args:
        a: an adjacency matrix.
    """
    return _scaled(a, _degree(a) ** -1.0, np.ones(a.shape[0]))


def laplacian(a: Matrix) -> Matrix:
    """2 L / lambda_max - I for the normalised Laplacian L = I - D^-1/2 A D^-1/2, lambda_max = 2.

    Args:
        a: a symmetric adjacency matrix.
    """
    return csr_array(-symmetric(a, loops=False))


def plain_laplacian(a: Matrix) -> Matrix:
    """2 L / lambda_max - I for L = D - A and its largest eigenvalue.

    Args:
        a: a symmetric adjacency matrix.
    """
    full = diags_array(np.asarray(a.sum(1)).ravel()) - a
    if not a.nnz:  # no edges
        largest = 0.0
    elif a.shape[0] < 3:
        largest = float(np.linalg.eigvalsh(full.toarray()).max())
    else:
        start = np.random.default_rng(0).normal(size=a.shape[0])
        largest = float(eigsh(full, k=1, which="LA", v0=start, return_eigenvectors=False)[0])
    return csr_array(full * (2.0 / max(largest, 1e-12)) - eye_array(a.shape[0]))


def _degree(a: Matrix) -> Float64[np.ndarray, " node"]:
    """Row sums, above zero."""
    return np.maximum(np.asarray(a.sum(1)).ravel(), 1e-12)


def _scaled(a: Matrix, left: np.ndarray, right: np.ndarray) -> Matrix:
    """diag(left) A diag(right)."""
    return csr_array(diags_array(left) @ a @ diags_array(right))


@dataclass(frozen=True)
class Operator:
    """A sparse matrix (target, source), applied to all samples and features, and its transpose.

    Args:
        matrix: sparse.
        transposed: for the gradient.
    """

    matrix: Tensor
    transposed: Tensor

    @staticmethod
    def of(a: Matrix, device: torch.device, dtype: torch.dtype) -> Operator:
        """The operator of a scipy matrix.

        Args:
            a: the matrix.
            device: a processor or a GPU.
            dtype: of the entries.
        """
        return Operator(_tensor(a, device, dtype), _tensor(csr_array(a.T), device, dtype))

    def __call__(self, x: Float[Tensor, "source ..."]) -> Float[Tensor, "target ..."]:
        """A x, along the first axis."""
        flat = x.reshape(len(x), -1)
        flat = _Apply.apply(flat, self.matrix, self.transposed)  # type: ignore[no-untyped-call]
        return flat.view(-1, *x.shape[1:])


class _Apply(torch.autograd.Function):
    """A x forward, A' g backward, both as sparse products."""

    @staticmethod
    @in_float32
    def forward(ctx: Any, x: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transposed @ gradient.contiguous(), None, None


def _tensor(a: Matrix, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The same matrix in torch."""
    a = a.tocsr()
    a.sort_indices()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sparse CSR tensors are in beta
        return torch.sparse_csr_tensor(
            torch.from_numpy(a.indptr.astype(np.int64)),
            torch.from_numpy(a.indices.astype(np.int64)),
            torch.from_numpy(a.data.astype(np.float64)).to(dtype),
            size=a.shape,
            device=device,
        )


def chebyshev(
    operator: Operator, x: Float[Tensor, "node ..."], order: int
) -> list[Float[Tensor, "node ..."]]:
    """T_0(A) x ... T_{order-1}(A) x by T_k = 2 A T_{k-1} - T_{k-2}.

    Args:
        operator: multiplies by A.
        x: values at the nodes.
        order: number of terms.
    """
    terms = [x]
    if order > 1:
        terms.append(operator(x))
    for _ in range(2, order):
        terms.append(2 * operator(terms[-1]) - terms[-2])
    return terms


def powers(
    operator: Operator, x: Float[Tensor, "node ..."], order: int
) -> list[Float[Tensor, "node ..."]]:
    """x, A x, ..., A^{order-1} x.

    Args:
        operator: multiplies by A.
        x: values at the nodes.
        order: number of terms.
    """
    terms = [x]
    for _ in range(1, order):
        terms.append(operator(terms[-1]))
    return terms
