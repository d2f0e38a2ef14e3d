"""Sessions of environments, played one act at a time, by whoever calls.

Invariants: nothing an environment does wrong is raised here: every act has an outcome, and what failed says `kind: words`; after a failure
the session is lost (its snapshots stay, so one can go back); a session ends with its snapshots, and what is not ended is ended by `close`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, cast

from gfcr.environments.acts import Act, Acted, Branch, Finish, Reset, Turn
from gfcr.environments.contract import Environment, EnvironmentFault, Step
from gfcr.errors import GfcrError
from gfcr.types import Task, Verdict

MOST_KEPT_BYTES = 1 << 26
"""Bytes of snapshots that one session keeps."""
Make = Callable[[], Environment]
Settle = Callable[[Any], Any]
"""Gives what a method returned: itself, or what a coroutine comes to."""


@dataclass(slots=True, eq=False)
class Session:
    """One episode and what was kept of it."""

    name: str
    env: Environment | None = None
    task: Task | None = None
    seed: int = 0
    turn: int = -1
    """Last turn played; -1 at the beginning."""
    kept: dict[int, bytes] = field(default_factory=dict)
    """Turn -> snapshot."""
    lost: str = ""
    """Why it cannot go on; empty while it can."""

    def losing(self, why: str) -> Session:
        """A lost session with what was kept; the environment is nobody's any more."""
        return Session(self.name, None, self.task, self.seed, self.turn, dict(self.kept), why)


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What a branch begins with, taken from its source when its turn comes."""

    task: Task | None
    seed: int
    snapshots: dict[int, bytes]


class _Wrong(Exception):
    """`kind: words` of an outcome that is none."""


def kept_of(source: Session | None) -> Kept | None:
    return None if source is None else Kept(source.task, source.seed, dict(source.kept))


def perform(session: Session, act: Act, make: Make, settle: Settle, origin: Kept | None = None) -> Acted:
    """Play an act on its session, whose record it changes. `origin`: of a Branch, None where there is no such source."""
    started = perf_counter()
    try:
        if isinstance(act, Turn):
            return Acted(_turn(session, act, settle), seconds=perf_counter() - started)
        if isinstance(act, Reset):
            acted = _reset(session, act, make, settle)
        elif isinstance(act, Branch):
            acted = _branch(session, act, make, settle, origin)
        else:
            acted = _finish(session, settle, act.fragments) if act.ask else Acted()
    except _Wrong as wrong:
        acted = Acted(error=str(wrong))
    except EnvironmentFault as fault:
        acted = Acted(error=f"environment_fault: {_words(fault)}")
    except GfcrError as error:
        acted = Acted(error=f"environment_fault: refused: {error.what}")
    except KeyboardInterrupt:
        raise  # of an environment in the caller's thread: somebody wants to stop the run
    except BaseException as error:  # whatever an environment raises is its own fault, and not the policy's
        acted = Acted(error=f"environment_raised: {type(error).__name__}: {_words(error)}")
    if acted.error and not session.lost:
        let_go(session.env, settle)
        session.env, session.lost = None, acted.error.partition(":")[0]
    return replace(acted, seconds=perf_counter() - started)


def let_go(env: Environment | None, settle: Settle) -> None:
    """Close an environment; what it raises then concerns nobody."""
    if env is not None:
        close: Callable[[], Any] = env.close
        try:
            settle(close())
        except KeyboardInterrupt:
            raise
        except BaseException:
            return


def _words(error: BaseException) -> str:
    """What an error says, as text that a database takes; an error may fail even at that."""
    try:
        said = str(error)
    except Exception:
        return "it does not say what"
    return said[:300].encode("utf-8", "backslashreplace").decode()


def _reset(session: Session, act: Reset, make: Make, settle: Settle) -> Acted:
    let_go(session.env, settle)
    session.env, session.lost, session.turn, session.kept = None, "", -1, {}
    session.task, session.seed = act.task, act.seed
    session.env = env = make()
    step = _a(settle(env.reset(act.task, act.seed)), Step, "reset")
    if act.keep:
        _keep(session, -1, settle)
    return Acted(step, tools=tuple(settle(env.tools(act.task))))


def _turn(session: Session, act: Turn, settle: Settle) -> Step:
    env = _alive(session)
    if act.turn != session.turn + 1:
        raise _Wrong(f"environment_lost: turn {act.turn} of session {session.name!r}, which is at turn {session.turn}")
    step: Any = env.step(act.said)
    if type(step) is not Step:
        step = _a(settle(step), Step, "step")
    session.turn = act.turn
    if act.keep:
        _keep(session, act.turn, settle)
    return cast(Step, step)


def _branch(session: Session, act: Branch, make: Make, settle: Settle, origin: Kept | None) -> Acted:
    if origin is None or origin.task is None:
        raise _Wrong(f"environment_lost: there is no session {act.source!r} to branch from")
    snapshot = origin.snapshots.get(act.turn)
    if snapshot is None and act.turn != -1:
        raise _Wrong(f"environment_lost: session {act.source!r} kept nothing after turn {act.turn}")
    let_go(session.env, settle)
    session.env, session.lost, session.turn = None, "", act.turn
    session.task, session.seed = origin.task, origin.seed
    session.kept = {turn: held for turn, held in origin.snapshots.items() if turn <= act.turn}
    session.env = env = make()
    if snapshot is None:  # the beginning: equal seeds begin alike
        _a(settle(env.reset(origin.task, origin.seed)), Step, "reset")
    else:
        restore: Callable[[Task, bytes], Any] = env.restore
        settle(restore(origin.task, snapshot))
    return Acted()


def _finish(session: Session, settle: Settle, fragments: bool) -> Acted:
    env = _alive(session)
    verdict = _a(settle(env.verify()), Verdict, "verify")
    return Acted(verdict=verdict, fragments=tuple(settle(env.fragments())) if fragments else ())


def _keep(session: Session, turn: int, settle: Settle) -> None:
    env = _alive(session)
    if not env.snapshots:
        raise _Wrong(f"environment_fault: no_snapshots: {env.name} cannot keep its state, and a snapshot was asked for")
    held = _a(settle(env.snapshot()), bytes, "snapshot")
    if sum(map(len, session.kept.values())) + len(held) > MOST_KEPT_BYTES:
        raise _Wrong(f"environment_fault: large_snapshots: more than {MOST_KEPT_BYTES >> 20} MiB in one session")
    session.kept[turn] = held


def _alive(session: Session) -> Environment:
    if session.env is None:
        why = f"was lost ({session.lost})" if session.lost else "has not begun"
        raise _Wrong(f"environment_lost: session {session.name!r} {why}")
    return session.env


def _a(value: Any, kind: type, method: str) -> Any:
    if not isinstance(value, kind):
        raise _Wrong(f"environment_raised: TypeError: {method}() gave {type(value).__name__}, not {kind.__name__}")
    return value


def inline(value: Any) -> Any:
    """Settle of environments that are quick: what they return is there already. Raises TypeError for a coroutine."""
    if inspect.isawaitable(value):
        if isinstance(value, Coroutine):
            value.close()
        raise TypeError("an environment with quick = True has coroutine methods")
    return value


async def awaited(value: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """What a coroutine comes to, or what it raised that would end the event loop."""
    try:
        return await value, None
    except (SystemExit, KeyboardInterrupt) as error:
        return None, error


def ends(act: Act) -> bool:
    """Whether the session is over after it."""
    return isinstance(act, Finish) and act.end
