"""Plays acts on environments: many sessions at once, each act with a deadline.

Invariants: acts of one session are played in the order in which they came, and a branch after what its source was told before it; an
act's clock starts when its work starts; an act that overruns is answered as timed out at once, its session is lost, and its thread is
waited for by nobody; answers come in the order of the acts; threads live as long as the host, so that processes which an environment
starts do not end with one; a quick environment is played in the caller's thread.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from gfcr.context import Build
from gfcr.environments.acts import Act, Acted, Branch, Reset
from gfcr.environments.contract import METHODS, Environment
from gfcr.environments.sessions import Kept, Make, Session, awaited, ends, inline, kept_of, let_go, perform
from gfcr.environments.settings import HostSettings
from gfcr.errors import ConfigError
from gfcr.registry import FrozenModel, Method
from gfcr.types import Task

MOST_STUCK = 64
"""Threads that may hang in acts which overran; one more, and the host takes no further acts."""


class Done(Future[Acted]):
    """An outcome that is there already, without a future's locks: quick environments have one per turn."""

    def __init__(self, acted: Acted) -> None:
        self._acted = acted

    def result(self, timeout: float | None = None) -> Acted:
        return self._acted

    def exception(self, timeout: float | None = None) -> None:
        return None

    def done(self) -> bool:
        return True

    def add_done_callback(self, fn: Callable[[Future[Acted]], object]) -> None:
        fn(self)


@dataclass(frozen=True, slots=True, eq=False)
class _End:
    """Close what a session that is over has left."""

    session: str = ""


@dataclass(slots=True, eq=False)
class _Job:
    act: Act | _End
    future: Future[Acted]
    origin: Kept | None = None
    waits: bool = False
    """For its source, which is told something else before."""
    then: list[tuple[_Line, _Job]] = field(default_factory=list)
    """Branches that wait for it."""
    due: float = 0.0
    given_up: bool = False
    cancel: Callable[[], Any] | None = None


@dataclass(slots=True, eq=False)
class _Line:
    """A session and what it was told and has not answered; the first is at work or ready or waits."""

    session: Session
    jobs: deque[_Job] = field(default_factory=deque)


