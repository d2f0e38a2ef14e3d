"""A run as data: TOML in, frozen settings out.

Invariants: unknown keys are errors with the nearest known one; a frozen recipe holds every default, so that its hash names
the run; `schema` says which shape the file has, and older ones are migrated here.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from gfcr.control.posterior import PosteriorSettings
from gfcr.domains.gym.settings import GymSettings
from gfcr.engine.http.settings import HttpSettings
from gfcr.environments.settings import HostSettings
from gfcr.errors import ConfigError
from gfcr.filter.admission import AdmissionSettings
from gfcr.filter.cascade_settings import CascadeSettings
from gfcr.generate.settings import PartialSettings, PromptSettings
from gfcr.recipe_data import override_with, renamed
from gfcr.registry import FrozenModel, Method, Slot, find, settings_of
from gfcr.replay.memory import MemorySettings
from gfcr.settings import MethodRef, OneOrSeveral, config_error
from gfcr.train.settings import LossSettings, TrainSettings
from gfcr.types import Normalise, derive_id

SCHEMA = 1


class TasksSection(FrozenModel):
    source: Literal["programs", "file", "reasoning-gym", "tools"] = "programs"
    """`programs`: a pool of the lab domain. `tools`: a pool for the environment of its name. `file`: JSONL, parquet or CSV, or a directory of `datasets`' save_to_disk.
    `reasoning-gym`: procedural data sets, see `gym`."""
    pool: str = "D"
    """Pool of the lab domain: D, B1, B2, B3, HARD, MIX; of `tools`: calculator, python, sqlite, repair."""
    path: str | None = None
    """Task file; None unless source is `file`. Relative to the recipe."""
    heldout: str | None = None
    """Held-out task file; None = no evaluation, or the pool's own held-out set."""
    domain: str = "file"
    """Domain name of a file's tasks."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Column of each of `prompt`, `reference`, `reference_rev`, `category`, `solution` (`a.b` inside a nested one); absent ones are
    looked for under the usual names (TRL, verl, OpenRLHF, verifiers, GSM8K, MATH: domains/conventions.py). A solution is the text of a
    right answer, read by methods of guidance alone."""
    split: str | None = None
    """Split of a saved DatasetDict to train on; None = its only one."""
    heldout_split: str | None = None
    """Split to measure on: of `heldout`, or of `path` where that is not set."""
    extract: Literal["auto", "whole", "hash", "boxed", "tags", "last-number"] = "auto"
    """What of the reference column is the reference: all of it (`whole`), what follows `####`, what the last `\\boxed{}` or
    `<answer>` holds, the last number. `auto`: what follows `####` or stands in the box where every row has one, else all."""
    need_reference: bool = True
    """Refuse rows without a reference; false = their answers are unscorable for verifiers that need one, never reward 0."""
    gym: GymSettings | None = None
    """What to draw from reasoning-gym and how to ask it; None unless that is the source."""


class ModelSection(FrozenModel):
    path: str = "lab"
    """`lab` (the shipped checkpoint), `smollm2` (SmolLM2-135M-Instruct, see docs/smollm2.md) or a directory with a Hugging Face
    causal model."""


