"""Random chats through every shape of template, two tokenizers, with and without tools: each token is accounted for.

    python -m bench chats [chats]      default 10000

Needs the tests' folder (tests/chat_play.py says what is demanded of each chat). Prints, per shape, tokens, the policy's share, how a
full rendering compares (every tenth chat), and our CPU per turn of a conversation at several lengths.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

TURNS = (2, 20, 128)


def main() -> None:
    from chat_play import every_shape, play_many

    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    shapes = list(every_shape())
    total = own = played = 0
    for number, (name, made, chat, player) in enumerate(shapes):
        n = wanted // len(shapes) + (number < wanted % len(shapes))
        started = time.process_time()
        tokens, policy, courses = play_many(made, chat, player, np.random.default_rng([7, number]), n)
        seconds = time.process_time() - started
        print(f"{name:24} {n:6} chats {tokens:8} tokens, {policy:7} sampled  {courses}  {seconds:.1f} s", flush=True)
        total, own, played = total + tokens, own + policy, played + n
    print(f"{played} chats, {total} tokens, {own} sampled: each accounted for")
    for name, made, chat, _ in shapes:
        print(f"{name:24}", *(f"{turns} turns: {per_turn(made, chat, turns):.0f} us" for turns in TURNS), sep="  ")


def per_turn(made: object, chat: object, turns: int) -> float:
    """Microseconds of CPU for `said` and `heard`, mean over the turns of conversations, after one for warmth."""
    from chat_cases import answer
    from gfcr.generate.turns import Conversation
    from gfcr.types import ToolCall
    from tool_cases import TOOLS, ToolToy, message

    tools = isinstance(made, ToolToy)
    family = made.family if isinstance(made, ToolToy) else made.shape  # type: ignore[attr-defined]
    calls = [ToolCall("add", {"x": 1}, "abcdefgh1" if getattr(family, "ids", False) else "")] if tools else []
    written = family.written(calls) if tools else ["the answer is 42"]
    ids = [*made.ids(written), *([made.id(family.end)] if family.end else [])]  # type: ignore[attr-defined]
    spent = 0.0
    for again in range(1 + 60 // turns + 1):
        one = Conversation.start(chat, [message("user", "12 + 30?")], tools=TOOLS if tools else ())  # type: ignore[arg-type]
        for _ in range(turns):
            rollout = answer(one, ids)
            new = [message("tool" if tools else "user", "42 it is")]
            started = time.process_time()
            one = one.said(rollout, calls).heard(new)
            spent += (time.process_time() - started) if again else 0.0
    return spent / ((60 // turns + 1) * turns) * 1e6


if __name__ == "__main__":
    main()
