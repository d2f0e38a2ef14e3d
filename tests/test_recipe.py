"""Recipes: what is refused and how, overrides, and that the hash names the values and nothing else."""

import copy
import json
import re
import tomllib
from pathlib import Path

import pytest

from gfcr.build import check_recipe
from gfcr.errors import ConfigError
from gfcr.recipe import SCHEMA, Recipe, load, parse
from gfcr.registry import Slot


def refused(data):
    with pytest.raises(ConfigError) as caught:
        parse(data)
    return caught.value


@pytest.mark.parametrize(
    ("data", "what", "remedy"),
    [
        ({"budgget": {}}, "unknown key 'budgget'", "did you mean 'budget'"),
        ({"shema": 1}, "unknown key 'shema'", "did you mean 'schema'"),
        ({"budget": {"token": 5}}, "unknown key 'budget.token'", "did you mean 'tokens'"),
        (
            {"control": {"posterior": {"forgeting": 0.5}}},
            "unknown key 'control.posterior.forgeting'",
            "did you mean 'forgetting'",
        ),
        (
            {"filter": {"admission": {"overlongg": "mask"}}},
            "unknown key 'filter.admission.overlongg'",
            "did you mean 'overlong'",
        ),
        ({"train": {"learning_rate": 1}}, "unknown key 'train.learning_rate'", "known keys: "),
        (
            {"generate": {"temperature": 1}},
            "unknown key 'generate.temperature'",
            "did you mean 'generate.sampling.temperature'",
        ),
        ({"lr": 1}, "unknown key 'lr'", "did you mean 'train.lr'"),
        (
            {"filter": {"credit": {"name": "rloo", "std": "sample"}}},
            "filter.credit 'rloo': unknown key 'std'",
            "it has no settings: take 'std' out",
        ),
        ({"filter": {"credit": {"name": "gropo"}}}, "filter.credit: there is no method 'gropo'", "did you mean 'grpo'"),
        ({"control": {"stop": {"name": "anything"}}}, "control.stop: there is no method 'anything'", "gfcr.methods"),
        ({"filter": {"credit": {"name": "grpo", "epss": 1}}}, "filter.credit 'grpo': unknown key 'epss'", "did you mean 'eps'"),
        (
            {"filter": {"credit": {"name": "grpo", "std": "both"}}},
            "filter.credit 'grpo': std",
            "gfcr methods --slot filter.credit",
        ),
        ({"filter": {"admission": {"overlong": "Mask"}}}, "filter.admission.overlong", "did you mean 'mask'?"),
        ({"budget": {"tokens": 0}}, "budget.tokens", "give a number above 0"),
        ({"generate": {"topology": {"name": "group", "k": 0}}}, "generate.topology 'group': k", "give a number of 1 or more"),
        ({"filter": {"admission": {"invalid_reward": float("nan")}}}, "filter.admission.invalid_reward", "that is finite"),
        ({"schema": SCHEMA + 1}, f"schema = {SCHEMA + 1}", "newer gfcr"),
        ({"schema": 0}, "schema = 0", "newer gfcr"),
        ({"schema": "1"}, "schema = '1'", "newer gfcr"),
        ({"schema": True}, "schema = True", "newer gfcr"),
    ],
)
def test_refusals_name_the_key_and_the_remedy(data, what, remedy):
    error = refused(data)
    assert what in error.what
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("override", "what", "remedy"),
    [
        ("train.lr='6e-4'", 'train.lr takes a number, and "6e-4" (text) was given', "write train.lr = 6e-4, without quotes"),
        ("train.lr=fast", 'and "fast" (text) was given', "write a number like 0.5 or 6e-4: train.lr = ..."),
        ("train.lr=true", "train.lr takes a number, and true was given", "write a number: train.lr = ..."),
        ("budget.tokens='50_000'", "takes a whole number", "write budget.tokens = 50000"),
        ("budget.tokens=1e5", "takes a whole number, and 100000.0 was given", "write budget.tokens = 100000"),
        ("budget.tokens=1.5", "takes a whole number, and 1.5 was given", "such as budget.tokens = 2"),
        ("budget.tokens=true", "takes a whole number, and true was given", "write a number"),
        ("train.minibatches=none", "takes a whole number, and none was given", "write a number"),
        ("run.shuffle_rewards=True", 'takes true or false, and "True" (text) was given', "write run.shuffle_rewards = true"),
        ("run.shuffle_rewards=0", "takes true or false, and 0 was given", "write run.shuffle_rewards = false"),
        ("loss.packed=maybe", "takes true or false", "write loss.packed = true or loss.packed = false"),
        ("name=5", "name takes text, and 5 was given", 'write name = "5", with quotes'),
        ("train.betas=[0.9, '0.95']", "takes a number", "write 0.95 as number 2 of train.betas, without quotes"),
        ("train.schedule=cosin", "takes 'constant', 'linear' or 'cosine'", "did you mean 'cosine'?"),
        ("filter.credit.eps='1e-4'", "'grpo': eps takes a number", "write eps = 1e-4, without quotes; `gfcr methods"),
        ("filter.credit={name='gdpo', weights={exact='1'}}", "weights.exact takes a number", "write weights.exact = 1,"),
        (
            "filter.shape=[{name='soft-overlong', on='right'}]",
            "filter.shape takes one table with a name, and [{",
            'write filter.shape = {name = "soft-overlong", on = "right"}, without the brackets',
        ),
        ("filter.shape=[{name='a'}, {name='b'}]", "takes one table", "it takes one: keep the one you want"),
        ("filter.verifiers=['exact']", "filter.verifiers.0 takes", 'write {name = "exact"} as number 1 of filter.verifiers'),
        ("generate.stop_strings='x'", "takes a list", 'write generate.stop_strings = ["x"]'),
        ("train.value=3", "train.value takes a section, and 3 was given", "write a section [train.value]"),
        (
            "filter.verifiers={name='function_cases:right', right_at='nevr'}",
            "takes a number or 'never'",
            "did you mean 'never'?",
        ),
        (
            "filter.verifiers={name='function_cases:right', right_at='0.5'}",
            "a number or 'never'",
            "write right_at = 0.5, without",
        ),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_what_to_write(tmp_path, override, what, remedy):
    with pytest.raises(ConfigError) as error:
        write(tmp_path, "name = 'x'\nfilter.credit = {name = 'grpo'}\n", override)
    assert what in error.value.what
    assert remedy in error.value.remedy


def test_text_in_a_file_is_no_number_either_and_what_the_remedy_says_works(tmp_path):
    with pytest.raises(ConfigError, match=r"write train\.lr = 6e-4, without quotes"):
        write(tmp_path, '[train]\nlr = "6e-4"\n')
    assert write(tmp_path, "[train]\nlr = 6e-4\n").train.lr == 6e-4
    assert write(tmp_path, "[train]\nlr = 1\n[control]\nselect = {name = 'mopps', candidates = 4}").train.lr == 1.0


def test_what_is_to_be_left_out_can_be_set_back(tmp_path):
    """The remedies that say so are commands that work."""
    from gfcr.build import check_recipe

    made = write(tmp_path, "[loss]\nkind = 'cispo'\n[train]\nclip_low = 0.1\ndual_clip = 3.0\n", "loss.constant=5")
    remedies, seen = [], []
    for _ in range(4):
        findings = check_recipe(made)
        if not findings:
            break
        remedies += re.findall(r"--set (\S+?)\)", findings[0].remedy)
        seen.append(findings[0].rule)
        made = write(tmp_path, (tmp_path / "r.toml").read_text(), "loss.constant=5", *remedies)
    assert seen == ["loss_against_train", "loss_against_train", "constant_of_nothing"]
    assert remedies == ["train.clip_low=0.2", "train.dual_clip=none", "loss.constant=none"]


def write(tmp_path, text, *overrides):
    path = tmp_path / "r.toml"
    path.write_text(text)
    return load(path, overrides)


def test_overrides_set_values_sections_methods_and_lists(tmp_path):
    made = write(
        tmp_path,
        "[budget]\ntokens = 10_000\n",
        "budget.tokens=50000",
        "filter.credit=rloo",
        "replay.augment=ar3po",
        'replay.store=[{name = "correct", per_group = 2}]',
        "train.lr=1e-3",
        "name=my run",
        "filter.gates=format",
        "control.select={name = 'informative', power = 1.0}",
    )
    assert (made.budget.tokens, made.filter.credit.name, made.train.lr, made.name) == (50_000, "rloo", 1e-3, "my run")
    assert [m.name for m in made.replay.augment] == ["ar3po"]
    assert made.replay.store[0].values() == {"per_group": 2}
    assert [m.name for m in made.filter.gates] == ["format"]
    assert made.control.select.values() == {"power": 1.0}


def test_overrides_none_and_settings_of_a_named_method(tmp_path):
    text = "[budget]\ntokens = 5\n[control.refill]\nname = 'dynamic-sampling'\n[filter]\ngates = [{name = 'format'}]\n"
    made = write(tmp_path, text, "budget.tokens=none", "control.refill.max_waves=3", "filter.gates=none")
    assert (made.budget.tokens, made.control.refill.values(), made.filter.gates) == (None, {"max_waves": 3}, ())
    assert write(tmp_path, text, "control.refill=none").control.refill is None


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("budget", "is not KEY=VALUE"),
        ("=3", "is not KEY=VALUE"),
        ('filter.shape={name="noise-correction",false_negative=.2}', "the value is no TOML: Invalid value"),
        ('filter.gates=[{name="parse"', "the value is no TOML"),
        ("a..b=3", "is not KEY=VALUE"),
        ("name.x=3", "'name' is a value, not a section"),
        ("budget.tokns=3", "unknown key"),
    ],
)
def test_bad_overrides_are_refused(tmp_path, override, what):
    with pytest.raises(ConfigError, match=what):
        write(tmp_path, "name = 'x'\n", override)


