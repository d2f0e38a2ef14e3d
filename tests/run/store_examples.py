"""Hand-built examples of everything a run directory holds, one of each kind."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from gfcr.types import (
    Batch,
    Comparison,
    Cost,
    Credit,
    Decision,
    Drop,
    Group,
    GroupState,
    LossRole,
    Member,
    Message,
    Node,
    Normalise,
    Origin,
    Part,
    PartKind,
    Preference,
    PreferencePair,
    Role,
    Rollout,
    Sampling,
    Segment,
    SegmentKind,
    Signals,
    Span,
    Status,
    StepScore,
    StopReason,
    Task,
    Times,
    TokenSource,
    ToolCall,
    Verdict,
)

LAW = Sampling(0.7, top_p=0.9, banned=(3, 5))
NAN = float("nan")


def prompt(n: int = 3, key: str = "p") -> Node:
    return Node(key, None, Segment(SegmentKind.PROMPT, np.arange(n), template="tpl"))


def action(key: str, parent: str | None, n: int = 4, **changes: Any) -> Node:
    rng = np.random.default_rng(len(key) + n)
    given = {
        "ids": rng.integers(0, 99, n),
        "logprobs": -rng.random(n),
        "author": "policy",
        "version": 2,
        "sampling": LAW,
        "role": LossRole.RL,
        "source": TokenSource.SAMPLED,
        "tracks": {"entropy": rng.random(n)},
    }
    return Node(key, parent, Segment(SegmentKind.ACTION, **(given | changes)))


def verdict(correct: bool | None, score: float | None = None, **changes: Any) -> Signals:
    value = float(bool(correct)) if score is None else score
    v = Verdict("exact", "2", Status.SCORED, value, correct, evidence="got “7” ≠ 5 \ud800 $x$", seconds=0.25)
    v = replace(v, answer="7", spans=(Span(0, 3, "line"), Span(2, 2, "step", -0.0)), tokens=9) if correct else v
    return Signals(**({"verdicts": {"exact": v}, "primary": "exact", "rewards": {"exact": value}, "reward": value} | changes))


def task(text: str = "2+2=?", **changes: Any) -> Task:
    return Task("math", text, **changes)


def tree() -> Group:
    """Siblings share the prompt and the first action node object; one node is empty."""
    root, trunk = prompt(), action("trunk", "p")
    leaves = [action(f"leaf{i}", "trunk", n=i) for i in range(3)]
    group = Group("g-tree", task(), 4, 2, planned=3, stage=1, state=GroupState.CLOSED, reason="enough")
    for i, leaf in enumerate(leaves):
        rollout = Rollout(
            f"tree{i}",
            group.task.id,
            (root, trunk, leaf),
            StopReason.EOS,
            seed=2**64 - 1 - i,
            cost=Cost(generated=4 + i, verifier_seconds=0.1 + i),
        )
        group.members[rollout.id] = Member(rollout, signals=verdict(i == 1), credit=Credit(0.5 - i))
    return group


def turns() -> Group:
    """Several turns, agents and weight versions in one rollout; environment states."""
    nodes = [
        prompt(5, "q"),
        action("a0", "q", version=7, author="planner"),
        Node("o0", "a0", Segment(SegmentKind.OBSERVATION, np.array([9, 9]), author="shell")),
        action("a1", "o0", turn=1, version=8, author="coder", tracks={}, source=TokenSource.DRAFT_EXACT),
        Node("f1", "a1", Segment(SegmentKind.FORCED, np.empty(0, np.int32), turn=1)),
        action("a2", "f1", turn=2, version=9, author="coder", sampling=Sampling(0.0)),
    ]
    rollout = Rollout(
        "multi",
        "t",
        tuple(nodes),
        StopReason.MAX_TURNS,
        state_keys=("s0", "", "s2"),
        times=Times(-0.0, 1.5, NAN),
        meta={"host": "ñ"},
    )
    group = Group("g-turns", task(environment={"kind": "shell", "limit": 2.5, "ok": None}, tools=('{"name":"sh"}',)), 4, 9)
    steps = (StepScore(5, 9, "turn", -0.0, 3, "mc"), StepScore(9, 11, "turn", None), StepScore(11, 15, "token", NAN))
    advantage = np.array([0, NAN, -0.0, 1e-30, 5, *([0.25] * 14)], np.float32)
    group.members["multi"] = Member(
        rollout, signals=verdict(None, 0.125, steps=steps, uncertainty=NAN, novelty=-0.0), credit=Credit(advantage, 0.5, 0.1)
    )
    return group


def injected() -> Group:
    """An injected and a demo member, one dropped, one renamed in its group; guided context with a shorter train path."""
    root = prompt()
    hint = Node("hint", "p", Segment(SegmentKind.GUIDANCE, np.array([50, 51]), author="teacher"))
    own = action("act", "hint")
    guided = Rollout("guided", "t", (root, hint, own), StopReason.EARLY_EXIT, train_path=(root, own))
    old = Rollout("old", "t", (root, action("oldact", "p", version=1, source=TokenSource.REPLAYED)), StopReason.EOS)
    demo = Rollout("demo", "t", (root, Node("d", "p", Segment(SegmentKind.DEMO, [1, 2], role=LossRole.CE))), StopReason.EOS)
    bare = Rollout("bare", "t", (), StopReason.FAILED)
    group = Group("g-inj", task("x\x00y \U0001f600"), 4, 2, state=GroupState.PARKED, reason="budget")
    group.members = {
        "guided": Member(guided, in_baseline=False, cohort="hinted", signals=verdict(True)),
        "old": Member(old, Role.INJECTED, in_baseline=False, source="artifact-1", credit=Credit(-0.0, NAN, np.float32(0.1))),
        "as-demo": Member(demo, Role.DEMO, in_loss=False, drop=Drop.NO_LOSS),
        "bare": Member(
            bare,
            Role.RESUMED,
            drop=Drop.FAILED,
            signals=Signals({"j": Verdict("judge", "1", Status.UNSCORABLE, evidence="time-out")}, "j"),
        ),
    }
    return group


def media() -> Group:
    """Chat messages with media parts; several rewards, shaped; preferences and comparisons."""
    parts = (Part(PartKind.TEXT, "look"), Part(PartKind.IMAGE, uri="file:///a.png", sha256="00"), Part(PartKind.VIDEO, uri="v"))
    of = Task(
        "vision",
        (
            Message("system", ()),
            Message("user", parts, name="ann"),
            Message("assistant", (), calls=(ToolCall("z", {"b": [1, None], "a": {"$k": -0.5}}, "c1"), ToolCall("y", {}))),
            Message("tool", (Part(PartKind.TEXT, "4"),), "z", call_id="c1"),
            Message("tool", (Part(PartKind.TEXT, ""),), call_id=""),
        ),
        reference={"k": [1, NAN], "t": (1, 2)},
        reference_rev="3",
        category="hard",
        meta={"1": 1.0, "n": None},
        origin=Origin("generated", "gen", "5", ("a", "b")),
    )
    group = Group("g-media", of, 5, 3)
    for i in range(2):
        rollout = Rollout(f"m{i}", of.id, (prompt(), action(f"ma{i}", "p")), StopReason.STOP_STRING)
        signals = verdict(bool(i), rewards={"format": None, "$len": -0.5, "nan": NAN}, reward=0.5, shaped=np.float32(0.3))
        credit = Credit(None, rewards=np.array([0, 0, -0.0, NAN, 1], np.float32)) if i else Credit(None, ce_weight=0.25)
        group.members[rollout.id] = Member(rollout, signals=signals, credit=credit)
    group.preferences = [Preference("m1", "m0", 0.7)]
    group.comparisons = [
        Comparison((("m1",), ("m0",)), ("m0", "m1"), "llm", "4", "$better"),
        Comparison((), ("m0", "m1"), "llm"),
    ]
    return group


def groups() -> list[Group]:
    return [tree(), turns(), injected(), media()]


def batch() -> Batch:
    n = 40
    f = np.float32
    values = np.linspace(-3, 0, n).astype(f)
    return Batch(
        offsets=np.array([0, 25, 25, 40]),
        input_ids=np.arange(n, dtype=np.int32),
        rl_mask=np.arange(n) > 20,
        advantages=np.where(np.arange(n) > 20, f(-0.0), f(NAN)),
        rl_weights=np.ones(n, f),
        ce_weights=np.zeros(n, f),
        behaviour=values,
        proximal=np.full(n, NAN, f),
        reference=np.full(n, NAN, f),
        temperature=np.full(n, 0.7, f),
        versions=np.repeat(np.array([-1, 3], np.int32), 20),
        groups=np.array([0, 0, 1], np.int32),
        group_ids=("g-tree", "g-turns"),
        rollout_ids=("tree0+tree1", "tree2", "multi"),
        normalise=Normalise.CONSTANT,
        constant=64.0,
        parents=np.arange(n, dtype=np.int32) - 1,
        preferences=(PreferencePair(0, 1, 0.5),),
        pair_mask=np.arange(n) % 3 == 0,
        token_rewards=np.where(np.arange(n) > 20, f(-0.0), f(NAN)),
        turns=np.where(np.arange(n) > 20, np.arange(n) // 30, -1).astype(np.int32),
        rewards={"exact": np.array([1, NAN, -0.0], f)},
        media={2: ("file:///a.png",)},
        round=4,
        version=3,
    )


def decisions() -> list[Decision]:
    return [
        Decision("select", "g-tree", "open", "due", {"p": 0.5, "range": (0, 1), "worst": NAN}, task=task().id),
        Decision("stop", "tree1", "prune", "hopeless \ud800"),
        Decision("round", "", "close", ""),
    ]


def same(a: Any, b: Any, where: str = "") -> None:
    """Assert that two values are the same, bits of floats and types of arrays included."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), where
        return
    if isinstance(a, (float, np.floating)):
        assert repr(float(a)) == repr(float(b)), (where, a, b)
        return
    if is_dataclass(a) and not isinstance(a, type):
        assert type(a) is type(b), where
        for f in fields(a):
            same(getattr(a, f.name), getattr(b, f.name), f"{where}.{f.name}")
    elif hasattr(a, "items"):
        assert list(a) == list(b), (where, list(a), list(b))
        for key in a:
            same(a[key], b[key], f"{where}[{key}]")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b) and isinstance(b, type(a)), (where, a, b)
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{where}[{i}]")
    else:
        assert a == b and (type(a) is type(b) or not isinstance(a, Enum)), (where, a, b)
