"""Random recipes from the whole product of Generate, each checked, run, killed and resumed:

    PYTHONPATH=src:. python tests/fuzz/recipes.py 60          60 recipes from seed 0 (about ten seconds each)
    PYTHONPATH=src:. python tests/fuzz/recipes.py 20 --first 100

Every recipe must be refused in a sentence or run three steps on the lab model. Of each round: tokens that the engine sampled =
generated = trained + discarded + parked; every own token of a rollout is one that its request sampled, with that log-probability;
nothing is left live or reserved. Of each batch: rows are the members in the loss, their tokens the trained paths, the mask the roles. A
run that is killed once at a random moment and resumed equals the uncut one bit by bit. Exit code 1 when something does not hold.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

TASKS = (("gsh-i*j-?13", "11"), ("i*jsk*l-?61", "06"), ("bsc-d-e-?03", "30"), ("m+n*o-ps?51", "15"))
CREDIT = {"treepo": "treepo", "treerl": "treerl", "treerpo": "treerpo", "plan": "treerpo", "tree-grpo": "tree-grpo"}
CREDITS = (
    "awr",
    "dr-grpo",
    "gae",
    "gigpo",
    "grpo",
    "maxrl",
    "pairs",
    "reinforce-pp",
    "rejection",
    "rloo",
    "seed-grpo",
    "treepo",
)
TRIES = 400
"""Drafts of a recipe until one composes."""
LONGEST = 180.0
"""Seconds of one run."""


# ---- drawing -------------------------------------------------------------------------------------------------------------


def topology(of: random.Random) -> dict[str, Any]:
    one, k = of.choice, of.choice([1, 2, 3, 4, 6])
    told = {"ask": "{feedback}", "again": "{feedback}", "retry": "+", "wrong": "-"}
    turns = {"turns": one([1, 2, 6, 12]), "turn_tokens": one([1, 3, 4]), "invalid": one(["observe", "end"])}
    return one(
        [
            {"name": "group", "k": k},
            {"name": "linear"},
            {"name": "n-best", "k": k, "n": k + one([0, 1, 3]), "by": one(["logprob-mean", "entropy", "short", "reward"])},
            {"name": "power", "k": k, "alpha": one([1.0, 2.0, 4.0]), "blocks": one([1, 2, 5]), "steps": one([0, 1, 3])},
            {
                "name": "plan",
                "plans": 2,
                "completions": one([1, 2, 3]),
                "tokens": one([1, 8, 48]),
                "ask": "{prompt}",
                "solve": "+",
            },
            {
                "name": "reflect",
                "k": k,
                "retries": one([1, 2]),
                "first": one([True, False]),
                "cohort": one(["joint", "own"]),
                **told,
            },
            {"name": "best-first", "k": k, "segment": one([1, 2, 5, 64]), "branches": one([1, 2, 3]), "wide": one([1, 4])},
            {
                "name": "treepo",
                "k": k,
                "segment": one([1, 3, 10, 99]),
                "depth": one([1, 2, 14]),
                "first": one([[1, 1], [2, 3]]),
            },
            {"name": "treerl", "trees": one([1, 2]), "forks": one([1, 2]), "rounds": one([1, 2]), "continuations": one([1, 2])},
            {"name": "treerpo", "children": one([1, 2, 3]), "depth": one([1, 2]), "step": one([1, 8, 99])},
            {
                "name": "tree-grpo",
                "trees": one([1, 2]),
                "expand": one([1, 2]),
                "keep": 2,
                "merge": one(["none", "state"]),
                **turns,
            },
            {"name": "interactive", "k": k, "back": one(["never", "invalid", "wrong"]), "back_turns": one([1, 9]), **turns},
        ]
    )


def draft(seed: int, grown: dict[str, Any], tasks: Path) -> dict[str, Any]:
    """A recipe of this topology as data, which may not compose."""
    of = random.Random(seed)
    one, rare = of.choice, lambda chance: of.random() < chance
    turns, name = grown["name"] in ("interactive", "tree-grpo"), grown["name"]
    generate: dict[str, Any] = {"topology": grown, "max_tokens": one([1, 3, 12, 24, 40, 64])}
    if turns:
        generate["environment"] = {"name": "registers", "tries": one([1, 3])}
    elif rare(0.2):
        generate["seed"] = {"name": "mode", "think": "a", "quiet": "b", "loss": one(["share", "none"])}
    if rare(0.4):
        generate["sampling"] = {"temperature": one([0.001, 0.5, 1.0, 1.5]), **one([{}, {"top_p": 0.9}, {"banned": [1]}])}
    if rare(0.2):
        generate["stop_strings"] = one([["+"], ["-"]])
    if rare(0.2):
        generate["partial"] = {"tokens": one([1, 4, 24]), "most_resumes": one([1, 3]), "train": one(["all", "newest"])}
    credit = CREDIT[name] if name in CREDIT and rare(0.6) else one(CREDITS)
    kinds: dict[str, Any] = {"pairs": {"kind": "dpo"}, "rejection": {"kind": "sft"}, "gae": {}}
    control: dict[str, Any] = {"groups": one([1, 2, 3])}
    if rare(0.3):
        control["select"] = {"name": one(["informative", "mopps"])}
    if rare(0.3):
        control["allocate"] = {"name": one(["greedy", "staged"])}
    if rare(0.3):
        control["configure"] = one(
            [
                [{"name": "schedule", "start": 1.2, "end": 0.6}],
                [{"name": "within", "points": [[0, 1.2], [3, 0.8]]}],
                [{"name": "uncertain"}],
            ]
        )
    if rare(0.3):
        control["failures"] = one([{"name": "fail-fast"}, {"name": "minimum-group"}])
    stored = {"store": [{"name": "correct"}], "augment": [{"name": "ar3po"}]} if rare(0.2) else {}
    return {
        "tasks": {"source": "file", "domain": "programs", "path": str(tasks)},
        "engine": {"workers": 2 if rare(0.1) else 1},
        "generate": generate,
        "filter": {
            "verifiers": [{"name": "environment" if turns else "exact"}],
            "credit": {"name": credit},
            "admission": {"drop_zero_variance": rare(0.5)},
        },
        "control": control,
        "replay": stored,
        "loss": {
            "packed": credit not in kinds and rare(0.5),
            "normalise": one(["token-mean", "sequence-mean"]),
            **kinds.get(credit, {}),
        },
        "train": {"minibatches": one([1, 2]), **({"value": {}} if credit == "gae" else {}), **one([{}, {"kl": 0.2}])},
        "budget": {"tokens": one([None, 150, 700]), "steps": 3},
        "evaluate": {"every_tokens": None, "samples": 1, "greedy": False},
        "run": {"checkpoint_every": one([1, 2])},
    }


def composed(seed: int, tasks: Path) -> tuple[dict[str, Any], Counter[str]]:
    """The first draft that composes, and the rules that refused others."""
    from gfcr.build import check_recipe
    from gfcr.errors import GfcrError
    from gfcr.recipe import parse

    rules, grown = Counter[str](), topology(random.Random(seed))  # drawn first: none is left out for being hard to please
    for i in range(TRIES):
        data = draft(seed * TRIES + i, grown, tasks)
        try:
            found = check_recipe(parse(data))
        except GfcrError:
            rules["settings"] += 1
            continue
        rules.update(finding.rule for finding in found)
        if not found:
            return data, rules
    raise SystemExit(f"no draft of seed {seed} composes")


# ---- one run, watched -----------------------------------------------------------------------------------------------------


def watch(session: Any, faults: list[str]) -> None:
    """Keep the books of every round a second time."""
    engine, ledger, rounds = session.parts.engine, type(session.ledger), session.driver
    sampled: dict[str, list[Any]] = defaultdict(list)
    seen: dict[str, Any] = {}
    step, cancel, drive, settle = engine.step, engine.cancel, rounds.drive, ledger.settle_round

    def stepped(tokens: int | None = None) -> Any:
        chunks = step(tokens)
        for chunk in chunks:
            sampled[chunk.request].append(chunk)
        return chunks

    def cancelled(request: str) -> Any:
        if (chunk := cancel(request)) is not None:
            sampled[request].append(chunk)
        return chunk

    def driven(round_: Any) -> None:
        before = engine.usage().decoded
        drive(round_)
        seen.update(groups=list(round_.groups.values()), decoded=engine.usage().decoded - before)
        if engine.live() or session.budget.held:
            faults.append(f"{engine.live()} requests live, {session.budget.held} tokens reserved after the round")

    def settled(self: Any, *args: Any) -> None:
        before = self.total, self.parked
        settle(self, *args)
        got = self.total.generated - before[0].generated
        kept = sum(trained(group, session.recipe) for group in seen["groups"])
        gone, waits = self.total.discarded - before[0].discarded, self.parked - before[1]
        if not got == seen["decoded"] == kept + gone + waits:
            faults.append(f"sampled {seen['decoded']}, booked {got}: trained {kept}, discarded {gone}, parked {waits}")
        for group in seen["groups"]:
            for member in group.members.values():
                faults.extend(foreign(member, sampled, session.version) if member.sampled else ())

    engine.step, engine.cancel, rounds.drive = stepped, cancelled, driven
    ledger.settle_round = settled


def own(member: Any) -> list[Any]:
    """Nodes the policy sampled for a member (`|`: a second attempt's silent copy of the first's)."""
    return [n for n in member.rollout.path if n.segment.kind == "action" and not n.id.endswith("|")]


def trained(group: Any, recipe: Any) -> int:
    """Sampled tokens on the paths of members that reached a loss, each once."""
    if group.state != "closed":
        return 0
    masked = recipe.generate.partial is not None
    reached = [m for m in group.members.values() if m.sampled and m.drop is None and m.credit is not None]
    nodes = {n.id: len(n.segment) for m in reached for n in own(m) if not (masked and n.segment.role == "none")}
    return sum(nodes.values())


def foreign(member: Any, sampled: dict[str, list[Any]], version: int) -> list[str]:
    """Own tokens that the request which the node names did not sample."""
    out = []
    for node in own(member):
        segment = node.segment
        if segment.version != version:
            continue  # of an earlier round
        chunks = sampled.get(node.id.partition("@")[0].partition(".")[0], [])
        ids, logs = [i for c in chunks for i in c.ids.tolist()], [x for c in chunks for x in c.logprobs.tolist()]
        n, mine = len(segment), (segment.ids.tolist(), segment.logprobs.tolist())
        if not any((ids[i : i + n], logs[i : i + n]) == mine for i in range(len(ids) - n + 1)):
            out.append(f"node {node.id} holds tokens that its request did not sample")
    return out


def batches(path: Path) -> list[str]:
    """What is wrong with the stored batches, read without the package's own assembly."""
    from gfcr.run.directory import RunDirectory

    out = []
    with RunDirectory.read(path) as run:
        for step in run.steps()[1:]:
            groups, batch = run.groups(step), run.batch(step)
            if batch is None:
                continue
            members = {
                name: m for g in groups for name, m in g.members.items() if g.state == "closed" and m.in_loss and m.credit
            }
            if sorted("+".join(batch.rollout_ids).split("+")) != sorted(members or [""]):
                out.append(f"step {step}: the rows are not the members in the loss")
            for row, name in enumerate(batch.rollout_ids if batch.parents is None else ()):
                nodes, span = members[name].rollout.trained_path, slice(*batch.offsets[row : row + 2])
                ids = np.concatenate([n.segment.ids for n in nodes])
                role = np.concatenate([np.full(len(n.segment), n.segment.role == "rl") for n in nodes])
                if not np.array_equal(batch.input_ids[span], ids):
                    out.append(f"step {step}: the row of {name} has other tokens")
                elif not np.array_equal(batch.rl_mask[span], role & bool(members[name].credit.reinforces)):
                    out.append(f"step {step}: the mask of {name} is not that of its roles")
            finite = np.isfinite(batch.advantages if batch.token_rewards is None else batch.token_rewards)
            if not np.array_equal(finite, batch.rl_mask):
                out.append(f"step {step}: advantages are not just where the mask is")
    return out


