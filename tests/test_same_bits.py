"""Functions and aggregates of DOUBLEs have the same bits whatever the processor can do.

`same_bits.json` was computed once, on x86-64. A machine that computes something else fails here; so does one that does
when NumPy, Polars, Numba and the C library are told that the processor has no vectors and no fused multiplication.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

PROGRAM = Path(__file__).with_name("same_bits.py")

FILE = PROGRAM.with_suffix(".json")
KEPT: dict[str, dict[str, str]] = json.loads(FILE.read_text())

# Names that the C library knows on x86-64; elsewhere it takes no notice.
_WITHOUT = "AVX,AVX2,AVX512F,AVX512VL,AVX512DQ,AVX512BW,AVX512CD,FMA,FMA4,SSE4_1,SSE4_2,SSSE3,ERMS,BMI1,BMI2,LZCNT"
PLAIN = {
    "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in __cpu_dispatch__ if __cpu_features__.get(name)),
    "POLARS_DISABLE_AVX512": "1",
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_CPU_FEATURES": "",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=" + ",".join(f"-{name}" for name in _WITHOUT.split(",")),
}
# What must not matter either.
ELSEWHERE = {
    "PYTHONHASHSEED": "4711",
    "TZ": "Asia/Kathmandu",
    "LC_ALL": "C",
    "POLARS_MAX_THREADS": "1",
}


def computed(more: dict[str, str]) -> Any:
    environment = {**os.environ, **more, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize(
    "more",
    [pytest.param({}, marks=pytest.mark.slow), PLAIN, pytest.param(ELSEWHERE, marks=pytest.mark.slow)],
    ids=["as it is", "plain processor", "elsewhere"],
)
def test_the_same_bits(more: dict[str, str]) -> None:
    found = computed(more)
    assert {name: found[name] for name in KEPT} == KEPT
    if "NUMBA_CPU_NAME" in more:
        assert found["features"] == {"numpy": [], "numba": ["generic", ""]}, "the restrictions were heard"


if __name__ == "__main__":  # after a new function or a change of its meaning
    again = computed({})
    FILE.write_text(json.dumps({name: again[name] for name in ("scalars", "aggregates")}, indent=1) + "\n")
