"""What every driver does: submit, grow, judge, compare, score.

Invariant: every ask is answered exactly once; a request that the engine refuses, breaks or forgets becomes a typed failure,
with the tokens it had cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

from gfcr.asks import (
    Answered,
    Ask,
    CompareAsk,
    Compared,
    Failed,
    GenerateAsk,
    Generated,
    JudgeAsk,
    Judged,
    PlayAsk,
    ScoreAsk,
    Scored,
)
from gfcr.control.slots import Action, Prefix
from gfcr.drivers.assemble import Growing
from gfcr.engine.contract import Engine, Request
from gfcr.environments.acts import Act, Acted, Branch, Finish, Reset
from gfcr.filter.cascade import Cascade
from gfcr.filter.slots import GroupJudge
from gfcr.round import Round
from gfcr.types import StopReason

MAX_IDLE_STEPS = 10_000
"""Engine steps in a row without a token after which live requests count as lost (the contract: empty only when idle; an
engine may prefill for a while)."""


class Plays(Protocol):
    """Who plays acts of environments (environments/host.py)."""

    def start(self, act: Act) -> Future[Acted]:
        """Begin an act. The future never raises: what breaks is in its `error`."""


class Driver:
    """Answers a round's asks with an engine, a cascade and, where the recipe has them, a judge and environments."""

    def __init__(
        self,
        engine: Engine,
        cascade: Cascade,
        clock: Callable[[], float],
        judge: GroupJudge | None = None,
        plays: Plays | None = None,
        training: bool = True,
    ) -> None:
        """`training`: False for held-out evaluation, whose judgements are booked apart."""
        self.training = training
        self.engine, self.cascade, self.clock, self.judge, self.plays = engine, cascade, clock, judge, plays
        features = engine.capabilities().features
        self._forks, self._laws = "fork" in features, "laws" in features
        self._retained: dict[str, None] = {}
        """Requests that the engine was told to keep, because forks may follow, in their order."""
        self._frees: dict[str, str] = {}
        """Last forks that wait for admission -> their parent."""
        self._sessions: dict[str, None] = {}
        """Sessions of environments that were begun and not ended."""
        self._playing: dict[str, Future[Acted]] = {}
        self._growing: dict[str, Growing] = {}
        """Requests in the engine, in ask order."""
        self._idle = 0
        """Engine steps in a row that gave nothing."""
        self._interrupted = False
        """Requests were taken back and not yet submitted again."""

    def submit(self, round_: Round, asks: Iterable[Ask]) -> None:
        """Hand generation asks to the engine, and acts to the environments; what is refused fails at once."""
        for ask in asks:
            if isinstance(ask, GenerateAsk):
                try:
                    self._hand_over(ask.request)
                except ValueError as error:
                    round_.tell(Failed(ask.id, f"refused: {error}"))
                else:
                    self._growing[ask.id] = Growing(ask, self.clock())
            elif isinstance(ask, PlayAsk):
                if self.plays is None:
                    round_.tell(Failed(ask.id, "no_environment: the recipe names none (generate.environment)"))
                else:
                    self._playing[ask.id] = self.plays.start(ask.act)
                    self._note(ask.act)

    def _note(self, act: Act) -> None:
        if isinstance(act, Finish) and act.end:
            self._sessions.pop(act.session, None)
        elif isinstance(act, (Reset, Branch)):
            self._sessions[act.session] = None

    def _hand_over(self, request: Request) -> None:
        """Submit; a fork whose parent the engine no longer keeps computes its prefix itself."""
        if not self._forks and (request.fork_of is not None or request.retain):
            request = replace(request, fork_of=None, fork_at=0, retain=False)
        if request.later and not self._laws:
            raise ValueError("the engine cannot change the law within a rollout (feature `laws`)")
        if request.retain:
            self._retained[request.id] = None
        if request.frees and request.fork_of is not None:
            self._frees[request.id] = request.fork_of
        if request.fork_of is None:
            self.engine.submit(request)
            return
        try:
            self.engine.submit(request)
        except ValueError:
            self.engine.submit(replace(request, fork_of=None, fork_at=0))

    def release(self) -> None:
        """Let the engine drop what it kept for forks, and end what sessions are left: nothing of it outlives a round."""
        for request in self._retained:
            self.engine.cancel(request)
        self._retained.clear()
        self._frees.clear()
        for session in self._sessions if self.plays is not None else ():
            self.plays.start(Finish(session))  # type: ignore[union-attr]
        self._sessions.clear()

    def answer(self, round_: Round, asks: Sequence[Ask]) -> None:
        """Judge, compare and score what the round asks for. All judgements are asked for at once and told in ask order."""
        scores: list[ScoreAsk] = []
        asks = [ask for ask in asks if not isinstance(ask, (GenerateAsk, PlayAsk))]
        if not asks:
            return
        judged = [ask for ask in asks if isinstance(ask, JudgeAsk)]
        given = {ask.rollout.id: ask.given for ask in judged if ask.given is not None}
        signals = iter(self.cascade.judge_all([(ask.task, ask.rollout) for ask in judged], self.training, given))
        for ask in asks:
            if isinstance(ask, JudgeAsk):
                round_.tell(Judged(ask.id, next(signals)))
            elif isinstance(ask, CompareAsk):
                round_.tell(self._compare(ask))
            elif isinstance(ask, ScoreAsk):
                scores.append(ask)
        found = {s.id: s.logprobs for s in self.engine.score([a.item for a in scores])} if scores else {}
        for ask in scores:
            logprobs = found.get(ask.id)
            round_.tell(Failed(ask.id, "lost: the engine gave no scores") if logprobs is None else Scored(ask.id, logprobs))

    def played(self, round_: Round, patient: bool) -> int:
        """Tell what acts came to, in ask order: `patient`, of all that were begun; else of those that are over. Returns how many."""
        over = [name for name, playing in self._playing.items() if patient or playing.done()]
        for name in over:
            round_.tell(Answered(name, self._playing.pop(name).result()))
        return len(over)

    def _compare(self, ask: CompareAsk) -> Compared | Failed:
        try:
            return Compared(ask.id, self.judge.compare(ask.group) if self.judge else [])
        except Exception as error:  # the judge's own fault: the group goes on without its word
            return Failed(ask.id, f"judge: {type(error).__name__}: {error}")

    def grow(self, round_: Round, tokens: int | None = None) -> None:
        """One engine step, and the stopper's word on what is growing. `tokens`: most tokens of each until then, where no stopper says
        it; None = until one ends."""
        stopper = round_.slots.stop
        chunks = self.engine.step(stopper.every if stopper else tokens)
        for chunk in chunks:
            self._growing[chunk.request].add(chunk)
        self._idle = 0 if chunks else self._idle + 1
        if self._idle > MAX_IDLE_STEPS:
            self._give_up()
        self._costs()
        if stopper is None:
            return
        alive = [g for g in self._growing.values() if g.stop is None and g.chunks]
        for rollout, action in round_.decide([Prefix(g.ask.id, g.ask.group, *g.answer()) for g in alive]).items():
            if action is Action.CONTINUE:
                continue
            work = self._growing[rollout]
            if (rest := self.engine.cancel(rollout)) is not None:
                work.add(rest)
            work.stop = StopReason.PRUNED if action is Action.PRUNE else StopReason.EARLY_EXIT
        self._costs()  # an engine over a network tells a context's cost with the end of its reply

    def _costs(self) -> None:
        """Book what contexts cost, while those they belong to are here."""
        for cost in self.engine.prefilled():
            self._growing[cost.request].prefill(cost)
            if self._frees and (parent := self._frees.pop(cost.request, None)) is not None:
                self._retained.pop(parent, None)
                self.engine.cancel(parent)

    def _give_up(self) -> None:
        """The engine has live requests and no progress: take back what it has, so that the round fails instead of waiting."""
        for work in self._growing.values():
            if work.stop is None:
                if (rest := self.engine.cancel(work.ask.id)) is not None:
                    work.chunks.append(rest)
                work.stop = StopReason.FAILED
        self._costs()
        if self.engine.live():
            raise RuntimeError(f"the engine keeps {self.engine.live()} requests that it neither advances nor gives back")

    # ---- interruption ------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Take every running request back, its tokens with log-probabilities and versions kept: nothing is live afterwards, so that
        weights can be loaded (AReaL, arXiv:2505.24298, section 4). `go_on` submits what is left of each."""
        for work in self._growing.values():
            if work.stop is None and (rest := self.engine.cancel(work.ask.id)) is not None:
                work.add(rest)
                work.stop = StopReason.FAILED if rest.stop is StopReason.FAILED else None
        self._costs()
        self.release()
        self._interrupted = True

    def publish(self, load: Callable[[], object], round_: Round | None = None) -> int:
        """Load weights in the middle of a round: `load` is called while nothing is live, then the interrupted requests go on, each
        segment with the version that sampled it. `round_`: leave to a later round what it can park; returns how many that are."""
        self.interrupt()
        load()
        parked = 0 if round_ is None else self.park(round_)
        self.go_on()
        return parked

    def park(self, round_: Round) -> int:
        """Of what was interrupted, leave to a later round what the round can park; returns how many. They are told with the next
        `deliver`; the others stay for `go_on`."""
        parked = [g for g in self._growing.values() if g.stop is None and round_.parks(g.ask.id)]
        for work in parked:
            work.stop = StopReason.PARKED
        return len(parked)

    def go_on(self, engine: Engine | None = None) -> None:
        """Submit what is left of the interrupted requests: same ids and stream keys, contexts with all tokens so far. `engine`: go on
        in this one instead; nothing of theirs may be live in the old one."""
        if engine is not None:
            self.engine, self._forks = engine, "fork" in engine.capabilities().features
        self._interrupted = False
        for work in self._growing.values():
            if work.stop is None:
                try:
                    self._hand_over(work.rest())
                except ValueError as error:
                    work.stop, work.error = StopReason.FAILED, f"refused: {error}"

    def deliver(self, round_: Round) -> int:
        """Tell the round about every ended request, in ask order; returns how many."""
        lost = not self._interrupted and not self.engine.live()
        ended = [g for g in self._growing.values() if g.stop is not None or lost]
        for work in ended:
            del self._growing[work.ask.id]
            if work.stop is None:
                round_.tell(Failed(work.ask.id, "lost: the engine forgot it", work.generated, work.context()))
            elif work.stop is StopReason.FAILED:
                reason = work.error or "engine: it broke or made no progress"
                round_.tell(Failed(work.ask.id, reason, work.generated + work.lost, work.context()))
            else:
                round_.tell(Generated(work.ask.id, work.rollout(self.clock())))
        return len(ended)
