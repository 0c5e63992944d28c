"""Distribution of elements over shards: the physical property that exchanges establish."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Mode, Node


@dataclass(frozen=True, slots=True)
class HashPartitioned:
    """Hash-partitioned by some columns; each key is the set of columns known to equal it."""

    keys: tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Distributed over the shards in any way."""


@dataclass(frozen=True, slots=True)
class Single:
    """All elements in shard 0."""


PendingWindow: TypeAlias = tuple[int | None, int, int]  # range, slide and offset of a time window


@dataclass(frozen=True, slots=True)
class SourceOrdered:
    """Elements are where they were read, in order of arrival; a window and then granules may still be pending."""

    window: PendingWindow | None = None
    granule: int | None = None

    def applied(self, node: Node) -> Node:
        if self.window is not None:
            range_us, slide_us, offset_us = self.window
            node = physical.TimeWindow(range_us, slide_us, node, offset_us)
        return node if self.granule is None else physical.AlignTime(self.granule, node)


Distribution: TypeAlias = HashPartitioned | RoundRobin | Single | SourceOrdered


@dataclass(frozen=True, slots=True)
class LoweredPlan:
    """A physical subplan and where its elements lie."""

    node: Node
    where: Distribution


def matching_keys(where: Distribution, keys: tuple[str, ...]) -> tuple[int, ...] | None:
    """The keys that the elements are already hashed by, if by nothing else."""
    if not isinstance(where, HashPartitioned):
        return None
    fit = tuple(next((i for i, key in enumerate(keys) if key in columns), -1) for columns in where.keys)
    return fit if -1 not in fit else None


def partition_by(built: LoweredPlan, keys: tuple[str, ...]) -> LoweredPlan:
    """Elements with equal keys in one shard, by any subset of the keys."""
    if isinstance(built.where, Single) or matching_keys(built.where, keys) is not None:
        return built
    return partition_by_exactly(built, keys)


def partition_by_exactly(built: LoweredPlan, keys: tuple[str, ...]) -> LoweredPlan:
    fit = matching_keys(built.where, keys)
    if fit == tuple(range(len(keys))):
        return built
    return replace(exchange(built, "hash", keys), where=HashPartitioned(tuple(frozenset((key,)) for key in keys)))


def gather(built: LoweredPlan) -> LoweredPlan:
    return built if isinstance(built.where, Single) else replace(exchange(built, "one", ()), where=Single())


def exchange(built: LoweredPlan, mode: Mode, keys: tuple[str, ...]) -> LoweredPlan:
    node: Node = physical.Exchange(mode, keys, built.node)
    if isinstance(built.where, SourceOrdered):
        node = physical.Reorder(built.where.applied(node))
    return LoweredPlan(node, RoundRobin())
