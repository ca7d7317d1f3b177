r"""Stencils: local polynomial fits to the neighbours of a point.

Around x a polynomial p is fitted to the values of the neighbours (x itself is left out) by least
squares with weights exp(-(d/h)^2). Its value, gradient and Laplacian at x are linear in these
values: their weights depend on the positions of the neighbours only and need no value at x. The
same holds for kriging (`kriging.py`), which comes first. A missing neighbour is left out of the
fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from stonet.data.geometry import Points
from stonet.graph.neighbours import nearest_nodes, own_nodes
from stonet.linear.kriging import Covariance, kriging_weights, neighbour_offsets
from stonet.system.devices import in_float32

STENCIL_NODES = 32  # neighbours of a fit: enough for a quadratic at the largest width
LINEAR_WIDTHS = (1.3, 2.0, 3.0)  # h of the linear fits, in mean spacings; each gives a value
QUADRATIC_WIDTHS = (2.0, 3.0)  # h of the quadratic fits: value, gradient (2) and Laplacian each
NUM_FITS = 1 + len(LINEAR_WIDTHS) + 4 * len(QUADRATIC_WIDTHS)  # kriging first
SLOPE_RIDGE = 1e-3  # on all but the constant: few neighbours give a mean, not an extreme slope
CONSTANT_RIDGE = 1e-12  # keeps the system regular, no more
CHUNK_QUERIES = 2**13  # queries whose fits are solved together
WORKSPACE_FLOATS = 2**22  # size limit of temporary arrays


@dataclass(frozen=True)
class Weights:
    """The weights of all fits; queries that miss the same neighbours share them.

    Args:
        complete: with all neighbours.
        partial: with some neighbours missing.
        pattern: row of `partial`; -1: complete.
    """

    complete: Float[Tensor, "rows query fit near"]
    partial: Float[Tensor, "pattern fit near"] | None = None
    pattern: Int[Tensor, "window query"] | None = None

    def of(self, queries: slice, fits: int) -> Float[Tensor, "rows query fit near"]:
        """The weights of the first fits, for some queries; one row if all windows agree.

        Args:
            queries: positions of the queries.
            fits: number of fits.
        """
        complete = self.complete[:, queries, :fits]
        if self.pattern is None or self.partial is None:
            return complete
        pattern = self.pattern[:, queries]
        result = complete.expand(len(pattern), -1, -1, -1).clone()
        short = pattern >= 0
        result[short] = self.partial[:, :fits][pattern[short]]
        return result


@dataclass(frozen=True)
class Stencil:
    """The nearest nodes of every query, their positions, and the weights if none is missing.

    Args:
        index: nearest nodes of each query.
        offset: in mean spacings.
        usable: False for the query point itself.
        covariance: of the field.
        weight: of each of these nodes in each fit, if none is missing.
        own: the node at the query's position; number of nodes if none.
        place: on the unit sphere.
        ridge: penalty of slopes.
    """

    index: Int[Tensor, "query near"]
    offset: Float64[Tensor, "query near 2"]
    usable: Bool[Tensor, "query near"]
    covariance: Covariance
    weight: Float[Tensor, "1 query fit near"]
    own: Int[Tensor, " query"]
    place: Float[Tensor, "query 3"] | None = None
    ridge: float = SLOPE_RIDGE

    def to(self, device: torch.device, dtype: torch.dtype) -> Stencil:
        """The stencil on a device, with weights of this type.

        Args:
            device: a processor or a GPU.
            dtype: of the weights.
        """
        return replace(
            self,
            index=self.index.to(device),
            offset=self.offset.to(device),
            usable=self.usable.to(device),
            weight=self.weight.to(device, dtype),
            own=self.own.to(device),
            place=None if self.place is None else self.place.to(device, dtype),
        )

    def take(self, queries: Int64[Tensor, " chosen"]) -> Stencil:
        """The stencil of some of the queries.

        Args:
            queries: their positions.
        """
        return replace(
            self,
            index=self.index[queries],
            offset=self.offset[queries],
            usable=self.usable[queries],
            weight=self.weight[:, queries],
            own=self.own[queries],
            place=None if self.place is None else self.place[queries],
        )

    def restrict(self) -> tuple[Stencil, Int64[np.ndarray, " node"]]:
        """The same stencil on the nodes that it uses, and which these are; queries are nodes."""
        every = torch.cat([self.index, self.own[:, None]], dim=1)
        nodes, place = torch.unique(every, return_inverse=True)
        return replace(self, index=place[:, :-1], own=place[:, -1]), nodes.numpy()

    def weights(
        self,
        present: Bool[Tensor, "batch node"] | None,
        same_windows: bool | None = None,
        chunk: int = CHUNK_QUERIES,
    ) -> Weights:
        """The weights of the fits in every window, without the missing nodes.

        Args:
            present: nodes with a value, in every window; None: all.
            same_windows: whether they are the same in all windows; None: find out, which makes a
                GPU wait.
            chunk: queries whose fits are solved together.
        """
        if present is None:
            return Weights(self.weight)
        if bool((present == present[:1]).all()) if same_windows is None else same_windows:
            present = present[:1]
        usable = (self.usable & present[:, self.index]).flatten(0, 1)  # all windows and queries
        every, shape = torch.arange(len(usable), device=self.index.device), (len(present), -1)
        if usable.device.type != "cpu":  # solve all: finding the distinct patterns needs a sync
            return Weights(self._solve(every, usable, chunk).unflatten(0, shape))
        query = every % len(self.index)
        missing = torch.nonzero((usable != self.usable[query]).any(-1))[:, 0]
        bit = 2 ** torch.arange(usable.shape[-1])
        code = 2 * bit[-1] * query[missing] + (usable[missing] * bit).sum(-1)
        codes, row = torch.unique(code, return_inverse=True)
        example = missing.new_empty(len(codes)).scatter_(0, row, missing)  # one for each pattern
        pattern = torch.full_like(every, -1)
        pattern[missing] = row
        return Weights(self.weight, self._solve(example, usable, chunk), pattern.view(shape))

    def _solve(
        self, chosen: Int[Tensor, " chosen"], usable: Bool[Tensor, "every near"], chunk: int
    ) -> Float[Tensor, "chosen fit near"]:
        """The weights of some (window, query) pairs."""
        parts = []
        for some in chosen.split(chunk):
            offset = self.offset[some % len(self.index)]
            solved = fit_weights(offset, usable[None, some], self.covariance, self.ridge)[0]
            parts.append(solved.to(self.weight.dtype))
        return torch.cat(parts)

    @in_float32
    def apply(
        self,
        values: Float[Tensor, "batch lag node channel"],
        weights: Weights,
        fits: int = NUM_FITS,
        workspace: int = WORKSPACE_FLOATS,
    ) -> Float[Tensor, "batch query lag fit channel"]:
        """The first fits of every lag and channel at every query.

        Args:
            values: at all nodes, 0 where missing.
            weights: of the stencil for these windows.
            fits: number of fits.
            workspace: numbers that are gathered at a time.
        """
        batch, lags, nodes, channels = values.shape
        flat = values.permute(2, 0, 1, 3).reshape(nodes, batch, lags * channels)
        near = self.index.shape[1]
        step = max(1, workspace // (near * batch * lags * channels))
        parts = []
        for start in range(0, len(self.index), step):
            index = self.index[start : start + step]
            gathered = flat.index_select(0, index.flatten()).view(len(index), near, batch, -1)
            chosen = weights.of(slice(start, start + step), fits)
            if len(chosen) == 1:  # the same weights in every window
                fitted = (chosen[0] @ gathered.flatten(2)).unflatten(-1, (batch, -1))
                fitted = fitted.transpose(1, 2)
            else:
                fitted = chosen.transpose(0, 1) @ gathered.transpose(1, 2)
            # query batch fit (lag channel)
            parts.append(fitted.unflatten(-1, (lags, channels)).permute(1, 0, 3, 2, 4))
        return torch.cat(parts, dim=1)


def make_stencil(
    queries: Points,
    nodes: Points,
    covariance: Covariance,
    index: Int64[np.ndarray, "query near"] | None = None,
    ridge: float = SLOPE_RIDGE,
    chunk: int = CHUNK_QUERIES,
) -> Stencil:
    """The stencil of every query.

    Args:
        queries: points of the fits.
        nodes: points with values.
        covariance: of the field; its spacing is the unit of the widths.
        index: nodes of each fit; None: the nearest ones.
        ridge: on slopes and curvatures.
        chunk: queries whose fits are solved together.
    """
    index = stencil_nodes(queries, nodes) if index is None else index
    offset, usable = neighbour_offsets(queries, nodes, covariance.spacing, index)
    weight = offset.new_empty(1, len(queries), NUM_FITS, index.shape[1])
    for start in range(0, len(queries), chunk):
        part = slice(start, start + chunk)
        weight[:, part] = fit_weights(offset[part], usable[None, part], covariance, ridge)
    return Stencil(
        index=torch.from_numpy(index),
        offset=offset,
        usable=usable,
        covariance=covariance,
        weight=weight,
        own=torch.from_numpy(own_nodes(queries, nodes)),
        place=torch.from_numpy(queries.embedded.copy()) if queries.kind == "sphere" else None,
        ridge=ridge,
    )


def stencil_nodes(queries: Points, nodes: Points) -> Int64[np.ndarray, "query near"]:
    """The nearest nodes of each query: `STENCIL_NODES`, and the node at the query itself.

    Args:
        queries: points of the fits.
        nodes: points with values.
    """
    return nearest_nodes(queries, nodes, STENCIL_NODES + 1)[1]


def fit_weights(
    offset: Float64[Tensor, "query near 2"],
    usable: Bool[Tensor, "rows query near"],
    covariance: Covariance,
    ridge: float = SLOPE_RIDGE,
) -> Float64[Tensor, "rows query fit near"]:
    """The weights of all fits; zero for neighbours that are not usable, and if none is.

    Args:
        offset: positions of the neighbours, in spacings.
        usable: neighbours that take part, in every row.
        covariance: for kriging.
        ridge: on slopes and curvatures.
    """
    squared = offset.square().sum(-1)
    nearest = torch.where(usable, squared, torch.inf).amin(-1, keepdim=True)
    nearest = torch.where(nearest.isfinite(), nearest, 0.0)
    fits = [kriging_weights(offset, usable, covariance)[..., None, :]]
    for width in LINEAR_WIDTHS:
        bell = _bell(squared, nearest, width, usable)
        fits.append(_fit(offset / width, bell, 3, ridge)[..., :1, :])
    for width in QUADRATIC_WIDTHS:
        bell = _bell(squared, nearest, width, usable)
        fitted = _fit(offset / width, bell, 6, ridge)
        laplacian = 2 * (fitted[..., 3:4, :] + fitted[..., 5:6, :])
        fits += [fitted[..., :3, :], laplacian]
    return torch.cat(fits, dim=-2)


def _bell(squared: Tensor, nearest: Tensor, width: float, usable: Tensor) -> Tensor:
    """exp(-(d/h)^2), relative to the nearest usable neighbour, so that nothing underflows."""
    return torch.where(usable, torch.exp((nearest - squared) / width**2), 0.0)


def _fit(
    offset: Float[Tensor, "query near 2"],
    bell: Float[Tensor, "rows query near"],
    terms: int,
    ridge: float,
) -> Float[Tensor, "rows query term near"]:
    """(Phi' K Phi + ridge)^-1 Phi' K: each row gives one coefficient of the polynomial."""
    x, y = offset.unbind(-1)
    phi = torch.stack([torch.ones_like(x), x, y, x * x, x * y, y * y], dim=-1)[..., :terms]
    weighted = bell[..., None] * phi
    normal = weighted.transpose(-1, -2) @ phi
    total = bell.sum(-1, keepdim=True).clamp(min=1e-9)
    size = torch.maximum(normal.diagonal(dim1=-2, dim2=-1), total)  # distant slopes cost more
    ridges = torch.full((terms,), ridge, dtype=phi.dtype, device=phi.device)
    ridges[0] = CONSTANT_RIDGE
    normal = normal + torch.diag_embed(ridges * size)
    # never singular because of the ridge; `solve` would check, which makes a GPU wait
    return torch.linalg.solve_ex(normal, weighted.transpose(-1, -2)).result
