"""Untrusted text in a judge's prompt.

Invariants: the judged text cannot leave its fence (the fence's number does not occur in it), holds no control token of the judge
and no invisible characters; what is no answer at all is never put before the judge. Linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from hashlib import blake2b

from gfcr.generate.codec import Codec

GONE = "\N{REPLACEMENT CHARACTER}"
"""Stands where something was taken out, so that what was around it cannot join to another one."""
CUT = "[...]"
PLACES = ("question", "reference", "answer", "fence", "right", "wrong")
_PLACE = re.compile(r"\{(" + "|".join(PLACES) + r")\}")
_CONTROL = re.compile(
    r"<\|[^<>|\n]{1,40}\|>|</?s>|<(?:bos|eos|pad|unk|start_of_turn|end_of_turn)>|\[/?INST\]|<</?SYS>>|</?think>"
)
"""Spellings of control tokens of common chat formats."""
MOST_FENCES = 64


def harmless(text: str, codec: Codec | None = None) -> str:
    """The text without control tokens (common spellings, and the judge's own), and without characters that are not seen."""
    text = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs", "Cn"))
    text = _CONTROL.sub(GONE, text)
    if codec is not None:
        for name in codec.controls:
            if name.strip():
                text = text.replace(name, GONE)
    return text


def shortened(text: str, most: int) -> str:
    """At most `most` characters, the end of the text, where its final answer stands."""
    return text if len(text) <= most else CUT + text[len(text) - most + len(CUT) :]


def fence(text: str, name: str) -> str:
    """A line that does not occur in `text`; a function of the two. Raises ValueError when none is found."""
    for n in range(MOST_FENCES):
        number = blake2b(f"{n}\x1f{name}\x1f{text}".encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        if number not in text:
            return f"=== {number} ==="
    raise ValueError("no fence can be found that does not occur in the answer")


def filled(template: str, values: Mapping[str, str]) -> str:
    """The template with its places filled, each once: what is put in is not looked at again."""
    return _PLACE.sub(lambda m: values[m.group(1)], template)


def empty(text: str) -> bool:
    """Whether nothing in the text could be an answer: no letter and no digit."""
    return not any(c.isalnum() for c in text)