class Host:
    """Environments by session."""

    def __init__(self, make: Make, seconds: float = 60.0, workers: int = 8) -> None:
        """`make`: a new environment, light (what takes time belongs into its `reset`); with a `close` of its own, which is called last."""
        self._maker, self.seconds, self.workers = make, seconds, workers
        self._spare: Environment | None = make()
        self.quick = bool(getattr(self._spare, "quick", False))
        """Whether acts are played at once, in the caller's thread and without a deadline."""
        self._lock = threading.RLock()
        self._work, self._clock = threading.Condition(self._lock), threading.Condition(self._lock)
        self._lines: dict[str, _Line] = {}
        self._ready: deque[_Line] = deque()
        self._begun: deque[tuple[_Line, _Job]] = deque()
        self._running = self._stuck = self._threads = self._idle = 0
        self._shut, self._over = "", False
        self._event_loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def of(cls, method: Method, settings: FrozenModel, build: Build, host: HostSettings | None = None) -> Host:
        """The host of a method of Slot.ENVIRONMENT. Its class is the environment, built as `cls(settings, build)` per session; where
        sessions share something (processes, a cache) it has a classmethod `maker(settings, build)`, which is asked once. Raises
        ConfigError for what cannot work."""
        assert method.cls is not None
        kind: Any = method.cls
        needed = (
            ()
            if hasattr(kind, "maker")
            else (*METHODS, *(("snapshot", "restore") if getattr(kind, "snapshots", False) else ()))
        )
        if lacks := [name for name in needed if not hasattr(kind, name)]:
            raise ConfigError(
                f"generate.environment {method.name!r}: the class {kind.__name__} has no {', '.join(lacks)}",
                "write them, or inherit gfcr.environments.contract.Simple, which has what most can leave out",
            )
        maker = kind.maker(settings, build) if hasattr(kind, "maker") else lambda: kind(settings, build)
        host = host or HostSettings()
        return cls(maker, host.seconds, host.workers)

    def __len__(self) -> int:
        """Sessions held."""
        return len(self._lines)

    def tools(self, task: Task) -> tuple[str, ...]:
        """JSON schemas of the tools that are offered for a task."""
        env = self._make()
        try:
            return tuple(inline(env.tools(task)))
        finally:
            let_go(env, inline)

    def run(self, acts: Sequence[Act]) -> list[Acted]:
        """Play them all; answers in their order."""
        if self.quick:
            with self._lock:
                return [self._inline(act) for act in acts]
        return [future.result() for future in [self._submit(act) for act in acts]]

    def start(self, act: Act) -> Future[Acted]:
        """Begin an act; its outcome comes by itself and is never an exception."""
        if not self.quick:
            return self._submit(act)
        with self._lock:
            return Done(self._inline(act))

    def end(self, session: str) -> None:
        """End a session without asking it anything; one that does not exist is none the worse."""
        with self._lock:
            line = self._lines.pop(session, None)
            if line is None:
                return
            if self.quick:
                let_go(line.session.env, inline)
                return
            at_work = 1 if line.jobs and line.jobs[0].due else 0
            waiting = list(line.jobs)[at_work:]
            while len(line.jobs) > at_work:
                line.jobs.pop()
            self._add(line, _Job(_End(), Future()))
            for job in waiting:
                self._settle_branches(line, job)
                job.future.set_result(Acted(error="environment_lost: the session was ended"))

    def close(self) -> None:
        """End every session, for as long as one act may take; then nothing of it is waited for. May be called twice."""
        with self._lock:
            if self._over:
                return
            self._shut = "environment_lost: the host is closed"
            for name in list(self._lines):
                self.end(name)
            until = monotonic() + self.seconds
            while (self._running or self._ready) and (left := until - monotonic()) > 0:
                self._work.wait(left)
            self._over = True
            for line, job in list(self._begun):
                if not job.future.done():
                    self._give_up(line, job)
            self._work.notify_all()
            self._clock.notify_all()
            if self._event_loop is not None:
                self._event_loop.call_soon_threadsafe(self._event_loop.stop)
            spare, self._spare = self._spare, None
        let_go(spare, inline)
        if not isinstance(self._maker, type) and (close := getattr(self._maker, "close", None)) is not None:
            close()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Quick ones

    def _inline(self, act: Act) -> Acted:
        line = self._lines.get(act.session)
        if line is None:
            if self._shut or not isinstance(act, (Reset, Branch)):
                return Acted(error=self._shut or f"environment_lost: there is no session {act.session!r}")
            line = self._lines[act.session] = _Line(Session(act.session))
        origin = self._kept(act.source) if isinstance(act, Branch) else None
        acted = perform(line.session, act, self._make, inline, origin)
        if ends(act) or line.session.task is None:
            del self._lines[act.session]
            let_go(line.session.env, inline)
        return acted

    # Others: what follows is called with the lock held

    def _submit(self, act: Act) -> Future[Acted]:
        job = _Job(act, Future())
        job.future.set_running_or_notify_cancel()
        with self._lock:
            line = self._lines.get(act.session)
            if self._shut or (line is None and not isinstance(act, (Reset, Branch))):
                job.future.set_result(Acted(error=self._shut or f"environment_lost: there is no session {act.session!r}"))
                return job.future
            if isinstance(act, Branch) and act.source != act.session:
                source = self._lines.get(act.source)
                if source is not None and source.jobs:
                    job.waits = True
                else:
                    job.origin = self._kept(act.source)
            if line is None:
                line = self._lines[act.session] = _Line(Session(act.session))
            if job.waits:
                self._lines[act.source].jobs[-1].then.append((line, job))  # type: ignore[union-attr]
            self._add(line, job)
        return job.future

    def _add(self, line: _Line, job: _Job) -> None:
        line.jobs.append(job)
        if len(line.jobs) == 1 and not job.waits:
            self._call(line)

    def _call(self, line: _Line) -> None:
        """The first job of a line can be played."""
        if self._shut and not isinstance(line.jobs[0].act, _End):
            self._answer(line, line.jobs[0], Acted(error=self._shut))
            return
        self._ready.append(line)
        self._hire()

    def _hire(self) -> None:
        """One more thread, where there is work for it."""
        if len(self._ready) > self._idle and self._threads - self._stuck < self.workers and not self._over:
            self._threads += 1
            threading.Thread(target=self._serve, name="gfcr environments", daemon=True).start()
            if self._threads == 1:
                threading.Thread(target=self._watch, name="gfcr environments' clock", daemon=True).start()
        self._work.notify_all()

    def _answer(self, line: _Line, job: _Job, acted: Acted) -> None:
        """The first job of a line is over."""
        line.jobs.popleft()
        if not isinstance(job.act, _End) and ends(job.act):
            over = _Line(line.session)
            line.session = Session(over.session.name)
            if not line.jobs and self._lines.get(over.session.name) is line:
                del self._lines[over.session.name]
            if over.session.env is not None:
                self._add(over, _Job(_End(), Future()))
        self._settle_branches(line, job)  # one that was told after the end of its source finds nothing
        if not line.jobs and line.session.task is None and self._lines.get(line.session.name) is line:
            del self._lines[line.session.name]  # an act on what has not begun
        if line.jobs and not line.jobs[0].waits:
            self._call(line)
        job.future.set_result(acted)

    def _settle_branches(self, line: _Line, job: _Job) -> None:
        """What waited for this job of its source takes what is kept now."""
        for waiting, branch in job.then:
            branch.waits, branch.origin = False, kept_of(line.session)
            if waiting.jobs and waiting.jobs[0] is branch:
                self._call(waiting)

    def _kept(self, source: str) -> Kept | None:
        line = self._lines.get(source)
        return None if line is None else kept_of(line.session)

    def _make(self) -> Environment:
        with self._lock:
            spare, self._spare = self._spare, None
        return self._maker() if spare is None else spare

    # Threads

    def _serve(self) -> None:
        while True:
            with self._lock:
                while not self._over and not (self._ready and self._running < self.workers):
                    self._idle += 1
                    self._work.wait()
                    self._idle -= 1
                if self._over:
                    return
                line = self._ready.popleft()
                if not line.jobs or line.jobs[0].due:  # it was ended meanwhile
                    continue
                job, session = line.jobs[0], line.session
                if self._shut and not isinstance(job.act, _End):
                    self._answer(line, job, Acted(error=self._shut))
                    continue
                self._running += 1
                job.due = monotonic() + self.seconds
                self._begun.append((line, job))
                self._clock.notify()
                if isinstance(job.act, Branch) and job.act.source == job.act.session:
                    job.origin = kept_of(session)
            acted = self._play(session, job)
            with self._lock:
                late = job.given_up
                if late:
                    self._stuck -= 1
                else:
                    self._running -= 1
                    self._answer(line, job, acted)
                    self._work.notify_all()
            if late:
                let_go(session.env, self._settled(job))

    def _play(self, session: Session, job: _Job) -> Acted:
        if not isinstance(job.act, _End):
            try:
                return perform(session, job.act, self._make, self._settled(job), job.origin)
            except (
                BaseException
            ) as error:  # KeyboardInterrupt out of an environment's mouth: nobody pressed a key in this thread
                env, session.env, session.lost = session.env, None, "environment_raised"
                let_go(env, self._settled(job))
                return Acted(error=f"environment_raised: {type(error).__name__}")
        let_go(session.env, self._settled(job))
        session.env = None
        return Acted()

    def _settled(self, job: _Job) -> Callable[[Any], Any]:
        def settle(value: Any) -> Any:
            if not inspect.isawaitable(value):
                return value
            coming = asyncio.run_coroutine_threadsafe(awaited(value), self._loop())
            job.cancel = coming.cancel
            if job.given_up:
                coming.cancel()
            found, error = coming.result()
            if error is not None:
                raise error
            return found

        return settle

    def _loop(self) -> asyncio.AbstractEventLoop:
        """The one event loop of all environments with coroutine methods."""
        with self._lock:
            if self._event_loop is None:
                self._event_loop = asyncio.new_event_loop()
                threading.Thread(target=self._event_loop.run_forever, name="gfcr environments' loop", daemon=True).start()
            return self._event_loop

    def _watch(self) -> None:
        """Give up what overruns. All acts have the same time, so the first that was begun is due first."""
        with self._lock:
            while not self._over:
                while self._begun and self._begun[0][1].future.done():
                    self._begun.popleft()
                if not self._begun:
                    self._clock.wait()
                elif (left := self._begun[0][1].due - monotonic()) > 0:
                    self._clock.wait(left)
                else:
                    self._give_up(*self._begun.popleft())

    def _give_up(self, line: _Line, job: _Job) -> None:
        job.given_up = True
        self._running -= 1
        self._stuck += 1
        if job.cancel is not None:
            job.cancel()
        line.session = line.session.losing("environment_time_out")
        self._answer(line, job, Acted(seconds=self.seconds, error=f"environment_time_out: no end within {self.seconds:g} s"))
        if self._stuck > MOST_STUCK and not self._shut:
            self._shut = f"environment_lost: more than {MOST_STUCK} acts that overran still hold their threads"
        self._hire()
