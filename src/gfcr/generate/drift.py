"""Where a conversation's tokens differ from its template's full rendering, and why.

The tokens are right as they are: they were sampled and fed. A full rendering is what a trainer sees that goes through text;
each difference is a token whose log-probability it would compute in another context. Invariant: no difference is left out but
`pending`, what the template will add with the next message.

The course of a conversation is `clean` (a full rendering has the same tokens), `realigned` (the same texts and roles: other tokens
for a text, white space at a border, another end token) or `forked` (a trainer that goes through text would see another context:
a template rewrote what was said, or what was sampled is no text).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

import numpy as np

from gfcr.generate.codec import Codec
from gfcr.generate.shown import ASSISTANT
from gfcr.generate.turns import Conversation
from gfcr.types import Segment, SegmentKind

_OURS = frozenset({SegmentKind.ACTION, SegmentKind.FORCED, SegmentKind.DEMO})
_Block = tuple[str, int, int, int, int]
"""Kind of difference; first token and one past the last in the own tokens, and in the rendered ones."""
_BROKEN = "\ufffd"


class Kind(StrEnum):
    RETOKENISED = "retokenised"
    """The same text in other tokens: decoding and encoding again does not give back what was sampled."""
    BORDER = "border"
    """The same text, tokens merged over the border of two segments."""
    GLUE = "glue"
    """The template puts tokens at an answer's end, or between it and what follows, that were neither sampled nor fed."""
    TRIMMED = "trimmed"
    """The template trims white space that was sampled or fed."""
    HISTORY_REWRITTEN = "history_rewritten"
    """The template shows an earlier answer otherwise (drops its thinking, say)."""
    CONTEXT_REWRITTEN = "context_rewritten"
    """The template shows the prompt or an observation otherwise once more messages follow."""
    OTHER_END = "other_end"
    """The answer ended with another end token than the template's."""
    CONTROL_WRITTEN = "control_written"
    """The policy wrote a control token inside its answer; as text it is only its spelling."""
    BROKEN_TEXT = "broken_text"
    """The tokens are no whole characters, so the text is not theirs."""


class Course(StrEnum):
    CLEAN = "clean"
    REALIGNED = "realigned"
    FORKED = "forked"


FORKING = frozenset({Kind.HISTORY_REWRITTEN, Kind.CONTEXT_REWRITTEN, Kind.CONTROL_WRITTEN, Kind.BROKEN_TEXT})
"""Kinds after which a text trainer's context is another one."""


@dataclass(frozen=True, slots=True, eq=False)
class Mismatch:
    """One segment that a full rendering has otherwise, with the gravest kind of what differs in it."""

    kind: Kind
    segment: int
    """Index in the path."""
    turn: int
    own: np.ndarray
    """int32: the tokens sampled or fed, from the first to the last that differs."""
    rendered: np.ndarray
    """int32: what a full rendering has there."""
    what: str
    """In a sentence."""


@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    mismatches: tuple[Mismatch, ...]
    pending: np.ndarray
    """int32: what the template adds after the last answer, fed with the next message (verl#3720's newline)."""

    @property
    def exact(self) -> bool:
        return not self.mismatches

    @property
    def course(self) -> Course:
        if self.exact:
            return Course.CLEAN
        return Course.FORKED if any(m.kind in FORKING for m in self.mismatches) else Course.REALIGNED


def label(conversation: Conversation) -> str:
    """The course and the kinds of a conversation's drift in one word list (`forked history_rewritten retokenised`), for
    `Rollout.meta["drift"]`: the messages are not kept, so that nobody can check it later."""
    drift = check(conversation)
    return " ".join([str(drift.course), *sorted({str(m.kind) for m in drift.mismatches})])


