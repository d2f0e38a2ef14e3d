"""What is done to an environment's sessions, and what comes of it. Invariant: acts name sessions, never objects, so that a round
stays data; whoever plays them (host.py) keeps the environments."""

from __future__ import annotations

from dataclasses import dataclass

from gfcr.environments.contract import Fragment, Said, Step
from gfcr.types import Task, Verdict
from gfcr.types.frozen import quickly_made


@dataclass(frozen=True, slots=True, eq=False)
class Reset:
    """Begin a session; one of the same name is ended first. Answer: `step`, `tools`."""

    session: str
    task: Task
    seed: int
    keep: bool = False
    """Keep a snapshot of the beginning, as turn -1."""


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """Play one turn. Answer: `step`."""

    session: str
    turn: int
    """From 0."""
    said: Said
    keep: bool = False
    """Keep a snapshot of the state after it, for Branch."""


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """Begin a session from a kept snapshot of `source` (the same name: go back to it). Answer: nothing but success."""

    session: str
    source: str
    turn: int


@dataclass(frozen=True, slots=True, eq=False)
class Finish:
    """Ask for the verdict and the fragments, and end the session. Answer: `verdict`, `fragments`."""

    session: str
    end: bool = True
    """False: only ask; the session goes on."""
    ask: bool = True
    """False: only end it. Answer: nothing."""
    fragments: bool = True
    """False: the verdict alone. Episodes ask for no more: nothing keeps fragments yet (they are replay's)."""


Act = Reset | Turn | Branch | Finish


@quickly_made
@dataclass(frozen=True, slots=True, eq=False)
class Acted:
    """What came of an act."""

    step: Step | None = None
    verdict: Verdict | None = None
    fragments: tuple[Fragment, ...] = ()
    tools: tuple[str, ...] = ()
    """JSON schemas the environment offers for the task."""
    seconds: float = 0.0
    """Time at work, the wait before it not counted. Recorded; never read by a decision in deterministic mode."""
    error: str = ""
    """Why it failed, `kind: words` (environment_time_out, environment_fault, environment_lost, environment_raised: Type);
    empty when it did not. The policy is not at fault."""
