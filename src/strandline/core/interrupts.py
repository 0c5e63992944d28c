"""Bounded waits for the end of threads and processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from strandline.core.log import DEBUG, ENGINE, log_event

Result = TypeVar("Result")

STOP_SECONDS: Final = 3.0
"""How long a stop waits for an uninterruptible call, such as a file system that hangs. Ctrl-C must end a run within 5
seconds, and the rest takes a second."""


def finishes_within(seconds: float, action: Callable[[], object]) -> bool:
    """Call `action` in a thread and wait for it; false if it takes longer. Its exception is logged."""
    done = threading.Event()

    def act() -> None:
        try:
            action()
        except Exception as error:
            log_event(ENGINE, DEBUG, "error ignored while stopping", type=type(error).__name__, message=error)
        finally:
            done.set()

    try:
        threading.Thread(target=act, name="strandline-stop", daemon=True).start()
    except RuntimeError:  # the interpreter is going down and starts no more threads
        act()
    return done.wait(seconds)


def call_interruptibly(call: Callable[[], Result], cancel: Callable[[], object]) -> Result:
    """Call native code that no signal interrupts. In the main thread it runs in another one, and an exception of a
    signal handler, such as KeyboardInterrupt, cancels it."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    results: list[Result] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    threading.Thread(target=work, name="strandline-call", daemon=True).start()
    try:
        while not done.wait(0.5):  # bounded: an unbounded wait may miss a signal
            pass
    except BaseException:
        cancel()
        done.wait(STOP_SECONDS)
        raise
    if failures:
        raise failures[0]
    return results[0]
