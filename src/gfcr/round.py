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
    Answered,
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
    Scored,
    answers,
)
from gfcr.context import View
from gfcr.control.slots import Action, Allocation, Prefix
from gfcr.engine.contract import StopSpec
from gfcr.errors import DataError
from gfcr.filter.admission import admit, drop_group, leave, replace_member, restore_member
from gfcr.filter.assemble import build_batch, rescored, score_item
from gfcr.replay.slots import Augment
from gfcr.round_parking import Parks
from gfcr.round_state import Phase, Renderer, RoundSettings, Work, why_empty
from gfcr.run.budget import Budget
from gfcr.slots import Slots
from gfcr.types import Batch, Drop, Group, GroupState, Member, Node, Role, Status, derive_id, path_length


class Round(Parks):
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
            if not self._grown(group, event) and (whole := self._leg_over(group, rollout)) is not None:
                self._joined(group, whole)
        elif isinstance(event, (Judged, Answered, Scored)) and self._grown(group, event):
            pass
        elif isinstance(event, Judged):
            signals = group.members[event.id].signals = event.signals
            self._refused(group, event.id)
            if signals.status is Status.UNSCORABLE:
                self._decide(
                    "filter", event.id, "unscorable", signals.verdict.evidence if signals.verdict else "no verdict", group
                )
        elif isinstance(event, Failed):
            self._failed(ask, event, group)
        elif isinstance(event, Compared):
            group.comparisons.extend(event.comparisons)
        elif isinstance(event, Scored):
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
        generated nothing; tell their tokens first. What is parked stays so."""
        if self.done:
            return
        for ask in self._asks.values():
            if isinstance(ask, GenerateAsk):
                self.budget.settle(ask.id, 0)
        for group in self.groups.values():
            self._end_growth(group)
            if group.state not in (GroupState.ABANDONED, GroupState.PARKED):
                self._abandon(group, reason)
        self._asks.clear()
        self._outbox.clear()
        self.reason, self.phase = reason, Phase.DONE
        self._decide("round", "", "close", reason)

    # ---- select ---------------------------------------------------------------------------------------

    def _open_groups(self, n: int) -> int:
        """Open up to n groups, as many as the budget can carry, those that waited first; returns how many."""
        self.wave += 1
        if self.wave == 1:
            n -= (reopened := self._reopen())
        limit = self.budget.affordable(self.settings.group_tokens)
        if self.wave == 1 and not reopened and limit is not None and limit < self.settings.min_groups:
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
            self._prompt(group)
            opened += group.state is GroupState.OPEN
        return opened

    def _prompt(self, group: Group) -> None:
        """Render the prompt."""
        work = self._work[group.id]
        try:
            work.prompt = (Node(derive_id("prompt", group.task.id), None, self.render(group.task)),)
        except DataError as error:
            self._abandon(group, f"prompt_unreadable: {error.what}")
            return
        room = self.settings.room
        if room is not None and path_length(work.prompt) > room:
            self._abandon(
                group, f"prompt_too_long: {path_length(work.prompt)} tokens, room for {room} before the longest answer"
            )

    # ---- allocate ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Allocate again to every open group whose stage has settled, and whose answers are all there."""
        self._park_groups()
        ready = [g for g in self.groups.values() if g.state is GroupState.OPEN and not self._work[g.id].open]
        if not ready:
            return
        for group in ready:
            self._end_growth(group)
        answered = self.slots.allocate.allocate(ready, self.view)
        for group in ready:
            allocation = answered.get(group.id) or Allocation(0, "the allocator gave no answer")
            help_ = self._help(group) if allocation.n <= 0 and not allocation.park else None
            allocation = help_ or allocation
            if allocation.park:
                self._park(group, allocation.reason)
            elif allocation.n <= 0:
                self._close_group(group, allocation.reason)
            elif group.stage >= self.settings.max_stages:
                self._close_group(group, f"max_stages: {self.settings.max_stages} stages and the allocator still asks")
            elif not self._generate(group, allocation.n, allocation.reason, help_ is not None):
                self._close_group(group, "budget: no further rollout fits")

    def _generate(self, group: Group, n: int, reason: str, helped: bool) -> bool:
        """Ask for n rollouts of a group; False when the budget has room for none. Where guidance asked and has nothing that could be
        said, the group closes."""
        bases = self._bases(group, self._work[group.id], n, helped)
        if not bases:
            self._close_group(group, "no_help: nothing of it fits or can be written")
            return True
        how = self.slots.configure.configure(group, self.view)
        asked = self._ask_all(group, bases, how)
        group.planned += asked
        group.stage += 1
        self._decide("allocate", group.id, "sample", reason, group, n=asked)
        return asked > 0

    def _help(self, group: Group) -> Allocation | None:
        """Rollouts that guidance asks for where the allocator would close the group."""
        more = getattr(self.slots.seed, "more", None)
        bounded = group.stage < self.settings.max_stages
        wanted: Allocation | None = more(group, self.view) if more is not None and bounded else None
        return wanted if wanted is not None and wanted.n > 0 else None

    def _failed(self, ask: Ask, event: Failed, group: Group) -> None:
        """A failed request is asked again a bounded number of times; an unjudged answer stays unscorable; an injected answer that
        could not be scored is taken out, because its old log-probabilities belong to other weights."""
        if isinstance(ask, GenerateAsk):
            self._failed_generation(ask, event, group)
            return
        member = group.members.get(event.id)
        if member is not None and (isinstance(ask, ScoreAsk) or member.role is Role.DEMO):
            self._take_out(group, event.id, Drop.FAILED)
        self._decide("round", event.id, "give_up", event.reason, group)
        self._failed_other(event, group)

    # ---- close -------------------------------------------------------------------------------------------------

    def _close_group(self, group: Group, reason: str) -> None:
        judged = sum(m.signals.verdict is not None for m in group.members.values())
        if not self.slots.failures.enough(judged, self.settings.k):
            self._abandon(group, f"too_few_members: {judged} judged of {group.planned} planned ({reason}){self._cause(group)}")
            return
        group.state, group.reason = GroupState.CLOSED, reason
        self._decide("round", group.id, "close_group", reason, group)
        if self.slots.judge is not None:
            self._emit(CompareAsk(group.id, group), group)

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
            self._settle(group)
            for augment in self.slots.augment:
                self._inject(group, augment)
        self.phase = Phase.SCORE

    def _inject(self, group: Group, augment: Augment) -> None:
        try:
            injections = augment.augment(group, self.view)
        except DataError as error:  # a solution with characters that the model does not have
            self._decide("augment", group.id, "leave_out", f"unreadable: {error.what}", group)
            return
        for injection in injections:
            artifact, longest = injection.artifact, self.settings.max_context
            if artifact.rollout is not None and longest is not None and (n := path_length(artifact.rollout.path)) > longest:
                self._decide("augment", group.id, "leave_out", f"too_long: {n} tokens, the model takes {longest}", group)
                continue
            if artifact.rollout is None or (injected := derive_id("injected", group.id, artifact.id)) in group.members:
                continue
            member = Member(
                replace(artifact.rollout, id=injected),
                injection.role,
                in_loss=injection.in_loss,
                signals=replace(artifact.signals, shaped=None),  # it was shaped among other answers
                source=artifact.id,
            )
            if injection.replaces is not None:
                replace_member(group.members[injection.replaces])
                self._work[group.id].replaced[injected] = injection.replaces
            group.members[injected] = member
            self._decide("augment", injected, "inject", injection.reason, group, replaces=injection.replaces or "")
            if injection.judge is not None:
                self._emit(JudgeAsk(injected, group.id, group.task, replace(injection.judge, id=injected)), group)
            elif injection.rescore and injection.in_loss:
                self._emit(ScoreAsk(injected, group.id, score_item(member.rollout)), group)

    def _take_out(self, group: Group, injected: str, reason: Drop) -> None:
        """An injected member leaves again, and the one it was to replace comes back."""
        leave(group.members[injected], reason)
        if (replaced := self._work[group.id].replaced.pop(injected, None)) is not None:
            restore_member(group.members[replaced])

    def _refused(self, group: Group, judged: str) -> None:
        """A demonstration that the recipe's own verifiers do not call right is no demonstration."""
        member = group.members[judged]
        if member.role is Role.DEMO and member.signals.correct is not True:
            self._take_out(group, judged, Drop.REFUSED)
            evidence = member.signals.verdict.evidence if member.signals.verdict else "no verdict"
            self._decide("augment", judged, "refuse", f"the verifiers do not accept it: {evidence}", group)

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
            self._mask_stale(group)
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
