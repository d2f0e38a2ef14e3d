"""Rollouts of one task on the terminal.

Invariants: what rollouts share stands once, and a fork in the drawing is a fork of rollouts and nothing else; every piece of text says who
wrote it, in words and not in colour alone, in a column that no text gets into; a number that is not known is a dash, never 0; the numbers
of the policy's pieces and what was spilled add up to the tokens decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from rich.console import Console, ConsoleOptions
from rich.text import Text
from rich.tree import Tree

from gfcr.cli.sampled_data import known, own_logprob
from gfcr.cli.shown import visible
from gfcr.report.samples import worth
from gfcr.run.one_task import Sampled
from gfcr.types import POLICY, Member, Node, Role, Segment, SegmentKind

Decode = Callable[[np.ndarray], str]
Row = tuple[Member, Sequence[Node]]

STYLES = {
    SegmentKind.PROMPT: "dim",
    SegmentKind.ACTION: "green",
    SegmentKind.OBSERVATION: "cyan",
    SegmentKind.GUIDANCE: "magenta",
    SegmentKind.FORCED: "yellow",
    SegmentKind.DEMO: "blue",
}
MEANS = {
    SegmentKind.PROMPT: "the task",
    SegmentKind.ACTION: "sampled from the model",
    SegmentKind.OBSERVATION: "said to it on the way: by an environment, or with a verdict",
    SegmentKind.GUIDANCE: "told beside the task, as help",
    SegmentKind.FORCED: "put into its mouth, not sampled",
    SegmentKind.DEMO: "from a solution or chosen for it, not sampled",
}
OUTCOMES: dict[bool | None, tuple[str, str]] = {
    True: ("right", "bold green"),
    False: ("wrong", "bold red"),
    None: ("unscored", "bold yellow"),
}
REPLAYED = "earlier"
"""Who wrote what a replayed answer holds: the policy, in an earlier round."""
LONGEST = 1_200
"""Characters of a piece that are shown; the middle of longer ones is left out."""
TAIL = 300
"""Of them: how many at its end."""
GAP = 2
"""Blanks between who and text."""
NARROW = 16
"""Columns that texts get at least, however deep they stand and narrow the terminal."""


def show(console: Console, found: Sampled, decode: Decode, tokens: bool, full: bool = False) -> None:
    """The tree of a task's rollouts, what they cost, and what the signs mean. `full`: long texts whole."""
    drawing = _Drawing(found, decode, tokens, None if full else LONGEST)
    console.print(_title(found), soft_wrap=True)
    for tree in drawing.trees:
        console.print(tree, width=max(console.width, drawing.width), crop=False)
    console.print(_result(found), soft_wrap=True)
    for line in _costs(found):
        console.print(line, soft_wrap=True)
    for line in drawing.legend():
        console.print(line, style="dim", soft_wrap=True)


class _Label:
    """Rows of (who, text): who in a column of their own, texts folded beside it, no blanks at the ends of lines."""

    def __init__(self, column: int) -> None:
        self.column = column
        self.rows: list[tuple[Text, Text]] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        room = max(NARROW, options.max_width - self.column - GAP)
        for who, text in self.rows:
            for line in text.wrap(console, room, overflow="fold") or [Text()]:
                line.rstrip()
                yield Text.assemble(who, " " * (self.column + GAP - len(who)), line)
                who = Text()


class _Drawing:
    """The trees of a group's rollouts, one for each first node that they have."""

    def __init__(self, found: Sampled, decode: Decode, tokens: bool, longest: int | None) -> None:
        self.decode, self.tokens, self.longest = decode, tokens, longest
        members = list(found.group.members.values())
        self.kinds = {node.segment.kind for m in members for node in m.rollout.path}
        labels = [_who(m, n.segment) for m in members for n in m.rollout.path]
        self.column = max(map(len, [*labels, "unscored"]))
        self.counted = any(m.sampled and m.rollout.cost.generated != m.rollout.response_length for m in members)
        self.forks = False
        self.cut = False
        self.depth = 0
        self.trees = [self._tree(same, 1) for same in _by_node([(m, m.rollout.path) for m in members])]
        self.width = 4 * self.depth + self.column + GAP + NARROW

    def _tree(self, rows: Sequence[Row], depth: int) -> Tree:
        """Rows that begin with the same node: all that they share in one label, then a branch for each way they go on."""
        self.depth = max(self.depth, depth)
        label = _Label(self.column)
        rest = list(rows)
        while rest[0][1] and len({path[0].id if path else "" for _, path in rest}) == 1:
            self._say(label, rest[0][0], rest[0][1][0].segment)
            rest = [(member, path[1:]) for member, path in rest]
        for member, path in rest:
            if not path:
                outcome, style = OUTCOMES[member.signals.correct]
                label.rows.append((Text(outcome, style=style), _end(member)))
        tree = Tree(label, guide_style="dim")
        branches = _by_node([row for row in rest if row[1]])
        self.forks |= bool(branches)
        for same in branches:
            tree.children.append(self._tree(same, depth + 1))
        return tree

    def _say(self, label: _Label, member: Member, segment: Segment) -> None:
        style = STYLES[segment.kind]
        text = Text(style=style)
        if self.tokens and segment.logprobs is not None and known(segment):
            for i, logprob in zip(segment.ids, segment.logprobs):
                text.append(visible(self.decode(np.asarray([i])))).append(f"[{logprob:.2f}] ", style="dim")
        else:
            words = visible(self.decode(segment.ids))
            if self.longest is not None and len(words) > self.longest:
                self.cut = True
                left = len(words) - self.longest
                text.append(words[: self.longest - TAIL])
                text.append(f" [{left:,} characters left out] ", style="bold").append(words[-TAIL:])
            else:
                text.append(words)
        label.rows.append((Text(_who(member, segment), style=f"bold {style}"), text))

    def legend(self) -> list[Text]:
        """What the signs that occur mean."""
        said = [f"{POLICY if kind is SegmentKind.ACTION else kind} {MEANS[kind]}" for kind in SegmentKind if kind in self.kinds]
        lines = [f"who wrote a piece, and its tokens: {'; '.join(said)}"]
        if self.forks:
            lines.append("a fork: what stands before it is shared by all its branches; it stands, and was computed, once")
        if self.counted:
            lines.append("decoded: what a rollout cost, where the one before shares its tokens, or some were thrown away")
        if self.tokens:
            lines.append("after each token: its log-probability")
        if self.cut:
            lines.append("long texts are cut in their middle; --full shows them whole")
        lines.append(
            "advantage: what the loss weighs a rollout's tokens with (a range where they differ); – not known, or not in the loss"
        )
        return [Text(line) for line in lines]


