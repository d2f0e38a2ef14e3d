"""Hints from recipe to batch: who gets one, how strong, what is trained and under which context."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from gfcr.domains.programs.tokenizer import encode_prompt
from gfcr.errors import ConfigError
from gfcr.generate.guidance.helping import OWN
from gfcr.generate.guidance.solutions import Splitter, given
from gfcr.generate.guidance.strength import Cosine, StrengthSettings
from gfcr.run.metrics import step_metrics
from gfcr.types import Drop, LossRole, Role, SegmentKind, Task
from guidance_cases import SOLUTION, STEPS, context, guided, guided_lab
from lifecycle_cases import batch_of, row_advantages, tasks

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "guidance.json").read_text())
RIGHT, WRONG = "=ds36#36", "=#00"


def hint(**settings):
    return {"name": "hint", "steps": STEPS, **settings}


def script(plain, told):
    """What the first rollouts say, then those that were told something; a letter is `r` or `w`."""
    said, letters = {"r": RIGHT, "w": WRONG}, iter(plain + told)
    return lambda prompt, n: said[next(letters)]


def run(plain="wwww", told="rw", k=4, seed=None, **sections):
    sections["generate"] = {"seed": seed or hint(), **sections.get("generate", {})}
    return guided_lab(script(plain, told), k=k, **sections)


def group_of(made):
    (group,) = made.drive().groups.values()
    return group


# ---- who gets one --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("plain", "helped"), [("wwww", 2), ("rwww", 0), ("rrrr", 0)])
def test_only_a_group_whose_plain_rollouts_all_failed_is_helped(plain, helped):
    group = group_of(run(plain))
    assert len(guided(group)) == helped and len(group.fresh()) == 4
    assert group.outcomes() == (plain.count("r"), plain.count("w")), "guided rollouts say nothing about difficulty"


def test_a_group_that_nobody_could_judge_is_not_helped():
    made = run()
    object.__setattr__(made.tasks[0], "reference", None)
    assert not guided(group_of(made))


def test_the_posterior_counts_plain_rollouts_alone():
    made = run(told="rr")
    made.drive()
    assert made.slots.posterior._wrong[0] == 4 and made.slots.posterior._right[0] == 0


def test_the_context_is_the_beginning_of_the_solution_and_the_rest_is_the_policys():
    for member in guided(group_of(run())):
        assert SOLUTION.startswith(context(member)) and context(member) in {"a+53b-23", "a+53b-23c*63", "a+53b-23c*63ds36"}
        (segment,) = [n.segment for n in member.rollout.path if n.segment.kind is SegmentKind.GUIDANCE]
        assert segment.author == f"solution:{given(member)}/5" and segment.role is LossRole.NONE and segment.logprobs is None


def test_as_many_failures_leave_as_guided_rollouts_come():
    group = group_of(run())
    assert [m.drop for m in group.fresh()].count(Drop.REPLACED) == 2 and not any(m.drop for m in guided(group))


def test_all_failures_stay_where_nothing_is_replaced():
    group = group_of(run(seed=hint(replace=False)))
    assert [m.drop for m in group.members.values()] == [None] * 6


def test_the_share_and_the_privileged_use_are_in_the_metrics():
    round_ = run().drive()
    row = step_metrics(list(round_.groups.values()), round_.decisions)
    assert (row["guided"], row["share_guided"], row["guided_right"], row["privileged"]) == (2, 1.0, 0.5, 2)
    row = step_metrics(list(run("rwww").drive().groups.values()), [])
    assert (row["guided"], row["share_guided"], row["guided_right"], row["privileged"]) == (0, 0.0, None, 0)


def test_every_generated_token_is_booked():
    made = run()
    round_ = made.drive()
    (group,) = round_.groups.values()
    assert made.engine.decoded == round_.budget.spent == sum(m.rollout.cost.generated for m in group.members.values())


# ---- what is trained -----------------------------------------------------------------------------------------------------


def rows(round_):
    """(member, slice) of each row."""
    batch = batch_of(round_)
    members = {i: m for g in round_.groups.values() for i, m in g.members.items()}
    return batch, [(members[i], slice(*batch.offsets[r : r + 2])) for r, i in enumerate(batch.rollout_ids)]


def test_after_the_hint_log_probabilities_are_those_it_was_sampled_with():
    batch, found = rows(run().drive())
    assert row_advantages(batch) == pytest.approx([-0.5774, -0.5774, 1.732, -0.5774], abs=3e-3)
    for member, span in found:
        mask, own = batch.rl_mask[span], member.rollout.response_length
        assert mask.sum() == own and mask[-own:].all()
        assert batch.behaviour[span][mask] == pytest.approx(-0.1 * np.arange(1, own + 1))
        assert np.isnan(batch.behaviour[span][~mask]).all() and np.isnan(batch.proximal[span]).all()


def test_a_baseline_of_their_own():
    round_ = run(seed=hint(cohort="own")).drive()
    batch, found = rows(round_)
    by_cohort = {c: [a for (m, _), a in zip(found, row_advantages(batch)) if m.cohort == c] for c in ("", OWN)}
    assert by_cohort[""] == [0.0, 0.0] and by_cohort[OWN] == pytest.approx([1.0, -1.0], abs=1e-3)


def in_the_question(**more):
    return hint(form="text", say="{prompt}/{hint}", **more)


def test_a_hint_in_the_question_stands_in_the_prompts_place():
    for member in guided(group_of(run(seed=in_the_question()))):
        root, *rest = member.rollout.path
        assert root.segment.kind is SegmentKind.GUIDANCE and root.parent is None
        assert root.segment.ids.tolist()[:12] == encode_prompt("a+b-c*ds?23") and len(rest) == 1
        assert member.rollout.train_path is None and given(member)


def test_trained_under_the_plain_question_with_log_probabilities_recomputed_there():
    batch, found = rows(run(seed=in_the_question(context="plain")).drive())
    told = [(m, s) for m, s in found if m.role is Role.GUIDED]
    assert len(told) == 2
    for member, span in told:
        assert batch.input_ids[span][:12].tolist() == encode_prompt("a+b-c*ds?23")
        assert len(batch.input_ids[span]) == 12 + member.rollout.response_length
        assert np.isnan(batch.behaviour[span]).all() and np.isnan(batch.proximal[span]).all(), "the trainer recomputes"


def test_guide_grpos_ratio_keeps_the_law_under_the_hint_as_its_denominator():
    batch, found = rows(run(seed=in_the_question(context="plain", ratio="guided")).drive())
    assert sum(m.role is Role.GUIDED for m, _ in found) == 2
    for member, span in found:
        if member.role is Role.GUIDED:
            mask = batch.rl_mask[span]
            assert batch.proximal[span][mask] == pytest.approx(-0.1 * np.arange(1, mask.sum() + 1))
            assert np.isnan(batch.behaviour[span]).all()


def test_cross_entropy_on_the_hint_has_ufts_weight():
    batch, found = rows(run(seed=hint(learn="ce"), filter={"credit_batch": {"name": "imitation"}}).drive())
    for member, span in found:
        weights = batch.ce_weights[span]
        if member.role is Role.GUIDED:
            n = len(context(member))
            assert weights[12 : 12 + n] == pytest.approx([0.001] * n) and not weights[:12].any() and not weights[12 + n :].any()
        else:
            assert not weights.any()


def test_the_hint_trained_like_the_policys_own_words():
    batch, found = rows(run(seed=hint(learn="rl")).drive())
    for member, span in found:
        if member.role is Role.GUIDED:
            n = len(context(member))
            assert batch.rl_mask[span][12:].all() and np.isnan(batch.behaviour[span][12 : 12 + n]).all()
            assert (batch.versions[span][12 : 12 + n] == -1).all()


# ---- how much ------------------------------------------------------------------------------------------------------------


def test_range_draws_each_rollout_its_own_part_within_the_bounds():
    parts = {given(m) for s in range(12) for m in guided(group_of(run(k=8, plain="w" * 8, told="wwww")))}
    assert parts <= {2, 3, 4}
    made = run(k=8, plain="w" * 8, told="wwww")
    assert len({given(m) for m in guided(group_of(made))}) > 1


@pytest.mark.parametrize(("t", "share"), GOLDEN["uft"]["cases"])
def test_ufts_cosine(t, share):
    law = Cosine(StrengthSettings(law="cosine", low=0.05, high=0.95))
    assert law.share(t) == pytest.approx(share, abs=1e-6)


def test_ufts_schedule_guides_the_planned_rollouts_and_ends():
    made = run("rwrw" * 3, "", seed=hint(strength={"law": "cosine", "low": 0.05, "high": 0.95, "until": 2}))
    early, later, last = (group_of(made) for _ in range(3))
    assert len(guided(early)) == 4 and not early.fresh() and early.stage == 1
    assert {m.role for m in last.members.values()} == {Role.FRESH}
    assert sum(given(m) for m in guided(early)) > sum(given(m) for m in guided(later))


def grown(told, probes=3):
    return run(told=told, seed=hint(strength={"law": "grow", "low": 0.2, "step": 0.2, "probes": probes}))


def test_strength_grows_while_the_group_fails_and_stops_at_the_first_right_answer():
    group = group_of(grown("wwwwrw"))
    assert [given(m) for m in guided(group)] == [1, 1, 2, 2, 3, 3]
    assert [given(m) for m in guided(group_of(grown("rw")))] == [1, 1]


def test_growing_ends_after_its_probes():
    assert [given(m) for m in guided(group_of(grown("w" * 8, probes=2)))] == [1, 1, 2, 2]


def test_the_next_visit_begins_a_step_weaker_than_what_helped_and_a_resume_remembers():
    made = grown("wwwwrw" + "wwww" + "rr")
    made.drive()
    assert made.slots.seed.state_dict() == {"known": {made.tasks[0].id: 2}}
    again = grown("wwwwrw" + "wwww" + "rr")
    again.slots.seed.load_state_dict(json.loads(json.dumps(made.slots.seed.state_dict())))
    assert [given(m) for m in guided(group_of(made))] == [2, 2]
    assert again.slots.seed.state_dict() == {"known": {made.tasks[0].id: 2}}


@pytest.mark.parametrize(("steps", "most"), GOLDEN["probes"]["cases"])
def test_a_search_probes_at_most_log2_times(steps, most):
    task = Task("programs", "a+?23", {"final": "53"}, meta={"solution": "x\n" * steps})
    made = guided_lab(lambda prompt, n: WRONG, tasks=[task])
    search = run(seed=hint(strength={"law": "search"})).slots.seed
    search.splitter = Splitter("x", "generate.seed.steps")
    made.slots.seed = search
    search.build = type(search.build)(**{**vars(search.build), "words": _Letters(search.build.words)})
    assert len({given(m) for m in guided(group_of(made))}) <= most == math.ceil(math.log2(steps))


class _Letters:
    """The lab's words for a text with letters that its alphabet lacks."""

    def __init__(self, words):
        self.words = words

    def after(self, text):
        return self.words.after(text.replace("x", "a").replace("\n", "-"))


