"""Judges for the tests: a scripted one that reads its prompt, with a small real tokenizer."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chat_cases import ENDS, Toy, toy
from gfcr.engine.contract import Request
from gfcr.engine.scripted import ScriptedEngine, ScriptedSettings
from gfcr.filter.verifiers.model.verifier import ModelVerifier
from gfcr.types import StopReason, path_ids

LAB = Path(__file__).parents[1] / "src" / "gfcr" / "domains" / "programs" / "checkpoint"
PROMPT = "R[{reference}] {fence} {answer} {fence} {right} or {wrong}"


def read(prompt: str) -> tuple[str, str]:
    """(reference, answer) of a prompt as above."""
    found = re.search(r"R\[(.*?)\] (=== \w+ ===) (.*) \2", prompt, re.DOTALL)
    assert found, prompt
    return found[1], found[3]


def judge(says: Callable[[str, str], str], shape: str = "chatml", **settings: Any) -> tuple[ModelVerifier, list[str], Toy]:
    """(a verifier whose scripted judge says `says(reference, answer)`, the prompts it got, its tokenizer)."""
    made, seen = toy(shape), list[str]()

    def script(request: Request) -> tuple[list[int], StopReason]:
        ids = path_ids(request.path)
        seen.append(made.tokenizer.decode(ids, skip_special_tokens=False))
        reply = says(*read(made.tokenizer.decode(ids, skip_special_tokens=True)))
        if reply == "(fails)":
            return [], StopReason.FAILED
        end = [made.id(made.shape.end or ENDS[shape])] if reply != "(cut)" else []
        return [
            *made.tokenizer(reply, add_special_tokens=False)["input_ids"],
            *end,
        ], StopReason.EOS if end else StopReason.MAX_TOKENS

    engine = ScriptedEngine(script, ScriptedSettings(vocabulary=len(made.tokenizer)), decode=made.tokenizer.decode)
    own = ModelVerifier.Settings(**{"path": str(LAB), "prompt": PROMPT, "max_tokens": 64, **settings})
    return ModelVerifier(own).use(engine, made.tokenizer), seen, made


def honest(reference: str, answer: str) -> str:
    """Right iff the last word is the reference."""
    return "Correct" if answer.split()[-1:] == [reference] else "Incorrect"