def check(conversation: Conversation) -> Drift:
    """Compare with the full rendering of the same messages. Raises DataError when the template refuses them."""
    chat, codec, own = conversation.chat, conversation.chat.codec, conversation.ids()
    asked = conversation.messages[-1].role != ASSISTANT
    full = np.asarray(codec.encode(chat.render(conversation.shown(), asked, conversation.tools)), np.int32)
    if np.array_equal(own, full[: len(own)]):
        return Drift((), full[len(own) :])
    segments = [node.segment for node in conversation.path]
    ends = np.cumsum([len(s) for s in segments])
    blocks = _differences(own, full, ends)
    pending = full[:0]
    if blocks[-1][0] == "insert" and blocks[-1][1] == len(own) and not asked:
        pending = full[blocks.pop()[3] :]
    found = []
    for index, (i1, i2, j1, j2) in _by_segment(blocks, ends):
        segment, mine, theirs = segments[index], own[i1:i2], full[j1:j2]
        last = int(ends[index])
        after = index > 0 and i1 == last - len(segment) and segments[index - 1].kind in _OURS
        kind = _kind(codec, segment, mine, theirs, last - i2, after, chat.end)
        what = f"turn {segment.turn}, {segment.kind}: {codec.text(mine)!r} {mine.tolist()} is {codec.text(theirs)!r} "
        found.append(Mismatch(kind, index, segment.turn, mine, theirs, what + f"{theirs.tolist()} in a full rendering"))
    return Drift(tuple(found), pending)


def _differences(own: np.ndarray, full: np.ndarray, ends: np.ndarray) -> list[_Block]:
    """Differing blocks in order. Tokens left out are placed inside one segment where equal neighbours allow it: in `\\n a \\n b`
    against `\\n b`, whether `\\n a` or `a \\n` is left out is the same."""
    matcher = SequenceMatcher(None, own.tolist(), full.tolist(), autojunk=False)
    out: list[_Block] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "delete":
            for slide in range(len(full) - j1 + 1):
                if np.searchsorted(ends, i1 + slide, side="right") == np.searchsorted(ends, i2 + slide - 1, side="right"):
                    i1, i2, j1, j2 = i1 + slide, i2 + slide, j1 + slide, j2 + slide
                    break
                if i2 + slide >= len(own) or own[i1 + slide] != own[i2 + slide]:
                    break
        if tag != "equal":
            out.append((tag, i1, i2, j1, j2))
    return out


def _by_segment(blocks: Sequence[_Block], ends: np.ndarray) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
    """Differences of one segment joined: apart they may cut through a text that is the same as a whole."""
    joined: dict[int, tuple[int, int, int, int]] = {}
    for _, i1, i2, j1, j2 in blocks:
        index = min(int(np.searchsorted(ends, i1, side="right")), len(ends) - 1)
        first = joined.get(index, (i1, i2, j1, j2))
        joined[index] = (first[0], i2, first[2], j2)
    yield from joined.items()


def _kind(
    codec: Codec, segment: Segment, mine: np.ndarray, theirs: np.ndarray, left: int, after: bool, end: int | None
) -> Kind:
    """`left`: tokens of the segment after the difference, negative when it reaches into the next one; `after`: whether it
    begins right after an answer."""
    text, other = codec.text(mine), codec.text(theirs)
    ours = segment.kind in _OURS
    controls = [i for i in mine.tolist() if i in codec.control_ids]
    if ours and controls and (left or len(controls) > 1 or controls[0] == end):
        return Kind.CONTROL_WRITTEN
    if ours and controls:
        return Kind.OTHER_END
    if _BROKEN in text:
        return Kind.BROKEN_TEXT
    if text == other and len(mine) and len(theirs):
        return Kind.BORDER if left < 0 else Kind.RETOKENISED
    if after and not len(mine):
        return Kind.GLUE
    if "".join(text.split()) == "".join(other.split()):
        return Kind.GLUE if ours and len(other) > len(text) else Kind.TRIMMED
    return Kind.HISTORY_REWRITTEN if ours else Kind.CONTEXT_REWRITTEN
