"""Which inputs of a join graph are connected, and by what.

An equality of two inputs is a hash key; another condition only filters pairs; without one, all pairs are results. No
estimate is worth making all pairs while an equality connects: it may be wrong by any factor, and the pairs are the
square of the rows. So orders are compared by their products first, and by cost among those with the fewest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from strandline.planner.joins.rates import Mask, Tree, joins_of, mask_of

# Of a plan: joins of parts that are connected otherwise; joins without any condition; joins without a key.
Products: TypeAlias = tuple[int, int, int]
NO_PRODUCTS: Products = (0, 0, 0)


@dataclass(frozen=True)
class Connections:
    """Edges of a join graph: the inputs that the two sides of each equality read, and those of every condition."""

    keys: tuple[tuple[Mask, Mask], ...] = ()
    conditions: tuple[Mask, ...] = ()
    _cache: dict[tuple[Mask, Mask], Products] = field(default_factory=dict, compare=False, repr=False)
    _components: dict[bool, list[Mask]] = field(default_factory=dict, compare=False, repr=False)

    def has_key(self, left: Mask, right: Mask) -> bool:
        """True if an equality compares a value of one side with one of the other."""
        return any(_within(one, left) and _within(two, right) for edge in self.keys for one, two in (edge, edge[::-1]))

    def has_condition(self, left: Mask, right: Mask) -> bool:
        """True if a condition reads both sides and nothing else."""
        return any(_within(read, left | right) and read & left and read & right for read in self.conditions)

    def products(self, left: Mask, right: Mask) -> Products:
        """What the join of two sets adds to the products of a plan."""
        if (left, right) not in self._cache:
            self._cache[left, right] = self._products(left, right)
        return self._cache[left, right]

    def _products(self, left: Mask, right: Mask) -> Products:
        if self.has_key(left, right):
            return NO_PRODUCTS
        has_condition = self.has_condition(left, right)
        whole = self._is_whole(left, True) and self._is_whole(right, True)
        if not has_condition:
            whole &= self._is_whole(left, False) and self._is_whole(right, False)
        return int(not whole), int(not has_condition), 1

    def products_of(self, tree: Tree) -> Products:
        return add_products(self.products(left, right) for left, right in joins_of(tree))

    def _is_whole(self, mask: Mask, by_key: bool) -> bool:
        """True if a set has each component as a whole or not at all."""
        if by_key not in self._components:
            pairs = [one | two for one, two in self.keys if one.bit_count() == two.bit_count() == 1]
            self._components[by_key] = _components(
                pairs if by_key else [*pairs, *(read for read in self.conditions if read.bit_count() == 2)]
            )
        return all(mask & component in (0, component) for component in self._components[by_key])

    def connected_tree(self, written: Tree) -> Tree:
        """The inputs in the order of the text as far as equalities, else conditions, connect them: for graphs with too
        many inputs to compare orders."""
        trees: list[Tree] = list(inputs_of(written))
        while len(trees) > 1:
            left, right = self._first_connected(trees)
            trees[left : left + 1] = [(trees[left], trees.pop(right))]
        return trees[0]

    def _first_connected(self, trees: list[Tree]) -> tuple[int, int]:
        pairs = [(left, right) for left in range(len(trees)) for right in range(left + 1, len(trees))]
        masks = [mask_of(tree) for tree in trees]
        for connects in (self.has_key, self.has_condition):
            for left, right in pairs:
                if connects(masks[left], masks[right]):
                    return left, right
        return pairs[0]


def add_products(products: Iterable[Products]) -> Products:
    total = NO_PRODUCTS
    for one in products:
        total = (total[0] + one[0], total[1] + one[1], total[2] + one[2])
    return total


def inputs_of(tree: Tree) -> Iterator[int]:
    """The inputs of a tree from left to right."""
    if isinstance(tree, int):
        yield tree
        return
    for side in tree:
        yield from inputs_of(side)


def _within(part: Mask, whole: Mask) -> bool:
    return part & ~whole == 0


def _components(pairs: Iterable[Mask]) -> list[Mask]:
    components: list[Mask] = []
    for pair in pairs:
        joined = pair
        for component in [component for component in components if component & pair]:
            components.remove(component)
            joined |= component
        components.append(joined)
    return components
