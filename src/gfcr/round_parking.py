"""Partial rollouts in a round: what waited goes on first, what reaches the round's token limit is parked.

Invariants: a group is judged, credited and learnt from once, whole, when all its members are done; a rollout keeps its id, its stream
key and every token with log-probability and version; each token is booked in the round that generated it (`booked` has what earlier
rounds did); an answer is resumed a bounded number of times, and a group waits a bounded number of rounds.
"""

from __future__ import annotations

from dataclasses import replace

from gfcr.asks import Failed, GenerateAsk
from gfcr.engine.contract import Request
from gfcr.filter.admission import drop_group, leave
from gfcr.generate.parking import Leg, Waiting
from gfcr.generate.settings import PartialSettings
from gfcr.round_growth import Generating
from gfcr.round_state import MARKS, RoundSettings, Work, copy_group
from gfcr.run.budget import Budget
from gfcr.run.seeds import sub_stream_key
from gfcr.slots import Slots
from gfcr.types import (
    Cost,
    Drop,
    Group,
    GroupState,
    LossRole,
    Member,
    Node,
    Rollout,
    SegmentKind,
    StopReason,
    Times,
)


class Parks(Generating):
    """The part of a round between a token limit and the round in which the answer goes on."""

    @property
    def _partial(self) -> PartialSettings:
        """The recipe's settings; without them nothing is cut, and groups that an allocator parks keep the usual bounds."""
        return self.settings.partial or PartialSettings(tokens=self.settings.max_tokens)

    # ---- what waited -------------------------------------------------------------------------------------------

    def _reopen(self) -> int:
        """Let what waited go on, the longest first, at most the groups a round plans; returns how many did."""
        parking, bounds, reopened = self.slots.parking, self._partial, 0
        for waiting in parking.waiting():
            group, age = copy_group(waiting.group), self.number - waiting.group.round
            available, worst = self.budget.available(), waiting.worst(bounds.tokens)
            if age > bounds.max_age:
                self._take_up(waiting, group)
                for name in waiting.legs:
                    self._cut_off(group, name)
                drop_group(group, Drop.STALE)
                self._abandon(
                    group, f"stale: not done {age} rounds after it was opened (generate.partial.max_age = {bounds.max_age})"
                )
            elif reopened < self.settings.groups and (available is None or worst <= available):
                self._take_up(waiting, group)
                group.state, group.reason, reopened = GroupState.OPEN, "", reopened + 1
                self._decide("generate", group.id, "resume", f"opened in round {group.round}", group, n=len(waiting.legs))
                for name, leg in waiting.legs.items():
                    self._resume(group, name, leg)
        return reopened

    def _take_up(self, waiting: Waiting, group: Group) -> None:
        self.slots.parking.take(waiting)
        self.groups[group.id] = group
        self._work[group.id] = Work(next_member=waiting.next_member, prompt=waiting.prompt, limits=dict(waiting.limits))
        for name in MARKS:
            setattr(self._work[group.id], name, set(waiting.marks.get(name, ())))
        for name, member in group.members.items():
            judged = sum(verdict.tokens for verdict in member.signals.verdicts.values())
            self.booked[name] = member.rollout.cost + Cost(judged=judged)

    def _abandon(self, group: Group, reason: str) -> None:
        group.state, group.reason = GroupState.ABANDONED, reason
        drop_group(group, Drop.ABANDONED)
        self._decide("round", group.id, "abandon", reason, group)

    def _resume(self, group: Group, name: str, leg: Leg, attempt: int = 0) -> bool:
        """Ask for an answer's next stretch; False when the budget has no room for its worst case."""
        limit = min(leg.left, self._partial.tokens)
        if not self.budget.reserve(name, limit):
            return False
        self._work[group.id].legs[name] = leg
        self._attempts[name] = attempt * 1_000_000 + leg.index
        path = group.members[name].rollout.path
        request = Request(name, path, leg.sampling, limit, leg.key, self.stop_spec, later=leg.later)
        self._emit(GenerateAsk(name, group.id, group.task.id, request), group)
        return True

    # ---- what is cut -------------------------------------------------------------------------------------------

    def parks(self, request: str) -> bool:
        """Whether an outstanding request may be told with the stop PARKED, to go on in a later round: the recipe has partial
        rollouts, and it is no piece of a growth."""
        ask = self._asks.get(request)
        return isinstance(ask, GenerateAsk) and request in self._work[ask.group].legs

    def _leg_over(self, group: Group, rollout: Rollout) -> Rollout | None:
        """The rollout with what its earlier legs were and cost; None when it goes on in a later round, or not at all."""
        work = self._work[group.id]
        leg = work.legs.pop(rollout.id, None)
        if leg is None:
            return rollout
        new, before = rollout.cost.generated, group.members.get(rollout.id)
        if before is not None:
            earlier = before.rollout
            times = Times(earlier.times.queued, rollout.times.generated)
            rollout = replace(rollout, cost=earlier.cost + rollout.cost, times=times)
        after = leg.after(new)
        if rollout.stop not in (StopReason.MAX_TOKENS, StopReason.PARKED):
            return rollout
        if not after.left:
            return replace(rollout, stop=StopReason.MAX_TOKENS)
        member = Member(replace(rollout, stop=StopReason.PARKED), work.role(rollout), in_baseline=False, in_loss=False)
        group.members[rollout.id] = member
        if after.resumes <= self._partial.most_resumes:
            work.parked[rollout.id] = after
        else:
            self._cut_off(group, rollout.id)
            most = f"generate.partial.most_resumes = {self._partial.most_resumes}"
            self._decide("generate", rollout.id, "give_up", f"stale: {after.left} tokens left, and {most}", group)
        return None

    @staticmethod
    def _cut_off(group: Group, name: str) -> None:
        """An answer that will not go on."""
        member = group.members[name]
        member.rollout = replace(member.rollout, stop=StopReason.MAX_TOKENS)
        leave(member, Drop.STALE)

    def _park_groups(self) -> None:
        """Park the groups whose outstanding work has come and that have answers to go on with."""
        for group in self.groups.values():
            work = self._work[group.id]
            if group.state is GroupState.OPEN and work.parked and not work.open:
                done = len(group.members) - len(work.parked)
                self._park(group, f"partial: {done} answers done, {len(work.parked)} go on in a later round")

    def _park(self, group: Group, reason: str) -> None:
        work = self._work[group.id]
        group.state, group.reason = GroupState.PARKED, reason
        self._decide("generate" if work.parked else "allocate", group.id, "park", reason, group, n=len(work.parked))
        marks = {name: tuple(sorted(getattr(work, name))) for name in MARKS}
        self.slots.parking.put(Waiting(group, dict(work.parked), work.next_member, work.prompt, marks, dict(work.limits)))

    def _failed_generation(self, ask: GenerateAsk, event: Failed, group: Group) -> None:
        """A resumed answer is asked for again from where it stood, on a fresh stream, a bounded number of times."""
        leg = self._work[group.id].legs.get(event.id)
        if leg is None or event.id not in group.members:
            super()._failed_generation(ask, event, group)
            return
        del self._work[group.id].legs[event.id]
        self._spent(event)
        attempt = self._attempts[event.id] // 1_000_000 + 1
        key = sub_stream_key(self.view.seed, "sample", group.id, leg.index, leg.resumes, attempt)
        again = self.slots.failures.again(event.reason, attempt - 1)
        if again and self._resume(group, event.id, replace(leg, key=key), attempt):
            self._decide("round", event.id, "retry", event.reason, group, attempt=attempt)
            return
        member = group.members[event.id]
        member.rollout = replace(member.rollout, stop=StopReason.FAILED)
        leave(member, Drop.FAILED)
        self._decide("round", event.id, "give_up", f"{event.reason}, after {attempt} attempts", group)

    # ---- what is trained on ------------------------------------------------------------------------------------

    def _mask_stale(self, group: Group) -> None:
        """Under `train = "newest"`: take the tokens of earlier weights out of the loss; rewards stay whole, and so does the
        baseline."""
        if self._partial.train == "all" or group.round == self.number:
            return
        for member in group.members.values():
            if not member.sampled or not member.in_loss:
                continue
            rollout = member.rollout
            path = tuple(map(self._masked, rollout.path))
            train = None if rollout.train_path is None else tuple(map(self._masked, rollout.train_path))
            member.rollout = replace(rollout, path=path, train_path=train)
            if not any(node.segment.role is LossRole.RL for node in member.rollout.trained_path):
                member.in_loss, member.drop = False, Drop.STALE

    def _masked(self, node: Node) -> Node:
        segment = node.segment
        stale = segment.kind is SegmentKind.ACTION and segment.version is not None and segment.version < self.view.version
        return replace(node, segment=replace(segment, role=LossRole.NONE)) if stale else node


def can_go_on(slots: Slots, budget: Budget, settings: RoundSettings) -> bool:
    """Whether the budget has room for a round of something that waits."""
    limit = settings.max_tokens if settings.partial is None else settings.partial.tokens
    available = budget.available()
    return any(available is None or waiting.worst(limit) <= available for waiting in slots.parking.waiting())
