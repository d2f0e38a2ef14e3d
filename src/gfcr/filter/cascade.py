"""Judging a wave of rollouts: gates, then verifiers from cheap to dear, then escalation, then step scores.

Invariants: a verifier sees the policy's own tokens only; the first gate that does not pass an answer ends it (INVALID, or
UNSCORABLE when the gate itself broke); a verifier that raises or returns rubbish is UNSCORABLE with its error as evidence, never
reward 0; the first verifier that decides correctness is the primary one, and with appeals the last one asked that decides; what a
dearer verifier says to measure a cheap one (escalation) changes no reward. Each stage judges all that are still open, in the order
given, so nothing depends on which judgement ends first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from gfcr.filter.answer import own_text
from gfcr.filter.asking import ask
from gfcr.filter.cascade_settings import CascadeSettings
from gfcr.filter.judging import BUDGET_SPENT, Judging
from gfcr.filter.places import with_evidence
from gfcr.filter.slots import StepScorer, Verifier
from gfcr.generate.growth import Given
from gfcr.run.seeds import stream_key
from gfcr.types import Rollout, SegmentKind, Signals, Status, StepScore, Task, Verdict

COSTS = (0.001, 0.05)
"""Seconds a call is taken to cost where nothing is declared: of a bounded verifier, of one in processes of its own."""
NOTHING = Given()
SLICE = 64
"""Calls between looks at a verification budget that only the calls themselves tell (seconds, tokens)."""


@dataclass(slots=True, eq=False)
class _Case:
    """One rollout on its way through."""

    task: Task
    rollout: Rollout
    read: Callable[[Rollout], str]
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    """Verifiers asked, without those asked only to measure others."""
    decided: str = ""
    """The gate or verifier whose word counts; empty = none decided."""
    open: bool = True
    given: Given = NOTHING
    _text: str | None = None

    @property
    def text(self) -> str:
        """The policy's own text, read when somebody first judges it: an environment's verdict needs none."""
        if self._text is None:
            self._text = self.read(self.rollout)
        return self._text


class Cascade:
    """Judges rollouts of one recipe."""

    def __init__(
        self,
        decode: Callable[[np.ndarray], str],
        gates: Sequence[Verifier],
        verifiers: Sequence[Verifier],
        steps: Sequence[StepScorer] = (),
        invalid_reward: float = 0.0,
        stops: Sequence[str] = (),
        keep_stop: bool = True,
        settings: CascadeSettings | None = None,
        seed: int = 0,
        workers: int = 1,
    ) -> None:
        """`stops`, `keep_stop`: stop strings, and whether the one that ended an answer is judged with it. `seed`: the run's, which
        decides which verdicts are escalated. `workers`: calls at once of judges that declare `parallel = True`."""
        self.decode, self.gates, self.verifiers, self.steps = decode, gates, verifiers, steps
        self.invalid_reward, self.stops, self.keep_stop = invalid_reward, tuple(stops), keep_stop
        self.settings, self.seed, self.workers = settings or CascadeSettings(), seed, workers
        self.judging = Judging()
        """Cost and error rates so far; the ledger's, too."""

    def judge(self, task: Task, rollout: Rollout, training: bool = True) -> Signals:
        return self.judge_all([(task, rollout)], training)[0]

    def judge_all(
        self, items: Sequence[tuple[Task, Rollout]], training: bool = True, given: Mapping[str, Given] | None = None
    ) -> list[Signals]:
        """Signals of each, in order. Not `training` (held-out evaluation): nothing is escalated, no budget limits, and the cost is booked
        apart. `given`: what an environment said of a rollout, by its id; its verdict speaks through the verifier `environment`."""
        cases = [_Case(task, rollout, self._read) for task, rollout in items]
        for case in cases if given else ():
            case.given = (given or {}).get(case.rollout.id, NOTHING)
        for gate in self.gates:
            for case, verdict in self._stage(gate, [c for c in cases if c.open], training):
                if verdict.status is not Status.SCORED:
                    case.open, case.decided = False, gate.name
        order = self._ordered()
        for place, verifier in enumerate(order):
            last = place == len(order) - 1
            for case, verdict in self._stage(verifier, [c for c in cases if c.open], training, place > 0):
                case.said.append(verifier.name)
                if verdict.status is Status.INVALID or verdict.correct is not None:
                    case.decided = verifier.name
                    case.open = self.settings.appeal and verdict.correct is False and not last
        if training and self.settings.escalate > 0 and order:
            self._escalate(cases, [v.name for v in order], order[-1])
        out = [self._signals(case) for case in cases]
        self._steps(cases, out, training)
        for i, case in enumerate(cases):
            if case.given.steps:
                out[i] = replace(out[i], steps=(*out[i].steps, *case.given.steps))
        return [with_evidence(signals, case.rollout, self.decode) for signals, case in zip(out, cases)]

    def _read(self, rollout: Rollout) -> str:
        return own_text(rollout, self.decode, self.stops, self.keep_stop)

    def close(self) -> None:
        """End child processes of verifiers that run in one."""
        for judge in (*self.gates, *self.verifiers, *self.steps):
            if (close := getattr(judge, "close", None)) is not None:
                close()

    # ---- order and budget --------------------------------------------------------------------------------------

    def _ordered(self) -> Sequence[Verifier]:
        """Verifiers from cheap to dear."""
        if self.settings.order == "given" or len(self.verifiers) < 2:
            return self.verifiers
        return sorted(self.verifiers, key=self._cost)

    def _cost(self, verifier: Verifier) -> float:
        """Seconds of a call: measured where that is asked for and known, else declared."""
        use = self.judging.use.get(verifier.name)
        if self.settings.order == "measured" and use is not None and use.calls:
            return use.seconds / use.calls
        declared = getattr(verifier, "cost", None)
        return float(declared) if declared is not None else COSTS[hasattr(verifier, "pool")]

    def _spent(self) -> str:
        """Why no dear verifier may be asked any more; empty while one may."""
        dear = [u for v in self._ordered()[1:] if (u := self.judging.use.get(v.name)) is not None]
        for unit, limit in (
            ("calls", self.settings.calls),
            ("seconds", self.settings.seconds),
            ("tokens", self.settings.tokens),
        ):
            if limit is not None and (spent := sum(getattr(u, unit) for u in dear)) >= limit:
                return f"{BUDGET_SPENT}: {spent:g} of {limit:g} {unit} spent"
        return ""

    # ---- one stage ---------------------------------------------------------------------------------------------

    def _stage(
        self, judge: Verifier, cases: list[_Case], training: bool, dear: bool = False
    ) -> Iterator[tuple[_Case, Verdict]]:
        """Ask a gate or verifier about these; what it said is in their `verdicts`."""
        limited = dear and training and self.settings.limited
        at = 0
        while at < len(cases):
            spent = self._spent() if limited else ""
            part = cases[at:] if spent or not limited else cases[at : at + self._room(SLICE)]
            if spent:
                verdicts = [Verdict(judge.name, judge.version, Status.UNSCORABLE, evidence=spent)] * len(part)
                self.judging.skipped[judge.name] += len(part)
            else:
                known = [c.given.verdict if getattr(judge, "of_environment", False) else None for c in part]
                asked = [c for c, verdict in zip(part, known) if verdict is None]
                said = iter(
                    ask(judge, [(c.task, c.text, c.rollout.stop) for c in asked], self.workers, [c.rollout.id for c in asked])
                )
                verdicts = [next(said) if verdict is None else verdict for verdict in known]
                seconds, tokens = sum(v.seconds for v in verdicts), sum(v.tokens for v in verdicts)
                self.judging.book(judge.name, training, len(part), seconds, tokens)
            for case, verdict in zip(part, verdicts):
                case.verdicts[judge.name] = verdict
                yield case, verdict
            at += len(part)

    def _room(self, wanted: int) -> int:
        """Calls of dear verifiers that the budget of calls has left, at most `wanted`."""
        if self.settings.calls is None:
            return wanted
        used = sum(u.calls for v in self._ordered()[1:] if (u := self.judging.use.get(v.name)) is not None)
        return min(wanted, self.settings.calls - used)

    def _escalate(self, cases: list[_Case], names: list[str], dearest: Verifier) -> None:
        """Ask the dearest verifier about a random part of what was decided without it, and count how it decided.

        A case's random number comes from its rollout's id, so that the choice depends on nothing else."""
        share, cheap = self.settings.escalate, [*(g.name for g in self.gates), *names[:-1]]
        cases = [c for c in cases if c.decided and c.verdicts[c.decided].status is not Status.UNSCORABLE]
        forced = {id(c) for c in cases if dearest.name in c.verdicts}
        chosen = [c for c in cases if id(c) not in forced and stream_key(self.seed, "escalate", c.rollout.id) < share * 2.0**64]
        for _ in self._stage(dearest, chosen, True, True):
            pass
        for case in cases:
            word = case.verdicts.get(dearest.name)
            for name in cheap:
                if (verdict := case.verdicts.get(name)) is None or (says := _decision(verdict)) is None:
                    continue
                stratum = self.judging.said(name, says)
                if word is None:
                    continue
                if (right := _decision(word)) is not None:
                    stratum.decide(right, 1.0 if id(case) in forced else share)
                elif not word.evidence.startswith(BUDGET_SPENT):
                    stratum.abstained += 1

    # ---- results -----------------------------------------------------------------------------------------------

    def _signals(self, case: _Case) -> Signals:
        verdicts = case.verdicts
        if case.decided and not case.said:  # by a gate
            return Signals(verdicts, case.decided, {}, self._reward(verdicts[case.decided]))
        if not case.said:
            return Signals(verdicts)
        # When none decided correctness, the first that scored speaks for the cascade.
        scored = [name for name in case.said if verdicts[name].status is Status.SCORED]
        primary = case.decided or (scored[0] if scored else case.said[-1])
        rewards = {name: verdicts[name].score for name in scored}
        if verdicts[primary].status is not Status.SCORED:
            return Signals(verdicts, primary, rewards, self._reward(verdicts[primary]))
        return Signals(verdicts, primary, rewards, verdicts[primary].score)

    def _reward(self, verdict: Verdict) -> float | None:
        return self.invalid_reward if verdict.status is Status.INVALID else None

    def _steps(self, cases: list[_Case], out: list[Signals], training: bool) -> None:
        """Add step scores, in flat offsets of the path, to signals with a reward; a scorer that fails leaves its error in `verdicts` and
        scores nothing."""
        for scorer in self.steps:
            chosen = [i for i, signals in enumerate(out) if signals.status is Status.SCORED and cases[i].said]
            started = perf_counter()
            found = _score(scorer, [cases[i] for i in chosen])
            self.judging.book(scorer.name, training, len(chosen), perf_counter() - started, 0)
            for i, scores in zip(chosen, found):
                if isinstance(scores, Exception):  # a scorer's own fault says nothing about the policy
                    evidence = f"{type(scores).__name__}: {scores}"
                    cases[i].verdicts[scorer.name] = Verdict(scorer.name, "", Status.UNSCORABLE, evidence=evidence)
                    continue
                places = _action_offsets(cases[i].rollout)
                steps = tuple(
                    StepScore(int(places[start]), int(places[end - 1]) + 1, "step", value, source=scorer.name)
                    for start, end, value in scores
                    if 0 <= start < end <= len(places)
                )
                out[i] = replace(out[i], steps=(*out[i].steps, *steps))


def _decision(verdict: Verdict) -> bool | None:
    """What a verdict says of correctness; an INVALID answer is wrong."""
    return False if verdict.status is Status.INVALID else verdict.correct


def _score(scorer: StepScorer, cases: list[_Case]) -> list[Any]:
    """Each case's step scores, or the exception that came instead."""
    if (many := getattr(scorer, "score_many", None)) is not None:
        return list(many([(c.task, c.text, c.rollout.stop) for c in cases]))
    out: list[Any] = []
    for case in cases:
        try:
            out.append(list(scorer.score(case.task, case.text, case.rollout.stop)))
        except Exception as error:
            out.append(error)
    return out


def _action_offsets(rollout: Rollout) -> np.ndarray:
    """int64[n]: flat path offset of each of the policy's own tokens."""
    parts, offset = [], 0
    for node in rollout.path:
        end = offset + len(node.segment)
        if node.segment.kind is SegmentKind.ACTION:
            parts.append(np.arange(offset, end))
        offset = end
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
