"""Recipe to running parts. Invariants: everything that can be refused is refused here, before the first token; the trainer
and the engine hold separate weights, and only a publication moves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gfcr.build_check import check_recipe as check_recipe
from gfcr.build_check import facts as facts
from gfcr.build_check import group_tokens as group_tokens
from gfcr.build_check import refuse as refuse
from gfcr.build_check import sampling_of
from gfcr.build_engine import embedded_engine as embedded_engine
from gfcr.build_engine import make_engine
from gfcr.context import Build
from gfcr.control.configure.base import configurator, refuse_bans
from gfcr.control.posterior import PosteriorTable
from gfcr.engine.contract import Engine, StopSpec
from gfcr.engine.models import check_directory
from gfcr.engine.models import model_path as model_path
from gfcr.environments.host import Host
from gfcr.environments.making import make_host, reader, refuse_unjudged, untold, with_tools
from gfcr.errors import MissingExtra
from gfcr.filter.cascade import Cascade
from gfcr.filter.credit.adjust import chained
from gfcr.filter.killable import Limits, contained
from gfcr.functions import is_place
from gfcr.generate.alphabet import Alphabet
from gfcr.generate.ends import stop_spec
from gfcr.generate.fit import fitting
from gfcr.generate.interactive.settings import TurnSettings
from gfcr.generate.render import TokenizerRenderer
from gfcr.generate.words import Words
from gfcr.recipe import Recipe
from gfcr.registry import Slot, find, settings_of
from gfcr.replay.memory import Memory
from gfcr.round import RoundSettings
from gfcr.slots import Slots
from gfcr.task_sets import TaskSet, load_tasks
from gfcr.types import Normalise, Task

if TYPE_CHECKING:
    from gfcr.train.trainer import Trainer


@dataclass
class RolloutParts:
    """The running parts of one recipe, up to the batch; whoever trains on it stands outside."""

    recipe: Recipe
    seed: int
    tasks: Sequence[Task]
    heldout: Sequence[Task]
    """Empty = no held-out evaluation."""
    slots: Slots
    cascade: Cascade
    renderer: TokenizerRenderer
    engine: Engine
    stop: StopSpec
    round_settings: RoundSettings
    about_tasks: dict[str, Any]
    """What is told of the task source: number of tasks, what columns were taken for, notes."""
    host: Host | None
    """Where the environments are played; None where the recipe has none."""
    dropped: int
    """Tasks left out because their prompts are too long (`generate.prompt.overflow`)."""


@dataclass
class Parts(RolloutParts):
    """The running parts of one recipe, with the reference trainer."""

    trainer: Trainer


def preflight(recipe: Recipe) -> TaskSet:
    """Refuse all that can be seen without the model, before torch is loaded: composition, tasks, each method's own conditions,
    texts that the tokenizer cannot write, a model directory that is none. Returns the tasks, with what was noted."""
    refuse(recipe)
    if recipe.train.lora is not None and find_spec("peft") is None:
        raise MissingExtra("peft", "lora", "train.lora")
    check_directory(place := model_path(recipe.model.path), "config.json", "model")
    loaded, alphabet = load_tasks(recipe.tasks), Alphabet(place)
    context = Build(
        0,
        loaded.tasks,
        recipe.control.groups,
        recipe.k,
        recipe.generate.max_tokens,
        loaded.privileged,
        lambda ids: "",
        lacks=alphabet.lacks,
    )
    make_slots(recipe, context)
    make_cascade(recipe, context)
    environment = recipe.generate.environment
    if (host := make_host(environment, recipe.generate.host, context)) is not None:
        host.close()
    _refuse_unjudged(recipe, loaded)
    untold_tools = untold(environment, loaded.tasks, context, recipe.generate.prompt.chat)
    turns = [s.note(recipe.generate.max_tokens) for _, s in recipe.methods() if isinstance(s, TurnSettings)]
    notes = [note for note in (untold_tools, alphabet.note, *turns) if note]
    return replace(loaded, notes=[*loaded.notes, *notes]) if notes else loaded


def _refuse_unjudged(recipe: Recipe, loaded: TaskSet) -> None:
    judges = [method for method, _ in recipe.methods() if method.slot is Slot.VERIFIER]
    refuse_unjudged(recipe.generate.environment, judges, loaded.tasks)


def build(recipe: Recipe, seed: int) -> Parts:
    """Everything a session needs. Raises ConfigError, DataError or MissingExtra with a remedy."""
    refuse(recipe)
    _refuse_unjudged(recipe, loaded := load_tasks(recipe.tasks))
    from gfcr.engine.models import load_model, load_tokenizer  # torch
    from gfcr.train.trainer import Trainer

    place = model_path(recipe.model.path)
    tokenizer = load_tokenizer(place)
    trainer = Trainer(load_model(place, recipe.train.device, "float32"), recipe.train, seed, loss=recipe.loss)
    engine = make_engine(recipe, place, TokenizerRenderer(tokenizer).decoder())
    return Parts(**vars(rollout_parts(recipe, seed, loaded, tokenizer, engine, trainer.model)), trainer=trainer)


def rollout_parts(recipe: Recipe, seed: int, loaded: TaskSet, tokenizer: Any, engine: Engine, model: Any) -> RolloutParts:
    """The parts of a recipe that composes, around an engine; `model` says in its generation_config what ends an answer. Raises
    ConfigError for what cannot work with the engine."""
    able = engine.capabilities()
    refuse_bans(recipe.generate.sampling, "generate.sampling", able.vocabulary)
    for method, settings in recipe.methods():
        if method.slot is Slot.CONFIGURE:
            refuse_bans(settings, f"{method.slot} {method.name!r}", able.vocabulary)
    prompt, longest = recipe.generate.prompt, recipe.generate.max_tokens
    renderer = TokenizerRenderer(tokenizer, prompt, able.max_length - longest)
    bare = Build(seed, loaded.tasks, recipe.control.groups, recipe.k, longest)
    tasks, heldout = (
        fitting(
            what,
            with_tools(recipe.generate.environment, found, bare, prompt.chat),
            renderer,
            able.max_length,
            longest,
            able.vocabulary,
            prompt.overflow == "drop",
        )
        for what, found in (("tasks", loaded.tasks), ("held-out tasks", loaded.heldout))
    )
    generation = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    stop = stop_spec(renderer.codec, generation, renderer.turn_end, recipe.generate.stop_strings, able.vocabulary)
    context = Build(
        seed,
        tasks,
        recipe.control.groups,
        recipe.k,
        longest,
        loaded.privileged,
        renderer.decoder(),
        renderer.dialogue,
        reader(recipe.generate.environment),
        able.max_length,
        words=Words(renderer, stop.eos),
        heldout=heldout,
        drift=renderer.watch(recipe.control.groups),
    )
    return RolloutParts(
        recipe,
        seed,
        tasks,
        heldout,
        tied(make_slots(recipe, context), cascade := make_cascade(recipe, context)),
        cascade,
        renderer,
        engine,
        stop,
        round_settings(recipe, able.max_length),
        loaded.about(),
        make_host(recipe.generate.environment, recipe.generate.host, context),
        len(loaded.tasks) - len(tasks) + len(loaded.heldout) - len(heldout),
    )


def round_settings(recipe: Recipe, max_context: int | None) -> RoundSettings:
    """Bounds of the recipe's rounds; `max_context`: longest prompt plus answer the engine takes, in tokens."""
    return RoundSettings(
        groups=recipe.control.groups,
        k=recipe.k,
        max_tokens=recipe.generate.max_tokens,
        max_context=max_context,
        partial=recipe.generate.partial,
        min_groups=recipe.control.min_groups or max(1, recipe.control.groups // 2),
        max_stages=recipe.control.max_stages,
        max_waves=recipe.control.max_waves,
        worst=group_tokens(recipe),
        normalise=recipe.loss.normalise,
        constant=_constant(recipe),
        packed=recipe.loss.packed,
    )


def make_slots(recipe: Recipe, context: Build) -> Slots:
    """The recipe's methods, built."""
    failures = _make(Slot.FAILURES, recipe.control.failures.name, recipe.control.failures.values(), context)
    context = replace(context, again=failures.again)

    def one(slot: Slot) -> Any:
        built = many(slot)
        return built[0] if built else None

    def many(slot: Slot) -> tuple[Any, ...]:
        return tuple(_make(slot, ref.name, ref.values(), context) for ref in recipe.slots()[slot])

    laws = [method.traits | settings.traits() for method, settings in recipe.methods() if method.slot is Slot.CONFIGURE]
    return Slots(
        select=one(Slot.SELECT),
        topology=one(Slot.TOPOLOGY),
        allocate=one(Slot.ALLOCATE),
        credit=one(Slot.CREDIT),
        configure=configurator(sampling_of(recipe), recipe.generate.max_tokens, many(Slot.CONFIGURE), frozenset().union(*laws)),
        posterior=PosteriorTable(context.tasks, recipe.control.posterior),
        memory=Memory(recipe.replay.memory),
        admission=recipe.filter.admission,
        seed=one(Slot.SEED),
        stop=one(Slot.STOP),
        judge=one(Slot.JUDGE),
        value=one(Slot.VALUE),
        shape=one(Slot.SHAPE),
        credit_batch=chained(many(Slot.CREDIT_BATCH)),
        refill=one(Slot.REFILL),
        failures=failures,
        off_policy=one(Slot.OFF_POLICY),
        mix=one(Slot.MIX),
        augment=many(Slot.AUGMENT),
        store=many(Slot.STORE),
        shuffle_seed=context.seed if recipe.run.shuffle_rewards else None,
    )


def tied(slots: Slots, cascade: Cascade) -> Slots:
    """The slots; a shape that corrects for errors of verifiers reads what the cascade measures of them."""
    if (watch := getattr(slots.shape, "watch", None)) is not None:
        watch(cascade.judging.rates)
    return slots


def make_cascade(recipe: Recipe, context: Build) -> Cascade:
    section = recipe.filter
    limits = Limits(memory_mb=section.memory_mb)

    def many(slot: Slot) -> list[Any]:
        made = [_make(slot, ref.name, ref.values(), context) for ref in recipe.slots()[slot]]
        found = [contained(one, section.seconds, section.workers, limits, section.cache, section.late) for one in made]
        for judge, ref in zip(found, recipe.slots()[slot]):
            if is_place(ref.name) and hasattr(judge, "start"):
                judge.start()  # code of the user's own: what cannot be loaded there is told now
        return found

    assert context.decode is not None
    return Cascade(
        context.decode,
        many(Slot.GATE),
        many(Slot.VERIFIER),
        many(Slot.STEPS),
        recipe.filter.admission.invalid_reward,
        recipe.generate.stop_strings,
        recipe.generate.keep_stop,
        section.cascade,
        context.seed,
        section.workers,
    )


def _make(slot: Slot, name: str, values: dict[str, Any], context: Build) -> Any:
    found = find(slot, name)
    assert found.cls is not None
    return found.cls(settings_of(found, values), context)


def _constant(recipe: Recipe) -> float | None:
    if recipe.loss.normalise is not Normalise.CONSTANT:
        return None
    return recipe.loss.constant or float(recipe.generate.max_tokens)
