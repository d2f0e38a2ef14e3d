"""Judging one rollout: gates, then verifiers from cheap to dear, then step scores.

Invariants: a verifier sees the policy's own tokens only; the first refusing gate ends it as INVALID; a verifier that
raises is UNSCORABLE with its error as evidence, never reward 0; the first verifier that decides correctness is the primary
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from gfcr.filter.slots import StepScorer, Verifier
from gfcr.types import Rollout, SegmentKind, Signals, Status, StepScore, StopReason, Task, Verdict


class Cascade:
    """Judges rollouts of one recipe."""

    def __init__(self, decode: Callable[[np.ndarray], str], gates: Sequence[Verifier], verifiers: Sequence[Verifier],
                 steps: Sequence[StepScorer] = (), invalid_reward: float = 0.0) -> None:
        self.decode, self.gates, self.verifiers, self.steps = decode, gates, verifiers, steps
        self.invalid_reward = invalid_reward

    def judge(self, task: Task, rollout: Rollout) -> Signals:
        text = self.decode(rollout.own_tokens())
        verdicts: dict[str, Verdict] = {}
        for gate in self.gates:
            verdict = verdicts[gate.name] = _run(gate, task, text, rollout.stop)
            if verdict.status is Status.INVALID:
                return Signals(verdicts, gate.name, {}, self.invalid_reward)
        primary: str | None = None
        for verifier in self.verifiers:
            verdict = verdicts[verifier.name] = _run(verifier, task, text, rollout.stop)
            primary = verifier.name
            if verdict.status is Status.SCORED:
                break
        if primary is None:
            return Signals(verdicts)
        decided = verdicts[primary]
        if decided.status is Status.INVALID:
            return Signals(verdicts, primary, {}, self.invalid_reward)
        rewards = {primary: decided.score}
        return Signals(verdicts, primary, rewards, decided.score, steps=self._steps(task, rollout, text))

    def _steps(self, task: Task, rollout: Rollout, text: str) -> tuple[StepScore, ...]:
        """Step scores in flat offsets of the path."""
        if not self.steps:
            return ()
        places = _action_offsets(rollout)
        out = []
        for scorer in self.steps:
            for start, end, value in scorer.score(task, text, rollout.stop):
                if start < end <= len(places):
                    out.append(StepScore(int(places[start]), int(places[end - 1]) + 1, "step", value, source=scorer.name))
        return tuple(out)


def _run(verifier: Verifier, task: Task, text: str, stop: StopReason) -> Verdict:
    started = perf_counter()
    try:
        verdict = verifier.judge(task, text, stop)
    except Exception as error:  # a verifier's own fault says nothing about the policy
        return Verdict(verifier.name, verifier.version, Status.UNSCORABLE, evidence=f"{type(error).__name__}: {error}",
                       seconds=perf_counter() - started)
    return verdict if verdict.seconds else replace(verdict, seconds=perf_counter() - started)


def _action_offsets(rollout: Rollout) -> np.ndarray:
    """int64[n]: flat path offset of each of the policy's own tokens."""
    parts, offset = [], 0
    for node in rollout.path:
        end = offset + len(node.segment)
        if node.segment.kind is SegmentKind.ACTION:
            parts.append(np.arange(offset, end))
        offset = end
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
