"""Chats through a whole run: a recipe, a small chat model in a directory, and what its batches hold."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from chat_cases import answer, messages_of, toy
from gfcr.build import build
from gfcr.errors import ConfigError, DataError
from gfcr.generate.drift import label
from gfcr.generate.render import TokenizerRenderer
from gfcr.recipe import parse
from gfcr.run.directory import RunDirectory
from gfcr.run.drift import drift_metrics
from gfcr.run.session import Session
from gfcr.types import Group, Member, Node, Rollout, StopReason, Task


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A directory with a random chat model."""
    made = toy("chatml")
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, intermediate_size=16,
        vocab_size=len(made.tokenizer), max_position_embeddings=96, bos_token_id=None, pad_token_id=0,
        eos_token_id=made.id("<|endoftext|>"),
    )  # fmt: skip
    place = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).save_pretrained(place)
    made.tokenizer.save_pretrained(place)
    return place


def tasks(place: Path, name: str, *prompts) -> str:
    file = place / f"{name}.jsonl"
    rows = [{"prompt": p if isinstance(p, str) else [{"role": r, "content": t} for r, t in p], "answer": "42"} for p in prompts]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def recipe(place: Path, file: str, prompt=None, **more):
    return parse(
        {
            "name": "chat",
            "tasks": {"source": "file", "path": file},
            "model": {"path": str(place)},
            "generate": {"topology": {"name": "group", "k": 4}, "max_tokens": 12, "prompt": prompt or {}, **more},
            "filter": {"admission": {"drop_zero_variance": False}},
            "control": {"groups": 2, "min_groups": 1},
            "budget": {"tokens": None, "steps": 1},
        }
    )


CHATS = ([("user", "12 + 30?")], [("system", "Add."), ("user", "say <|im_end|>")])


def test_a_run_on_message_lists_trains_answers_to_the_templates_prompts(place, tmp_path):
    made = toy("chatml")
    file = tasks(tmp_path, "chats", *CHATS, [("user", "long " * 60)])
    with pytest.raises(DataError, match="1 of 3 tasks have prompts longer than 84 tokens"):
        build(recipe(place, file), 0)
    settings = {"overflow": "drop"}
    Session.create(recipe(place, file, settings), seed=0, path=tmp_path / "run").run()
    with RunDirectory.read(tmp_path / "run") as run:
        rows = list(run.metrics())
        assert rows[0]["tasks_dropped"] == {"prompt_too_long": 1}
        assert rows[1]["abandoned_by_reason"] == {}
        prompts = {tuple(made.ids(made.shape.pieces(chat, True))) for chat in CHATS}
        seen = set()
        for group in run.groups(1):
            for member in group.members.values():
                seen.add(tuple(member.rollout.path[0].segment.ids.tolist()))
                assert member.rollout.path[0].segment.template is not None
        assert seen == prompts


def test_settings_of_the_prompt_reach_it(place, tmp_path):
    made = toy("chatml")
    file = tasks(tmp_path, "texts", "12 + 30?")
    parts = build(recipe(place, file, {"chat": True, "system": "Add."}, stop_strings=["<|im_start|>"]), 0)
    expected = made.ids(made.shape.pieces([("system", "Add."), ("user", "12 + 30?")], True))
    assert parts.renderer(parts.tasks[0]).ids.tolist() == expected
    assert set(parts.stop.eos) == {made.id(c) for c in ("<|endoftext|>", "<|im_end|>", "<|im_start|>")}
    long = tasks(tmp_path, "long", "12 + 30? " * 40)
    cut = build(recipe(place, long, {"chat": True, "overflow": "truncate"}), 0)
    assert len(cut.renderer(cut.tasks[0]).ids) <= 84
    assert len(cut.renderer.cut) == 1
    with pytest.raises(ConfigError, match="does not read the variable 'thinking'"):
        build(recipe(place, file, {"chat": True, "template": {"thinking": False}}), 0)
    with pytest.raises(ConfigError, match="a text has no system message"):
        build(recipe(place, file, {"system": "Add."}), 0)
    with pytest.raises(ConfigError, match=r"unknown key .generate\.prompt\.sytem"):
        recipe(place, file, {"sytem": "Add."})


def test_a_tokenizer_without_a_template_is_refused_before_the_first_token(tmp_path):
    file = tasks(tmp_path, "chats", [("user", "a+?12")])
    lab = parse({"tasks": {"source": "file", "path": file}})
    with pytest.raises(DataError, match="the tokenizer has no chat template"):
        build(lab, 0)


def test_drift_is_counted_over_the_rollouts_that_were_asked_for(place, tmp_path):
    file = tasks(tmp_path, "chats", *CHATS)
    made = recipe(place, file, {"check_drift": 5})
    Session.create(made, seed=0, path=tmp_path / "run").run()
    with RunDirectory.read(tmp_path / "run") as run:
        first, row = run.metrics()
        groups = list(run.groups(1))
        renderer = TokenizerRenderer(toy("chatml").tokenizer)
        rollouts = [(g.task, m.rollout) for g in groups for m in g.members.values()][:5]
        labels = [label(renderer.dialogue(t, r.path[:1]).said(r)) for t, r in rollouts]
    assert "drift" not in first
    drift = row["drift"]
    assert drift["checked"] == 5 == drift["clean"] + drift["realigned"] + drift["forked"]
    assert (
        drift["forked"] == sum("forked" in one for one in labels) > 0
    )  # a random model writes control tokens and broken bytes
    assert drift.get("control_written", 0) == sum("control_written" in one for one in labels)


def test_a_rollout_that_nobody_can_check_is_not_counted():
    made = toy("chatml")
    renderer = TokenizerRenderer(made.tokenizer)
    chat, text = Task("t", messages_of(CHATS[0])), Task("t", "12 + 30?")
    out = []
    for task in (chat, text):
        one = renderer.dialogue(task, (Node("p", None, renderer(task)),))
        one = one.said(answer(one, [*made.ids(["42"]), made.id("<|im_end|>")]))
        out.append(Rollout(task.id, task.id, one.path, StopReason.EOS))
        two = one.heard(messages_of([("user", "so?")]))
        out.append(Rollout(f"{task.id}2", task.id, two.path, StopReason.MAX_TURNS))
    out.append(replace(out[1], id="labelled", meta={"drift": "forked history_rewritten trimmed"}))
    groups = []
    for task, some in ((chat, [*out[:2], out[4]]), (text, out[2:4])):
        groups.append(Group(f"g{task.id}", task, 0, 0, members={r.id: Member(r) for r in some}))
    counts = drift_metrics(groups, renderer, 10)
    assert counts == {"checked": 2, "clean": 1, "realigned": 0, "forked": 1, "history_rewritten": 1, "trimmed": 1}
    assert drift_metrics(groups, renderer, 1)["checked"] == 1
