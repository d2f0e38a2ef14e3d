"""Users' functions, in an importable module as users have them."""

from __future__ import annotations

import time

import numpy as np


def right(text, reference):
    """Right iff the last pair is the reference."""
    return text.rpartition("#")[2] == reference


def trl_accuracy(completions, answer, **kwargs):
    assert len(kwargs["prompts"]) == 1
    return [1.0 if _content(c).endswith(a) else 0.0 for c, a in zip(completions, answer)]


async def trl_async(prompts, completions, level, trainer_state=None, log_metric=None, **kwargs):
    log_metric("seen", 1)
    return [len(_content(c)) / 10 + lv for c, lv in zip(completions, level)]


def _content(completion):
    return completion if isinstance(completion, str) else completion[-1]["content"]


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """verl's signature."""
    return {"score": 0.5 if solution_str == ground_truth else 0.0, "acc": solution_str == ground_truth, "evidence": data_source}


def says(text, prompt):
    """Returns what the prompt says."""
    if prompt == "loop":
        while True:
            pass
    if prompt == "raise":
        raise RuntimeError("the grader is broken")
    if prompt == "sleep":
        time.sleep(60)
    return eval(prompt, {"np": np})


def polite(text):
    return "please" in text


def no_answer(reference):
    return 1.0


def needs_column(text, level):
    return level


def wants_ids(completions, completion_ids):
    return [0.0]


def by_position(text, /):
    return 1.0


def shortest_first(tasks, n):
    """Short prompts first."""
    return sorted(tasks, key=lambda task: (len(task.prompt), task.id))


def drawn(tasks, n, rng, mean):
    return rng.choice(len(tasks), size=len(tasks), replace=False, p=(mean + 0.1) / (mean + 0.1).sum())


def hangs(tasks, n):
    while True:
        pass


def strange(tasks, n):
    return ["no such id"]


def nothing(tasks):
    return None


def wants_more(tasks, n, weather):
    return []


NUMBER = 7
