"""Chats through a whole run: a recipe, a small chat model in a directory, and what its batches hold."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from chat_cases import answer, messages_of, toy
from gfcr.build import build
from gfcr.environments.calculator import Calculator
from gfcr.errors import ConfigError, DataError
from gfcr.generate.drift import label
from gfcr.generate.render import TokenizerRenderer
from gfcr.generate.settings import PromptSettings
from gfcr.recipe import parse
from gfcr.run.directory import RunDirectory
from gfcr.run.drift import drift_metrics
from gfcr.run.session import Session
from gfcr.types import Group, Member, Node, Rollout, SegmentKind, StopReason, Task, ToolCall
from tool_cases import tool_toy


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return chat_model(tmp_path_factory.mktemp("model"), 96)


def chat_model(place: Path, room: int) -> Path:
    """A directory with a random chat model."""
    made = toy("chatml")
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, intermediate_size=16,
        vocab_size=len(made.tokenizer), max_position_embeddings=room, bos_token_id=None, pad_token_id=0,
        eos_token_id=made.id("<|endoftext|>"),
    )  # fmt: skip
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
            "generate": {"topology": {"name": "group", "k": 4}, "max_tokens": 12, "prompt": prompt or {}} | more,
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


PAIR = '''
from gfcr.environments.contract import Step
from gfcr.registry import Faithfulness, Slot, method
from gfcr.registry import Settings
from gfcr.types import Message, Part, PartKind, Status, Verdict


@method("pair", Slot.ENVIRONMENT, title="pair", criterion="reliability", faithfulness=Faithfulness.OURS,
        traits=("binary correctness",))
class Pair:
    """Answers each of two turns with two results that spell a control token."""

    name, version, deterministic, snapshots, quick = "pair", "1", True, False, True

    def __init__(self, settings: Settings, build=None):
        self.turn = 0

    def tools(self, task):
        return ()

    def reset(self, task, seed):
        return Step()

    def step(self, said):
        self.turn += 1
        texts = ("42<|im_end|>", f"{self.turn}")
        messages = tuple(Message("tool", (Part(PartKind.TEXT, t),)) for t in texts)
        return Step(messages if self.turn < 3 else (), terminated=self.turn == 3)

    def verify(self):
        return Verdict("pair", "1", Status.SCORED, float(self.turn), self.turn == 3)

    def fragments(self):
        return ()

    def close(self):
        pass
'''


def test_turns_with_an_environment_are_rendered_jointly_and_their_drift_is_counted(tmp_path):
    """A chat model, three turns with an environment of one's own: the batch trains what was sampled, in the context it was."""
    place = chat_model(tmp_path / "model", 256)
    (tmp_path / "pair.py").write_text(PAIR)
    made = toy("chatml")
    recipe_ = recipe(
        place,
        tasks(tmp_path, "chats", *CHATS),
        {"check_drift": 4},
        topology={"name": "interactive", "k": 3, "turns": 4, "turn_tokens": 4},
        environment={"name": f"{tmp_path / 'pair.py'}:Pair"},
    )
    Session.create(recipe_, seed=0, path=tmp_path / "run").run()
    with RunDirectory.read(tmp_path / "run") as run:
        row = list(run.metrics())[1]
        rollouts = [m.rollout for g in run.groups(1) for m in g.members.values()]
    fed = made.ids(made.shape.pieces([("tool", "42<|im_end|>"), ("tool", "1")], True))
    assert len(rollouts) == 6
    for one in rollouts:
        seen = [n.segment.ids.tolist() for n in one.path if n.segment.kind is SegmentKind.OBSERVATION]
        assert len(seen) == 2
        assert seen[0][-len(fed) :] == fed
    assert [("drift" in r.meta) for r in rollouts] == [True, True, False] * 2
    drift = row["drift"]
    assert drift["checked"] == 4 == sum(drift[course] for course in ("clean", "realigned", "forked"))
    labels = [r.meta["drift"].split() for r in rollouts if "drift" in r.meta]
    assert drift["forked"] == sum("forked" in words for words in labels)


def test_a_call_is_read_made_and_answered_through_the_template():
    """The calculator: two calls as Qwen writes them, their results in one user's turn, and the final answer."""
    made = tool_toy("hermes")
    made_by = TokenizerRenderer(made.toy.tokenizer)
    settings = Calculator.Settings()
    env, read = Calculator(settings), Calculator.reader(settings)
    task = Task("t", tuple(messages_of([("user", "What is 12 + 30, and 6 * 7?")])), "42")
    task = replace(task, tools=env.tools(task), id="")
    env.reset(task, 0)
    one = made_by.dialogue(task, (Node("p", None, made_by(task)),))
    assert "calculator" in made_by.codec.text(one.ids())
    written = made.family.written([ToolCall("calculator", {"expression": e}) for e in ("12 + 30", "6 * 7")])
    one = one.said(answer(one, [*made.ids(written), made.id("<|im_end|>")]))
    said = read(one.said_last)
    one = one.calling(said.calls).heard(env.step(said).messages)
    fed = made_by.codec.text(one.path[-1].segment.ids)
    assert fed == (
        "\n<|im_start|>user\n<tool_response>\n42\n</tool_response>\n<tool_response>\n42\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    one = one.said(answer(one, [*made.ids(["It is 42."]), made.id("<|im_end|>")]))
    assert env.step(read(one.said_last)).terminated
    assert env.verify().correct
    assert made_by.watch(1)(0, one) == ""  # nobody asked
    assert TokenizerRenderer(made.toy.tokenizer, PromptSettings(check_drift=1)).watch(8)(0, one) == "clean"
