"""`python -m bench NAME [options]`: run one measurement; without a name, list them."""

from __future__ import annotations

import os
import runpy
import sys

# Before torch is imported by anything: one thread per process (several on a busy machine are slower by far).
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

BENCHES = {
    "engine": "embedded engine against model.generate: tokens per CPU second, KV memory",
    "workers": "embedded engine in two processes against one: tokens per second of wall time",
    "train_step": "one optimiser step against bare torch",
    "store": "CPU of a commit per rollout",
    "overhead": "CPU of a round per rollout, store and fsync included, 1,000 to 10,000 scripted rollouts",
    "turns": "CPU per turn and memory per token of rollouts of 1 to 20 turns, 1,000 to 10,000 scripted ones",
    "resume": "every failpoint in every mode, and 30 random kills: bit-equal?",
    "chats": "10,000 random chats through ten shapes of template, with and without tools: every token accounted for; CPU per turn",
    "sandbox": "a sandboxed run over a bare interpreter start, CPU and wall time",
    "code_cases": "the given code cases with their own limits, three times, one and eight at once; what is left of them",
    "code_fuzz": "2,000 generated programs, each judged twice: hangs, crashes, leaks, two verdicts",
    "control": "the four-module recipe with shuffled rewards: nothing may be learnt",
    "pool_d": "plain GRPO on pool D, 350,000 tokens, 3 seeds",
    "sampling": "pool D without training: temperatures, best of n and power sampling, accuracy and pass@k at their cost",
    "noise": "pool D on a verifier that errs, with and without correction, 5 arms, 3 seeds",
    "trl": "TRL's own GRPO against gfcr inside TRL and the reference trainer: CPU seconds to accuracy .7 on pool D",
    "verify_math": "the math verifier against math-verify 0.9, each in two killable processes: rows per CPU second, accuracy",
    "tables": "compare.json to Markdown",
    "all": "all short ones with machine facts, JSON and Markdown; --quick: minutes",
    "markdown": "results of `all` to Markdown, into the marked places of docs/benchmarks.md",
    "trees": "trees against independent chains at equal decoded tokens, lab model",
    "campaign": "recipes against each other on B3, HARD, B1, B2 (hours; resumable)",
}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in BENCHES:
        print("\n".join(f"{key:12} {what}" for key, what in BENCHES.items()))
        raise SystemExit(0 if not name else f"there is no bench {name!r}")
    sys.argv = [f"bench.{name}", *sys.argv[2:]]
    runpy.run_module(f"bench.{name}", run_name="__main__")


main()
