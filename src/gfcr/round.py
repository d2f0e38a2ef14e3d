"""One round of the lifecycle, as a pure state machine: Generate, Filter, Control, Replay, from task to batch.

Read it top down: `ask` opens groups (select, seed), allocates rollouts, judges them, closes groups, augments them from
replay, admits, credits and builds the batch; a driver answers what it asks with `tell`.

Invariants: no clock, no randomness but run/seeds.py, no I/O; every loop is bounded here (stages of a group, waves of a
round, retries of a request) and says why it stopped; everything generated reaches the ledger; selectors, posteriors and
zero-variance tests see every completed group, fresh members only, before any admission.
"""

from __future__ import annotations

from dataclasses import replace

from gfcr.asks import (
    Ask,
    CompareAsk,
    Compared,
    Event,
    Failed,
    GenerateAsk,
    Generated,
    JudgeAsk,
    Judged,
    ScoreAsk,
    answers,
)
from gfcr.context import Stream, View
from gfcr.control.slots import Action, Allocation, Prefix
from gfcr.engine.contract import Request, StopSpec
from gfcr.errors import DataError
from gfcr.filter.admission import admit, drop_group, leave, replace_member, restore_member
from gfcr.filter.assemble import build_batch, rescored, score_item
from gfcr.replay.slots import Augment
from gfcr.round_state import InFlight, Phase, Renderer, RoundSettings, Work, why_empty
from gfcr.run.budget import Budget
from gfcr.run.seeds import sub_stream_key
from gfcr.slots import Slots
from gfcr.types import Batch, Drop, Group, GroupState, Member, Node, Role, Status, StopReason, derive_id, id_family, path_length


