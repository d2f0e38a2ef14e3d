"""Results to Markdown, and into the marked places of a document.

    python -m bench markdown DIR                              print what the results in DIR say
    python -m bench markdown DIR --into docs/benchmarks.md    put it between `<!-- bench NAME -->` and `<!-- end bench -->`

Invariant: only marked places are written; a mark without a result keeps what stands there; ratios stand beside what they compare.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Result = dict[str, Any]
_MARK = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- end bench -->)", re.DOTALL)


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def engine(r: Result) -> str:
    rows = []
    for name in ("long tail", "equal"):
        one = r[name]
        batch, peer = max(one["generate"].items(), key=lambda item: item[1])
        speed = one["engine"]["tokens_per_cpu_s"]
        ratio, bound = f"**{one['ratio']:.2f}**", f"{one['engine']['kv_ratio']:.2f}"
        rows.append([name, f"{speed:,.0f}", f"{peer:,.0f} (B={batch})", ratio, bound])
    return table(["lengths", "engine, tokens/CPU s", "best `generate`", "ratio", "worst KV ratio (bound 2)"], rows)


def workers(r: Result) -> str:
    head = ["model", "one process, tokens/s", "processes", "tokens/s", "ratio", "load before, after", "by CPU, at most"]
    speed, load = r["tokens_per_s"], ", ".join(f"{x:.1f}" for x in r["load"])
    row = [r["size"], f"{speed['one']:,.0f}", str(r["workers"]), f"{speed['many']:,.0f}", f"**{r['ratio']:.2f}**", load]
    return table(head, [[*row, f"{r['at_most']:.2f}"]])


def train_step(r: Result) -> str:
    head = ["batch", "gfcr, CPU ms", "bare torch", "ratio", "bare torch, length-sorted", "ratio"]
    rows = []
    for c in r["cases"]:
        ratios = [f"**{c[name]:.2f}**" for name in ("ratio", "ratio_cut")]
        ours, bare, cut = (f"{c[name]:.1f}" for name in ("gfcr_ms", "bare_ms", "cut_ms"))
        rows.append([f"{c['rows']} rows, {c['updates']} update(s)", ours, bare, ratios[0], cut, ratios[1]])
    return table(head, rows)


def store(r: Result) -> str:
    head = ["rollouts", "a commit", "CPU µs per rollout", "best commit", "bytes per rollout", "peak RSS, MB"]
    names = ("per_commit", "cpu_us_per_rollout", "cpu_us_best_commit", "bytes_per_rollout", "peak_rss_mb")
    return table(head, [[f"{c['rollouts']:,}", *(str(c[name]) for name in names)] for c in r["rows"]])


def overhead(r: Result) -> str:
    rows = [
        [
            f"{c['rollouts']:,}",
            f"{c['cpu_us']:.0f}",
            f"{c['cpu_us'] / r['floor_us']:.1f}",
            f"{c['wall_us']:.0f}",
            f"{c['rss_mb']:.0f}",
        ]
        for c in r["rows"]
    ]
    head = ["rollouts", "CPU µs per rollout", f"× the floor ({r['floor_us']:.1f} µs)", "wall µs", "RSS, MB"]
    return table(head, rows) + f"\n\nLast over first: {r['last_over_first']:.2f}."


def resume(r: Result) -> str:
    return f"{r['cases']} failpoint cases, {r['failures']} failed; {r['kills']} kills, {r['runs_that_differ']} runs differ."


def control(r: Result) -> str:
    rows = [[name, f"{d['start']:.3f}", f"{d['end']:.3f}", f"{d['change']:+.3f}"] for name, d in r["runs"].items()]
    return table(["run, shuffled rewards", "start", "end", "change"], rows)


def pool_d(r: Result) -> str:
    rows = [[name, f"{r[name]['mean']:.3f} ± {r[name]['sd']:.3f}"] for name in ("final", "greedy")]
    return table(["pool D, plain GRPO, end", f"mean ± sd of {len(r['curves'])} seeds"], rows)


def noise(r: Result) -> str:
    ahead = {d["arm"]: d for d in r["differences"]}
    rows = []
    for name, arm in r["arms"].items():
        auc, final = (f"{arm[m]['mean']:.3f} ± {arm[m]['sd'] or 0:.3f}" for m in ("auc", "final"))
        gap = f"{ahead[name]['value']:+.3f} [{ahead[name]['low']:+.3f}, {ahead[name]['high']:+.3f}]" if name in ahead else ""
        rows.append([name, auc, final, gap])
    head = [f"pool D, {r['tokens']:,} tokens", f"AUC, {len(r['seeds'])} seeds", "final", "AUC − clean (95 %)"]
    return table(head, rows)


def trees(r: Result) -> str:
    head = ["pool", "topology", "leaves", "chains", "leaves per token, ratio", "informative", "chains", "gap ± se"]
    head += ["solved", "chains", "pass@4", "chains", "distinct", "chains", "Kish", "worth", "chains", "right", "chains"]
    rows = []
    for pool, settings in r["pools"].items():
        for name, one in settings.items():
            t, c = one["tree"], one["chains"]
            row = [pool, name, f"{t['leaves']:.1f}", f"{c['leaves']:.1f}", f"**{one['leaves_per_token']:.2f}**"]
            row += [f"{t['informative']:.2f}", f"{c['informative']:.2f}"]
            row += [f"{one['informative_gap']:+.3f} ± {one['informative_gap_se']:.3f}"]
            for figure, digits in (("solved", 2), ("pass_at_4", 2), ("distinct", 1)):
                row += [f"{t[figure]:.{digits}f}", f"{c[figure]:.{digits}f}"]
            rows.append(
                [*row, f"{t['kish']:.1f}", f"{t['worth']:.1f}", f"{c['worth']:.1f}", f"{t['right']:.2f}", f"{c['right']:.2f}"]
            )
    return table(head, rows)


WRITERS: dict[str, Callable[[Result], str]] = {
    f.__name__: f for f in (engine, workers, train_step, store, overhead, resume, control, pool_d, noise, trees)
}


def section(result: Result) -> str:
    """One result: its table, and under it the machine it is from."""
    return f"{WRITERS[result['bench']](result)}\n\n{facts(result['machine'])}\n"


def facts(m: Result) -> str:
    """The machine in a line."""
    known = {k: v for k, v in m.items() if v is not None}
    versions = ", ".join(f"{k} {known[k]}" for k in ("python", "torch", "transformers", "numpy", "gfcr") if k in known)
    return (
        f"<sub>{known.get('cpu', 'unknown processor')}, {known.get('cores', '?')} cores, {known.get('memory_gb', '?')} GB, load "
        f"{known.get('load_1min', '?')}, {known.get('threads', '?')} thread(s); {versions}; commit {known.get('commit', '?')}, "
        f"{known.get('time', '?')}</sub>"
    )


def read(folder: Path) -> dict[str, Result]:
    """Results by bench."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    return {r["bench"]: r for r in found if isinstance(r, dict) and r.get("bench") in WRITERS}


def document(results: dict[str, Result]) -> str:
    """All results under headings."""
    return "\n".join(f"## {name}\n\n{section(results[name])}" for name in WRITERS if name in results)


def put(text: str, results: dict[str, Result]) -> tuple[str, list[str]]:
    """(the document with its marked places filled, the benches whose places were filled)."""
    filled: list[str] = []

    def fill(found: re.Match[str]) -> str:
        if found[2] not in results:
            return found[0]
        filled.append(found[2])
        return f"{found[1]}{section(results[found[2]])}{found[3]}"

    return _MARK.sub(fill, text), filled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--into", type=Path)
    args = parser.parse_args()
    results = read(args.folder)
    if not results:
        raise SystemExit(f"{args.folder} holds no results; python -m bench all --out {args.folder} makes them")
    if args.into is None:
        print(document(results))
        return
    text, filled = put(args.into.read_text(encoding="utf-8"), results)
    args.into.write_text(text, encoding="utf-8")
    print(f"{args.into}: {', '.join(filled) or 'no marked place for these results'}")


if __name__ == "__main__":
    main()
