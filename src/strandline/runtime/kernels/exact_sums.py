"""Exact, invertible sums.

A sliding sum adds elements as they enter and subtracts them as they leave. With plain doubles the rounding errors would
accumulate and depend on how the input was cut. So every number is written in base 2^32 with int64 digits ("limbs"):
adding and subtracting limbs is exact and order does not matter, and only the final value is rounded, once. The sum of a
DOUBLE column is therefore the correctly rounded true sum, whatever the batches and the parallelism were.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from strandline.runtime.kernels.compiled import compiled
from strandline.runtime.kernels.hashing import decimal_words

Limbs: TypeAlias = dict[str, npt.NDArray[np.int64]]  # position or special name -> one digit per row
Ints: TypeAlias = npt.NDArray[np.int64]

BITS = 32
_MASK = np.int64(2**32 - 1)
# 2^-BIAS is the value of limb 0. The smallest double is 2^-1074; its 53-bit mantissa reaches down to 2^-1126.
BIAS = 1152


def to_limbs(column: pl.Series) -> Limbs:
    """The limbs of each value of a numeric column; NULL counts as zero. Positions that no value uses are left out."""
    if column.dtype.is_float():
        return _double_limbs(column.fill_null(0.0).to_numpy())
    if isinstance(column.dtype, pl.Decimal):
        low, high = decimal_words(column)
        unsigned = low.view(np.uint64)
        return {
            "0": (unsigned & np.uint64(2**32 - 1)).astype(np.int64),
            "1": (unsigned >> np.uint64(32)).astype(np.int64),
            "2": high & _MASK,
            "3": high >> BITS,
        }
    values: Ints = column.cast(pl.Int64).fill_null(0).to_numpy()
    if column.dtype == pl.Int64:
        return {"0": values & _MASK, "1": values >> BITS}
    return {"0": values}


def _double_limbs(values: npt.NDArray[np.float64]) -> Limbs:
    limbs: Limbs = {}
    finite = np.isfinite(values)
    if not finite.all():
        limbs["nan"] = np.isnan(values).astype(np.int64)
        limbs["+inf"] = (values == np.inf).astype(np.int64)
        limbs["-inf"] = (values == -np.inf).astype(np.int64)
        values = np.where(finite, values, 0.0)
    position = (math.frexp(_largest_magnitude(values))[1] - 1 + BIAS) // BITS
    shift = BIAS - BITS * position
    if shift > -1000 and shift + BITS < 1000:
        # Mostly two positions are enough, and both are cut off in one pass.
        high, low, values = _cut_digits(
            values, *(math.ldexp(1.0, s) for s in (shift, -shift, shift + BITS, -shift - BITS))
        )
        limbs.update({str(p): digits for p, digits in ((position, high), (position - 1, low)) if digits.any()})
        position -= 2
    while values.any():
        # Cut off the part of this position, then continue with the rest; all of it is exact.
        shift = BIAS - BITS * position
        digit = np.trunc(_scaled(values, shift))
        if digit.any():
            limbs[str(position)] = digit.astype(np.int64)
            values = values - _scaled(digit, -shift)
        position -= 1
    return limbs


@compiled("f8(f8[::1])")
def _largest_magnitude(values: npt.NDArray[np.float64]) -> float:
    largest = 0.0
    for value in values:
        largest = max(largest, abs(value))
    return largest


@compiled("Tuple((i8[::1], i8[::1], f8[::1]))(f8[::1], f8, f8, f8, f8)")
def _cut_digits(
    values: npt.NDArray[np.float64], to_high: float, from_high: float, to_low: float, from_low: float
) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
    """The digits of values at two positions, given the powers of two that make a value of them and back; and what is
    left of each value, or no values if nothing is left of any. All of it is exact.

    Compiled: array functions would pass through the memory of all values four times for each position.
    """
    high, low = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    is_rest = False
    for row in range(len(values)):
        digit = np.trunc(values[row] * to_high)
        rest = values[row] - digit * from_high
        lower = np.trunc(rest * to_low)
        high[row], low[row] = np.int64(digit), np.int64(lower)
        is_rest |= rest - lower * from_low != 0.0
    if not is_rest:
        return high, low, np.empty(0, np.float64)
    rests = np.empty(len(values), np.float64)
    for row in range(len(values)):
        rests[row] = values[row] - high[row] * from_high - low[row] * from_low
    return high, low, rests


def _scaled(values: npt.NDArray[np.float64], exponent: int) -> npt.NDArray[np.float64]:
    """The values times a power of two."""
    return values * math.ldexp(1.0, exponent) if abs(exponent) < 1000 else np.ldexp(values, exponent)


def from_limbs(limbs: Limbs, dtype: pl.DataType, rows: int) -> pl.Series:
    """The sums as numbers of the result type: Int64, Decimal or Float64."""
    if dtype == pl.Float64:
        return pl.Series(doubles(limbs, rows))
    if dtype == pl.Int64:
        return pl.Series(limbs["0"] if limbs else np.zeros(rows, dtype=np.int64))
    assert isinstance(dtype, pl.Decimal), f"sums are BIGINT, DECIMAL or DOUBLE, not {dtype}"
    digits = _whole_digits(limbs, rows)
    carry(digits)
    fits = _fits_decimal(digits)
    words = np.empty(2 * rows, dtype=np.int64)
    words[0::2], words[1::2] = (digits[1] << BITS) | digits[0], (digits[3] << BITS) | digits[2]
    array = pa.Array.from_buffers(pa.decimal128(38, dtype.scale), rows, [None, pa.py_buffer(words)])
    series = pl.from_arrow(array)
    assert isinstance(series, pl.Series)
    return series.cast(dtype) if fits.all() else pl.select(pl.when(pl.Series(fits)).then(series)).to_series()


def means(limbs: Limbs, counts: Ints, source: pl.DataType, rows: int) -> npt.NDArray[np.float64]:
    """The averages (NaN where the count is 0): the sum of doubles over the count; of exact numbers, rounded once."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if source.is_float():
            return doubles(limbs, rows) / counts
        zero = np.zeros(rows, dtype=np.int64)
        digits, negative = magnitude([*_whole_digits(limbs, rows), zero, zero])
        scale = source.scale if isinstance(source, pl.Decimal) else 0
        low = (digits[1] << BITS) | digits[0]
        divisor = counts * float(10**scale)
        # Both numbers are doubles without rounding, so the one rounding is that of the quotient.
        result = low / divisor
        easy = np.logical_and.reduce([d == 0 for d in digits[2:]]) & (low < 2**53) & (low >= 0)
        easy &= divisor < 2.0**53
        hard = np.flatnonzero(~easy & (counts > 0))
        if len(hard):
            result[hard] = _quotients([d[hard] for d in digits], counts[hard], scale)
        return np.where(negative, -result, result)