class Round(InFlight):
    """One round; built anew for each, from slots that live as long as the run."""

    def __init__(
        self, number: int, slots: Slots, settings: RoundSettings, view: View, budget: Budget, render: Renderer, stop: StopSpec
    ) -> None:
        super().__init__(budget)
        self.number, self.slots, self.settings, self.view = number, slots, settings, view
        self.render, self.stop_spec = render, stop

    # ---- the driver's side -------------------------------------------------------------------------------------

    def ask(self) -> list[Ask]:
        """What the round needs next; empty while it waits for answers, and when it is over."""
        if self.phase is Phase.SELECT:
            self._open_groups(self.settings.groups)
            self.phase = Phase.ROLLOUT
        if self.phase is Phase.ROLLOUT:
            self._advance()
            if not self._asks and not self._outbox and not self._refill():
                self._close_round()
        if self.phase is Phase.SCORE and not self._asks and not self._outbox:
            self._finish()
        asks, self._outbox = self._outbox, []
        return asks

    def tell(self, event: Event) -> None:
        """Take an answer. Raises KeyError, and changes nothing, for one that nothing outstanding asked for."""
        ask = self._asks.get(event.id)
        if ask is None or not answers(event, ask):
            raise KeyError(f"nothing outstanding asked for the {type(event).__name__} of {event.id}: late, or a second answer")
        del self._asks[event.id]
        group = self.groups[ask.group.id if isinstance(ask, CompareAsk) else ask.group]
        work = self._work[group.id]
        work.open.discard(event.id)
        if isinstance(event, Generated):
            rollout = event.rollout
            self.budget.settle(event.id, rollout.cost.generated)
            member = group.members[rollout.id] = Member(work.trained(rollout))
            if rollout.stop is StopReason.PRUNED:  # ended on purpose and out of the loss: no verdict about the policy
                leave(member, Drop.PRUNED)
            else:
                self._emit(JudgeAsk(rollout.id, group.id, group.task, member.rollout), group)
        elif isinstance(event, Judged):
            signals = group.members[event.id].signals = event.signals
            if signals.status is Status.UNSCORABLE:
                self._decide(
                    "filter", event.id, "unscorable", signals.verdict.evidence if signals.verdict else "no verdict", group
                )
        elif isinstance(event, Failed):
            self._failed(ask, event, group)
        elif isinstance(event, Compared):
            group.comparisons.extend(event.comparisons)
        else:
            member = group.members[event.id]
            member.rollout = rescored(member.rollout, event.logprobs)

    def decide(self, prefixes: list[Prefix]) -> dict[str, Action]:
        """Every `slots.stop.every` tokens: what becomes of the growing rollouts; absent = continue."""
        if self.slots.stop is None:
            return {}
        verdicts = self.slots.stop.decide(prefixes, self.view)
        for rollout, (action, reason) in verdicts.items():
            ask = self._asks[rollout]
            assert isinstance(ask, GenerateAsk)
            if action is not Action.CONTINUE:
                self._decide("stop", rollout, action, reason, self.groups[ask.group])
        return {rollout: action for rollout, (action, _) in verdicts.items()}

    def ready(self) -> Batch | None:
        """The batch, once the round is done; None before, and for a round that ended without one (see `reason`)."""
        return self._batch

    @property
    def done(self) -> bool:
        return self.phase is Phase.DONE

    def close(self, reason: str) -> None:
        """End the round now, without a batch; a round that is done stays as it is. Outstanding requests are settled as having
        generated nothing; tell their tokens first."""
        if self.done:
            return
        for ask in self._asks.values():
            if isinstance(ask, GenerateAsk):
                self.budget.settle(ask.id, 0)
        for group in self.groups.values():
            if group.state is not GroupState.ABANDONED:
                self._abandon(group, reason)
        self._asks.clear()
        self._outbox.clear()
        self.reason, self.phase = reason, Phase.DONE
        self._decide("round", "", "close", reason)

    # ---- select and seed ---------------------------------------------------------------------------------------

    def _open_groups(self, n: int) -> int:
        """Open up to n groups, as many as the budget can carry; returns how many."""
        self.wave += 1
        limit = self.budget.affordable(self.settings.k * self.settings.max_tokens)
        if self.wave == 1 and limit is not None and limit < self.settings.min_groups:
            return 0
        n = n if limit is None else min(n, limit)
        taken = {g.task.id for g in self.groups.values()}
        opened = 0
        for pick in self.slots.select.select(n, taken, self.view) if n > 0 else []:
            group = Group(
                derive_id("group", self.view.seed, self.number, len(self.groups), pick.task.id),
                pick.task,
                self.number,
                self.view.version,
            )
            self.groups[group.id] = group
            self._work[group.id] = Work()
            self._decide("select", group.id, "open", pick.reason, group, **dict(pick.data))
            self._seed(group)
            opened += group.state is GroupState.OPEN
        return opened

    def _seed(self, group: Group) -> None:
        """Render the prompt and what conditions generation beside it."""
        work = self._work[group.id]
        try:
            work.prompt = (Node(derive_id("prompt", group.task.id), None, self.render(group.task)),)
        except DataError as error:
            self._abandon(group, f"prompt_unreadable: {error.what}")
            return
        room = None if self.settings.max_context is None else self.settings.max_context - self.settings.max_tokens
        if room is not None and path_length(work.prompt) > room:
            self._abandon(
                group, f"prompt_too_long: {path_length(work.prompt)} tokens, room for {room} before the longest answer"
            )
        elif self.slots.seed is not None and (seed := self.slots.seed.seed(group, self.view)) is not None:
            length = path_length(work.prompt) + sum(map(len, seed.segments))
            if room is not None and length > room:
                self._decide("seed", group.id, "leave_out", f"too_long: {length} tokens with it, room for {room}", group)
                return
            work.add_seed(group.id, seed)
            self._decide("seed", group.id, "condition", seed.reason, group)

    # ---- allocate and generate ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Allocate again to every open group whose stage has settled."""
        ready = [g for g in self.groups.values() if g.state is GroupState.OPEN and not self._work[g.id].open]
        if not ready:
            return
        answered = self.slots.allocate.allocate(ready, self.view)
        for group in ready:
            allocation = answered.get(group.id) or Allocation(0, "the allocator gave no answer")
            if allocation.park:
                group.state, group.reason = GroupState.PARKED, allocation.reason
                self._decide("allocate", group.id, "park", allocation.reason, group)
            elif allocation.n <= 0:
                self._close_group(group, allocation.reason)
            elif group.stage >= self.settings.max_stages:
                self._close_group(group, f"max_stages: {self.settings.max_stages} stages and the allocator still asks")
            else:
                self._generate(group, allocation.n, allocation.reason)

    def _generate(self, group: Group, n: int, reason: str) -> None:
        work = self._work[group.id]
        sampling, limit = self.slots.configure.configure(group, self.view)
        base = work.prompt + work.seed_nodes
        streams = self.slots.topology.streams(group, n, base, sampling, limit, self.view)
        asked = sum(self._ask_stream(group, stream) for stream in streams)
        group.planned += asked
        group.stage += 1
        self._decide("allocate", group.id, "sample", reason, group, n=asked)
        if asked == 0:
            self._close_group(group, "budget: no further rollout fits")

    def _ask_stream(self, group: Group, stream: Stream, attempt: int = 0, member: int | None = None) -> bool:
        """Ask for one stream; False when the budget has no room for its worst case."""
        work = self._work[group.id]
        index = work.next_member if member is None else member
        rollout_id = id_family("rollout", group.id)(index, attempt)
        if not self.budget.reserve(rollout_id, stream.max_tokens):
            return False
        if member is None:
            work.next_member += 1
        key = sub_stream_key(self.view.seed, "sample", group.id, index, stream.branch, attempt)
        request = Request(rollout_id, stream.path, stream.sampling, stream.max_tokens, key, self.stop_spec)
        self._attempts[rollout_id] = attempt * 1_000_000 + index
        self._emit(GenerateAsk(rollout_id, group.id, group.task.id, request), group)
        return True

    def _failed(self, ask: Ask, event: Failed, group: Group) -> None:
        """A failed request is asked again, on a fresh stream, a bounded number of times; an unjudged answer stays unscorable;
        an injected answer that could not be scored is taken out, because its old log-probabilities belong to other weights."""
        if isinstance(ask, ScoreAsk):
            leave(group.members[event.id], Drop.FAILED)
            if (replaced := self._work[group.id].replaced.pop(event.id, None)) is not None:
                restore_member(group.members[replaced])
        if not isinstance(ask, GenerateAsk):
            self._decide("round", event.id, "give_up", event.reason, group)
            return
        self.budget.settle(event.id, event.tokens)
        self.failed[event.reason.split(":")[0]] += event.tokens
        self.failed_context += event.context
        attempt, index = divmod(self._attempts[event.id], 1_000_000)
        request = ask.request
        stream = Stream(request.path, request.sampling, request.max_new_tokens)
        if attempt < self.settings.retries and self._ask_stream(group, stream, attempt + 1, index):
            self._decide("round", event.id, "retry", event.reason, group, attempt=attempt + 1)
        else:
            self._decide("round", event.id, "give_up", f"{event.reason}, after {attempt + 1} attempts", group)

    # ---- close -------------------------------------------------------------------------------------------------

    def _close_group(self, group: Group, reason: str) -> None:
        judged = sum(m.signals.verdict is not None for m in group.members.values())
        if judged < min(self.settings.min_members, self.settings.k):
            self._abandon(group, f"too_few_members: {judged} judged of {group.planned} planned ({reason})")
            return
        group.state, group.reason = GroupState.CLOSED, reason
        self._decide("round", group.id, "close_group", reason, group)
        if self.slots.judge is not None:
            self._emit(CompareAsk(group.id, group), group)

    def _abandon(self, group: Group, reason: str) -> None:
        group.state, group.reason = GroupState.ABANDONED, reason
        drop_group(group, Drop.ABANDONED)
        self._decide("round", group.id, "abandon", reason, group)

    def _refill(self) -> bool:
        """Whether further groups were opened (dynamic sampling); bounded by waves and by the budget."""
        refill = self.slots.refill
        if refill is None:
            return False
        wanted = refill.wanted(self._closed(), self.settings.groups, self.view)
        bound = min(self.settings.max_waves, refill.max_waves)
        if wanted <= 0:
            return False
        if self.wave >= bound:
            self._decide(
                "refill", "", "give_up", f"max_waves: {bound} waves and {wanted} informative groups short; " + self.causes()
            )
            return False
        opened = self._open_groups(wanted)
        self._decide(
            "refill",
            "",
            "open" if opened else "give_up",
            f"{wanted} informative groups short" if opened else "no task or no budget left for another group",
            n=opened,
        )
        if opened:
            self._advance()
        return bool(self._outbox)

    def _close_round(self) -> None:
        """Learn, augment, and ask for the scores of what was injected."""
        closed = self._closed()
        if not closed:
            self.reason = why_empty(self.groups, self.budget, self.settings)
            self.phase = Phase.DONE
            self._decide("round", "", "close", self.reason)
            return
        self.slots.observe(closed, self.view)
        for group in closed:
            for rollout_id, signals in (self.slots.value.value(group, self.view) if self.slots.value else {}).items():
                group.members[rollout_id].signals = signals
            for augment in self.slots.augment:
                self._inject(group, augment)
        self.phase = Phase.SCORE

    def _inject(self, group: Group, augment: Augment) -> None:
        for injection in augment.augment(group, self.view):
            artifact = injection.artifact
            if artifact.rollout is None or (injected := derive_id("injected", group.id, artifact.id)) in group.members:
                continue
            member = Member(
                replace(artifact.rollout, id=injected),
                Role.INJECTED,
                in_loss=injection.in_loss,
                signals=replace(artifact.signals, shaped=None),  # it was shaped among other answers
                source=artifact.id,
            )
            if injection.replaces is not None:
                replace_member(group.members[injection.replaces])
                self._work[group.id].replaced[injected] = injection.replaces
            group.members[injected] = member
            self._decide("augment", injected, "inject", injection.reason, group, replaces=injection.replaces or "")
            if injection.rescore and injection.in_loss:
                self._emit(ScoreAsk(injected, group.id, score_item(member.rollout)), group)

    def _finish(self) -> None:
        """Admit, shape, mix in replayed groups, credit, build the batch, and store: replay's writes come after all its reads."""
        closed = self._closed()
        kept_out = self.slots.refill.keep(closed, self.settings.groups) if self.slots.refill else {}
        for group in closed:
            admit(group, self.slots.admission)
            if group.id in kept_out:
                drop_group(group, Drop(kept_out[group.id]))
            if self.slots.shape is not None:
                for rollout_id, shaped in self.slots.shape.shape(group, self.view).items():
                    group.members[rollout_id].signals = replace(group.members[rollout_id].signals, shaped=shaped)
        mixed = self.slots.mix.mix(closed, self.view) if self.slots.mix else closed
        for group in mixed:
            self.slots.credit_group(group)
        if self.slots.credit_batch is not None:
            self.slots.credit_batch.credit(mixed)
        if self.slots.off_policy is not None:
            self.slots.off_policy.weigh(mixed, self.view)
        s = self.settings
        self._batch = build_batch(mixed, s.normalise, s.constant, self.number, self.view.version, s.packed)
        for group in closed:
            self.slots.keep(group, self.view, self.decisions)
        self.phase = Phase.DONE


__all__ = ["Phase", "Renderer", "Round", "RoundSettings"]
