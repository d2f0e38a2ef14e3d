"""The lab's tokenizer: 37 tokens, and nothing lost on the way there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfcr.domains.programs.tokenizer import BOS_ID, END_ID, PAD_ID, VOCABULARY, build_tokenizer, decode, encode_answer
from gfcr.domains.programs.tokenizer import encode_prompt as encode

TOKENIZER = build_tokenizer()


def test_vocabulary() -> None:
    assert len(VOCABULARY) == len(set(VOCABULARY)) == len(TOKENIZER) == 37
    assert (TOKENIZER.pad_token_id, TOKENIZER.bos_token_id, TOKENIZER.eos_token_id) == (PAD_ID, BOS_ID, END_ID)
    assert tuple(TOKENIZER.convert_ids_to_tokens(list(range(37)))) == VOCABULARY


@given(st.text("".join(VOCABULARY[3:]), max_size=40))
def test_round_trip_and_the_plain_functions_agree_with_the_tokenizer(text: str) -> None:
    prompt = TOKENIZER(text)["input_ids"]
    answer = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert prompt == encode(text) == [BOS_ID, *answer]
    assert answer == encode_answer(text)
    assert TOKENIZER.decode([*prompt, END_ID], skip_special_tokens=True) == decode([*prompt, END_ID, PAD_ID]) == text


@pytest.mark.parametrize("text", ["z", "a b", "\n", "A"])
def test_an_alien_character_is_an_error(text: str) -> None:
    with pytest.raises(Exception, match="WordLevel"):
        TOKENIZER(text)
    with pytest.raises(KeyError):
        encode(text)
