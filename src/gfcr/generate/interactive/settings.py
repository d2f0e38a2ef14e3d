"""Settings of rollouts of several turns. Invariant: every limit ends a rollout with a stop reason of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gfcr.registry import FrozenModel


class Agent(FrozenModel):
    """One of several speakers of a rollout; the environment says who speaks next (`Step.agent`)."""

    name: str = Field(min_length=1)
    says: str | None = Field(None, min_length=1)
    """What is put before its turn whenever it begins to speak (its instruction, its header); never in a loss. None = nothing."""
    role: str = "user"
    """Role of that message in a chat; a text prompt has none."""
    trained: bool = True
    """Whether its tokens are in the loss. False: they are context for the others'."""


class TurnSettings(FrozenModel):
    """`generate.max_tokens` bounds the policy's own tokens over the whole rollout, those of turns that were taken back included."""

    turns: int = Field(8, ge=1, le=1000)
    """Turns of a rollout at most (stop `max_turns`)."""
    turn_tokens: int | None = Field(None, ge=1)
    """Tokens of one turn at most; None = what is left of `generate.max_tokens`."""
    cut: Literal["play", "end"] = "play"
    """What becomes of a turn that reached `turn_tokens` without an end of its own: it is played as it stands, or it ends the rollout
    (stop `max_tokens`)."""
    calls: int | None = Field(None, ge=1)
    """Tool calls of a rollout after which it ends (stop `max_tool_calls`); None = no limit."""
    seconds: float | None = Field(None, gt=0)
    """Seconds its environment worked for it after which it ends (stop `max_seconds`); None = no limit. Such a run is not repeatable."""
    stops: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Strings that end a turn, such as `</tool_call>`; they stay in it. (`generate.stop_strings` end turns, too.)"""
    invalid: Literal["observe", "end"] = "observe"
    """After a turn without a valid action: what the environment answers is read and the rollout goes on, or it ends (stop
    `early_exit`)."""
    penalty: float = 0.0
    """Added to the reward of such a turn (RAGEN, arXiv:2504.20073: -0.1)."""
    agents: tuple[Agent, ...] = ()
    """Speakers; empty = the policy alone, or whom the environment names, all trained."""

    def note(self, max_tokens: int) -> str:
        """What `generate.max_tokens` leaves of the turns, where all of them may be full; empty where it is enough."""
        if self.turn_tokens is None or max_tokens >= self.turns * self.turn_tokens:
            return ""
        whole = max_tokens // self.turn_tokens
        return (
            f"generate.max_tokens = {max_tokens} is less than {self.turns} turns of {self.turn_tokens} tokens: a rollout of full turns is cut "
            f"after {whole} of them (stop max_tokens), where the environment's own end is not reached; {self.turns * self.turn_tokens} hold all"
        )


class InteractiveSettings(TurnSettings):
    """Turns, and what independent rollouts may do besides."""

    k: int = Field(8, ge=1)
    """Rollouts per prompt (K)."""
    back: Literal["never", "invalid", "wrong"] = "never"
    """When a rollout goes back to a snapshot of its environment: after an invalid turn, or at a wrong verdict. What it had written since is
    discarded."""
    back_turns: int = Field(1, ge=1)
    """Turns it goes back, at most to the beginning."""
    back_most: int = Field(1, ge=1, le=100)
    """Times it goes back at most."""
    initial: Literal["group", "rollout"] = "group"
    """Whether a group's rollouts begin with one seed of their environment (StarPO, arXiv:2504.20073: the same initial state), or each
    with its own."""

    def traits(self) -> frozenset[str]:
        goes = {"needs: snapshots"} if self.back != "never" else set()
        return frozenset(goes | ({"breaks: iid group"} if self.back == "wrong" else set()))
