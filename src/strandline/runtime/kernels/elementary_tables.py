"""Tables for `elementary.py`, computed with integers on first use, independent of any library."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np

from strandline.core import correct_rounding as nearest
from strandline.runtime.kernels.elementary import Doubles, Pair

_BITS: Final = 256
_STEPS: Final = 128


def in_parts(value: int, bits: int = 53) -> Pair:
    """A fixed-point number as the sum of two DOUBLEs, the first with the given number of bits."""
    spare = max(value.bit_length() - bits, 0)
    first = (value + (1 << spare >> 1)) >> spare << spare
    return nearest.to_double(first, -_BITS), nearest.to_double(value - first, -_BITS)


@cache
def powers() -> Doubles:
    """2**n at n + 1074, for all DOUBLEs that are such powers."""
    return np.array([nearest.to_double(1, n) for n in range(-1074, 1024)])


@cache
def exponentials() -> Doubles:
    """2**(j / 128), the first part of 26 bits."""
    step = nearest.ln2(_BITS) // _STEPS
    return np.array([in_parts(nearest.exp_fixed(j * step, _BITS)[0], 26) for j in range(_STEPS)])


@cache
def logarithms() -> Doubles:
    """c with few bits, near 1 / x, and -ln c, the first part a multiple of 2**-42.

    By the first eight bits of x after the point; from sqrt(2) on for x / 2. Next to 1 it is 1: there ln x is small, and
    must not be a difference.
    """
    rows = []
    for index in range(256):
        middle = Fraction(2 * index + 513, 512)
        if index >= 106:
            middle /= 2
        c = Fraction(1) if index in (0, 255) else Fraction(round(1024 / middle), 1024)
        logarithm = 0 if c == 1 else -nearest.ln_fixed(c, _BITS)
        unit = _BITS - 42
        first = (logarithm + (1 << unit >> 1)) >> unit << unit
        rows.append((float(c), nearest.to_double(first, -_BITS), nearest.to_double(logarithm - first, -_BITS)))
    return np.array(rows)


@cache
def logarithm_factors() -> dict[int, Pair]:
    """1 / ln n: factors from the natural logarithm to this base."""
    return {n: in_parts((1 << 2 * _BITS) // nearest.ln_fixed(float(n), _BITS)) for n in (2, 10)}


@cache
def cube_roots() -> Doubles:
    """Guesses of the cube roots of x, 2x and 4x, by the first six bits of x after the point."""
    return np.array([[nearest.cbrt(factor * (1.0 + (j + 0.5) / 64)) for factor in (1, 2, 4)] for j in range(64)])


@cache
def sines() -> Doubles:
    """sin(j / 128) and cos(j / 128), their first parts of 26 bits."""
    both = (nearest.sin_cos_fixed(Fraction(j, _STEPS), _BITS) for j in range(104))
    return np.array([(*in_parts(sine, 26), *in_parts(cosine, 26)) for sine, cosine in both])


@cache
def angles() -> Doubles:
    """atan(j / 128)."""
    return np.array([in_parts(nearest.atan_fixed((j << _BITS) // _STEPS, _BITS)) for j in range(_STEPS + 1)])


@cache
def turns() -> Doubles:
    """2**n in quarter turns, modulo 4, at n + 32: five parts of 26 bits."""
    quarters = (2 << 1400 + 1200) // nearest.pi(1400)  # 2 / π with 1200 bits
    rows = []
    for n in range(-32, 1024 - 25):
        remainder = (quarters << n if n >= 0 else quarters >> -n) % (4 << 1200) >> (1200 - 128)
        rows.append([nearest.to_double((remainder >> 26 * k) % (1 << 26), 26 * k - 128) for k in reversed(range(5))])
    return np.array(rows)