def searched(told, k=4):
    return run(told=told, k=k, seed=hint(strength={"law": "search", "band": [0.25, 0.75]}))


def test_a_search_halves_what_is_left_and_keeps_the_best():
    group = group_of(searched("rrww"))  # 2 steps: too easy; 1 step: too hard
    assert [given(m) for m in guided(group)] == [2, 2, 1, 1]
    stay = [given(m) for m in guided(group) if m.drop is None]
    assert stay == [2, 2], "what did not help at all is not the best"
    assert [m.drop for m in guided(group)][2:] == [Drop.REPLACED] * 2


def test_a_probe_inside_the_band_ends_the_search():
    made = searched("rw" + "wwww" + "rw")
    assert [given(m) for m in guided(group_of(made))] == [2, 2]
    assert [given(m) for m in guided(group_of(made))] == [2, 2], "the next visit begins with it"


# ---- refusals ------------------------------------------------------------------------------------------------------------


def test_tasks_without_solutions_are_refused():
    with pytest.raises(ConfigError, match="none of the 1 tasks has one"):
        guided_lab("w", tasks=tasks(1), generate={"seed": hint()})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": "plain"}, "middle of an answer"),
        ({"form": "text", "learn": "ce"}, "loss on the question"),
        ({"ratio": "guided"}, "trained under the plain question"),
        ({"strength": {"low": 0.9, "high": 0.1}}, "smaller value first"),
        ({"steps": "("}, "regular expression"),
        ({"form": "text", "say": "{prompt}"}, "has no {hint}"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        run(seed=hint(**settings))


def test_a_task_without_a_solution_beside_others_stays_plain():
    some = [*run().tasks, Task("programs", "a+?23", {"final": "53"})]
    made = guided_lab(lambda prompt, n: WRONG, tasks=some, generate={"seed": hint()})
    with_, without = made.drive().groups.values()
    if with_.task.meta.get("solution") is None:
        with_, without = without, with_
    assert len(guided(with_)) == 2 and not guided(without)


@pytest.mark.parametrize(
    ("at", "text", "parts"),
    [
        ("lines", "one\ntwo\n\nthree", ["one\n", "one\ntwo\n\n"]),
        ("sentences", "Add 3. Then 5! So 8.", ["Add 3.", "Add 3. Then 5!"]),
        ("paragraphs", "a\nb\n\nc", ["a\nb\n\n"]),
        (STEPS, SOLUTION, ["a+53", "a+53b-23", "a+53b-23c*63", "a+53b-23c*63ds36"]),
    ],
)
def test_parts_end_where_steps_do_and_never_hold_all(at, text, parts):
    steps = Splitter(at, "here").steps(Task("t", "p", meta={"solution": text}))
    assert [steps.first(n) for n in range(1, len(steps))] == parts
    assert steps.at_share(1.0) == len(steps) - 1 and steps.at_share(0.0) == 1


def test_a_solution_of_one_step_is_not_given():
    assert Splitter("lines", "here").steps(Task("t", "p", meta={"solution": "42"})) is None


def test_the_view_of_a_hint_is_a_function_of_seed_and_group():
    assert [given(m) for m in guided(group_of(run()))] == [given(m) for m in guided(group_of(run()))]


def test_steps_that_cut_no_solution_are_refused():
    """The default, lines, and the lab's solutions: every group would stay plain, and nobody would be told."""
    with pytest.raises(ConfigError, match=r"generate\.seed\.steps = 'lines' leaves every solution in one step"):
        run(seed={"name": "hint"})
