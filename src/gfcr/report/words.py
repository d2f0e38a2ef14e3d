"""What reasons and columns mean, in the words of the page."""

from __future__ import annotations

from gfcr.run.task_history import Kind
from gfcr.types import Drop, StopReason

DROPS: dict[str, str] = {
    Drop.ZERO_VARIANCE: "every answer of the group had the same reward, so nothing distinguishes them",
    Drop.SURPLUS: "its group was beyond the batch (dynamic sampling)",
    Drop.UNSCORABLE: "the verifier could not judge it",
    Drop.OVERLONG: "cut by the length limit and masked",
    Drop.REPLACED: "an injected answer took its place",
    Drop.REFUSED: "a demonstration that the verifiers do not call right",
    Drop.FAILED: "the engine or the environment broke",
    Drop.ABANDONED: "its group was given up",
    Drop.PRUNED: "stopped early on purpose",
    Drop.STALE: "too old for the current weights",
    Drop.NO_LOSS: "its method trains on others of the group",
}
STOPS: dict[str, str] = {
    StopReason.EOS: "the model ended it",
    StopReason.STOP_STRING: "a stop string ended it",
    StopReason.MAX_TOKENS: "cut at the longest answer",
    StopReason.CONTEXT_FULL: "cut at the model's context",
}
COMPUTED: tuple[tuple[str, str, str], ...] = (
    ("tokens_generated", "generated", "sampled for training: the budget"),
    ("tokens_prefilled", "context computed", "prompt tokens run through the model"),
    ("tokens_cached", "context reused", "prompt tokens taken from the cache, not computed again"),
    ("tokens_scored", "scored", "run again for log-probabilities only"),
    ("tokens_trained", "trained", "forward and backward by the trainer, prompts included"),
    ("tokens_evaluated", "evaluated", "sampled for held-out evaluation, outside the budget"),
)
KINDS: dict[str, str] = {
    Kind.EASY: "posterior of a right answer from .8 on: their groups are mostly all right",
    Kind.BOUNDARY: "right and wrong are both likely: these teach",
    Kind.HARD: "solved at least once, posterior up to .2",
    Kind.UNSOLVED: "judged and never solved",
    Kind.UNJUDGED: "no answer could be judged",
}
DROP_COLOURS = ("c2", "c4", "c5", "c6", "c7", "c8")
FACTS = {
    "gfcr": "gfcr",
    "torch": "torch",
    "transformers": "transformers",
    "python": "Python",
    "cpu": "processor",
    "threads": "torch threads",
    "device": "device",
    "dtype": "arithmetic",
    "engine": "engine",
    "engine_dtype": "arithmetic of the engine",
    "workers": "worker processes",
}


def reason(name: str) -> str:
    return name.replace("_", " ")