class EngineSection(FrozenModel):
    name: Literal["embedded", "scripted", "vllm", "openai"] = "embedded"
    """`embedded`: in this process. `vllm`: vLLM servers, `openai`: an OpenAI-compatible endpoint, both in `http` (docs/engines.md).
    `scripted`: no model."""
    slots: int = Field(256, ge=1)
    """Streams decoded at once, in all processes or on all servers together."""
    device: str = "cpu"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto`: bfloat16 for models of 10 million parameters and more where the device computes in it, else float32."""
    max_length: int | None = Field(None, ge=2)
    """Longest prompt plus answer in tokens; None = what the model's configuration says."""
    check_tokens: int = Field(1024, ge=0)
    """Longest row of the start-up check against the plain forward pass; 0 = no check."""
    workers: int = Field(1, ge=1, le=64)
    """Processes that sample and score, the run's own counted; each wants a core. More than one needs the CPU. The number is
    part of what must be equal for a bit-equal resume."""
    http: HttpSettings | None = None
    """Where the servers of `vllm` or `openai` are; None for the other engines."""


class SamplingSection(FrozenModel):
    """See gfcr.types.Sampling."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    banned: tuple[int, ...] = ()


class GenerateSection(FrozenModel):
    topology: MethodRef = MethodRef(name="group", k=8)
    seed: MethodRef | None = None
    environment: MethodRef | None = None
    """What rollouts interact with, turn by turn (docs/environments.md); None = they write one answer."""
    host: HostSettings = HostSettings()
    """How environments are played."""
    sampling: SamplingSection = SamplingSection()
    max_tokens: int = Field(64, ge=1)
    """Longest answer, in tokens."""
    stop_strings: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """An answer ends with the first of these in its text."""
    keep_stop: bool = True
    """Whether the stop string that ended an answer stays in the text that is judged; what follows it never does, and its tokens
    stay in the answer as sampled."""
    prompt: PromptSettings = PromptSettings()
    partial: PartialSettings | None = None
    """Answers longer than a round's token limit go on in later rounds; None = every answer ends in its round."""

    @property
    def in_one_round(self) -> int:
        """Most tokens an answer gets in one round."""
        return self.max_tokens if self.partial is None else min(self.max_tokens, self.partial.tokens)


class FilterSection(FrozenModel):
    gates: tuple[MethodRef, ...] = ()
    verifiers: tuple[MethodRef, ...] = (MethodRef(name="exact"),)
    """From cheap to dear; the first that decides ends the cascade."""
    steps: tuple[MethodRef, ...] = ()
    judge: MethodRef | None = None
    value: MethodRef | None = None
    shape: MethodRef | None = None
    credit: MethodRef = MethodRef(name="grpo")
    credit_batch: OneOrSeveral | None = None
    """What is done to credit across the batch; several in a list, in this order."""
    admission: AdmissionSettings = AdmissionSettings()
    seconds: float = Field(10.0, gt=0)
    """Longest one call of a gate, verifier or step scorer may take that does not declare itself bounded; it runs in a process
    of its own, is killed there, and its answer is unscorable."""
    late: Literal["unscorable", "wrong"] = "unscorable"
    """What an answer is whose judgement was killed after `seconds`: nobody's fault, or a wrong answer."""
    workers: int = Field(2, ge=1, le=64)
    """Processes each such verifier judges in; what they say does not depend on their number. Also the calls at once of a verifier that
    declares `parallel = True`."""
    memory_mb: int | None = Field(4096, ge=64)
    """Memory such a process may hold before it is killed; None = not looked at."""
    cache: int = Field(4096, ge=0)
    """Verdicts kept per such verifier: the same answer to the same task is judged once. 0 = none."""
    cascade: CascadeSettings = CascadeSettings()


class ControlSection(FrozenModel):
    groups: int = Field(16, ge=1)
    """Groups a round plans."""
    min_groups: int | None = Field(None, ge=1)
    """A round that cannot afford this many groups ends the run; None = half of `groups`."""
    select: MethodRef = MethodRef(name="uniform")
    allocate: MethodRef = MethodRef(name="uniform")
    configure: OneOrSeveral | None = None
    """Who changes the law and the length of `generate`; several in a list, in this order."""
    stop: MethodRef | None = None
    refill: MethodRef | None = None
    off_policy: MethodRef | None = None
    mix: MethodRef | None = None
    posterior: PosteriorSettings = PosteriorSettings()
    max_stages: int = Field(8, ge=1)
    max_waves: int = Field(10, ge=1)
    failures: MethodRef = MethodRef(name="retry")
    """What is tried again, and which groups go on, where an engine, a tool or an environment breaks. `retries` and `min_members`, where
    recipes of before had them, are read as its `attempts` and `members`."""
    max_empty: int = Field(10, ge=1)
    """Rounds in a row without a trainable batch before the run gives up, with the likely causes."""


class ReplaySection(FrozenModel):
    store: tuple[MethodRef, ...] = ()
    augment: tuple[MethodRef, ...] = ()
    memory: MemorySettings = MemorySettings()


class LossSection(LossSettings):
    normalise: Normalise = Normalise.TOKEN_MEAN
    constant: Annotated[float, Field(gt=0)] | None = None
    """Denominator of constant normalisation, in tokens; None = the longest answer."""
    packed: bool = False
    """Train on one row per group in which shared tokens (the prompt) stand once: the same gradient, several times cheaper where
    prompts are longer than answers. Not for preference or cross-entropy losses."""


class BudgetSection(FrozenModel):
    tokens: Annotated[int, Field(gt=0)] | None = 150_000
    """Generated tokens, evaluation apart; None = no limit (then `steps` must be set)."""
    steps: Annotated[int, Field(gt=0)] | None = None
    """Optimiser steps at most; None = as many as the tokens allow."""


class EvaluateSection(FrozenModel):
    every_tokens: int | None = Field(25_000, gt=0)
    """Training tokens between held-out evaluations; None = at the start and the end only."""
    samples: int = Field(4, ge=1)
    """Answers per held-out task at temperature 1."""
    greedy: bool = True
    limit: int | None = Field(None, ge=1)
    """Held-out tasks used at most, the first ones; None = all."""


class RunSection(FrozenModel):
    driver: Literal["waves", "stream"] = "waves"
    """How a round is driven. `waves`: a wave of requests, then its acts of environments, then its judgements; bit-equal always. `stream`
    (asynchronous): each rollout goes on as soon as its own turn ends, so a slow environment holds up nobody else; bit-equal unless
    what goes on beside the engine (environments in threads, `engine.workers`, servers) ends in another order."""
    checkpoint_every: int = Field(1, ge=1)
    """Steps between full checkpoints; steps in between are replayed from their stored batches at resume."""
    shuffle_rewards: bool = False
    """Control experiment: permute the rewards within each batch before credit. Nothing should be learnt."""


class Recipe(FrozenModel):
    """All of a run but its seed and its place."""

    schema_: int = Field(SCHEMA, alias="schema")
    name: str = "run"
    tasks: TasksSection = TasksSection()
    model: ModelSection = ModelSection()
    engine: EngineSection = EngineSection()
    generate: GenerateSection = GenerateSection()
    filter: FilterSection = FilterSection()
    control: ControlSection = ControlSection()
    replay: ReplaySection = ReplaySection()
    loss: LossSection = LossSection()
    train: TrainSettings = TrainSettings()
    budget: BudgetSection = BudgetSection()
    evaluate: EvaluateSection = EvaluateSection()
    run: RunSection = RunSection()

    def methods(self) -> list[tuple[Method, FrozenModel]]:
        """Every method the recipe names with its settings. Raises ConfigError for an unknown name or setting."""
        out = []
        for slot, refs in self.slots().items():
            for ref in refs:
                found = find(slot, ref.name)
                out.append((found, settings_of(found, ref.values())))
        return out

    def slots(self) -> dict[Slot, tuple[MethodRef, ...]]:
        """The named methods by slot."""
        out: dict[Slot, tuple[MethodRef, ...]] = {}
        for slot in Slot:
            section, key = slot.split(".")
            value = getattr(getattr(self, section), key)
            out[slot] = value if isinstance(value, tuple) else () if value is None else (value,)
        return out

    @property
    def k(self) -> int:
        """Rollouts a group plans: the topology's `k`, 1 without one."""
        found = find(Slot.TOPOLOGY, self.generate.topology.name)
        return int(getattr(settings_of(found, self.generate.topology.values()), "k", 1))

    def frozen(self) -> dict[str, Any]:
        """JSON data with every default filled in, methods' settings too."""
        data = self.model_dump(mode="json", by_alias=True)
        for slot, refs in self.slots().items():
            section, key = slot.split(".")
            filled = [
                {"name": ref.name, **settings_of(find(slot, ref.name), ref.values()).model_dump(mode="json")} for ref in refs
            ]
            if isinstance(getattr(getattr(self, section), key), tuple):
                data[section][key] = filled
            elif filled:
                data[section][key] = filled[0]
        return data

    def hash(self) -> str:
        """Digest of the frozen recipe."""
        return derive_id("recipe", json.dumps(self.frozen(), sort_keys=True))


# schema number -> the function that turns its data into the next one's.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def parse(data: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """Data to a checked recipe. Raises ConfigError naming where, key, value and remedy."""
    data = dict(data)
    schema = data.setdefault("schema", SCHEMA)
    if type(schema) is not int or schema > SCHEMA or schema < 1:
        raise ConfigError(
            f"{where}: schema = {schema!r}, this version reads 1 to {SCHEMA}", "install a newer gfcr, or correct `schema`"
        )
    while data["schema"] < SCHEMA:
        data = MIGRATIONS[data["schema"]](data)
    data = renamed(data)
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise config_error(error, where, Recipe) from None
    recipe.methods()
    return recipe


def load(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe: a TOML file, a frozen one (`recipe.json`, also a run directory's own), or a shipped one by its bare name.

    `overrides` are `a.b=c` with TOML values (bare words are text; `none` unsets). Raises ConfigError.
    """
    file = Path(path)
    own = file.is_file()
    if not own:
        found = shipped_directory() / (file.name if file.suffix == ".toml" else f"{file.name}.toml")
        if len(file.parts) > 1 or not found.is_file():
            what = "a directory, not a recipe" if file.is_dir() else "there is no recipe"
            near = difflib.get_close_matches(file.name.removesuffix(".toml"), shipped_names(), 1)
            nearest = f"did you mean {near[0]!r}? Otherwise " if near else ""
            raise ConfigError(f"{what}: {str(path)!r}", f"{nearest}give a TOML file, or one of: {', '.join(shipped_names())}")
        data = _read(found)
    else:
        data = _read(file)
    for override in overrides:
        override_with(data, override)
    tasks = data.get("tasks", {})
    for key in ("path", "heldout") if own and isinstance(tasks, dict) else ():
        if isinstance(value := tasks.get(key), str) and value and not Path(value).is_absolute():
            tasks[key] = str((file.parent / value).resolve())
    _place_files(data, file.parent if own else Path())
    return parse(data, str(path))


def _place_files(data: dict[str, Any], folder: Path) -> None:
    """Make methods that name a file, `rewards.py:right`, absolute: a run is resumed from anywhere."""
    for slot in Slot:
        section, key = slot.split(".")
        inner = data.get(section)
        refs = inner.get(key) if isinstance(inner, dict) else None
        for ref in refs if isinstance(refs, list) else [refs]:
            if isinstance(ref, dict) and isinstance(name := ref.get("name"), str):
                file, _, attribute = name.rpartition(":")
                if file.endswith(".py"):
                    ref["name"] = f"{(folder / file).resolve()}:{attribute}"


def _read(file: Traversable) -> dict[str, Any]:
    """A recipe file's data."""
    try:
        text = file.read_text(encoding="utf-8")
        if not file.name.endswith(".json"):
            return tomllib.loads(text)
        data = json.loads(text)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}", "check the path and its permissions") from None
    except UnicodeDecodeError as error:
        where = f"byte {error.start} is {error.object[error.start]:#04x}"
        raise ConfigError(f"{file} is not UTF-8 text: {where}", "save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}", "correct the file at that place") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file} is not JSON: {error}", "correct the file at that place") from None
    data = data.get("recipe", data) if isinstance(data, dict) else data  # a run directory's recipe.json has it under `recipe`
    if not isinstance(data, dict):
        raise ConfigError(f"{file} holds {type(data).__name__}, not a recipe", "give a frozen recipe: an object with sections")
    return data


def shipped_directory() -> Traversable:
    """Where the recipes that come with gfcr lie: inside the package, or `recipes/` of a source checkout."""
    inside = resources.files("gfcr") / "recipes"
    checkout = Path(__file__).parents[2] / "recipes"
    return checkout if not inside.is_dir() and checkout.is_dir() else inside


def shipped_names() -> list[str]:
    """Recipes that come with gfcr."""
    directory = shipped_directory()
    return (
        sorted(f.name.removesuffix(".toml") for f in directory.iterdir() if f.name.endswith(".toml"))
        if directory.is_dir()
        else []
    )