def play(path: Path, data: dict[str, Any], said: Path, watched: bool) -> None:
    """Run or resume to the end, in a child; what is wrong goes to `said`."""
    import torch

    from gfcr.errors import GfcrError
    from gfcr.recipe import parse
    from gfcr.run.directory import RunDirectory
    from gfcr.run.session import Session

    torch.set_num_threads(1)
    faults: list[str] = []
    code = 0
    try:
        session = Session.resume(path) if RunDirectory.exists(path) else Session.create(parse(data), 1, path)
        if watched:
            watch(session, faults)
        session.run()
    except GfcrError as error:
        code = 3
        if not error.remedy:
            faults.append(f"refused without a remedy: {error}")
    except BaseException:
        faults.append(traceback.format_exc())
    said.write_text("\n".join(faults))
    os._exit(code)


# ---- all of them ----------------------------------------------------------------------------------------------------------


def child(*args: Any, seconds: float) -> int | None:
    """Its exit code; None = it was killed."""
    process = multiprocessing.get_context("forkserver").Process(target=import_module("recipes").play, args=args)
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        return None
    return process.exitcode


def case(seed: int, place: Path, data: dict[str, Any]) -> list[str]:
    """What does not hold of one recipe."""
    from bench.resume import content

    from gfcr.run.directory import RunDirectory

    whole, cut, said = place / "whole", place / "cut", place / "said"
    began = time.monotonic()
    code = child(whole, data, said, True, seconds=LONGEST)
    if code is None:
        return [f"it has no end within {LONGEST:g} s"]
    if faults := said.read_text():
        return [faults]
    if not RunDirectory.exists(whole):
        return []  # refused in a sentence
    found = batches(whole)
    child(cut, data, said, False, seconds=random.Random(seed).random() * (time.monotonic() - began))
    again = child(cut, data, said, False, seconds=LONGEST)
    if again != code:
        return [*found, f"resumed, it ends with {again} instead of {code}: {said.read_text()}"]
    one, two = content(whole), content(cut)
    return found + [f"resumed, {name} differs" for name in sorted({*one, *two}) if one.get(name) != two.get(name)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    chosen = parser.parse_args()
    wrong, rules = 0, Counter[str]()
    for seed in range(chosen.first, chosen.first + chosen.count):
        place = Path(tempfile.mkdtemp(prefix="gfcr-recipes-"))
        tasks = place / "tasks.jsonl"
        tasks.write_text("".join(json.dumps({"prompt": prompt, "answer": answer}) + "\n" for prompt, answer in TASKS))
        data, refused = composed(seed, tasks)
        rules.update(refused)
        found = case(seed, place, data)
        wrong += bool(found)
        name = data["generate"]["topology"]["name"]
        print(f"{seed} {name}, {data['filter']['credit']['name']}: {'; '.join(found) or 'holds'}", flush=True)
        shutil.rmtree(place, ignore_errors=True)
    print(f"{chosen.count} recipes, {wrong} at fault; refused drafts by rule: {dict(rules.most_common())}")
    return bool(wrong)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    raise SystemExit(main())
