r"""Stencils: what a point's neighbours say of the field there, by local polynomial fits.

Around x a polynomial p is fitted to the neighbours' values (x itself left out) by least squares,
weighted by exp(-(d/h)^2). Its value, gradient and Laplacian at x are linear in the values: weights
that know where the neighbours lie, and that need no value at x. So are those of kriging, which come
first (covariance.py). A missing neighbour leaves the fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from stonet.data.geometry import Points
from stonet.graph.neighbours import nearest_nodes, own_nodes
from stonet.linear.kriging import Covariance, krige, look_around
from stonet.system.devices import in_float32

NEAREST = 32  # neighbours that a fit sees
LINEAR = (1.3, 2.0, 3.0)  # widths h of the linear fits, in mean spacings: value
QUADRATIC = (2.0, 3.0)  # of the quadratic fits: value, gradient (2), Laplacian
NUM_REGRESSORS = 1 + len(LINEAR) + 4 * len(QUADRATIC)  # kriging first
RIDGE = 1e-3  # on all but the constant: few neighbours give a mean rather than a wild slope
CONSTANT_RIDGE = 1e-12  # only so that nothing is singular
FITTED = 2**13  # queries whose fits are made at a time
WORKSPACE = 2**22  # floats of the largest temporary


@dataclass(frozen=True)
class Weights:
    """Of all fits. Queries that miss the same neighbours share theirs, in whatever window."""

    usual: Float[Tensor, "rows query group near"]
    short: Float[Tensor, "kind group near"] | None = None  # where neighbours are missing
    index: Int[Tensor, "window query"] | None = None  # into `short`; -1: as usual, None: all are

    def of(self, queries: slice, groups: int) -> Float[Tensor, "rows query group near"]:
        """The first fits' of some queries in every window, or in one that stands for all."""
        usual = self.usual[:, queries, :groups]
        if self.index is None or self.short is None:
            return usual
        index = self.index[:, queries]
        result = usual.expand(len(index), -1, -1, -1).clone()
        mine = index >= 0
        result[mine] = self.short[:, :groups][index[mine]]
        return result


