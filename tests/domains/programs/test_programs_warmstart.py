"""The warm start: its training text, its sampler, the shipped checkpoint."""

import json
from pathlib import Path

import numpy as np
import pytest

from gfcr.domains import programs
from gfcr.domains.programs import student as students
from gfcr.domains.programs.language import ANSWER_TOKENS, Program, apply, parse_prompt, reference_answer, sample_program
from gfcr.domains.programs.tokenizer import END_ID, build_tokenizer, decode, encode_prompt
from gfcr.run.seeds import generator

torch = pytest.importorskip("torch")
CHECKPOINT = Path(programs.__file__).parent / "checkpoint"


def test_a_careful_student_writes_the_reference() -> None:
    careful, rng = students.Student(styles=(1, 0, 0)), generator(1, "t")
    for _ in range(50):
        program = sample_program(rng, 6)
        ids = students.write_answer(careful, rng, program)
        assert decode(ids) == reference_answer(program) and ids[-1] == END_ID


def test_styles_and_the_cut() -> None:
    rng, program = generator(2, "t"), parse_prompt("a+b-c*dse+f-g*h+?65")
    repeated = [students.write_answer(students.Student(styles=(0, 1, 0)), rng, program) for _ in range(200)]
    assert max(map(len, repeated)) == ANSWER_TOKENS and any(ids[-1] != END_ID for ids in repeated)
    whole = [decode(ids) for ids in repeated if ids[-1] == END_ID]
    assert all(text.endswith(reference_answer(program)[-3:]) for text in whole)
    assert len(decode(students.write_answer(students.Student(styles=(0, 0, 1)), rng, program))) == 3


def test_a_sloppy_student_has_the_stated_share_of_misconceptions_and_goes_on_from_them() -> None:
    sloppy = students.sloppy_student(generator(3, "t"))
    counts = {operator: sum(cell[0] == operator for cell in sloppy.beliefs) for operator in "+-*s"}
    assert counts == {"+": 5, "-": 6, "*": 15, "s": 0}
    assert all(value != apply(*cell)[0] for cell, value in sloppy.beliefs.items())
    certain = students.Student(styles=(1, 0, 0), beliefs={("+", 1, 1): 5}, conviction=1.0)
    assert decode(students.write_answer(certain, generator(4, "t"), Program(0, "+-", 1, 1))) == "a+51b-41#41"


@pytest.fixture(scope="module")
def model():
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(CHECKPOINT).eval()


def test_the_checkpoint_is_an_ordinary_one(model) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    assert tokenizer("c-d*?65")["input_ids"] == build_tokenizer()("c-d*?65")["input_ids"] == encode_prompt("c-d*?65")
    assert sum(p.numel() for p in model.parameters()) == 84_672 and model.dtype == torch.float32
    assert model.config.eos_token_id == tokenizer.eos_token_id == END_ID
    assert sum(f.stat().st_size for f in CHECKPOINT.iterdir()) < 1_000_000
    card = json.loads((CHECKPOINT / "model_card.json").read_text())
    assert card["eligible"] and card["figures"]["L16"] <= 0.01


def test_sampler_agrees_with_the_full_forward_pass_and_is_a_function_of_its_generator(model) -> None:
    from gfcr.domains.programs.decode import sample_ids

    prompts = [encode_prompt(p) for p in ("a+b-c*?12", "d*e+f-?33", "bs?20", "csds?41")]
    greedy = sample_ids(model, prompts, 0.0, torch.Generator())
    for prompt, answer in zip(prompts, greedy):
        with torch.no_grad():
            best = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1].argmax(-1)
        assert best.tolist() == answer and (answer[-1] == END_ID or len(answer) == ANSWER_TOKENS)
    first, again = (sample_ids(model, prompts, 1.0, torch.Generator().manual_seed(5)) for _ in range(2))
    assert first == again


def test_start_on_the_held_out_set_of_b3(model) -> None:
    from gfcr.domains.programs.decode import outcomes
    from gfcr.domains.programs.pools import load_heldout

    tasks = load_heldout("B3")
    right, _ = outcomes(model, [t.prompt for t in tasks], [t.reference["final"] for t in tasks], 2, 1.0, 11)
    assert 0.20 <= np.mean(right) / 2 <= 0.30
