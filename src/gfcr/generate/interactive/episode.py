"""One rollout of several turns: reset, sample, play, read what came of it, until something ends it.

Invariants: one thing is outstanding at a time; every limit ends it with a stop of its own; what nobody reads any more is not put into
the path (an observation after the last turn); a broken environment begins the rollout anew or gives it up, and its tokens are discarded
under the failure's reason; names go on counting over restarts and steps back, so no stream key is used twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gfcr.environments.acts import Acted, Branch, Finish, Reset, Turn
from gfcr.environments.contract import Step
from gfcr.errors import GfcrError
from gfcr.generate.dialogue import Dialogue
from gfcr.generate.growth import Copied, Given, Leaf, Lost, Note, Outcome, Piece, Play, Played, Sample, Spill, Want, Waste
from gfcr.generate.interactive.opening import opened
from gfcr.generate.interactive.plan import Plan
from gfcr.types import (
    POLICY,
    Cost,
    Message,
    Part,
    PartKind,
    Path,
    StepScore,
    StopReason,
    Verdict,
    path_length,
)

ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """Where an episode stood before a turn was sampled."""

    dialogue: Dialogue
    length: int
    pieces: tuple[str, ...]
    states: tuple[str, ...]
    scores: tuple[StepScore, ...]
    fork_at: int
    agent: str
    used: int
    calls: int
    seconds: float


@dataclass
class Episode(Copied):
    """One rollout while it grows."""

    plan: Plan
    index: int
    base: Path
    origin: Mark | None = None
    """Where it begins, on the path of another episode; None = at a reset."""
    source: str = ""
    """Session of the episode that `origin` is of."""
    count: int = 0
    """Things wanted so far; part of their names."""
    doing: str = "reset"
    """What is outstanding: reset, branch, sample, turn, verdict, finish, back; or nothing: held, over."""
    dialogue: Dialogue | None = None
    length: int = 0
    """Tokens of the dialogue's path."""
    pieces: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    scores: list[StepScore] = field(default_factory=list)
    agent: str = ""
    """Who speaks next."""
    used: int = 0
    """Own tokens since the last reset, those taken back included."""
    calls: int = 0
    steps: int = 0
    seconds: float = 0.0
    """Of its own; those before its origin are not among them, nor are steps."""
    restarts: int = 0
    backs: int = 0
    fork_at: int = 0
    """Flat offset up to which the last piece was computed."""
    limit: StopReason | None = None
    """What it means when the turn being sampled reaches its limit; None = the turn is over."""
    began: int = 0
    """Flat offset where the last turn begins."""
    seed: int = 0
    """Key of the first turn's stream."""
    stop: StopReason = StopReason.ENV_TERMINATED
    marks: list[Mark] = field(default_factory=list)
    """Of every turn since it began; empty where nothing goes back or begins there."""
    initial: str = ""
    """Key of the state after the reset."""
    verdict: Verdict | None = None
    """Of one that is held."""

    @property
    def session(self) -> str:
        return f"{self.plan.session}.{self.index}"

    @property
    def ended(self) -> bool:
        return self.doing in ("held", "over")

    def start(self) -> list[Want]:
        if self.origin is not None:
            return [self._play("branch", Branch(self.session, self.source, self.origin.dialogue.turn - 1))]
        return [self._play("reset", Reset(self.session, self.plan.task, self.plan.seeds(self.index), self.plan.keeps))]

    def tell(self, outcome: Outcome) -> Sequence[Want]:
        if self.doing == "over":
            return ()
        if isinstance(outcome, Piece):
            return self._said(outcome)
        if isinstance(outcome, Lost):
            return self._failed(outcome.reason, again=self.doing != "sample")
        assert isinstance(outcome, Played)
        acted = outcome.acted
        self.seconds += acted.seconds
        if acted.error:
            return self._failed(acted.error)
        try:
            if self.doing == "turn":
                return self._answered(acted)
            if self.doing == "reset":
                return self._begun(acted)
            if self.doing == "back":
                return self._ask()
            if self.doing == "branch" and self.origin is not None:
                self._stand(self.origin)
                self.used, self.calls = self.origin.used, self.origin.calls
                return self._ask()
            return self._judged(acted)
        except GfcrError as error:  # what the environment said cannot be shown to the policy
            return self._broke(error.what)

    # ---- turns -------------------------------------------------------------------------------------------------

    def _begun(self, acted: Acted) -> list[Want]:
        step = acted.step
        if step is None or step.terminated or step.truncated:
            return self._broke("a reset gave no state to play from")
        self.initial, self.dialogue = step.state, self.plan.dialogue(self.plan.task, self.base)
        self.agent = self._speaker(step)
        self.dialogue = opened(self.dialogue, (*step.messages, *self._instruction()), ENVIRONMENT)
        self.length = path_length(self.dialogue.path)
        return self._ask()

    def _ask(self) -> list[Want]:
        """Sample the next turn, or end where a limit is reached."""
        plan, s, dialogue = self.plan, self.plan.settings, self.dialogue
        assert dialogue is not None
        left = plan.how.max_tokens - self.used
        if dialogue.turn >= s.turns:
            return self._finish(StopReason.MAX_TURNS)
        if left < 1:
            return self._finish(StopReason.MAX_TOKENS)
        room = None if plan.max_context is None else plan.max_context - self.length
        if room is not None and room < 1:
            return self._finish(StopReason.CONTEXT_FULL)
        tokens, self.limit = left, StopReason.MAX_TOKENS
        how = plan.how.turn(dialogue.turn)
        turn = min(s.turn_tokens or left, how.max_tokens)
        if (
            turn < left or turn == left == s.turn_tokens
        ):  # a turn that fills what is left exactly reached its own limit, and is played
            tokens, self.limit = turn, StopReason.MAX_TOKENS if s.cut == "end" else None
        if room is not None and room < tokens:
            tokens, self.limit = room, StopReason.CONTEXT_FULL
        if plan.keeps:
            self.marks.append(self._mark(dialogue))
        law, later = plan.how.turn_at(dialogue.turn, self.used)
        self.doing, self.began = "sample", self.length
        parent = self.pieces[-1] if self.pieces else ""
        return [
            Sample(
                self._name(),
                dialogue.path,
                law,
                tokens,
                later,
                fork_of=parent,
                fork_at=self.fork_at if parent else 0,
                retain=dialogue.turn + 1 < s.turns or plan.keeps,
                strings=s.stops,
                turn=dialogue.turn,
                author=self.agent or POLICY,
                trained=self.agent not in plan.untrained,
                frees=bool(parent) and not plan.keeps,
            )
        ]

    def _said(self, piece: Piece) -> list[Want]:
        """A turn was sampled: play it."""
        dialogue, path, known = self.dialogue, piece.path, len(self.dialogue.path) if self.dialogue else 0
        assert dialogue is not None
        new = sum([len(node.segment.ids) for node in path[known:]])
        self.pieces.append(piece.name)
        self.used += new
        self.length += new
        self.fork_at = self.length
        self.seed = self.seed or piece.seed
        grown = dialogue.grown(path, piece.stop)
        said = self.plan.read(grown.said_last)
        if said.calls:
            grown = grown.calling(said.calls)
        self.dialogue = grown
        if piece.stop in (StopReason.PRUNED, StopReason.EARLY_EXIT):
            return self._finish(piece.stop)
        if piece.stop in (StopReason.PARKED, StopReason.CANCELLED, StopReason.FAILED):
            return self._failed(f"{piece.stop}: a turn was {piece.stop} before its end", again=False)
        if piece.stop is StopReason.CONTEXT_FULL:
            return self._finish(piece.stop)
        if piece.stop is StopReason.MAX_TOKENS and self.limit is not None:
            return self._finish(self.limit)
        if self.agent:
            said = replace(said, agent=self.agent)
        return [self._play("turn", Turn(self.session, grown.turn - 1, said, self.plan.keeps))]

    def _answered(self, acted: Acted) -> list[Want]:
        """A turn was played: go on, go back or end."""
        step, s, dialogue = acted.step, self.plan.settings, self.dialogue
        if step is None or dialogue is None:
            return self._broke("a turn gave no step")
        self.steps += 1
        self.calls += step.calls
        self.states.append(step.state)
        reward = step.reward
        if step.invalid and s.penalty:
            reward = s.penalty + (reward or 0.0)
        if reward is not None and self.length > self.began:
            self.scores.append(StepScore(self.began, self.length, "turn", reward, source=ENVIRONMENT))
        if step.invalid and s.back == "invalid" and self.backs < s.back_most:
            return self._back(f"taken_back: {step.invalid}")
        if step.terminated:
            return self._finish(StopReason.ENV_TERMINATED)
        if step.truncated:
            return self._finish(StopReason.ENV_TRUNCATED)
        if step.invalid and s.invalid == "end":
            return self._finish(StopReason.EARLY_EXIT)
        if dialogue.turn >= s.turns:
            return self._finish(StopReason.MAX_TURNS)
        if self.used >= self.plan.how.max_tokens:
            return self._finish(StopReason.MAX_TOKENS)
        if s.calls is not None and self.calls >= s.calls:
            return self._finish(StopReason.MAX_TOOL_CALLS)
        if s.seconds is not None and self._seconds() >= s.seconds:
            return self._finish(StopReason.MAX_SECONDS)
        before, self.agent = self.agent, self._speaker(step)
        messages = (*step.messages, *(self._instruction() if self.agent != before else ()))
        heard = dialogue
        if messages or not _plain(dialogue):
            heard = dialogue.heard(messages, ENVIRONMENT, f"{dialogue.path[-1].id}.{ENVIRONMENT}")
        more = sum([len(node.segment.ids) for node in heard.path[len(dialogue.path) :]])
        if self.plan.max_context is not None and self.length + more >= self.plan.max_context:
            return self._finish(StopReason.CONTEXT_FULL)
        self.dialogue, self.length = heard, self.length + more
        return self._ask()

    # ---- its end -----------------------------------------------------------------------------------------------

    def _finish(self, stop: StopReason) -> list[Want]:
        """Ask for the verdict; the session goes on where one may go back or begin in it."""
        self.stop = stop
        s = self.plan.settings
        open_ = self.plan.held or (s.back == "wrong" and self.backs < s.back_most and stop is not StopReason.PRUNED)
        return [self._play("verdict" if open_ else "finish", Finish(self.session, end=not open_, fragments=False))]

    def _judged(self, acted: Acted) -> list[Want]:
        verdict = acted.verdict
        if self.plan.held:
            self.doing, self.verdict = "held", verdict
            return []
        if self.doing == "verdict":
            if verdict is not None and verdict.correct is False and self.used < self.plan.how.max_tokens:
                return self._back("taken_back: wrong verdict")
            return [self._play("finish", Finish(self.session, fragments=False))]
        self.doing = "over"
        return [self.leaf(verdict)]

    def dismiss(self) -> list[Want]:
        """End the session of one that is held."""
        return [self._play("over", Finish(self.session, ask=False))]

    def leaf(self, verdict: Verdict | None) -> Leaf:
        """What it came to."""
        assert self.dialogue is not None
        meta = {"turns": str(self.dialogue.turn)}
        if self.backs:
            meta["taken_back"] = str(self.backs)
        if self.restarts:
            meta["restarts"] = str(self.restarts)
        if drift := self.plan.drift(self.index, self.dialogue):
            meta["drift"] = drift
        return Leaf(
            str(self.index),
            self.dialogue.path,
            self.stop,
            tuple(self.pieces),
            state_keys=tuple(self.states) if all(self.states) else (),
            seed=self.seed,
            cost=Cost(env_steps=self.steps, tool_seconds=self.seconds),
            meta=meta,
            given=Given(verdict, tuple(self.scores)),
        )

    def _back(self, reason: str) -> list[Want]:
        """Go back to before a turn: what was written since is discarded, the tokens it used stay used."""
        at = max(0, len(self.marks) - self.plan.settings.back_turns)
        mark, self.backs = self.marks[at], self.backs + 1
        del self.marks[at:]
        gone = self.pieces[len(mark.pieces) :]
        self._stand(mark)
        back = Branch(self.session, self.session, mark.dialogue.turn - 1)
        return [*(Spill(name, reason) for name in gone), self._play("back", back)]

    def _broke(self, what: str) -> list[Want]:
        """The environment is at fault by what it answered, which only we can tell: whoever plays it told no error."""
        reason = f"environment_fault: {what}"
        return [Note("fault", reason), *self._failed(reason)]

    def _failed(self, reason: str, again: bool = True) -> list[Want]:
        """What broke: begin anew with a fresh session, or give the rollout up (the driver ends what is left of its session)."""
        before = len(self.origin.pieces) if self.origin is not None else 0
        spills: list[Want] = [Spill(name, reason) for name in self.pieces[before:]]
        if self.steps or self.seconds:
            spills.append(Waste(Cost(env_steps=self.steps, tool_seconds=self.seconds), reason))
        self.steps, self.seconds = 0, 0.0
        self.pieces, self.states, self.scores, self.marks = [], [], [], []
        self.dialogue, self.length, self.fork_at, self.used, self.calls = None, 0, 0, 0, 0
        self.seed = self.backs = 0
        if again and self.plan.again(reason, self.restarts):
            self.restarts += 1
            return [*spills, *self.start()]
        self.doing = "over"
        return spills

    # ---- small things ------------------------------------------------------------------------------------------

    def _mark(self, dialogue: Dialogue) -> Mark:
        own, counts = (tuple(self.pieces), tuple(self.states), tuple(self.scores)), (self.used, self.calls, self._seconds())
        return Mark(dialogue, self.length, *own, self.fork_at, self.agent, *counts)

    def _stand(self, mark: Mark) -> None:
        self.dialogue, self.length, self.fork_at, self.agent = mark.dialogue, mark.length, mark.fork_at, mark.agent
        self.pieces, self.states, self.scores = list(mark.pieces), list(mark.states), list(mark.scores)

    def _seconds(self) -> float:
        """Those before its origin included."""
        return self.seconds + (self.origin.seconds if self.origin is not None else 0.0)

    def _name(self) -> str:
        self.count += 1
        return f"{self.index}.{self.count}"

    def _play(self, doing: str, act: Reset | Turn | Branch | Finish) -> Play:
        self.doing = doing
        return Play(self._name(), act)

    def _speaker(self, step: Step) -> str:
        """Who speaks next. Raises GfcrError for one that the recipe does not have."""
        agents = self.plan.agents
        if not agents:
            return step.agent
        name = step.agent or self.agent or next(iter(agents))
        if name not in agents:
            raise GfcrError(
                f"the environment gives the turn to {name!r}, and generate.topology has the agents {', '.join(agents)}",
                "name it in generate.topology.agents",
            )
        return name

    def _instruction(self) -> tuple[Message, ...]:
        agent = self.plan.agents.get(self.agent)
        return () if agent is None or agent.says is None else (Message(agent.role, (Part(PartKind.TEXT, agent.says),)),)


def _plain(dialogue: Dialogue) -> bool:
    """Whether turns may follow each other without anything between them: no template demands a header."""
    return not hasattr(dialogue, "chat")
