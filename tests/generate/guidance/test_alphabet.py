"""Texts that the model cannot write are refused by the check, without the model; where nobody can say, a note says so."""

import json
from shutil import copytree, ignore_patterns

import pytest

from gfcr.build import preflight
from gfcr.engine.models import load_tokenizer, model_path
from gfcr.errors import ConfigError, DataError
from gfcr.generate.alphabet import Alphabet
from gfcr.generate.codec import Codec
from gfcr.recipe import parse

HINT = {"name": "hint", "steps": "characters", "form": "text"}
STORE = {"replay": {"store": [{"name": "correct"}]}}
CASES = [
    ({"generate": {"seed": {"name": "mode"}}}, "generate.seed.think = 'Alright'"),
    ({"generate": {"topology": {"name": "plan"}}}, "generate.topology.ask = "),
    ({"generate": {"topology": {"name": "reflect"}}}, "generate.topology.again = "),
    ({"generate": {"seed": HINT}}, "generate.seed.say = "),
    ({"generate": {"seed": {"name": "examples"}}, **STORE}, "generate.seed.example = "),
]


@pytest.mark.parametrize(("recipe", "said"), CASES)
def test_default_texts_that_the_lab_model_cannot_write(recipe, said):
    with pytest.raises(ConfigError, match=f"{said}.* has characters that the model's tokenizer does not know"):
        preflight(parse(recipe))


def test_texts_in_its_alphabet_compose_without_a_note():
    seed = {"name": "mode", "think": "#", "quiet": "?"}
    assert not preflight(parse({"generate": {"seed": seed}})).notes


@pytest.mark.parametrize("fault", ["absent", "damaged"])
def test_without_a_tokenizer_it_is_said_that_nothing_was_checked(fault, tmp_path):
    copytree(model_path("lab"), tmp_path / "model", ignore=ignore_patterns("tokenizer.json"))
    if fault == "damaged":
        (tmp_path / "model" / "tokenizer.json").write_text("{")
    model = {"model": {"path": str(tmp_path / "model")}}
    (note,) = preflight(parse({"generate": {"seed": {"name": "mode"}}, **model})).notes
    assert "were not checked" in note and "no tokenizer.json that can be read" in note
    assert not preflight(parse(model)).notes, "a recipe without texts of its own has nothing to check"


def test_it_says_what_the_run_will_say():
    place = model_path("lab")
    alphabet, codec = Alphabet(place), Codec(load_tokenizer(place))
    texts = ["", "a", "#00", "a+00#00$", "$", "<bos>", "<pad>a", " ", "A", "\n", "é", "/", ":", "0" * 300, "aZ"]
    for text in texts:
        try:
            codec.plain(text)
            can = True
        except DataError:
            can = False
        assert alphabet.lacks(text) is not can, text
    known = json.loads((place / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    assert not any(alphabet.lacks(one) for one in known if len(one) == 1 and one != "$")
