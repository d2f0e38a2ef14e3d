"""Rewards from a report (card F-06).

- `all`: 1 for an answer that passes every case, else 0.
- `share`: the passed share. Invites answers that are right on easy cases only.
- `coderl`: CodeRL (arXiv:2207.01780): -1 where it does not compile, -0.6 for a runtime error, -0.3 for a failed test, 1 for all passed.
- `rltf`: RLTF (arXiv:2307.04349), adaptive: as `coderl`, with a failed test worth -0.3 + 1.3 * passed / total; fine-grained: the
  offending line is worth -0.3 beside (`span_value`), the whole program where it took too long or recursed too deeply or the error stands
  at its end, nothing for a RuntimeError. The paper means the weight times L / (number of error tokens), the official code divides by L
  and so gives each error token the weight itself, which is what the value says.

A time-out, too much memory and too much output count as runtime errors in both tables.
"""

from __future__ import annotations

from typing import Literal

from gfcr.filter.verifiers.code.report import Failure, Fault, Report

Score = Literal["all", "share", "coderl", "rltf"]
SPAN_VALUE = -0.3
"""RLTF's weight of an offending line."""


def score(report: Report, how: Score, hidden: bool = False) -> float:
    """The reward; `hidden`: of the hidden cases only, where there are any."""
    share = report.share(hidden)
    right = report.right if not hidden or not report.hidden[1] else share == 1.0
    if how == "all":
        return float(right)
    if how == "share":
        return share
    if right:
        return 1.0
    fault = report.failure.fault if report.failure else Fault.WRONG
    if fault in (Fault.SYNTAX, Fault.REFUSED):
        return -1.0
    if fault.broke:
        return -0.6
    return -0.3 + 1.3 * share if how == "rltf" else -0.3


def span_value(how: Score) -> float | None:
    """What an offending line is worth by itself; None where the table says nothing about lines."""
    return SPAN_VALUE if how == "rltf" else None


def blames_all(failure: Failure) -> bool:
    """RLTF's `whole`."""
    return (
        failure.fault is Fault.TIME
        or failure.what.startswith("RecursionError")
        or (failure.fault is Fault.SYNTAX and failure.where is None)
    )


def blames_none(failure: Failure) -> bool:
    """RLTF's `ignore`."""
    return failure.what.startswith("RuntimeError")