def _by_node(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows by their first node, in order."""
    found: dict[str, list[Row]] = {}
    for member, path in rows:
        found.setdefault(path[0].id, []).append((member, path))
    return list(found.values())


def _who(member: Member, segment: Segment) -> str:
    """Who wrote a piece, and how many tokens it has."""
    who = str(segment.kind)
    if segment.kind is SegmentKind.ACTION:
        who = segment.author if segment.author not in ("", POLICY) else POLICY
        who = who if member.sampled else REPLAYED
    return f"{visible(who)} {len(segment)}"


def _title(found: Sampled) -> Text:
    task = found.group.task
    facts = [f"task {task.id[:12]}"]
    if task.category:
        facts.append(task.category)
    reference = task.reference.get("final", task.reference) if isinstance(task.reference, dict) else task.reference
    facts.append("no reference" if reference is None else f"reference {_short(str(reference))}")
    if found.standing.step is not None:
        facts.append(f"weights of step {found.standing.step}")
    return Text(visible("; ".join(facts)), style="bold")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"


def _end(member: Member) -> Text:
    """Where a rollout ends: what became of it."""
    signals, rollout = member.signals, member.rollout
    verdict = signals.verdict
    facts = [f"reward {'–' if signals.reward is None else format(signals.reward, 'g')}"]
    facts.append(f"advantage {'–' if member.credit is None else worth(member.credit)}")
    own = rollout.cost.generated if member.sampled else 0
    shared = "" if own == rollout.response_length or not member.sampled else f" ({own} decoded)"
    facts.append(f"{rollout.response_length} tokens{shared}")
    facts.append(
        "waits for the next round" if str(rollout.stop) == "parked" else f"ended by {str(rollout.stop).replace('_', ' ')}"
    )
    logprob = own_logprob(member)
    facts.append(f"log-probability {'not known' if logprob is None else format(logprob, '.2f')}")
    if member.role is not Role.FRESH:
        facts.append(str(member.role))
    if member.drop is not None:
        facts.append(f"not in the loss: {str(member.drop).replace('_', ' ')}")
    if verdict is not None and verdict.evidence:
        facts.append(f"{verdict.verifier}: {verdict.evidence}")
    return Text(visible("; ".join(facts)))


def _result(found: Sampled) -> Text:
    group = found.group
    members = list(group.members.values())
    right, wrong = group.outcomes()
    unscored = sum(m.fresh and m.signals.correct is None for m in members)
    judged = f"{right} of {right + wrong} judged right" if right + wrong else "nothing was judged"
    if unscored and right + wrong:
        judged += f", {unscored} unscored"
    helped = [m for m in members if not m.fresh]
    others = f", and {sum(m.signals.correct is True for m in helped)} of {len(helped)} with help right" if helped else ""
    reason = f" ({visible(group.reason)})" if group.reason else ""
    return Text(f"{judged}{others}; group {group.state}{reason}", style="bold")


def _costs(found: Sampled) -> list[Text]:
    """What the ledger booked."""
    ledger, total, leaves = found.ledger, found.ledger.total, len(found.group.members)
    gone = ", ".join(f"{n} {reason.replace('_', ' ')}" for reason, n in ledger.discarded.items() if n)
    decoded = f"decoded {total.generated} tokens ({total.generated / leaves:.1f} a rollout)"
    kept = total.generated - total.discarded - ledger.parked
    decoded += f": {kept} for the loss" + (f", {ledger.parked} wait for the next round" if ledger.parked else "")
    decoded += f", {total.discarded} discarded ({gone})" if total.discarded else ""
    lines = [decoded]
    rest = [f"context: {total.prefilled} computed, {total.cached} reused", f"scored {total.scored}"]
    if total.env_steps:
        rest.append(f"environment: {total.env_steps} steps, {found.tool_seconds:.2f} s")
    for name, use in ledger.judging.use.items():
        rest.append(f"judged by {name}: {use.calls}, {use.seconds:.2f} s" + (f", {use.tokens} tokens" if use.tokens else ""))
    lines.append("; ".join([*rest, f"{found.seconds:.2f} s in all"]))
    return [Text(visible(line)) for line in lines]
