"""Pickled jobs with user-defined functions: workers may be unable to import the driver's modules."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from strandline.core.errors import QueryError
from strandline.logical.udf import Definition


def packed(job: object, functions: Collection[Definition]) -> bytes:
    """The job as bytes that `pickle.loads` reads. A function that cannot be sent is named."""
    with contextlib.ExitStack() as stack:
        for module in {_module_of(body) for function in functions for body in function.bodies}:
            if module is not None and not _is_installed(module):
                cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
                stack.callback(cloudpickle.unregister_pickle_by_value, module)
        for function in functions:
            try:
                cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
            except Exception as error:
                raise QueryError(
                    f"{function.title} cannot be sent to Spark's workers: {error}",
                    code="function-not-portable",
                    hint="Use modules, constants and other functions, but no open files, locks or connections.",
                ) from None
        data: bytes = cloudpickle.dumps(job)  # type: ignore[no-untyped-call]
        return data


def _module_of(body: Callable[..., Any]) -> ModuleType | None:
    name = getattr(body, "__module__", None)
    # Functions of an interpreter or a script are pickled by value anyway.
    return None if name in (None, "__main__") else sys.modules.get(name)


def _is_installed(module: ModuleType) -> bool:
    """True if workers have the module, too: it is installed, and not a file beside the script."""
    file = getattr(module, "__file__", None)
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return file is None or any(Path(file).is_relative_to(directory) for directory in places)
