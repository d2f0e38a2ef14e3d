"""Makes the lab's frozen task sets: `python -m gfcr.domains.programs.freeze`, then, once there is a checkpoint, `... --hard`, then
`... --mix`.

Invariants: everything follows from SEED (and, for HARD, from the checkpoint); held-out sets are drawn first, so a pool can
lose a prompt to them but never they to a pool; no prompt is used twice anywhere, but that MIX
is made of tasks of B3 and HARD.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gfcr.domains.programs.language import MODULUS, Program, final_pair, sample_program
from gfcr.domains.programs.pools import MANIFEST, load_pool
from gfcr.run.seeds import generator, stream_key

SEED = 20261129
DATA = Path(__file__).parent / "data"
HELDOUT_SIZE = 400
HELDOUT_LENGTHS = {"D": (1, 8), "D-long": (9, 12), "B1": (3, 8), "B2": (3, 8), "B3": (3, 8), "HARD": (3, 8)}
HARD_CANDIDATES = 2600
HARD_SCREENS = ((24, 1), (96, 2))
"""(samples in all, right ones at most) after each screen. One screen of 24 is not enough: a task that passes it at most once has a
pass rate of .07 on fresh samples, because the screening samples themselves are biased low."""
HARD_SIZE = 128
"""Tasks kept at most, the first ones."""
MIX_PARTS = {"easy": (192, 1, 1), "impossible": (192, 16, 16), "informative": (64, 3, 8)}
"""Of each kind of MIX's tasks from B3: how many, and their steps from and to; the hard ones are MIX_HARD of HARD's."""
MIX_HARD = 64


def draw(purpose: str, lengths: Sequence[int], taken: set[str]) -> list[Program]:
    """One new program per entry of `lengths`, in shuffled order; their prompts are added to `taken`."""
    rng = generator(SEED, "programs.freeze", purpose)
    out = []
    for length in lengths:
        program = sample_program(rng, length)
        while program.prompt in taken:  # ends: no set asks for more than a third of the 3136 programs of one step
            program = sample_program(rng, length)
        taken.add(program.prompt)
        out.append(program)
    return [out[i] for i in rng.permutation(len(out))]


def spread(n: int, low: int, high: int) -> list[int]:
    """`n` lengths, low..high in turn: as uniform as whole numbers allow."""
    return [low + i % (high - low + 1) for i in range(n)]


def wrong_key(program: Program, rng: np.random.Generator) -> str:
    """A final pair other than the right one, uniform over the other 48."""
    other = (int(final_pair(program), MODULUS) + int(rng.integers(1, MODULUS**2))) % MODULUS**2
    return f"{other // MODULUS}{other % MODULUS}"


def build() -> dict[str, list[tuple[str, str]]]:
    """(prompt, final) rows of every file that needs no checkpoint."""
    taken: set[str] = set()
    sets = {
        f"{name}.heldout.jsonl": draw(f"heldout {name}", spread(HELDOUT_SIZE, *lengths), taken)
        for name, lengths in HELDOUT_LENGTHS.items()
    }
    sets["D.jsonl"] = draw("D", spread(4096, 1, 8), taken)
    sets["B2.jsonl"] = draw("B2", spread(512, 3, 8), taken)
    sets["B3.jsonl"] = draw("B3", [1] * 256 + [16] * 256 + spread(128, 3, 8), taken)
    rows = {file: [(p.prompt, final_pair(p)) for p in programs] for file, programs in sets.items()}
    good = draw("B1", [1] * 205 + spread(102, 3, 8), taken)
    broken = draw("B1 broken", spread(205, 3, 8), taken)
    rng = generator(SEED, "programs.freeze", "wrong keys")
    b1 = [(p.prompt, final_pair(p)) for p in good] + [(p.prompt, wrong_key(p, rng)) for p in broken]
    rows["B1.jsonl"] = [b1[i] for i in rng.permutation(len(b1))]
    return rows


def screen(checkpoint: Path, taken: set[str]) -> list[tuple[str, str]]:
    """HARD: candidates of L 5..8 that the checkpoint hardly ever solves at temperature 1 (HARD_SCREENS)."""
    import torch
    from transformers import AutoModelForCausalLM

    from gfcr.domains.programs.decode import outcomes

    torch.set_num_threads(1)
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint)
    model.eval()
    kept = draw("HARD candidates", spread(HARD_CANDIDATES, 5, 8), taken)
    seen = [0] * len(kept)
    done = 0
    for samples, most in HARD_SCREENS:
        key = stream_key(SEED, "programs.freeze", "screen", samples) % 2**63
        right, _ = outcomes(model, [p.prompt for p in kept], [final_pair(p) for p in kept], samples - done, 1.0, key)
        found = [(p, n + int(r)) for p, n, r in zip(kept, seen, right) if n + r <= most]
        print(f"HARD: {len(found)} of {len(kept)} candidates have at most {most} right answers in {samples}")
        kept, seen, done = [p for p, _ in found], [n for _, n in found], samples
    return [(p.prompt, final_pair(p)) for p in kept[:HARD_SIZE]]


def mixed() -> list[tuple[str, str]]:
    """MIX: MIX_PARTS of B3 and MIX_HARD of HARD, the first ones of each."""
    parts = [[t for t in load_pool("B3") if low <= t.meta["length"] <= high][:n] for n, low, high in MIX_PARTS.values()]
    parts.append(load_pool("HARD")[:MIX_HARD])
    found = [(str(t.prompt), t.reference["final"]) for part in parts for t in part]
    return [found[i] for i in generator(SEED, "programs.freeze", "MIX").permutation(len(found))]


def write(rows: dict[str, list[tuple[str, str]]]) -> None:
    """The files and the digests of everything in the folder."""
    DATA.mkdir(exist_ok=True)
    for file, pairs in rows.items():
        lines = (json.dumps({"prompt": p, "final": f}, separators=(",", ":")) for p, f in pairs)
        (DATA / file).write_text("\n".join(lines) + "\n")
    digests = (f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}" for f in sorted(DATA.glob("*.jsonl")))
    (DATA / MANIFEST).write_text("\n".join(digests) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hard", action="store_true", help="screen HARD with the shipped checkpoint")
    parser.add_argument("--mix", action="store_true", help="make MIX of B3 and HARD")
    args = parser.parse_args()
    if args.mix:
        write({"MIX.jsonl": mixed()})
    elif args.hard:
        taken = {prompt for rows in build().values() for prompt, _ in rows}
        write({"HARD.jsonl": screen(Path(__file__).parent / "checkpoint", taken)})
    else:
        write(build())


if __name__ == "__main__":
    main()
