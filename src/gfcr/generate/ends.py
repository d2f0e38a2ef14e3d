"""What ends an answer. Invariant: every id that ends one somewhere (generation config, tokenizer, chat template, a stop string
that spells a control token) is known to the engine, so that no finished answer counts as cut off."""

from __future__ import annotations

from collections.abc import Sequence

from gfcr.engine.contract import StopSpec
from gfcr.errors import ConfigError
from gfcr.generate.codec import Codec


def stop_spec(
    codec: Codec, generation: int | Sequence[int] | None, turn_end: int | None, strings: Sequence[str], vocabulary: int
) -> StopSpec:
    """`generation`: `eos_token_id` of the model's generation config; `turn_end`: the control token that its chat template puts
    at an answer's end. Raises ConfigError for an id outside the vocabulary and for a stop string that cannot be found."""
    found: list[int | None] = [*([generation] if isinstance(generation, int) else generation or ())]
    found += [codec.tokenizer.eos_token_id, turn_end]
    for string in strings:
        if string in codec.controls:
            found.append(codec.controls[string])
        elif (control := codec.spells(string)) is not None:
            raise ConfigError(
                f"generate.stop_strings holds {string!r}: {control!r} is a control token, which is no text",
                f"write {control!r} alone, or the text alone",
            )
    eos = tuple(dict.fromkeys(int(i) for i in found if i is not None))
    if outside := [i for i in eos if not 0 <= i < vocabulary]:
        raise ConfigError(
            f"the end token {outside[0]} is outside the model's vocabulary of {vocabulary}",
            "use the tokenizer and the generation_config.json that belong to the model",
        )
    return StopSpec(eos, tuple(strings))
