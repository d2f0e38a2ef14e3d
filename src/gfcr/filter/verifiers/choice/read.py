"""What a statement chooses. Invariants: a letter counts as a label only where it stands as one (an article, a variable or a part of a
word never does); several choices in one statement are all of them; a statement that is negated chooses nothing; linear in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from gfcr.filter.verifiers.choice.options import LETTERS, Options, plain, words


@dataclass(frozen=True, slots=True)
class Reading:
    """`labels` is empty when nothing was chosen; then `why` says more: `nothing`, `negated`, `asked`, `none` (it says that no
    option fits)."""

    labels: frozenset[str] = frozenset()
    why: str = "nothing"
    rest: str = ""
    """What follows the choice in the statement."""
    sure: bool = True
    """The label stands in dress (`(B)`, `B.`) or alone, or the option's text does."""


_LEAD = re.compile(
    r"(?:\s|[:>→=\-–—\"'.]|(?:the|an?)\s+(?=(?:option|choice|letter|answer)\b)|\b(?:option|choice|letter|answer|statement)s?\b"
    r"|\bI\s+(?:think|believe|guess)(?:\s+that)?\b"
    r"|\b(?:both|either|definitely|clearly|obviously|certainly|surely|most\s+likely|probably|likely|simply|indeed|therefore|thus|actually|again|"
    r"is|it|it's|therefore|just|in\s+fact|of\s+course|by\s+elimination)\b)+",
    re.IGNORECASE,
)
_NOT = re.compile(
    r"(?:not|never|neither|nor|no\s+longer|n't|cannot|can't|any(?:thing)?\s+but)(?!\w)\s*(?!only\b)|不是?", re.IGNORECASE
)
_BUT = re.compile(r"[\s,;]*\b(?:but|rather|instead)\b(?:\s+(?:rather|instead|is))*", re.IGNORECASE)
_REFUTED = re.compile(
    r"[)\]\"'.]?\s*(?:(?:is|are|was|were|would|can|could|does|do)(?:n't|\s*not)\b(?!\s+(?:only|necessarily)\b)"
    r"|(?:(?:is|are|was|were|would\s+be|seems?|must\s+be)\s+)?(?:(?:definitely|clearly|certainly|probably|simply|also|obviously)\s+)?"
    r"(?:not\b(?!\s+(?:option\s+)?\(?(?-i:[A-Z])(?!\w))|wrong\b|incorrect\b|false\b|ruled\s+out|eliminated|impossible)|是?(?:不|错))",
    re.IGNORECASE,
)
_NONE = re.compile(
    r"(?:none\b|neither\b(?!\s+(?:option\s+)?[(\"']?\w{1,2}[)\"']?\s+n?or\b)|no\s+(?:correct\s+|valid\s+)?(?:option|answer|choice)|unknown\b|unclear\b|undetermined|cannot\s+be\s+determined|n/a\b"
    r"|I\s+(?:do\s*n'?t|do\s+not|can\s*not|can't)\s+(?:know|tell|say|determine|answer))",
    re.IGNORECASE,
)
_JOIN = re.compile(
    r"[\s)\]\"'(]*(?:(?:[,;/&+、，|]|\b(?:and|or|nor|and/or|as\s+well\s+as|plus|vs)\b\.?|[和与或及])\s*)+"
    r"(?:(?:both|also|possibly|maybe|perhaps|alternatively|even|else)\s+){0,2}(?:(?:the\s+)?(?:option|choice|letter)s?\s+)?",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"\s*(?:(?:is|isn't|was|has|can|cannot|would|does|doesn't|states|says|describes|refers)\b|是|错|不)", re.IGNORECASE
)
_VERB = re.compile(r"\b(?:is|are|was|were|can|cannot|has|have|do|does|would|will)\b", re.IGNORECASE)
_AND = re.compile(r"\b(?:and|or)\b|[&+/和与或及]", re.IGNORECASE)
_DRESSED = re.compile(r"[(\[{<]\s*(\w{1,3})\s*[)\]}>]|(\w{1,3})\s*(?:[).:]|-\s)(?!\w)|\"(\w{1,3})\"|'(\w{1,3})'")
_BARE = re.compile(r"(\w{1,3})(?![\w(]|['-]\w|\s*(?:=|<|>|\+|\^|×|\*|≈|≤|≥)|\.\d|,\d)")
_AFTER_A = re.compile(
    r"\s*(?:$|[^\w\s(]|[A-Z]|\((?=\w)|(?:because|since|as|is|are|was|which|that|for|due|where|by|and|or|if|when|not|then|given|with|seems|fits|will|would|must|but|nor|rather|instead)\b|[^\x00-\x7f])"
)
_EDGE = re.compile(r"(?![\w])(?!\.\d)(?!,\d)(?!\s*/\s*\d)(?!-\w)")
_OWN = re.compile(r"[\s)\].:\-–—(=,]*")
_RUN = re.compile(r"[A-Z]{2,}(?!\w)")
_PART = re.compile(r"[)\].:\-–—(=,]")
_SENTENCE = re.compile(r"[.?](?=\s|$)|(?<=[^\W\d_]{2})!(?=\s|$)|[;\n]|,?\s(?:because|since|which|so|as)\b")


