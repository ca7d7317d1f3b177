r"""Forest: boosted regression trees as plain arrays, and their sum at many rows.

A split of a tree sends a row to its left child if x_f <= threshold, and a missing x_f to a side of
its own. Walking from split to split is slow in array code. Here every leaf of a tree has a bit. The
value of one feature excludes leaves, whatever the other features are: those right of a split if it
is true, those left of it if not. So each tree has one table for each feature that it uses, from the
interval between thresholds in which x_f lies to the bits that are left; the bitwise AND over its
features leaves the bit of the leaf that the row reaches.

Some features may be the same for several rows, such as the past of a node for all leads. They are
given once, and their tables are read once.

References:
    C. Lucchese, F. M. Nardini, S. Orlando, R. Perego, N. Tonellotto, R. Venturini, "QuickScorer",
    SIGIR 2015: leaves as bits. There the splits of one row are visited; here tables serve all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor, nn

MAX_LEAVES = 62  # of a tree: each is a bit of an int64 that stays positive
MAX_EDGES = 255  # thresholds of a feature in all trees; more would need large tables
CHUNK_ROWS = 4_096  # shared rows that are computed together, so that arrays stay in the cache


@dataclass(frozen=True)
class TreeArrays:
    """Splits and leaves of some trees, one tree after the other.

    A child >= 0 is a split of the same tree, and -1 - k is its leaf k. A child comes after its
    parent, so that every walk ends. Lengths come from files: `check` compares them.

    Args:
        owner: the output to which each tree adds.
        splits: position of the first split of each tree, and the number of all splits.
        leaves: likewise of the leaves.
        feature: of each split.
        threshold: of each split.
        missing_left: where a missing value goes.
        left: child for values up to the threshold.
        right: child for values above it.
        value: of each leaf.
    """

    owner: Int64[Tensor, " _"]
    splits: Int64[Tensor, " _"]
    leaves: Int64[Tensor, " _"]
    feature: Int64[Tensor, " _"]
    threshold: Float64[Tensor, " _"]
    missing_left: Bool[Tensor, " _"]
    left: Int64[Tensor, " _"]
    right: Int64[Tensor, " _"]
    value: Float64[Tensor, " _"]

    def check(self, owners: int, features: int) -> None:
        """Refuse arrays that are not trees of these features.

        Args:
            owners: number of outputs.
            features: number of features.

        Raises:
            ValueError: if an index is out of range, or a tree has a cycle or a leaf too many.
        """
        trees, total = len(self.owner), len(self.feature)
        splits, leaves = np.diff(self.splits.numpy()), np.diff(self.leaves.numpy())
        _expect(len(splits) == len(leaves) == trees, "each tree has a range of splits and leaves")
        _expect(int(self.splits[0]) == int(self.leaves[0]) == 0, "ranges begin at 0")
        _expect(bool((splits >= 0).all()), "ranges do not decrease")
        _expect(bool((leaves == splits + 1).all()), "a tree has one leaf more than splits")
        _expect(not trees or int(leaves.max()) <= MAX_LEAVES, f"at most {MAX_LEAVES} leaves")
        _expect(int(self.splits[-1]) == total, "every split belongs to a tree")
        _expect(int(self.leaves[-1]) == len(self.value), "every leaf belongs to a tree")
        for name in ("threshold", "missing_left", "left", "right"):
            _expect(len(getattr(self, name)) == total, f"every split has a {name}")
        finite = torch.isfinite(self.threshold).all() and torch.isfinite(self.value).all()
        _expect(bool(finite), "thresholds and values are finite")
        _expect(_within(self.owner, owners), f"owners are below {owners}")
        _expect(_within(self.feature, features), f"features are below {features}")
        pairs = np.unique(np.stack([self.feature.numpy(), self.threshold.numpy()]), axis=1)
        most = int(np.bincount(pairs[0].astype(np.int64)).max(initial=0))
        _expect(most <= MAX_EDGES, f"a feature has at most {MAX_EDGES} thresholds")
        tree = np.repeat(np.arange(trees), splits)
        own = np.arange(total) - self.splits.numpy()[tree]  # position within the tree
        children = np.stack([self.left.numpy(), self.right.numpy()])
        inner = children >= 0
        later = (children > own) & (children < splits[tree])
        _expect(bool((later | ~inner).all()), "children come after their parents")
        _expect(bool(((-1 - children < leaves[tree]) | inner).all()), "leaves are within the tree")
        used = np.where(inner, self.splits.numpy()[tree] + children, 0)[inner]
        ends = np.where(inner, 0, self.leaves.numpy()[tree] - 1 - children)[~inner]
        _expect(len(np.unique(used)) == len(used), "a split has one parent")
        _expect(len(np.unique(ends)) == len(ends), "a leaf has one parent")


NAMES = tuple(TreeArrays.__dataclass_fields__)


class Forest(nn.Module):
    """Trees that add up to several outputs; stored with a model, and empty until they are set.

    Args:
        owners: number of outputs.
        features: number of features; those of a row by itself come after the shared ones.

    Example:
        >>> forest = Forest(owners=1, features=3)
        >>> forest.set(arrays)
        >>> forest.predict(0, shared, own)  # (2, 100) from (100, 2) and (2, 100, 1)
    """

    def __init__(self, owners: int, features: int) -> None:
        super().__init__()
        self.owners, self.features = owners, features
        self.tables: list[_Tree] = []
        self.edges: dict[int, np.ndarray] = {}  # the thresholds of each feature
        for name, tensor in vars(no_trees()).items():
            self.register_buffer(name, tensor)
        self.register_load_state_dict_pre_hook(_make_room)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(_make_tables)  # type: ignore[no-untyped-call]

    @property
    def arrays(self) -> TreeArrays:
        """The stored trees."""
        return TreeArrays(**{name: getattr(self, name).cpu() for name in NAMES})

    def set(self, arrays: TreeArrays) -> None:
        """Replace all trees.

        Args:
            arrays: the new ones.

        Raises:
            ValueError: if they are not trees of these features.
        """
        arrays.check(self.owners, self.features)
        for name in NAMES:
            setattr(self, name, getattr(arrays, name))
        self.make_tables()

    def make_tables(self) -> None:
        """Derive from the stored arrays what `predict` reads."""
        arrays = {name: value.numpy() for name, value in vars(self.arrays).items()}
        feature, threshold = arrays["feature"], arrays["threshold"]
        self.edges = {int(f): np.unique(threshold[feature == f]) for f in np.unique(feature)}
        bounds = zip(arrays["splits"][:-1], arrays["splits"][1:], strict=True)
        firsts = arrays["leaves"][:-1], arrays["leaves"][1:]
        self.tables = [
            _Tree(
                int(owner),
                arrays["value"][first:last],
                _leaf_tables({name: arrays[name][a:b] for name in NAMES[3:8]}, self.edges),
            )
            for owner, (a, b), first, last in zip(arrays["owner"], bounds, *firsts, strict=True)
        ]

    def predict(
        self,
        owner: int,
        shared: Float[np.ndarray, "row shared"],
        own: Float[np.ndarray, "lead row own"],
        chunk: int = CHUNK_ROWS,
    ) -> Float64[np.ndarray, "lead row"]:
        """The sum of the trees of one output; NaN is a missing value.

        Args:
            owner: the output.
            shared: features that a row has at all leads.
            own: features that differ between the leads.
            chunk: rows that are computed together.
        """
        result = np.zeros(own.shape[:2])
        trees = [tree for tree in self.tables if tree.owner == owner]
        used = sorted({f for tree in trees for f, _ in tree.tables})
        for start in range(0, len(shared), chunk):
            rows = slice(start, start + chunk)
            split = shared.shape[1]
            bins = {
                f: _interval(
                    shared[rows, f] if f < split else own[:, rows, f - split], self.edges[f]
                )
                for f in used
            }
            for tree in trees:
                result[:, rows] += tree(bins, split)
        return result


@dataclass(frozen=True)
class _Tree:
    """One tree: the values of its leaves, and the leaves that each interval of a feature leaves."""

    owner: int
    value: Float64[np.ndarray, " leaf"]
    tables: list[tuple[int, np.ndarray]]

    def __call__(self, bins: Mapping[int, np.ndarray], shared: int) -> np.ndarray | np.float64:
        """Its values at all rows; `bins` of a shared feature have no axis of leads."""
        if not self.tables:
            return self.value[0]
        parts: dict[bool, np.ndarray] = {}
        for feature, table in self.tables:
            left = table.take(bins[feature])
            if (own := feature >= shared) in parts:
                np.bitwise_and(parts[own], left, out=parts[own])
            else:
                parts[own] = left
        bits = np.bitwise_and(parts[True], parts[False]) if len(parts) > 1 else parts.popitem()[1]
        exponent = bits.astype(np.float64).view(np.int64) >> 52  # exact: a single bit
        return self.value.take(exponent - 1023)


def _leaf_tables(
    tree: Mapping[str, np.ndarray], edges: Mapping[int, np.ndarray]
) -> list[tuple[int, np.ndarray]]:
    """For each feature that a tree uses: the bits of the leaves that each interval leaves.

    The intervals of a feature end at its thresholds, the last one has no end, and one more stands
    for missing values.
    """
    count = len(tree["feature"])
    below = np.zeros((count, 2), np.int64)  # the leaves under both children of each split
    for split in range(count - 1, -1, -1):  # children come after their parents
        for side, child in enumerate((tree["left"][split], tree["right"][split])):
            below[split, side] = below[child].sum() if child >= 0 else np.int64(1) << (-1 - child)
    every = below[0].sum() if count else np.int64(1)
    tables: dict[int, np.ndarray] = {}
    for split in range(count):
        feature = int(tree["feature"][split])
        edge = edges[feature]
        table = tables.setdefault(feature, np.full(len(edge) + 2, every))
        left = np.arange(len(edge) + 2) <= np.searchsorted(edge, tree["threshold"][split])
        left[-1] = tree["missing_left"][split]
        table &= ~np.where(left, below[split, 1], below[split, 0])
    return sorted(tables.items())


def _interval(
    x: Float[np.ndarray, "..."], edges: Float64[np.ndarray, " edge"]
) -> Int64[np.ndarray, "..."]:
    """The interval of each value: the number of thresholds below it; the last one if missing."""
    return np.where(np.isnan(x), len(edges) + 1, np.searchsorted(edges, x.astype(np.float64)))


def no_trees() -> TreeArrays:
    """The arrays of a forest without trees."""
    integers, numbers = torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.float64)
    bound, flags = torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.bool)
    return TreeArrays(
        integers, bound, bound.clone(), integers.clone(), numbers, flags, integers.clone(),
        integers.clone(), numbers.clone(),
    )  # fmt: skip


def tree_arrays(trees: list[tuple[int, Mapping[str, Any]]]) -> TreeArrays:
    """The arrays of trees as `lightgbm.Booster.dump_model` describes them.

    Args:
        trees: the output and the "tree_structure" of each.

    Raises:
        ValueError: if a split is not a comparison with a number.
    """
    lists: dict[str, list[Any]] = {name: [] for name in NAMES}
    lists["splits"], lists["leaves"] = [0], [0]
    for owner, root in trees:
        lists["owner"].append(owner)
        splits = len(lists["feature"])
        _add_tree(lists, root)
        lists["splits"].append(len(lists["feature"]))
        lists["leaves"].append(lists["leaves"][-1] + len(lists["feature"]) - splits + 1)
    like = vars(no_trees())
    return TreeArrays(**{n: torch.tensor(v, dtype=like[n].dtype) for n, v in lists.items()})


def _add_tree(lists: dict[str, list[Any]], root: Mapping[str, Any]) -> None:
    """Append a tree, its splits before their children and its leaves as they are met."""
    found = [root] if "left_child" in root else []
    leaves: list[Mapping[str, Any]] = []
    for node in found:  # grows
        if node["decision_type"] != "<=" or node["missing_type"] not in ("NaN", "None"):
            raise ValueError(f"expected a comparison with a number, got {node['decision_type']!r}")
        for side in ("left", "right"):
            child = node[f"{side}_child"]
            group, sign, first = (found, 1, 0) if "left_child" in child else (leaves, -1, -1)
            lists[side].append(first + sign * len(group))
            group.append(child)
        native = node["missing_type"] == "NaN"  # else lightgbm takes a missing value for 0
        lists["missing_left"].append(node["default_left"] if native else node["threshold"] >= 0)
        lists["feature"].append(node["split_feature"])
        lists["threshold"].append(node["threshold"])
    lists["value"] += [leaf["leaf_value"] for leaf in (leaves or [root])]


def _make_room(module: nn.Module, state: Mapping[str, Tensor], prefix: str, *_: object) -> None:
    """Before loading: check the trees of a state, and give the buffers their sizes."""
    assert isinstance(module, Forest)
    if not all(prefix + name in state for name in NAMES):
        return  # load_state_dict says what is missing
    stored, like = {name: state[prefix + name].cpu() for name in NAMES}, vars(no_trees())
    for name, tensor in stored.items():
        fits = tensor.dim() == 1 and tensor.dtype == like[name].dtype
        _expect(fits, f"'{name}' is one row of {like[name].dtype}")
    _expect(len(stored["splits"]) > 0 and len(stored["leaves"]) > 0, "ranges have a beginning")
    TreeArrays(**stored).check(module.owners, module.features)
    for name, tensor in stored.items():
        setattr(module, name, torch.empty_like(tensor, device=getattr(module, name).device))


def _make_tables(module: nn.Module, _: object) -> None:
    """After loading: the tables of the new trees."""
    assert isinstance(module, Forest)
    module.make_tables()


def _within(index: Int64[Tensor, " item"], count: int) -> bool:
    return not len(index) or bool(index.min() >= 0 and index.max() < count)


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"The stored trees are damaged: expected that {what}")
