"""Which texts a model's tokenizer can write, asked before transformers and torch are loaded.

Invariants: the same `Codec` answers that a run writes with, over the file `tokenizer.json` itself; the file is read once, when the first
text is asked about; a directory without one answers nothing and is remembered.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from gfcr.errors import DataError
from gfcr.generate.codec import Codec

FILE = "tokenizer.json"


class Alphabet:
    """Over a model's directory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.silent = False
        """A text was asked about, and there was no file to say."""

    def lacks(self, text: str) -> bool:
        """Whether the tokenizer cannot write a text; False where nobody can say."""
        if self._codec is None:
            self.silent = True
            return False
        try:
            if self._codec.spells(text) is None:
                self._codec.encode(text)  # spares the twin, which a large vocabulary makes slow to build
            else:
                self._codec.plain(text)
        except DataError:
            return True
        return False

    @property
    def note(self) -> str:
        """What could not be said; empty where all was."""
        if not self.silent:
            return ""
        return f"texts of the recipe's guidance were not checked against the model's alphabet: {self.place} has no {FILE} that can be read"

    @cached_property
    def _codec(self) -> Codec | None:
        try:
            from tokenizers import Tokenizer

            return Codec(_Bare(Tokenizer.from_file(str(self.place / FILE))))
        except Exception:  # no such file, or one that the library cannot read: the run itself says so
            return None


class _Bare:
    """What `Codec` asks of a Hugging Face tokenizer, over its backend alone."""

    unk_token_id = None

    def __init__(self, backend: Any) -> None:
        self.backend_tokenizer, self.added_tokens_decoder = backend, backend.get_added_tokens_decoder()

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    def __call__(self, text: str, add_special_tokens: bool = True, verbose: bool = False) -> dict[str, list[int]]:
        return {"input_ids": self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids}