def read(content: str, known: Options, loose: bool = True) -> Reading:
    """What the statement's words choose. `loose`: the place says that an answer stands here, so a bare letter counts."""
    text = (
        " ".join(plain(content).replace("{", " ").replace("}", " ").split())
        if not known.words
        else " ".join(plain(content).split())
    )
    if (whole := known.by_text(content)) is not None and known.label(text) is None:
        return Reading(frozenset([whole]), "chosen")
    cut = _SENTENCE.split(text, maxsplit=1)[0]
    if cut != text and (part := known.by_text(cut)) is not None and known.label(cut.strip()) is None:
        return Reading(frozenset([part]), "chosen", text[len(cut) :])
    low = text.lower() if len(text.lower()) == len(text) else text
    at, negated = _lead(text, 0)
    if negated:
        labels, end, _ = _items(text, low, at, known, loose)
        if labels and (turn := _BUT.match(text, end)):
            labels, end, sure = _items(text, low, _lead(text, turn.end())[0], known, loose)
            return Reading(frozenset(labels), "chosen", text[end:], sure) if labels else Reading(why="negated")
        return Reading(why="negated" if labels else "nothing")
    labels, end, sure = _items(text, low, at, known, loose)
    if labels and text[end:].lstrip(" )]*\"'").startswith("?"):
        return Reading(why="asked")
    if labels:
        return Reading(why="negated") if _REFUTED.match(text, end) else Reading(frozenset(labels), "chosen", text[end:], sure)
    return Reading(why="none" if _NONE.match(text, at) else "nothing")


def _lead(text: str, at: int) -> tuple[int, bool]:
    """Where the answer's words begin, and whether a negation stands before them."""
    negated = False
    for _ in range(4):
        if lead := _LEAD.match(text, at):
            at = lead.end()
        if not (no := _NOT.match(text, at)):
            break
        if _NONE.match(text, at):
            break
        at, negated = no.end(), not negated
    return at, negated


def _items(text: str, low: str, at: int, known: Options, loose: bool) -> tuple[set[str], int, bool]:
    """Labels of a list that begins at `at`, where it ends, and whether each is surely a label."""
    labels: set[str] = set()
    end, surely = at, True
    for _ in range(len(known.labels) + 1):
        item = _item(text, low, at, known, loose)
        if item is None:
            break
        found, after, sure = item
        if labels and _CLAUSE.match(text, after) and not _AND.search(text, end, at):
            break  # "B, A is too small"
        if labels and ";" in text[end:at] and _VERB.search(text[at:].partition(";")[0]):
            break  # "B; A and C are wrong"
        end = after
        labels |= found
        surely = surely and sure
        if join := _JOIN.match(text, end):
            at = join.end()
        elif text[end : end + 1] == " " and _label_at(text, end + 1, known) is not None:
            at = end + 1
        elif text[end : end + 1] == "(" and _label_at(text, end, known) is not None:
            at = end
        else:
            break
    return labels, end, surely


