"""Rules of a best-first tree: where a path is forked, how promising it is, what is given up, which paths are in one state.

Invariant: a rule reads the tree and never changes it; what it draws it draws from the generator it is given. A rule of one's own is named
by its place in code, `module:function`, and has the signature given here.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar, cast

import numpy as np

from gfcr.errors import ConfigError
from gfcr.functions import is_place, load_place
from gfcr.generate.trees.plan import Grove, Shoot, values

Place = tuple[Shoot, int]
"""A fork: the shoot it leaves, and the flat offset of its first token."""
Fork = Callable[[Grove, Shoot, np.random.Generator], Place | None]
"""(tree, a path's last shoot, draws) -> where to leave it; None = nowhere."""
Score = Callable[[Grove, Shoot], float]
"""(tree, a path's last shoot) -> the higher, the sooner it goes on."""
Prune = Callable[[Grove, Sequence[Shoot], float, Callable[[Shoot], str]], Mapping[str, str]]
"""(tree, paths that could go on or have just ended, margin, text of a path) -> names to give up, with the reason."""
State = Callable[[str, int], str]
"""(text of an answer so far, characters) -> key of the state it is in; paths with equal keys are one."""
Rule = TypeVar("Rule", bound=Callable[..., Any])


def at_segment(tree: Grove, shoot: Shoot, rng: np.random.Generator) -> Place | None:
    """At the end of a path that goes on; of a finished one, before one of its pieces, drawn."""
    if shoot.name not in tree.done:
        return shoot, shoot.end
    return shoot, int(rng.choice([s.at for s in tree.line(shoot)]))


def at_surprisal(tree: Grove, shoot: Shoot, rng: np.random.Generator) -> Place | None:
    """Before the least likely token that was not forked at yet: of the last piece, or of a whole finished path; never at a piece's first
    token."""
    best: tuple[float, Place] | None = None
    for part in tree.line(shoot) if shoot.name in tree.done else [shoot]:
        taken = {s.at for s in tree.shoots.values() if s.parent == part.name}
        most = min((s.at for s in tree.line(shoot) if s.parent == part.name), default=part.end)
        for i, logprob in enumerate(part.logprobs()[: most - part.at]):
            if i and part.at + i not in taken and (best is None or logprob < best[0]):
                best = float(logprob), (part, part.at + i)
    return None if best is None else best[1]


def at_random(tree: Grove, shoot: Shoot, rng: np.random.Generator) -> Place | None:
    """Before a drawn token: of the last piece, or of a whole finished path."""
    start = tree.start_of(shoot.tree) if shoot.name in tree.done else shoot.at
    return (shoot, int(rng.integers(start, shoot.end))) if shoot.end > start else None


def by_logprob(tree: Grove, shoot: Shoot) -> float:
    """Mean log-probability of the answer so far."""
    found = values(tree.own(shoot))
    return float(found.mean()) if len(found) else 0.0


def by_entropy(tree: Grove, shoot: Shoot) -> float:
    """Mean entropy over the last piece, in nats; 0 where the engine tells none."""
    found = values(shoot.new, "entropy")
    return float(np.nan_to_num(found).mean()) if len(found) else 0.0


def by_value(tree: Grove, shoot: Shoot) -> float:
    """p (1 - p), p = (right + 1) / (judged + 2) over the judged leaves below the nearest shoot of its line that has any."""
    judged = {name: s.correct for name, s in tree.signals.items() if s.correct is not None}
    for part in reversed(tree.line(shoot)):
        below = [right for name, right in judged.items() if part in tree.line(tree.shoots[name])]
        if below:
            break
    else:
        below = [right for name, right in judged.items() if tree.shoots[name].tree == shoot.tree]
    p = (sum(map(bool, below)) + 1) / (len(below) + 2)
    return p * (1 - p)


def by_margin(tree: Grove, shoots: Sequence[Shoot], margin: float, text: Callable[[Shoot], str]) -> dict[str, str]:
    """What goes on with a mean log-probability more than `margin` below the best of those that go on."""
    going = {s.name: by_logprob(tree, s) for s in shoots if s.name not in tree.done}
    best = max(going.values(), default=0.0)
    return {name: f"pruned: {best - x:.2f} nats below the best" for name, x in going.items() if best - x > margin}


def by_text(tree: Grove, shoots: Sequence[Shoot], margin: float, text: Callable[[Shoot], str]) -> dict[str, str]:
    """What says the same as another path, finished or not."""
    own = {s.name for s in shoots}
    seen = {text(tree.shoots[name]) for name in tree.done if name not in own}
    out: dict[str, str] = {}
    for shoot in shoots:
        if (said := text(shoot)) in seen:
            out[shoot.name] = "pruned: says what another path says"
        seen.add(said)
    return out


def tail_of(text: str, characters: int) -> str:
    """The text's last characters, case and spaces aside."""
    return " ".join(text.lower().split())[-characters:]


FORKS: dict[str, Fork] = {"segment": at_segment, "surprisal": at_surprisal, "random": at_random}
SCORES: dict[str, Score] = {"logprob": by_logprob, "entropy": by_entropy, "value": by_value}
PRUNES: dict[str, Prune] = {"margin": by_margin, "duplicate": by_text}
STATES: dict[str, State] = {"text": tail_of}


def _fork(found: Any, tree: Grove, *_: Any) -> str:
    if found is None:
        return ""
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], Shoot) or not isinstance(found[1], Integral):
        return f"{found!r:.60}, which is neither (shoot, offset) nor None"
    at, start, end = int(found[1]), tree.start_of(found[0].tree), found[0].end
    return "" if start <= at <= end else f"offset {at}, and the path's own tokens stand from {start} to {end}"


def _score(found: Any, *_: Any) -> str:
    return "" if isinstance(found, Real) and np.isfinite(float(found)) else f"{found!r:.60}, which is no finite number"


def _prune(found: Any, *_: Any) -> str:
    fits = isinstance(found, Mapping) and all(isinstance(x, str) for x in (*found, *found.values()))
    return "" if fits else f"{found!r:.60}, which is no mapping of names to reasons"


def _state(found: Any, *_: Any) -> str:
    return "" if isinstance(found, str) else f"{found!r:.60}, which is no text"


_WRONG: dict[str, Callable[..., str]] = {"fork": _fork, "score": _score, "prune": _prune, "merge": _state}
"""What is wrong with what a rule gave, by setting; empty when nothing is."""


def _own(rule: Callable[..., Any], key: str, name: str) -> Callable[..., Any]:
    """A rule of somebody's own, whose faults name it."""
    where, remedy = f"generate.topology.{key} = {name!r}", "correct the function (its form: gfcr/generate/trees/rules.py)"

    def called(*arguments: Any) -> Any:
        try:
            found = rule(*arguments)
        except Exception as error:  # whatever a foreign function raises
            raise ConfigError(f"{where} raised {type(error).__name__}: {error}", remedy) from error
        if wrong := _WRONG[key](found, *arguments):
            raise ConfigError(f"{where} gave {wrong}", remedy)
        return found

    return called


def named(known: Mapping[str, Rule], name: str, key: str) -> Rule:
    """The rule of that name, or what stands at that place in code. Raises ConfigError."""
    if name in known:
        return known[name]
    if is_place(name):
        found: Rule = load_place(name)
        if not callable(found):
            raise ConfigError(f"generate.topology.{key} = {name!r} is no function", "name a function")
        return cast(Rule, _own(found, key, name))
    near = difflib.get_close_matches(name, known, 1)
    raise ConfigError(
        f"generate.topology.{key} = {name!r}: there is no such rule",
        f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}; or your own as module:function",
    )
