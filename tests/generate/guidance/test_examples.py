"""Examples from replay and rules in the question of a task that failed."""

import pytest

from gfcr.domains.programs.pools import task_of
from gfcr.domains.programs.tokenizer import decode
from gfcr.errors import ConfigError
from gfcr.generate.guidance.similar import Similar, normal
from gfcr.types import SegmentKind, Task
from guidance_cases import guided, guided_lab

HARD, NEAR, FAR = task_of("a+b-c*ds?23", "36", "test"), task_of("a+b-c*ds?24", "52", "test"), task_of("ms?11", "11", "test")
FORM = {"say": "{examples}{prompt}", "example": "{question}{answer}/", "rule": "{rule}/"}


def run(answers, tasks=(HARD, NEAR, FAR), k=2, heldout=(), **settings):
    """`answers`: prompt -> letters; what is right differs by task."""
    right = {t.prompt: "=#" + t.reference["final"] for t in tasks}

    def say(prompt, n):
        letters = next((a for p, a in answers.items() if prompt == p), "w")
        return right[prompt] if prompt in right and letters[n % len(letters)] == "r" else "=#"

    return guided_lab(
        say,
        k=k,
        tasks=list(tasks),
        heldout=heldout,
        generate={"seed": {"name": "examples", **FORM, **settings}},
        replay={"store": [{"name": "correct"}]},
    )


SOLVED = {NEAR.prompt: "rw", FAR.prompt: "rw", HARD.prompt: "ww"}


def question(member):
    return decode([int(i) for i in member.rollout.path[0].segment.ids])


def second_round(made):
    made.drive()
    groups = {g.task.prompt: g for g in made.drive().groups.values()}
    return groups[HARD.prompt]


def test_the_most_similar_solved_tasks_stand_before_the_question_nearest_first():
    group = second_round(run(SOLVED, least=0.0))
    assert {question(m) for m in guided(group)} == {"a+b-c*ds?24#52/ms?11#11/a+b-c*ds?23"}
    (segment,) = {id(m.rollout.path[0].segment): m.rollout.path[0].segment for m in guided(group)}.values()
    assert segment.kind is SegmentKind.GUIDANCE and segment.author.startswith("examples:")
    assert len(group.fresh()) == 2 and len(guided(group)) == 1


def test_in_the_first_round_nothing_is_stored_and_the_group_stays_plain():
    made = run(SOLVED)
    assert not any(guided(g) for g in made.drive().groups.values()), "a round never sees its own writes"


def test_groups_with_a_right_answer_get_none():
    made = run({**SOLVED, HARD.prompt: "rw"})
    made.drive()
    assert not any(guided(g) for g in made.drive().groups.values())


def test_k_examples_and_no_more():
    made = run(SOLVED, least=0.0)
    made.slots.seed.settings = made.slots.seed.settings.model_copy(update={"k": 1})
    group = second_round(made)
    assert {question(m) for m in guided(group)} == {"a+b-c*ds?24#52/a+b-c*ds?23"}


def test_what_is_too_far_off_is_no_example():
    group = second_round(run(SOLVED, least=0.3))
    assert {question(m) for m in guided(group)} == {"a+b-c*ds?24#52/a+b-c*ds?23"}


def test_a_question_that_is_measured_on_is_no_example():
    group = second_round(run(SOLVED, least=0.0, heldout=[Task("other", "A+B-C*DS?24 ")]))
    assert {question(m) for m in guided(group)} == {"ms?11#11/a+b-c*ds?23"}


def test_the_same_question_is_no_example_of_itself():
    same = Task("elsewhere", " A+b-c*ds?23", {"final": "36"})
    similar = Similar([HARD, NEAR, same])
    assert [t.prompt for t, _ in similar.nearest(HARD, [HARD.id, same.id, NEAR.id], 3, 0.0)] == [NEAR.prompt]
    assert normal("  What is 3 +  4? ") == normal("what is 3 + 4")


def test_neighbours_are_the_same_after_a_restart_and_sorted_by_cosine():
    tasks = [Task("t", text) for text in ("add 12 and 30", "add 12 and 31", "name a colour", "add 99 and 1")]
    found = [
        [(t.prompt, round(c, 6)) for t, c in Similar(tasks).nearest(tasks[0], [t.id for t in tasks], 3, 0.0)] for _ in "ab"
    ]
    assert found[0] == found[1]
    assert found[0][0][0] == "add 12 and 31" and [c for _, c in found[0]] == sorted((c for _, c in found[0]), reverse=True)


def test_long_answers_are_cut():
    group = second_round(run(SOLVED, least=0.3, longest=2))
    assert {question(m) for m in guided(group)} == {"a+b-c*ds?24#5/a+b-c*ds?23"}


def test_rules_by_category_and_for_all():
    rules = {"": ["a"], "L4": ["b"], "L9": ["c"]}
    made = run({}, source="rules", rules=rules)
    groups = {g.task.prompt: g for g in made.drive().groups.values()}
    assert {question(m) for m in guided(groups[HARD.prompt])} == {"a/b/a+b-c*ds?23"}
    assert {question(m) for m in guided(groups[FAR.prompt])} == {"a/ms?11"}


def test_planned_rollouts_may_be_guided_from_the_start():
    (group, *_) = run({}, source="rules", rules={"": ["a"]}, when="always").drive().groups.values()
    assert len(guided(group)) == 2 and not group.fresh()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "rules"}, "without a rule"),
        ({"say": "{prompt}"}, "has no {examples}"),
        ({"example": "{answer}"}, "has no {question}"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        run({}, **settings)