def _quotients(digits: list[Ints], counts: Ints, scale: int) -> npt.NDArray[np.float64]:
    """Nonnegative, carried digits over counts and a power of ten, rounded to doubles: long division, digit by digit."""
    zero = np.zeros(len(counts), dtype=np.uint64)
    # Each divisor is below 2^32: with two digits more than there are divisors, 64 bits of the quotient are known.
    powers = [np.array(10 ** min(9, scale - k), dtype=np.uint64) for k in range(0, scale, 9)]
    divisors: list[npt.NDArray[np.uint64]] = [counts.astype(np.uint64), *powers]
    more = len(divisors) + 2
    used = max((k + 1 for k, digit in enumerate(digits) if digit.any()), default=0)
    quotient = [zero] * more + [digit.view(np.uint64) for digit in digits[:used]]
    inexact = np.zeros(len(counts), dtype=np.bool_)
    for divisor in divisors:
        remainder = zero
        for k in reversed(range(len(quotient))):
            part = (remainder << np.uint64(BITS)) | quotient[k]
            quotient[k] = part // divisor
            remainder = part - quotient[k] * divisor
        inexact |= remainder != 0
    quotient[0] = quotient[0] | inexact.astype(np.uint64)
    return _round([q.view(np.int64) for q in quotient], BIAS // BITS - more)


def _whole_digits(limbs: Limbs, rows: int) -> list[Ints]:
    """The four digits of sums of whole numbers, not carried; the highest has the sign and the overflow."""
    return [limbs.get(str(k), np.zeros(rows, dtype=np.int64)) for k in range(4)]


def _fits_decimal(digits: list[Ints]) -> npt.NDArray[np.bool_]:
    """Mask of carried digits that make a number of at most 38 decimal digits."""
    fits = np.abs(digits[3]) < 10**38 >> 96
    for row in np.flatnonzero(~fits):  # few are that close to the end, if any
        fits[row] = abs(sum(int(digit[row]) << (BITS * k) for k, digit in enumerate(digits))) < 10**38
    return fits


def magnitude(digits: list[Ints]) -> tuple[list[Ints], npt.NDArray[np.bool_]]:
    """The carried digits of the absolute values, and which of them were negative."""
    digits = list(digits)
    carry(digits)
    negative = digits[-1] < 0
    if negative.any():
        digits = [np.where(negative, -d, d) for d in digits]
        carry(digits)
    return digits, negative


def carry(digits: list[Ints]) -> None:
    """Bring all digits but the highest into 0 … 2^32-1, in place; the highest keeps the sign."""
    for k in range(len(digits) - 1):
        digits[k + 1] = digits[k + 1] + (digits[k] >> BITS)
        digits[k] = digits[k] & _MASK


def gapless(limbs: Limbs, rows: int) -> tuple[list[Ints], int]:
    """The digits from the lowest position to the highest, and the lowest; at least one."""
    positions = sorted(int(name) for name in limbs if name.isdigit()) or [BIAS // BITS]
    zero = np.zeros(rows, dtype=np.int64)
    return [limbs.get(str(p), zero) for p in range(positions[0], positions[-1] + 1)], positions[0]


def doubles(limbs: Limbs, rows: int) -> npt.NDArray[np.float64]:
    """The nearest double to each exact sum, ties to even."""
    digits, lowest = gapless(limbs, rows)
    with np.errstate(over="ignore"):  # a sum beyond all doubles is infinite
        short = _round_by_adding(digits, lowest)
        result = _round_by_bits(digits, lowest) if short is None else short
    if "nan" in limbs:
        up, down = limbs["+inf"] > 0, limbs["-inf"] > 0
        result = np.where(up, np.inf, np.where(down, -np.inf, result))
        result = np.where((limbs["nan"] > 0) | (up & down), np.nan, result)
    return result


def _round_by_adding(digits: list[Ints], lowest: int) -> npt.NDArray[np.float64] | None:
    """The sums, if they are small enough for a single addition of doubles to do all the rounding; else nothing.

    Two numbers that are doubles without rounding are added with one rounding, the right one.
    """
    shift = BITS * lowest - BIAS
    if len(digits) > 3 or not -960 < shift < 900:
        return None
    if len(digits) == 1:
        return _scaled(digits[0].astype(np.float64), shift)
    above = digits[2] if len(digits) == 3 else np.zeros(0, np.int64)
    sums = _add_digits(digits[0], digits[1], above, math.ldexp(1.0, shift))
    return sums if len(sums) == len(digits[0]) else None


@compiled("f8[::1](i8[::1], i8[::1], i8[::1], f8)")
def _add_digits(low: Ints, middle: Ints, high: Ints, scale: float) -> npt.NDArray[np.float64]:
    """Numbers of two or three digits times a power of two, rounded once; nothing if one of them is too large.

    Compiled: array functions would pass through memory ten times.
    """
    sums = np.empty(len(low), np.float64)
    for row in range(len(low)):
        upper = middle[row]
        if len(high):
            upper = high[row] + (upper >> 32)
            if upper >= 2**21 or upper <= -(2**21):
                return sums[:0]
            upper = (upper << 32) | (middle[row] & (2**32 - 1))
        if max(upper, low[row]) >= 2**53 or min(upper, low[row]) <= -(2**53):
            return sums[:0]
        sums[row] = (np.float64(upper) * 2.0**32 + np.float64(low[row])) * scale
    return sums


def _round_by_bits(digits: list[Ints], lowest: int) -> npt.NDArray[np.float64]:
    """The nearest doubles to sums of any size."""
    zero = np.zeros(len(digits[0]), dtype=np.int64)
    # One more digit on top takes the last carry and the sign.
    digits, negative = magnitude([*digits, zero])
    while len(digits) > 1 and not digits[-1].any():
        digits.pop()
    result = _round_short(digits, lowest) if len(digits) <= 4 else _round([zero, zero, *digits], lowest - 2)
    return np.where(negative, -result, result)


def _round_short(digits: list[Ints], lowest: int) -> npt.NDArray[np.float64]:
    """The same for at most four digits, 128 bits: enough for sums of numbers of like magnitude."""
    zero = np.zeros(len(digits[0]), dtype=np.int64)
    fourth, third, second, first = (d.view(np.uint64) for d in digits + [zero] * (4 - len(digits)))
    low = (third << np.uint64(32)) | fourth
    high = (first << np.uint64(32)) | second
    # Rounding may make the count of leading zeros one too small, never too large: 63 bits are still plenty.
    lead = np.clip(64 - np.frexp(high.astype(np.float64))[1], 0, 63).astype(np.uint64)
    bits = (high << lead) | np.where(lead > 0, low >> (np.uint64(64) - np.maximum(lead, np.uint64(1))), np.uint64(0))
    bits |= ((low << lead) != 0).astype(np.uint64)
    exponent = (lowest + 2) * BITS - lead.astype(np.int64) - BIAS
    only_low = high == 0
    bits = np.where(only_low, low, bits)
    exponent = np.where(only_low, lowest * BITS - BIAS, exponent)
    rounded: npt.NDArray[np.float64] = np.ldexp(bits.astype(np.float64), exponent.astype(np.int32))
    return rounded


def _round(digits: list[Ints], lowest: int) -> npt.NDArray[np.float64]:
    """Round nonnegative, carried digits to doubles: the top 64 bits decide, a sticky bit represents the rest."""
    stack = np.stack(digits)
    count, rows = stack.shape
    used = stack != 0
    top = np.where(used.any(axis=0), count - 1 - np.argmax(used[::-1], axis=0), 2)
    top = np.maximum(top, 2)
    at = np.arange(rows)
    first, second, third = (stack[top - k, at].view(np.uint64) for k in range(3))
    below = np.cumsum(used, axis=0)
    sticky = below[np.maximum(top - 3, 0), at] > 0
    sticky &= top >= 3
    lead = np.uint64(32) - np.frexp(first.astype(np.float64))[1].astype(np.uint64)
    lead = np.minimum(lead, np.uint64(32))
    bits = (((first << np.uint64(32)) | second) << lead) | (third >> (np.uint64(32) - lead))
    dropped_bits = (third << lead) & np.uint64(2**32 - 1)
    sticky |= dropped_bits != 0
    bits |= sticky.astype(np.uint64)
    exponent = (top + lowest - 1) * BITS - lead.astype(np.int64) - BIAS
    rounded: npt.NDArray[np.float64] = np.ldexp(bits.astype(np.float64), exponent.astype(np.int32))
    return rounded
