"""Loops that no array function expresses, compiled to machine code by Numba when first needed.

Only for recurrences, where a step depends on the one before, and for arithmetic that would pass through memory many
times. Numba takes half a second to import and some seconds to compile. So it is imported by the first call, the machine
code is cached on disk beside the source or in the user's cache directory, and workers are forked from a process that
has loaded it (`load_all`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_ALL: Final[list[Compiled[..., Any]]] = []
_HELPERS: Final[list[Callable[..., Any]]] = []
_LOCK: Final = threading.Lock()
_loading = 0.0  # seconds of CPU that were spent on having machine code


class Compiled(Generic[_Parameters, _Result]):
    """A function that is compiled for one signature."""

    def __init__(
        self, function: Callable[_Parameters, _Result], signature: str, on_demand: bool, writes: tuple[int, ...]
    ) -> None:
        self.function, self.signature, self.on_demand, self.writes = function, signature, on_demand, writes
        self.__doc__ = function.__doc__
        self._machine_code: Callable[_Parameters, _Result] | None = None
        _ALL.append(self)

    def __call__(self, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        code = self._machine_code
        return (self.load() if code is None else code)(*args, **kwargs)

    def load(self) -> Callable[_Parameters, _Result]:
        """The machine code: from disk, or made now."""
        global _loading
        began = time.process_time()
        import numba
        from numba.core.sigutils import normalize_signature
        from numba.extending import register_jitable

        with _LOCK:
            while _HELPERS:
                register_jitable(_HELPERS.pop())
            if self._machine_code is None:
                arguments, result = normalize_signature(self.signature)  # type: ignore[no-untyped-call]
                # Arrays that point into a Polars column cannot be written to; only those of `writes` are.
                arguments = [
                    a.copy(readonly=True) if isinstance(a, numba.types.Array) and number not in self.writes else a
                    for number, a in enumerate(arguments)
                ]
                signature = result(*arguments)
                try:
                    self._machine_code = numba.njit(signature, cache=True, nogil=True)(self.function)
                except RuntimeError:  # nowhere to keep it, as in a read-only home: it is made in every process
                    self._machine_code = numba.njit(signature, nogil=True)(self.function)
                _loading += time.process_time() - began
            return self._machine_code


def compiled(
    signature: str, on_demand: bool = False, writes: tuple[int, ...] = ()
) -> Callable[[Callable[_Parameters, _Result]], Compiled[_Parameters, _Result]]:
    """Compile the function for these types, when it is first called; `on_demand` if few queries need it. It changes the
    arrays among its arguments whose numbers are in `writes`, and no others."""
    return lambda function: Compiled(function, signature, on_demand, writes)


def inlined(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Let compiled functions of the same file call this one.

    Of another file they must not: machine code on disk is recompiled when the file of the calling function changes.
    """
    _HELPERS.append(function)
    return function


def cpu_seconds() -> float:
    """CPU time of this process, without the loading of machine code."""
    return time.process_time() - _loading


def load_all() -> None:
    """Load the machine code that most queries need, so that forked processes start with it."""
    for function in _ALL:
        if not function.on_demand:
            function.load()
