"""Judging one rollout: gates, then verifiers from cheap to dear, then step scores.

Invariants: a verifier sees the policy's own tokens only; the first gate that does not pass an answer ends it (INVALID, or
UNSCORABLE when the gate itself broke); a verifier that raises or returns rubbish is UNSCORABLE with its error as evidence, never
reward 0; the first verifier that decides correctness is the primary one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from gfcr.filter.answer import own_text
from gfcr.filter.slots import StepScorer, Verifier
from gfcr.types import Rollout, SegmentKind, Signals, Status, StepScore, StopReason, Task, Verdict


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
    ) -> None:
        """`stops`, `keep_stop`: stop strings, and whether the one that ended an answer is judged with it."""
        self.decode, self.gates, self.verifiers, self.steps = decode, gates, verifiers, steps
        self.invalid_reward, self.stops, self.keep_stop = invalid_reward, tuple(stops), keep_stop

    def judge(self, task: Task, rollout: Rollout) -> Signals:
        text = own_text(rollout, self.decode, self.stops, self.keep_stop)
        verdicts: dict[str, Verdict] = {}
        for gate in self.gates:
            verdict = verdicts[gate.name] = _run(gate, task, text, rollout.stop)
            if verdict.status is not Status.SCORED:
                return Signals(verdicts, gate.name, {}, self._reward(verdict))
        for verifier in self.verifiers:
            verdict = verdicts[verifier.name] = _run(verifier, task, text, rollout.stop)
            if verdict.status is Status.INVALID or verdict.correct is not None:
                break
        said = [v.name for v in self.verifiers if v.name in verdicts]
        if not said:
            return Signals(verdicts)
        # The last one spoken to decided it; when none decided correctness, the first that scored speaks for the cascade.
        decided = verdicts[said[-1]].status is Status.INVALID or verdicts[said[-1]].correct is not None
        scored = [name for name in said if verdicts[name].status is Status.SCORED]
        primary = said[-1] if decided or not scored else scored[0]
        rewards = {name: verdicts[name].score for name in scored}
        if verdicts[primary].status is not Status.SCORED:
            return Signals(verdicts, primary, rewards, self._reward(verdicts[primary]))
        steps = self._steps(task, rollout, text, verdicts)
        return Signals(verdicts, primary, rewards, verdicts[primary].score, steps=steps)

    def close(self) -> None:
        """End child processes of verifiers that run in one."""
        for judge in (*self.gates, *self.verifiers, *self.steps):
            if (close := getattr(judge, "close", None)) is not None:
                close()

    def _reward(self, verdict: Verdict) -> float | None:
        return self.invalid_reward if verdict.status is Status.INVALID else None

    def _steps(self, task: Task, rollout: Rollout, text: str, verdicts: dict[str, Verdict]) -> tuple[StepScore, ...]:
        """Step scores in flat offsets of the path; a scorer that fails leaves its error in `verdicts` and scores nothing."""
        if not self.steps:
            return ()
        places = _action_offsets(rollout)
        out = []
        for scorer in self.steps:
            try:
                found = list(scorer.score(task, text, rollout.stop))
            except Exception as error:  # a scorer's own fault says nothing about the policy
                verdicts[scorer.name] = Verdict(scorer.name, "", Status.UNSCORABLE, evidence=f"{type(error).__name__}: {error}")
                continue
            out += [
                StepScore(int(places[start]), int(places[end - 1]) + 1, "step", value, source=scorer.name)
                for start, end, value in found
                if 0 <= start < end <= len(places)
            ]
        return tuple(out)


def _run(verifier: Verifier, task: Task, text: str, stop: StopReason) -> Verdict:
    started = perf_counter()
    try:
        verdict: object = verifier.judge(task, text, stop)
    except Exception as error:  # a verifier's own fault says nothing about the policy
        return Verdict(
            verifier.name,
            verifier.version,
            Status.UNSCORABLE,
            evidence=f"{type(error).__name__}: {error}",
            seconds=perf_counter() - started,
        )
    if not isinstance(verdict, Verdict):
        return Verdict(
            verifier.name,
            verifier.version,
            Status.UNSCORABLE,
            evidence=f"returned {type(verdict).__name__}, not a Verdict",
            seconds=perf_counter() - started,
        )
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