def test_every_default_is_in_the_frozen_recipe():
    frozen = parse({"filter": {"credit": {"name": "grpo"}}, "control": {"refill": {"name": "dynamic-sampling"}}}).frozen()

    def check(model, data, where):
        for name, field in model.model_fields.items():
            key = field.alias or name
            assert key in data, f"{where}{key}"
            if (
                hasattr(field.annotation, "model_fields")
                and isinstance(data[key], dict)
                and "name" not in field.annotation.model_fields
            ):
                check(field.annotation, data[key], f"{where}{key}.")

    check(Recipe, frozen, "")
    assert frozen["filter"]["credit"] == {"name": "grpo", "std": "population", "eps": 1e-4}
    assert frozen["control"]["refill"] == {"name": "dynamic-sampling", "max_waves": 10, "oversample": 1.0}
    assert frozen["generate"]["topology"] == {"name": "group", "k": 8}
    assert frozen["schema"] == SCHEMA


RICH = {
    "generate": {"topology": {"name": "group", "k": 4}, "sampling": {"temperature": 1, "banned": [3, 4]}},
    "filter": {"gates": [{"name": "format"}], "credit": {"name": "grpo", "std": "sample"}},
    "control": {"select": {"name": "informative"}, "allocate": {"name": "greedy", "cap": 16}},
    "replay": {"store": [{"name": "correct"}], "augment": [{"name": "ar3po", "option": 2}]},
    "budget": {"tokens": None, "steps": 3},
}


