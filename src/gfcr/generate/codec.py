"""Text and token ids of one tokenizer, exactly.

Invariants: a control token (end of turn, role header, padding) gets into the ids only where a template or the caller put it,
never because a text spells it; what `encode` gives for a text without such spellings is what the tokenizer itself gives;
decoding cleans nothing up.

Marked text: control tokens written by a template are replaced by marks in private code points, so that they differ from a text
that merely spells them. Such texts are encoded by a twin of the tokenizer, in which the control tokens are spelled as marks:
one call, the same normaliser, pre-tokeniser and merges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gfcr.errors import DataError

_OPEN, _CLOSE, _SHIELD, PLACE = "\U0010fff0", "\U0010fff1", "\U0010fff2", "\U0010fff3"
"""Mark begins, mark or shield ends, shield begins; PLACE stands where a template puts a text that is not there yet."""
_RESERVED = re.compile(f"[{_OPEN}{_CLOSE}{_SHIELD}{PLACE}]")
_ESCAPED = re.compile(r"\\udbff\\udff2(?P<json>\d+)\\udbff\\udff1|\\U0010fff2(?P<python>\d+)\\U0010fff1")
"""A shielded spelling as JSON's ASCII form and as Python's."""
_SHORT, _MOST_KEPT = 200, 4096
"""Longest marked text whose ids are kept, in characters, and how many."""
_CONTEXT = 8
"""Tokens of context that decide how the first ones after them decode (a leading space, a character in several tokens)."""


class Codec:
    """A Hugging Face tokenizer that keeps control tokens and texts apart."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        found = {str(t.content): int(i) for i, t in getattr(tokenizer, "added_tokens_decoder", {}).items() if t.special}
        for spelling in getattr(tokenizer, "all_special_tokens", ()):
            found.setdefault(str(spelling), int(tokenizer.convert_tokens_to_ids(spelling)))
        self.controls: dict[str, int] = dict(sorted(found.items(), key=lambda item: (-len(item[0]), item[0])))
        """Spelling -> id of every control token, the longest first."""
        self.control_ids = frozenset(self.controls.values())
        self._names = list(self.controls)
        self._number = {name: i for i, name in enumerate(self._names)}
        self._marks = {i: f"{_OPEN}{self._number[name]}{_CLOSE}" for name, i in reversed(self.controls.items())}
        self._encoded: dict[str, tuple[int, ...]] = {}
        """Short marked texts that were encoded lately: environments often say the same."""
        self._spelled = re.compile("|".join(map(re.escape, self._names)) if self._names else r"(?!)")

    # ---- marked text -------------------------------------------------------------------------------------------

    def spells(self, text: str) -> str | None:
        """The first control token that `text` spells; None when it spells none."""
        found = self._spelled.search(text)
        return found.group() if found else None

    def mark(self, token: int) -> str:
        """The mark of a control token."""
        return self._marks[token]

    def marked(self, text: str) -> str:
        """Every spelling in `text` as the control token it spells."""
        return self._spelled.sub(lambda m: f"{_OPEN}{self._number[m.group()]}{_CLOSE}", text)

    def checked(self, text: str) -> str:
        """`text` itself. Raises DataError when it holds one of the private code points used here."""
        if (clash := _RESERVED.search(text)) is not None:
            raise DataError(
                f"the text {text[:40]!r} holds the private character U+{ord(clash.group()):X}, which marks control tokens here",
                "take it out of the text",
            )
        return text

    def cleaned(self, text: str) -> str:
        """`text` with the private code points used here as U+FFFD: for what a policy or a tool wrote, which must not end a run."""
        return _RESERVED.sub("\ufffd", text)

    def shielded(self, text: str) -> str:
        """`text` with its spellings hidden from `marked`. Raises DataError like `checked`."""
        text = self.checked(text)
        return self._spelled.sub(lambda m: f"{_SHIELD}{self._number[m.group()]}{_CLOSE}", text)

    def unshielded(self, text: str) -> str:
        """The inverse of `shielded`, also after a template wrote it as JSON or as Python shows a text."""
        if _SHIELD in text:
            text = re.sub(f"{_SHIELD}(\\d+){_CLOSE}", lambda m: self._names[int(m.group(1))], text)
        if _ESCAPED.search(text) is not None:
            text = _ESCAPED.sub(self._escaped, text)
        return text

    def leading(self, marked: str) -> tuple[int, int] | None:
        """(token, characters) of the control token that `marked` begins with, white space before it counted; None without."""
        found = re.match(f"\\s*{_OPEN}(\\d+){_CLOSE}", marked)
        return None if found is None else (self.controls[self._names[int(found.group(1))]], found.end())

    def marks_in(self, marked: str) -> list[int]:
        """The control tokens of marked text, in order."""
        return [self.controls[self._names[int(number)]] for number in re.findall(f"{_OPEN}(\\d+){_CLOSE}", marked)]

    def _escaped(self, found: re.Match[str]) -> str:
        name = self._names[int(found.group("json") or found.group("python"))]
        return json.dumps(name)[1:-1] if found.group("json") is not None else repr(name)[1:-1]

    # ---- ids ---------------------------------------------------------------------------------------------------

    def encode(self, marked: str) -> list[int]:
        """Ids of marked text, nothing added. Raises DataError when the tokenizer cannot encode it."""
        try:
            if self.spells(marked) is None:
                return [int(i) for i in self._plain_call(self._unmarked(marked))]
            return self._twin_ids(marked)
        except DataError:
            raise
        except Exception as error:  # the tokenizers library raises bare Exceptions
            shown = self._unmarked(marked)
            raise DataError(
                f"{shown[:80]!r} has characters that the tokenizer does not know: {error}",
                "use texts in the model's alphabet, or another model",
            ) from None

    def encode_after(self, marked: str, before: int | None = None) -> list[int]:
        """Ids of marked text that continues a sequence: nothing a tokenizer puts at the beginning of a text (a space, say).
        `before`: the control token it follows; None = not known."""
        anchor = before if before is not None else self._anchor
        if anchor is None or (before is None and marked.startswith(_OPEN)):
            return self.encode(marked)
        after = self.mark(anchor) + marked
        if (known := self._encoded.get(after)) is not None:
            return list(known)
        try:
            ids = self._twin_ids(after) if self._twin_agrees else self.encode(after)
        except DataError:
            raise
        except Exception:  # characters it does not know: `encode` says which
            ids = self.encode(after)
        if not ids or ids[0] != anchor:
            raise DataError(
                f"the tokenizer does not give {anchor} for its own control token: it gives {ids[:3]}",
                "use a tokenizer whose special tokens are in its vocabulary",
            )
        if len(after) <= _SHORT:
            if len(self._encoded) >= _MOST_KEPT:
                self._encoded.clear()
            self._encoded[after] = tuple(ids[1:])
        return ids[1:]

    def plain(self, text: str) -> list[int]:
        """Ids of a text as it continues a sequence; its spellings of control tokens are plain characters."""
        return self.encode_after(self.checked(text))

    def wrapping(self) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after a text by itself (a begin token, say)."""
        bare, whole = self._plain_call("a"), list(self.tokenizer("a", verbose=False)["input_ids"])
        for at in range(len(whole) - len(bare) + 1):
            if whole[at : at + len(bare)] == bare:
                return whole[:at], whole[at + len(bare) :]
        return [], []

    # ---- text --------------------------------------------------------------------------------------------------

    def text(self, ids: Sequence[int] | np.ndarray) -> str:
        """All of it, control tokens as they are spelled."""
        return self._decode(ids, False)

    def answer(self, ids: Sequence[int] | np.ndarray) -> str:
        """Text without control tokens: what a verifier reads."""
        return self._decode(ids, True)

    def text_after(self, context: list[int], ids: list[int]) -> str:
        """Text of `ids` as they stand after `context`: a leading space stays."""
        tail = context[-_CONTEXT:]
        before, whole = self.text(tail), self.text(tail + ids)
        return whole[len(before) :] if whole.startswith(before) else self.text(ids)

    # ---- the tokenizer behind it -------------------------------------------------------------------------------

    def _decode(self, ids: Sequence[int] | np.ndarray, skip: bool) -> str:
        if self._backend is None:
            return self._decode_slowly(ids, skip)
        listed = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        return str(self._backend.decode(listed, skip_special_tokens=skip))

    def _decode_slowly(self, ids: Sequence[int] | np.ndarray, skip: bool) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False))

    @cached_property
    def _backend(self) -> Any:
        """The tokenizer's backend, whose `decode` costs a third; None where the tokenizer's own adds something to it."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None
        ids = [*range(min(len(self.tokenizer), 600)), *self.control_ids]
        tests = [ids, ids[::-1], ids[::7], [*self.control_ids], ids[5:6]]
        agrees = all(
            backend.decode(one, skip_special_tokens=skip) == self._decode_slowly(one, skip)
            for one in tests
            for skip in (True, False)
        )
        return backend if agrees else None

    def _plain_call(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _unmarked(self, marked: str) -> str:
        if _OPEN not in marked:
            return marked
        return re.sub(f"{_OPEN}(\\d+){_CLOSE}", lambda m: self._names[int(m.group(1))], marked)

    @cached_property
    def _anchor(self) -> int | None:
        """A control token to put before a text, so that the text does not begin the sequence; one that eats no white space."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        eager = {int(i) for i, t in added.items() if t.rstrip or t.lstrip}
        return next((i for i in self.controls.values() if i not in eager and i != self.tokenizer.unk_token_id), None)

    def _twin_ids(self, marked: str) -> list[int]:
        return [int(i) for i in self._twin.encode(marked, add_special_tokens=False).ids]

    @cached_property
    def _twin_agrees(self) -> bool:
        """Whether the twin can stand for the tokenizer, whose own call costs twice as much."""
        try:
            tests = [self.mark(i) + text for i in list(self.control_ids)[:2] for text in ("", "\n", " a\n\nb", "A 1é\t数")]
            return bool(tests) and all(self._twin_ids(t) == list(self._plain_call(self._unmarked(t))) for t in tests)
        except Exception:  # no twin, or a text that its alphabet lacks: the tokenizer itself is asked
            return False

    @cached_property
    def _twin(self) -> Any:
        """The same tokenizer with control tokens spelled as marks."""
        from tokenizers import Tokenizer

        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise DataError(
                f"a text spells a control token, and a {type(self.tokenizer).__name__} cannot encode it as plain text",
                "use a tokenizer with a tokenizer.json, or take the spelling out of the text",
            )
        spec = json.loads(backend.to_str())
        names = {name: f"{_OPEN}{i}{_CLOSE}" for name, i in self._number.items()}
        for token in spec["added_tokens"]:
            token["content"] = names.get(token["content"], token["content"])
        model = spec["model"]
        if isinstance(model["vocab"], dict):
            model["vocab"] = {names.get(piece, piece): i for piece, i in model["vocab"].items()}
        else:
            model["vocab"] = [[names.get(piece, piece), score] for piece, score in model["vocab"]]
        if model.get("unk_token") in names:
            model["unk_token"] = names[model["unk_token"]]
        spec |= {"post_processor": None, "padding": None, "truncation": None}
        return Tokenizer.from_str(json.dumps(spec))
