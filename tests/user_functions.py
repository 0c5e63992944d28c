"""Functions and aggregates such as users bring along: random queries call them like any other."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from strandline.core.types import BIGINT, DOUBLE, VARCHAR
from strandline.logical.catalog import Catalog
from strandline.logical.udf import Definition, UserAggregate, UserFunction


def halved(x: pa.Array) -> pa.Array:
    return pc.multiply(x, 0.5)


def initial(x: pa.Array) -> pa.Array:
    return pc.utf8_slice_codeunits(x, 0, 1)


def one_each(x: pa.Array) -> tuple[pa.Array, pa.Array]:
    return x, pa.array([1] * len(x), pa.int64())


def put_in(one: tuple[pa.Array, pa.Array], two: tuple[pa.Array, pa.Array]) -> tuple[pa.Array, pa.Array]:
    return pc.add(one[0], two[0]), pc.add(one[1], two[1])


def taken_out(one: tuple[pa.Array, pa.Array], two: tuple[pa.Array, pa.Array]) -> tuple[pa.Array, pa.Array]:
    return pc.subtract(one[0], two[0]), pc.subtract(one[1], two[1])


def told(state: tuple[pa.Array, pa.Array]) -> pa.Array:
    return pc.subtract(pc.multiply(state[0], pa.scalar(3, pa.int64())), state[1])


def followed(one: pa.Array, two: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(one, two, pa.scalar(">", one.type))


def itself(x: pa.Array) -> pa.Array:
    return x


DEFINITIONS: tuple[Definition, ...] = (
    UserFunction("halved", (DOUBLE,), DOUBLE, halved),
    UserFunction("initial", (VARCHAR,), VARCHAR, initial),
    UserAggregate("tally", (BIGINT,), BIGINT, one_each, put_in, told, inverse=taken_out),
    # Without an inverse: what stays is merged anew, in its order.
    UserAggregate("in_line", (VARCHAR,), VARCHAR, itself, followed, itself),
)
AGGREGATES = tuple(each.name for each in DEFINITIONS if isinstance(each, UserAggregate))
FUNCTIONS = tuple(each.name for each in DEFINITIONS if isinstance(each, UserFunction))


def bring(catalog: Catalog) -> None:
    for definition in DEFINITIONS:
        catalog.add_function(definition)