@pytest.mark.parametrize("data", [{}, RICH], ids=["default", "rich"])
def test_a_frozen_recipe_reads_back_to_itself(data):
    recipe = parse(data)
    again = parse(json.loads(json.dumps(recipe.frozen())))
    assert again.frozen() == recipe.frozen()
    assert again.hash() == recipe.hash()


def test_the_same_recipe_written_differently_has_the_same_hash():
    plain = parse({})
    written = parse(
        {
            "budget": {"tokens": 150_000},
            "filter": {"credit": {"name": "grpo", "eps": 0.0001}, "verifiers": [{"name": "exact"}]},
            "generate": {"topology": {"k": 8, "name": "group"}, "sampling": {"temperature": 1}},
            "schema": 1,
            "train": {"lr": 6e-4},
        }
    )
    assert written.hash() == plain.hash()


def leaves(data, path=()):
    for key, value in data.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        elif isinstance(value, (bool, int, float)):
            yield (*path, key), value


def test_the_hash_changes_with_every_single_value():
    base = parse(RICH).frozen()
    changed = 0
    for path, value in leaves(base):
        data = copy.deepcopy(base)
        node = data
        for key in path[:-1]:
            node = node[key]
        for other in (not value,) if isinstance(value, bool) else (value + 1, value * 0.5 or 0.25, value - 1):
            node[path[-1]] = other
            try:
                recipe = parse(data)
            except ConfigError:
                continue
            assert recipe.hash() != parse(RICH).hash(), path
            changed += 1
            break
    assert changed > 40


def test_k_is_the_topologys_and_one_without():
    assert (parse({}).k, parse(RICH).k, parse({"generate": {"topology": {"name": "linear"}}}).k) == (8, 4, 1)


def test_every_slot_has_its_place_in_the_recipe():
    assert set(parse({}).slots()) == set(Slot)


def test_missing_and_broken_files_are_refused_with_the_remedy(tmp_path):
    with pytest.raises(ConfigError, match="no recipe"):
        load("no-such-recipe")
    with pytest.raises(ConfigError, match="not TOML"):
        write(tmp_path, "a = = 3")
    with pytest.raises(ConfigError, match="tasks"):
        write(tmp_path, "tasks = 3")


def test_the_readme_shows_the_shipped_recipe_and_its_swaps_compose():
    text = (Path(__file__).parents[1] / "README.md").read_text()
    shown = tomllib.loads(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1])
    assert parse(shown).frozen() == load("four_modules").frozen()
    for section, swap in (("filter", 'credit = { name = "rloo" }'), ("control", 'allocate = { name = "staged" }')):
        assert f"`{swap}`" in text
        assert check_recipe(parse({**shown, section: {**shown[section], **tomllib.loads(swap)}})) == []


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ([{"name": "whiten"}, {"nam": "evidence"}], "filter.credit_batch.1.name"),
        ({"nam": "whiten"}, "filter.credit_batch.name"),
        (3, "filter.credit_batch takes one table with a name"),
    ],
    ids=["second of two", "alone", "a number"],
)
def test_one_method_or_a_list_of_them(given, path):
    with pytest.raises(ConfigError, match=re.escape(path)):
        parse({"filter": {"credit_batch": given}})
    both = parse({"filter": {"credit_batch": [{"name": "xrpo-sharpening"}, {"name": "whiten"}]}})
    assert [ref.name for ref in both.slots()[Slot.CREDIT_BATCH]] == ["xrpo-sharpening", "whiten"]
    assert parse(both.frozen()).hash() == both.hash()
    alone = parse({"filter": {"credit_batch": {"name": "whiten"}}})
    assert isinstance(alone.frozen()["filter"]["credit_batch"], dict)