def _item(text: str, low: str, at: int, known: Options, loose: bool) -> tuple[set[str], int, bool] | None:
    """(labels, end, sure) of one item: an option's text, or a label with perhaps its own text behind it. A label with another option's
    text behind it names both."""
    if (by_text := _text_at(low, at, known)) is not None and not (len(by_text[2]) == 1 and known.label(by_text[2])):
        return {by_text[0]}, by_text[1], True
    if known.several and (run := _RUN.match(text, at)) and list(run[0]) == sorted(set(run[0]) & set(known.labels)):
        return set(run[0]), run.end(), True
    found = _label_at(text, at, known)
    if found is None:
        return None
    label, end, sure = found
    if not sure and not loose:
        return None
    behind = _OWN.match(text, end)
    place = behind.end() if behind else end
    if (own := _text_at(low, place, known)) is not None:
        if own[0] == label:
            return {label}, own[1], True
        if (sure or _PART.search(text, end, place)) and re.match(r"[)\"'\s]*(?:[.;!]|$)", text[own[1] :]):
            return {label, own[0]}, own[1], True
    return {label}, end, sure


def _text_at(low: str, at: int, known: Options) -> tuple[str, int, str] | None:
    """(label, end, text) of the longest option text that stands at `at`."""
    for text, label in _by_length(known):
        if low.startswith(text, at) and _EDGE.match(low, at + len(text)):
            return label, at + len(text), text
    return None


@lru_cache(maxsize=256)
def _by_length(known: Options) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(((t, n) for n, t in zip(known.labels, known.texts) if t), key=lambda pair: (-len(pair[0]), pair[1])))


def _label_at(text: str, at: int, known: Options) -> tuple[str, int, bool] | None:
    """(label, end, sure) of a label that stands at `at`."""
    if known.words:
        for word in known.labels:
            end = at + len(word)
            if text[at:end].casefold() == word.casefold() and not text[end : end + 1].isalnum():
                return word, end, True
        return None
    if dressed := _DRESSED.match(text, at):
        inner = dressed[1] or dressed[2] or dressed[3] or dressed[4]
        if (label := known.label(inner)) is not None and not (dressed[2] and text[dressed.end() : dressed.end() + 1].isdigit()):
            article = dressed[2] and inner in "aAI" and text[dressed.end() : dressed.end() + 1].isalpha()
            return None if article else (label, dressed.end(2) if dressed[2] else dressed.end(), True)
    if not (bare := _BARE.match(text, at)) or (label := known.label(bare[1])) is None:
        return None
    after = text[bare.end() :]
    alone = not after.strip(" .!?\"')]")
    if (
        len(bare[1]) == 1
        and bare[1].upper() in LETTERS
        and (bare[1].islower() or bare[1] in "AI")
        and not _AFTER_A.match(after)
    ):
        return None
    if bare[1].islower() and not alone and not re.match(r"\s*(?:[^\w\s(](?!\w)|(?:because|since|and|or|is)\b)", after):
        return None
    return label, bare.end(), alone


def alike(content: str, wanted: str) -> bool:
    """Whether a text answer is the wanted one: as exact numbers, else as normalised words; up to the end of its first sentence where
    the whole is not."""
    from gfcr.domains.answers import number, same

    goal = words(wanted)
    if not goal:
        return wanted.strip() != "" and plain(content).strip() == plain(wanted).strip()
    content = re.sub(r"[^\S\n]+", " ", content)
    for part in (content, content.strip().partition("\n")[0], _SENTENCE.split(content.strip(), maxsplit=1)[0]):
        found = words(part)
        if found == goal or (number(found) is not None and number(goal) is not None and same(found, goal)):
            return True
    return False
