"""How a round has its groups' rollouts generated: bases, independent streams, and growths (trees, turns, second attempts).

Invariants: every request reserves its worst case first; a request is tried a bounded number of times; what a growth is refused it is
told as Lost; every sampled piece is booked once, with the first leaf that goes through it, or as discarded with a reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from gfcr.asks import Answered, Ask, Failed, GenerateAsk, Generated, JudgeAsk, Judged, PlayAsk, ScoreAsk, Scored
from gfcr.context import Configuration, Seed, Stream, View
from gfcr.engine.contract import Request, ScoreItem, StopSpec
from gfcr.errors import DataError
from gfcr.filter.admission import leave, replace_member
from gfcr.generate.given import seeds_of, streams_of
from gfcr.generate.growth import (
    Leaf,
    Look,
    Lost,
    Note,
    Outcome,
    Piece,
    Play,
    Played,
    Sample,
    Seen,
    Spill,
    Want,
    Waste,
    Weigh,
    Weighed,
)
from gfcr.generate.parking import Leg
from gfcr.generate.slots import GrowingTopology
from gfcr.round_state import Growing, InFlight, RoundSettings, Work
from gfcr.run.budget import Budget
from gfcr.run.seeds import sub_stream_key
from gfcr.slots import Slots
from gfcr.types import Cost, Drop, Group, Member, Path, Rollout, StopReason, Times, id_family, path_ids, path_length

MOST_WANTS = 100_000
"""Things one growth may want; more is a fault of its topology."""


class Generating(InFlight):
    """The part of a round between an allocation and a member."""

    number: int
    slots: Slots
    settings: RoundSettings
    view: View
    stop_spec: StopSpec

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)

    # ---- bases and independent streams -------------------------------------------------------------------------

    def _bases(self, group: Group, work: Work, n: int, helped: bool = False) -> list[Path]:
        """The context of each of n rollouts: the prompt, and what the seed slot puts after it (or in its place) where it fits and the
        tokenizer can write it. `helped`: they are those that guidance itself asked for, and without it there are none."""
        seeder = self.slots.seed
        if seeder is None:
            return [work.prompt] * n
        try:
            seeds = seeds_of(seeder, "guide" if helped and hasattr(seeder, "guide") else "seed", group, n, self.view)
        except DataError as error:  # a solution, say, with characters that the model does not have
            self._decide("seed", group.id, "leave_out", f"unreadable: {error.what}", group)
            seeds = [None] * n
        told: set[Seed] = set()
        bases = []
        for seed in seeds:
            base = work.prompt
            if seed is not None and not (fits := self._room_for(base, seed)):
                if seed not in told:
                    self._decide(
                        "seed", group.id, "leave_out", f"too_long: no room for {sum(map(len, seed.segments))} tokens", group
                    )
            elif seed is not None and fits:
                base = work.seeded(group.id, seed)
                if seed not in told:
                    self._decide("seed", group.id, "condition", seed.reason, group)
            if seed is not None:
                told.add(seed)
            if not helped or base is not work.prompt:
                bases.append(base)
        return bases

    def _room_for(self, base: Path, seed: Seed) -> bool:
        room = self.settings.room
        return room is None or (0 if seed.instead else path_length(base)) + sum(map(len, seed.segments)) <= room

    def _ask_stream(self, group: Group, stream: Stream, attempt: int = 0, member: int | None = None) -> bool:
        """Ask for one stream; False when the budget has no room for its worst case."""
        work = self._work[group.id]
        index = work.next_member if member is None else member
        rollout_id = id_family("rollout", group.id)(index, attempt)
        longest, partial = work.limit(stream.path, stream.max_tokens), self.settings.partial
        limit = longest if partial is None else min(longest, partial.tokens)
        if not self.budget.reserve(rollout_id, limit):
            return False
        if member is None:
            work.next_member += 1
        key = sub_stream_key(self.view.seed, "sample", group.id, index, 0, attempt)
        request = Request(rollout_id, stream.path, stream.sampling, limit, key, self.stop_spec, later=stream.later)
        if partial is not None:
            work.legs[rollout_id] = Leg(index, key, longest, stream.sampling, stream.later)
        self._attempts[rollout_id] = attempt * 1_000_000 + index
        self._emit(GenerateAsk(rollout_id, group.id, group.task.id, request), group)
        return True

    def _ask_all(self, group: Group, bases: list[Path], how: Configuration) -> int:
        """Ask for one rollout per base; returns how many the budget let through."""
        topology = self.slots.topology
        if not isinstance(topology, GrowingTopology):
            return sum(self._ask_stream(group, stream) for stream in streams_of(topology, group, bases, how, self.view))
        work = self._work[group.id]
        growth = topology.grow(group, bases, how, self.view)
        work.growing = Growing(growth, group.stage)
        self._pursue(group, growth.start())
        return len(bases) if work.open else 0

    # ---- growths -----------------------------------------------------------------------------------------------

    def _pursue(self, group: Group, wants: Iterable[Want]) -> None:
        """Ask for what a growth wants, and tell it at once what it cannot have."""
        growing = self._work[group.id].growing
        assert growing is not None
        todo = deque(wants)
        while todo:
            growing.wanted += 1
            if growing.wanted > MOST_WANTS:
                raise RuntimeError(
                    f"the topology's growth of group {group.id} wants more than {MOST_WANTS} things; it has no end"
                )
            want = todo.popleft()
            if isinstance(want, Sample):
                if not self._ask_piece(group, growing, want, 0):
                    todo += growing.growth.tell(Lost(want.name, f"budget: no room for {want.max_tokens} tokens"))
            elif isinstance(want, (Play, Look, Weigh)):
                self._ask_other(group, growing, want)
            elif isinstance(want, Leaf):
                self._leaf(group, growing, want)
            elif isinstance(want, Spill):
                self._spill(growing, want.piece, want.reason, want.tokens)
            elif isinstance(want, Waste):
                self.failed_context += want.cost
                self.failed_steps[want.reason.split(":")[0]] += want.cost.env_steps
            else:
                assert isinstance(want, Note)
                self._decide("topology", group.id, want.action, want.reason, group, **want.data)

    def _ask_piece(self, group: Group, growing: Growing, want: Sample, attempt: int) -> bool:
        """Ask for a piece; False when the budget has no room for its worst case."""
        name = f"{growing.stage}.{want.name}"
        piece_id = id_family("piece", group.id)(name, attempt)
        if piece_id in self._asks or want.name in growing.done:
            raise ValueError(
                f"the growth of group {group.id} asks for the piece {want.name!r} twice; give each a name of its own"
            )
        longest = self._work[group.id].limit(want.path, want.max_tokens)
        if not self.budget.reserve(piece_id, longest):
            return False
        stop = replace(self.stop_spec, strings=(*self.stop_spec.strings, *want.strings)) if want.strings else self.stop_spec
        parent = growing.ids.get(want.fork_of) if want.fork_of else None
        request = Request(
            piece_id,
            want.path,
            want.sampling,
            longest,
            sub_stream_key(self.view.seed, "sample", group.id, name, attempt),
            stop,
            fork_of=parent,
            fork_at=want.fork_at if parent else 0,
            later=want.later,
            retain=want.retain,
            frees=want.frees,
            turn=want.turn,
            author=want.author,
            trained=want.trained,
        )
        growing.pieces[piece_id] = want, attempt
        self._emit(GenerateAsk(piece_id, group.id, group.task.id, request), group)
        return True

    def _ask_other(self, group: Group, growing: Growing, want: Play | Look | Weigh) -> None:
        ask_id = id_family("want", group.id)(growing.stage, want.name)
        if ask_id in self._asks or ask_id in growing.others:
            raise ValueError(f"the growth of group {group.id} asks for {want.name!r} twice; give each a name of its own")
        growing.others[ask_id] = want.name
        ask: Ask
        if isinstance(want, Play):
            ask = PlayAsk(ask_id, group.id, want.act)
        elif isinstance(want, Weigh):
            ids = path_ids(want.path)
            ask = ScoreAsk(ask_id, group.id, ScoreItem(ask_id, ids, ((want.start, len(ids), want.law),)))
        else:
            ask = self._look(group, ask_id, want)
        self._emit(ask, group)

    @staticmethod
    def _look(group: Group, ask_id: str, want: Look) -> JudgeAsk:
        return JudgeAsk(ask_id, group.id, group.task, Rollout(ask_id, group.task.id, want.path, want.stop))

    def _grown(self, group: Group, event: Generated | Judged | Answered | Scored) -> bool:
        """Tell a group's growth what it asked for; False when it did not ask for this."""
        growing = self._work[group.id].growing
        if growing is None:
            return False
        outcome: Outcome
        if isinstance(event, Generated):
            if (found := growing.pieces.pop(event.id, None)) is None:
                return False
            piece, rollout = found[0].name, event.rollout
            growing.done[piece], growing.ids[piece] = (rollout.cost, rollout.times), event.id
            outcome = Piece(piece, rollout.path, rollout.stop, rollout.seed)
        elif (name := growing.others.get(event.id)) is None:
            return False
        elif isinstance(event, Answered):
            if event.acted.error:
                self._decide("environment", event.id, "fault", event.acted.error, group)
            outcome = Played(name, event.acted)
        else:
            outcome = Seen(name, event.signals) if isinstance(event, Judged) else Weighed(name, event.logprobs)
        self._pursue(group, growing.growth.tell(outcome))
        return True

    def _leaf(self, group: Group, growing: Growing, leaf: Leaf) -> None:
        """A finished rollout becomes a member, and is judged."""
        work = self._work[group.id]
        queued, generated = [], []
        spent = [0, 0, 0]
        for name in leaf.pieces:
            cost, times = growing.done[name]
            queued.append(times.queued)
            generated.append(times.generated)
            if name not in growing.booked:
                growing.booked.add(name)
                spent = [spent[0] + cost.generated, spent[1] + cost.prefilled, spent[2] + cost.cached]
        rollout = Rollout(
            id_family("rollout", group.id)(f"{growing.stage}.{leaf.name}"),
            group.task.id,
            leaf.path,
            leaf.stop,
            train_path=leaf.train_path,
            state_keys=leaf.state_keys,
            seed=leaf.seed,
            cost=leaf.cost + Cost(generated=spent[0], prefilled=spent[1], cached=spent[2]),
            times=Times(min(queued, default=0.0), max(generated, default=0.0)),
            meta=leaf.meta,
        )
        self._joined(group, rollout, leaf)
        work.next_member += 1

    def _joined(self, group: Group, rollout: Rollout, leaf: Leaf | None = None) -> None:
        """A rollout becomes a member of its group; it is judged unless it was ended on purpose, or is judged already."""
        work = self._work[group.id]
        before = group.members.get(rollout.id)
        if before is not None and before.rollout.stop is not StopReason.PARKED:
            raise ValueError(
                f"the growth of group {group.id} gives the leaf {leaf.name if leaf else ''!r} twice; name each anew"
            )
        member = group.members[rollout.id] = Member(work.trained(rollout), work.role(rollout, before is not None))
        if leaf is not None:
            member.role, member.cohort = leaf.role or member.role, leaf.cohort
            member.in_baseline, member.in_loss = leaf.in_baseline, leaf.in_loss
            if leaf.drop is not None:
                leave(member, leaf.drop)
        if rollout.stop is StopReason.PRUNED:  # out of the loss: no verdict about the policy
            leave(member, Drop.PRUNED)
        elif leaf is not None and leaf.judged is not None:
            member.signals = replace(leaf.judged, steps=(*leaf.judged.steps, *leaf.given.steps))
        else:
            self._emit(JudgeAsk(rollout.id, group.id, group.task, member.rollout, leaf.given if leaf else None), group)

    def _spill(self, growing: Growing, name: str, reason: str, tokens: int | None = None) -> None:
        if name not in growing.done or name in growing.booked:
            return
        cost, times = growing.done[name]
        if tokens is not None:  # the rest is booked with the leaf that goes through it, or spilled in its turn
            self.failed[reason.split(":")[0]] += tokens
            growing.done[name] = replace(cost, generated=cost.generated - tokens), times
        else:
            growing.booked.add(name)
            self.failed[reason.split(":")[0]] += cost.generated
            self.failed_context = self.failed_context + Cost(prefilled=cost.prefilled, cached=cost.cached)

    def _end_growth(self, group: Group) -> None:
        """Book what no leaf went through."""
        work = self._work[group.id]
        if work.growing is not None:
            for name in [name for name in work.growing.done if name not in work.growing.booked]:
                self._spill(work.growing, name, Drop.PRUNED)
            work.growing = None

    # ---- what guidance makes of it ------------------------------------------------------------------------------

    def _settle(self, group: Group) -> None:
        """Cohorts of a closed group's members, and who leaves because a guided one took their place."""
        settle = getattr(self.slots.seed, "settle", None)
        settled = settle(group, self.view) if settle is not None else None
        if settled is None:
            return
        for rollout_id, cohort in settled.cohorts.items():
            group.members[rollout_id].cohort = cohort
        for rollout_id in sorted(settled.replaced):
            if group.members[rollout_id].drop is None:
                replace_member(group.members[rollout_id])
        self._decide("seed", group.id, "settle", settled.reason, group, replaced=len(settled.replaced))

    # ---- failures ----------------------------------------------------------------------------------------------

    def _spent(self, event: Failed) -> None:
        """Book what a failed request cost."""
        self.budget.settle(event.id, event.tokens)
        self.failed[event.reason.split(":")[0]] += event.tokens
        self.failed_context += event.context

    def _failed_generation(self, ask: GenerateAsk, event: Failed, group: Group) -> None:
        """A failed request is asked again, on a fresh stream, a bounded number of times."""
        self._spent(event)
        growing = self._work[group.id].growing
        piece = growing.pieces.pop(event.id, None) if growing is not None else None
        if piece is not None and growing is not None:
            want, attempt = piece
            again = self.slots.failures.again(event.reason, attempt) and self._ask_piece(group, growing, want, attempt + 1)
        else:
            attempt, index = divmod(self._attempts[event.id], 1_000_000)
            request, leg = ask.request, self._work[group.id].legs.pop(event.id, None)
            left = request.max_new_tokens if leg is None else leg.left
            stream = Stream(request.path, request.sampling, left, request.later)
            again = self.slots.failures.again(event.reason, attempt) and self._ask_stream(group, stream, attempt + 1, index)
        if again:
            self._decide("round", event.id, "retry", event.reason, group, attempt=attempt + 1)
            return
        self._decide("round", event.id, "give_up", f"{event.reason}, after {attempt + 1} attempts", group)
        if piece is not None and growing is not None:
            self._pursue(group, growing.growth.tell(Lost(piece[0].name, event.reason)))

    def _failed_other(self, event: Failed, group: Group) -> None:
        """A play or a look that will not come."""
        growing = self._work[group.id].growing
        if growing is not None and (name := growing.others.get(event.id)) is not None:
            self._pursue(group, growing.growth.tell(Lost(name, event.reason)))
