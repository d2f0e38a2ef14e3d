"""The lab's tokenizer: one character is one token, 37 in all.

Invariants: ids are fixed (pad 0, bos 1, end 2, then digits, signs, letters); encoding a prompt puts bos in front, encoding
with `add_special_tokens=False` does not; decoding with `skip_special_tokens=True` gives back the exact text; a character
outside the vocabulary is an error, never dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gfcr.domains.programs.language import LETTERS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, BOS, END = "<pad>", "<bos>", "$"
PAD_ID, BOS_ID, END_ID = 0, 1, 2
VOCABULARY: tuple[str, ...] = (PAD, BOS, END, *"0123456789", *"+-*s/#?:", *LETTERS)
"""Token texts by id. `/` and `:` stand in no program; room for a user's own format."""
TOKEN_IDS = {token: i for i, token in enumerate(VOCABULARY)}


def encode_prompt(text: str) -> list[int]:
    """bos and the characters' ids, as the tokenizer does it; KeyError for a character outside the vocabulary."""
    return [BOS_ID, *(TOKEN_IDS[c] for c in text)]


def encode_answer(text: str) -> list[int]:
    """The characters' ids without special tokens."""
    return [TOKEN_IDS[c] for c in text]


def decode(ids: list[int]) -> str:
    """Text of ids, special tokens left out."""
    return "".join(VOCABULARY[i] for i in ids if i > END_ID)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer as a Hugging Face object, for checkpoints and engines."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel(TOKEN_IDS))  # no unknown token: an alien character raises
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    raw.decoder = decoders.Fuse()
    raw.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, BOS_ID)])
    build: type[Any] = PreTrainedTokenizerFast
    wrapped: PreTrainedTokenizerFast = build(
        tokenizer_object=raw,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=128,
    )
    return wrapped
