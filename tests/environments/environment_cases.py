"""What tests of environments with tools share."""

from __future__ import annotations

import json

from gfcr.environments.acts import Branch, Finish, Reset, Turn
from gfcr.environments.contract import Said


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def told(acted):
    """Texts of what is read next."""
    return [part.text for message in acted.step.messages for part in message.parts]


class Played:
    """An episode on a host."""

    def __init__(self, host, task, session="a", seed=0):
        self.host, self.session, self.n = host, session, 0
        (self.begun,) = host.run([Reset(session, task, seed, keep=True)])
        assert not self.begun.error, self.begun.error

    def say(self, text):
        (acted,) = self.host.run([Turn(self.session, self.n, text if isinstance(text, Said) else Said(text), keep=True)])
        self.n += 1
        return acted

    def end(self):
        return self.host.run([Finish(self.session, end=False)])[0]


def same_after_restoring(host, task, turns, cut, seed=0):
    """Play `turns`; go back to after turn `cut` in another session and play on: equal steps, verdict, fragments and snapshots."""
    first = Played(host, task, "first", seed)
    out = [first.say(text) for text in turns]
    assert not any(o.error for o in out), [o.error for o in out]
    again = host.run(
        [
            Branch("second", "first", cut),
            *(Turn("second", n, Said(turns[n]), keep=True) for n in range(cut + 1, len(turns))),
            Finish("second", end=False),
        ]
    )
    assert not any(o.error for o in again), [o.error for o in again]
    end = first.end()
    assert [o.step for o in again[1:-1]] == [o.step for o in out[cut + 1 :]]
    assert again[-1].verdict == end.verdict or again[-1].verdict.status == end.verdict.status == "unscorable"
    assert again[-1].fragments == end.fragments
    kept = [host._lines[name].session.kept for name in ("first", "second")]
    assert kept[0] == kept[1] and len(kept[0]) == len(turns) + 1
    host.run([Finish("first"), Finish("second")])