@dataclass(frozen=True)
class Stencil:
    """Every query's nearest nodes, where they lie, and the weights of the fits if all are there."""

    index: Int[Tensor, "query near"]
    offset: Float64[Tensor, "query near 2"]  # in mean spacings
    usable: Bool[Tensor, "query near"]  # not the query point itself
    covariance: Covariance
    weight: Float[Tensor, "1 query group near"]
    own: Int[Tensor, " query"]  # the node that is the query point; number of nodes where none is
    place: Float[Tensor, "query 3"] | None = None  # on the unit sphere

    def to(self, device: torch.device, dtype: torch.dtype) -> Stencil:
        return Stencil(
            self.index.to(device),
            self.offset.to(device),
            self.usable.to(device),
            self.covariance,
            self.weight.to(device, dtype),
            self.own.to(device),
            None if self.place is None else self.place.to(device, dtype),
        )

    def take(self, queries: Int64[Tensor, " chosen"]) -> Stencil:
        """Of these queries alone."""
        return replace(
            self,
            index=self.index[queries],
            offset=self.offset[queries],
            usable=self.usable[queries],
            weight=self.weight[:, queries],
            own=self.own[queries],
            place=None if self.place is None else self.place[queries],
        )

    def around(self) -> tuple[Stencil, Int64[np.ndarray, " node"]]:
        """The same for those nodes alone that are seen, and which these are; queries are nodes."""
        every = torch.cat([self.index, self.own[:, None]], dim=1)
        nodes, place = torch.unique(every, return_inverse=True)
        return replace(self, index=place[:, :-1], own=place[:, -1]), nodes.numpy()

    def weights(
        self, known: Bool[Tensor, "batch node"] | None, alike: bool | None = None
    ) -> Weights:
        """The fits' weights in every window: unknown nodes leave them.

        `alike`: whether they are the same in all windows (None: regressors; that waits for a GPU).
        """
        if known is None:
            return Weights(self.weight)
        if bool((known == known[:1]).all()) if alike is None else alike:
            known = known[:1]
        usable = (self.usable & known[:, self.index]).flatten(0, 1)  # of all windows and queries
        every, shape = torch.arange(len(usable), device=self.index.device), (len(known), -1)
        if usable.device.type != "cpu":  # a GPU is not asked who misses a neighbour
            return Weights(self._solved(every, usable).unflatten(0, shape))
        query = every % len(self.index)
        missing = torch.nonzero((usable != self.usable[query]).any(-1))[:, 0]
        bit = 2 ** torch.arange(usable.shape[-1])
        pattern = 2 * bit[-1] * query[missing] + (usable[missing] * bit).sum(-1)
        kinds, which = torch.unique(pattern, return_inverse=True)
        one = missing.new_empty(len(kinds)).scatter_(0, which, missing)  # stands for its kind
        index = torch.full_like(every, -1)
        index[missing] = which
        return Weights(self.weight, self._solved(one, usable), index.view(shape))

    def _solved(
        self, chosen: Int[Tensor, " chosen"], usable: Bool[Tensor, "every near"]
    ) -> Float[Tensor, "chosen group near"]:
        """The weights of some windows' queries."""
        parts = []
        for some in chosen.split(FITTED):
            offset = self.offset[some % len(self.index)]
            solved = fit_weights(offset, usable[None, some], self.covariance)[0]
            parts.append(solved.to(self.weight.dtype))
        return torch.cat(parts)

    @in_float32
    def apply(
        self,
        values: Float[Tensor, "batch lag node channel"],
        weights: Weights,
        groups: int = NUM_REGRESSORS,
    ) -> Float[Tensor, "batch query lag group channel"]:
        """The first fits of every lag and channel at every query."""
        batch, lags, nodes, channels = values.shape
        flat = values.permute(2, 0, 1, 3).reshape(nodes, batch, lags * channels)
        near = self.index.shape[1]
        step = max(1, WORKSPACE // (near * batch * lags * channels))
        parts = []
        for start in range(0, len(self.index), step):
            index = self.index[start : start + step]
            gathered = flat.index_select(0, index.flatten()).view(len(index), near, batch, -1)
            chosen = weights.of(slice(start, start + step), groups)
            if len(chosen) == 1:  # the same neighbours for every window
                fitted = (chosen[0] @ gathered.flatten(2)).unflatten(-1, (batch, -1))
                fitted = fitted.transpose(1, 2)
            else:
                fitted = chosen.transpose(0, 1) @ gathered.transpose(1, 2)
            # query batch group (lag channel)
            parts.append(fitted.unflatten(-1, (lags, channels)).permute(1, 0, 3, 2, 4))
        return torch.cat(parts, dim=1)


def make_stencil(
    queries: Points,
    nodes: Points,
    covariance: Covariance,
    index: Int64[np.ndarray, "query near"] | None = None,
) -> Stencil:
    """The nearest nodes of every query, unless they are given; `covariance` sets the scale."""
    index = nearest_others(queries, nodes) if index is None else index
    offset, usable = look_around(queries, nodes, covariance.spacing, index)
    weight = offset.new_empty(1, len(queries), NUM_REGRESSORS, index.shape[1])
    for start in range(0, len(queries), FITTED):
        part = slice(start, start + FITTED)
        weight[:, part] = fit_weights(offset[part], usable[None, part], covariance)
    return Stencil(
        index=torch.from_numpy(index),
        offset=offset,
        usable=usable,
        covariance=covariance,
        weight=weight,
        own=torch.from_numpy(own_nodes(queries, nodes)),
        place=torch.from_numpy(queries.embedded.copy()) if queries.kind == "sphere" else None,
    )


def nearest_others(queries: Points, nodes: Points) -> Int64[np.ndarray, "query near"]:
    """The nodes that a query's fits see, and its own."""
    return nearest_nodes(queries, nodes, NEAREST + 1)[1]


def fit_weights(
    offset: Float64[Tensor, "query near 2"],
    usable: Bool[Tensor, "rows query near"],
    covariance: Covariance,
) -> Float64[Tensor, "rows query group near"]:
    """The weights of all fits; zero for a neighbour that is not usable, and where none is."""
    squared = offset.square().sum(-1)
    nearest = torch.where(usable, squared, torch.inf).amin(-1, keepdim=True)
    nearest = torch.where(nearest.isfinite(), nearest, 0.0)
    groups = [krige(offset, usable, covariance.range, covariance.nugget)[..., None, :]]
    for width in LINEAR:
        groups.append(_fit(offset / width, _bell(squared, nearest, width, usable), 3)[..., :1, :])
    for width in QUADRATIC:
        fitted = _fit(offset / width, _bell(squared, nearest, width, usable), 6)
        laplacian = 2 * (fitted[..., 3:4, :] + fitted[..., 5:6, :])
        groups += [fitted[..., :3, :], laplacian]
    return torch.cat(groups, dim=-2)


def _bell(squared: Tensor, nearest: Tensor, width: float, usable: Tensor) -> Tensor:
    """exp(-(d/h)^2), relative to the nearest usable neighbour: nothing underflows far out."""
    return torch.where(usable, torch.exp((nearest - squared) / width**2), 0.0)


def _fit(
    offset: Float[Tensor, "query near 2"], bell: Float[Tensor, "rows query near"], terms: int
) -> Float[Tensor, "rows query term near"]:
    """(Phi' K Phi + ridge)^-1 Phi' K: each row gives one coefficient of the polynomial."""
    x, y = offset.unbind(-1)
    phi = torch.stack([torch.ones_like(x), x, y, x * x, x * y, y * y], dim=-1)[..., :terms]
    weighted = bell[..., None] * phi
    normal = weighted.transpose(-1, -2) @ phi
    total = bell.sum(-1, keepdim=True).clamp(min=1e-9)
    size = torch.maximum(normal.diagonal(dim1=-2, dim2=-1), total)  # far out a slope costs more
    ridge = torch.full((terms,), RIDGE, dtype=phi.dtype, device=phi.device)
    ridge[0] = CONSTANT_RIDGE
    normal = normal + torch.diag_embed(ridge * size)
    # with a ridge nothing is singular; plain `solve` would ask a GPU whether that is so
    return torch.linalg.solve_ex(normal, weighted.transpose(-1, -2)).result
