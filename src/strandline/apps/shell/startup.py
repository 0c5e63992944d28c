"""The engine, coming up behind the prompt: first our own modules, then Java, then Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strandline.apps.shell.ending import Ending
from strandline.core.errors import SetupError, StrandlineError

if TYPE_CHECKING:
    from strandline.apps.shell.session import Session
    from strandline.database.database import Database, EngineName


class Startup:
    """Two gates: `loaded`, when statements can be parsed, and `ready`, when queries can run.

    The user types meanwhile. Only input that needs a gate waits for it, and shows the `phase`. The options are those of
    `strandline.connect`.
    """

    def __init__(self, engine: EngineName = "spark", **options: Any) -> None:
        self.engine_name = engine
        self._options = options
        self.phase = "loading"
        self.loaded = threading.Event()
        self.ready = threading.Event()
        self.awaited = threading.Event()  # a caller waits for the engine, or has
        self.changed: Callable[[], None] = lambda: None
        self.ending = Ending()
        self._session: Session | None = None
        self._error: StrandlineError | None = None
        self._thread = threading.Thread(target=self._work, name="strandline-startup", daemon=True)

    def begin(self) -> None:
        if not self._thread.is_alive() and not self.loaded.is_set():
            self._thread.start()

    def session(self) -> Session:
        """The session, once its modules are there."""
        self.loaded.wait()
        if self._session is None:
            raise self._error or SetupError("cannot start the shell", code="internal")
        return self._session

    def engine(self) -> None:
        """Return when queries can run; raise why they cannot. A Spark that was lost is started again."""
        self.awaited.set()
        self.ready.wait()
        if self._error is not None:
            raise self._error
        if self._session is not None and (lost := self._session.database.engine_lost) is not None:
            self._restart(self._session.database, lost)

    def _restart(self, database: Database, lost: StrandlineError) -> None:
        self.ready.clear()
        self._note(f"{lost.message}; starting Spark again")
        try:
            database.warm(lambda phase: self._note(f"Spark was lost; {phase}"))
        finally:
            self.phase = "ready"
            self.ready.set()
            self.changed()

    @property
    def failed(self) -> bool:
        return self._error is not None

    def _work(self) -> None:
        try:
            self._load()
            assert self._session is not None
            self._session.database.warm(self._note)
        except StrandlineError as error:
            self._error = error
        except Exception as error:
            self._error = SetupError(f"{type(error).__name__}: {error}", code="internal")
        self.phase = "failed" if self.failed else "ready"
        self.loaded.set()
        self.ready.set()
        self.changed()

    def _load(self) -> None:
        import strandline
        from strandline.apps.shell.session import Session

        self._session = Session(strandline.connect(engine=self.engine_name, **self._options), self)
        self.loaded.set()
        self.changed()

    def _note(self, phase: str) -> None:
        self.phase = phase
        self.changed()
