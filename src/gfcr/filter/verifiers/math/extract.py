r"""Where the final answer stands: `<answer>`, boxes, `####`, "final answer", "answer is"; offsets in the judged text.

Invariants: linear in the text; what stands in reasoning tags is not the answer; the last mark of the strongest kind counts; boxes that
follow each other with nothing but connecting words between them are one answer of several values (so a shotgun of boxes is not
right by its last); a mark with nothing, or with an empty form (`[your answer]`), after it is no mark.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

MARKS = ("tags", "boxed", "hash", "final", "answer")


@dataclass(frozen=True)
class Found:
    """What stands behind a mark."""

    text: str
    start: int
    end: int
    mark: str
    """One of MARKS; `plain` where there is none."""


_CHAT = re.compile(r"<\|(?:im_start|im_end|endoftext|eot_id|end|start_header_id|end_of_text)\|>|</s>|<eos>|<end_of_turn>")
_REASONING = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_BOX = re.compile(r"\\(?:f?boxed|fbox|framebox|boxed\*)\s*(\{)?")
_POWER = re.compile(r"\s*\^\s*(?:\{\s*[-+\w/]{1,20}\s*\}|\w)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_TAG = re.compile(r"<\s*(/?)\s*answer\s*>", re.IGNORECASE)
_FINAL = re.compile(
    r"(?:(?:the|my|our)[ \t]{1,3})?final[ \t]{1,3}(?:answer|result)[ \t]{0,3}(?:\*\*|__)?[ \t]{0,3}"
    r"(?:(?:is|are|should[ ]be|would[ ]be|must[ ]be)\b[ \t]{0,3}:?|[:=：]|(?=\n))",
    re.IGNORECASE,
)
_ANSWER = re.compile(
    r"(?<![A-Za-z])(?:answers?|ans|réponse|respuesta|antwort|ответ|correct[ ](?:option|choice))[\x22']?[ \t]{0,3}(?:\([^()\n]{0,20}\))?[ \t]{0,3}(?:\*\*|__)?[ \t]{0,3}"
    r"(?:(?:is|are|should[ ]be|would[ ]be|must[ ]be|equals)\b[ \t]{0,3}:?|[:=：])|答案[ ]?(?:是|为|：|:|应为)",
    re.IGNORECASE,
)
_RESULT = re.compile(
    r"(?<![A-Za-z])(?:results?|solutions?)[ \t]{0,3}(?:\*\*|__)?[ \t]{0,3}(?:(?:is|are)\b[ \t]{0,3}:?|[:：])|结果[ ]?(?:是|为|：|:)",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"[\s*:：]{0,20}(?:\[\s*(?:letter|answer|your[^\]]*|option|final[^\]]*|number|value|x+)\s*\]|<[^>\n]{1,30}>|\.\.\.|…|\(see [^)]*\)|_{2,})",
    re.IGNORECASE,
)
_EMPTY = re.compile(r"[\s*_:：$\\()\[\].,]*")
_BETWEEN = re.compile(r"(?:[\s$,;&.*]|\\[()\[\],;: ]|\\q?quad|\\text(?:rm|normal|bf)?|[{}]|\\hspace\{[^{}]*\}|\\\\|\\mbox)*")
_NAME = re.compile(r"[A-Za-z](?:_\{?\w{1,6}\}?)?'*(?:\([A-Za-z0-9]\))?\s*=\s*")
_LINK = re.compile(r"(?:and|or|as|well|for|parts?|case|respectively|also)\b|\(?[a-z\d]\)", re.IGNORECASE)
_OTHER = re.compile(r"[A-Za-z]{2,15}(?![A-Za-z(={\\])")
_AND = re.compile(r"(?:and|or)$", re.IGNORECASE)
_TURN = re.compile(
    r"(?:no|not|is|so|then|but|wait|actually|instead|rather|hence|thus|therefore|correct|wrong|should|was|we|if|plus|minus)$",
    re.IGNORECASE,
)
"""Words after which another answer stands, not another part of it."""
_DENIED = re.compile(r"(?:\bnot|n't|\bcannot be|\bnever)(?:\s|[:$]|\\[(\[])*$", re.IGNORECASE)
_REFUTED = re.compile(
    r"(?:\s|[$]|\\[)\]])*(?:(?:is|was)\s+(?:wrong|incorrect|not\s+(?:right|correct|the\s+answer))|(?:is|was)n't\s+(?:right|correct|the\s+answer))\b",
    re.IGNORECASE,
)
"""Before and after a box that says what the answer is not."""
LONGEST = 3000
"""Characters taken from behind a mark."""
MOST_MARKS = 20
"""Marks tried from the end, where nothing stands behind the last ones."""


def judged_span(text: str) -> tuple[int, int]:
    """(start, end) of what is judged: after the reasoning, before a leaked control token."""
    end = len(text)
    start = 0
    opened: int | None = None
    for tag in _REASONING.finditer(text):
        if tag.group(1):
            start, opened = tag.end(), None
        elif opened is None:
            opened = tag.start()
    if opened is not None:  # never closed: all of it is reasoning
        end = opened
    for match in _CHAT.finditer(text, start, end):
        if text[start : match.start()].strip():
            end = match.start()
            break
    return start, end


def find(text: str, marks: tuple[str, ...] = MARKS) -> Found | None:
    """The final answer by the strongest mark; None where there is none."""
    start, end = judged_span(text)
    found = _find(text, start, end, marks)
    if found is None and start and _PLACEHOLDER.search(text, start, end):
        return _find(text, 0, text.rfind("</", 0, start), marks)
    return found


def _find(text: str, start: int, end: int, marks: tuple[str, ...]) -> Found | None:
    if "tags" in marks and (tagged := _tags(text, start, end)):
        return tagged
    strong = [
        box if "boxed" in marks and (box := _boxes(text, start, end)) else None,
        _hash(text, start, end) if "hash" in marks else None,
        _marked(_FINAL, "final", text, start, end) if "final" in marks else None,
    ]
    known = [f for f in strong if f is not None]
    if known:
        return max(known, key=lambda f: f.start)
    if "answer" not in marks:
        return None
    return _marked(_ANSWER, "answer", text, start, end) or _marked(_RESULT, "answer", text, start, end)


def _tags(text: str, start: int, end: int) -> Found | None:
    """The last `<answer>`, to its end tag or, where it has none, to the end."""
    opened = closed = None
    for match in _TAG.finditer(text, start, end):
        if match.group(1):
            closed = match.start() if opened is not None and closed is None else closed
        else:
            opened, closed = match.end(), None
    if opened is None:
        return None
    stop = end if closed is None else closed
    inner = _boxes(text, opened, stop)
    return Found(inner.text, inner.start, inner.end, "tags") if inner else Found(text[opened:stop], opened, stop, "tags")


def _hash(text: str, start: int, end: int) -> Found | None:
    at = text.rfind("####", start, end)
    if at < 0:
        return None
    at += 4
    stop = text.find("\n", at, end)
    stop = end if stop < 0 else stop
    return Found(text[at:stop].strip(" #"), at, stop, "hash")


def boxes(text: str, start: int, end: int) -> list[tuple[int, int, int, int]]:
    """(start, content start, content end, end) of the boxes that are not inside another; a box that never closes reaches to the end
    of its line."""
    found: list[tuple[int, int, int, int]] = []
    at = start
    while (match := _BOX.search(text, at, end)) is not None:
        if match.group(1) is None:  # \boxed 5
            stop = re.compile(r"[^\s$\\.,]*").match(text, match.end(), end)
            assert stop is not None
            found.append((match.start(), match.end(), stop.end(), stop.end()))
            at = stop.end()
            continue
        depth = 1
        close = None
        for brace in _BRACE.finditer(text, match.end(), min(end, match.end() + 200_000)):
            if brace.group() == "{":
                depth += 1
            elif brace.group() == "}":
                depth -= 1
                if depth == 0:
                    close = brace.start()
                    break
        if close is None:
            line = text.find("\n", match.end(), end)
            close = end if line < 0 else line
            found.append((match.start(), match.end(), close, close))
            break
        found.append((match.start(), match.end(), close, close + 1))
        at = close + 1
    return found


def _boxes(text: str, start: int, end: int) -> Found | None:
    """The last box, with those before it that are joined to it."""
    every = boxes(text, start, end)
    if not every:
        return None
    first = len(every) - 1
    while first > 0 and _joined(text[every[first - 1][3] : every[first][0]]):
        first -= 1
    run = every[first:]
    parts = [text[b:c].strip() for _, b, c, _ in run]
    if _DENIED.search(text, max(start, run[0][0] - 40), run[0][0]) or _REFUTED.match(
        text, run[-1][3], min(end, run[-1][3] + 80)
    ):
        return Found(f"not {parts[-1]}", run[0][0], run[-1][3], "boxed")
    if len(parts) > 1:
        names = [_leading_name(text, every[n - 1][3] if n else start, every[n][0]) for n in range(first, len(every))]
        if all(names):
            parts = [f"{name} {part}" for name, part in zip(names, parts)]
        return Found(", ".join(parts), run[0][0], run[-1][3], "boxed")
    if power := _POWER.match(text, run[0][3], end):  # \boxed{5}^2 does not say 5
        return Found(f"({parts[0]}){power.group()}", run[0][1], power.end(), "boxed")
    return Found(parts[0], run[0][1], run[0][2], "boxed")


def _joined(between: str) -> bool:
    """Whether nothing but connecting marks and words stands between two boxes."""
    if len(between) > 120:
        return False
    rest, others, linked = between, 0, False
    sentence = re.search(r"[.!?]\s*(?:\$|\\\)|\\\])?\s+[A-Z]", between)
    if sentence:
        return False
    for _ in range(10):
        match = _BETWEEN.match(rest)
        rest = rest[match.end() :] if match else rest
        if not rest:
            return linked or not others
        word = _LINK.match(rest) or _NAME.match(rest)
        if word is None and others < 2 and (word := _OTHER.match(rest)) is not None:
            others += 1
        if word is None or _TURN.match(word.group()):
            return False
        linked |= bool(_AND.match(word.group()))
        rest = rest[word.end() :]
    return False


def _leading_name(text: str, start: int, at: int) -> str:
    """`y_1 =` before a box."""
    before = text[max(start, at - 40) : at]
    match = re.search(r"([A-Za-z](?:_\{?\w{1,6}\}?)?'*(?:\([A-Za-z0-9]\))?\s*=)[\s$]*$", before)
    return match.group(1) if match else ""


def _marked(pattern: re.Pattern[str], mark: str, text: str, start: int, end: int) -> Found | None:
    """What stands behind the last mark that has something behind it."""
    for match in reversed(deque(pattern.finditer(text, start, end), maxlen=MOST_MARKS)):
        at = match.end()
        placeholder = _PLACEHOLDER.match(text, at, end)
        if placeholder:
            continue
        stop = _content_end(text, at, end)
        content = text[at:stop]
        nested = deque(_ANSWER.finditer(content), maxlen=1)
        if nested:
            at, content = at + nested[-1].end(), content[nested[-1].end() :]
        empty = _EMPTY.match(content)
        if empty is not None and empty.end() == len(content):
            continue
        return Found(content, at, stop, mark)
    return None


def _content_end(text: str, at: int, end: int) -> int:
    """The end of the line that follows the mark, and of the displayed formula that begins there."""
    end = min(end, at + LONGEST)
    blank = re.compile(r"[\s*_:：$]*").match(text, at, end)
    first = blank.end() if blank else at
    line = text.find("\n", first, end)
    line = end if line < 0 else line
    for opener, closer in (("\\[", "\\]"), ("$$", "$$"), ("\\begin", "\\end"), ("\\(", "\\)")):
        opened = text.find(opener, at, line)
        if opened >= 0 and text.find(closer, opened + len(opener), line) < 0:
            closed = text.find(closer, opened + len(opener), end)
            if closed >= 0:
                after = text.find("\n", closed, end)
                line = max(line, end if after < 0 else after)
    return line
