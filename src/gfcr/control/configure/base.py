"""How a group's rollouts are sampled: the recipe's law and length, and what the methods of control.configure make of them.

Invariants: a configuration is a pure function of the group and the view, so a resumed run samples alike; no method may ask for more
tokens than `generate.max_tokens`, which budget and context were planned with; what no law can say (no n-gram twice, say) is no
setting here, because nobody could recompute its log-probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field

from gfcr.context import Configuration, View
from gfcr.control.slots import Configurator, ConfigureMethod
from gfcr.errors import ConfigError
from gfcr.registry import FrozenModel
from gfcr.types import Group, Sampling

TRUNCATES, PENALISES = "truncates", "penalises"
"""Traits of methods under whose laws some tokens have probability 0, or the tokens before change the law."""
HEATS, GREEDY = "changes temperature", "greedy"
"""Traits of methods whose laws may have other temperatures than the recipe's, or temperature 0."""
LAYS_OUT = "lays out laws"
"""Trait of methods that give a rollout several laws; they come last, because the others change the first law only."""

_KINDS = {
    TRUNCATES: "a law that truncates (top-p, top-k, min-p or bans)",
    PENALISES: "a law with penalties",
    LAYS_OUT: "a rollout several laws",
}


class FixedConfiguration:
    """The recipe's sampling law and longest answer."""

    def __init__(self, sampling: Sampling, max_tokens: int) -> None:
        self.how = Configuration(sampling, max_tokens)

    def configure(self, group: Group, view: View) -> Configuration:
        return self.how


class Configured(FixedConfiguration):
    """The recipe's, changed by methods one after the other."""

    def __init__(
        self, sampling: Sampling, max_tokens: int, methods: Sequence[ConfigureMethod], declared: frozenset[str] | None = None
    ) -> None:
        """`declared`: traits of the methods, which the composition check went by; None = nobody checked."""
        super().__init__(sampling, max_tokens)
        self.methods, self.declared = tuple(methods), declared

    def configure(self, group: Group, view: View) -> Configuration:
        how = self.how
        for method in self.methods:
            how = method.edit(how, group, view)
            longest = max([how.max_tokens, *[of_turn.max_tokens for _, of_turn in how.turns]])
            if not 1 <= longest <= self.how.max_tokens:
                raise ConfigError(
                    f"control.configure: {type(method).__name__} asks for answers of {longest} tokens, generate.max_tokens is "
                    f"{self.how.max_tokens}",
                    "raise generate.max_tokens, with which budget and context are planned, or lower the method's",
                )
            if self.declared is not None:
                self._as_declared(method, how, self.declared)
        return how

    def _as_declared(self, method: ConfigureMethod, how: Configuration, declared: frozenset[str]) -> None:
        """Raise ConfigError for a law of a kind that the composition check was not told of: an engine may not serve it, or a ratio
        may not be had for it."""
        laws, own = how.laws, self.how.sampling
        for trait, found in (
            (TRUNCATES, not own.truncated and any(law.truncated for law in laws)),
            (PENALISES, not own.penalised and any(law.penalised for law in laws)),
            (LAYS_OUT, len(laws) > 1),
        ):
            if found and trait not in declared:
                raise ConfigError(
                    f"control.configure: {type(method).__name__} gave {_KINDS[trait]}, and does not say so: the composition check went by "
                    "its traits",
                    f"declare the trait {trait!r} on it (traits=..., or traits() of its Settings)",
                )

    def state_dict(self) -> dict[str, Any]:
        return {str(i): m.state_dict() for i, m in enumerate(self.methods) if hasattr(m, "state_dict")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for i, part in state.items():
            self.methods[int(i)].load_state_dict(part)  # type: ignore[attr-defined]


def configurator(
    sampling: Sampling, max_tokens: int, methods: Sequence[ConfigureMethod], declared: frozenset[str] | None = None
) -> Configurator:
    """What a run asks how to sample. `declared`: as in `Configured`."""
    return Configured(sampling, max_tokens, methods, declared) if methods else FixedConfiguration(sampling, max_tokens)


class Change(FrozenModel):
    """What of a law is another; absent = as it was. See gfcr.types.Sampling."""

    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    banned: tuple[int, ...] | None = None
    """Token ids of probability 0."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Longest answer, in tokens; at most generate.max_tokens."""

    def of(self, how: Configuration) -> Configuration:
        """The configuration with this changed in its first law."""
        given = {name: value for name in LAW if (value := getattr(self, name)) is not None}
        return replace(altered(how, **given), max_tokens=how.max_tokens if self.max_tokens is None else self.max_tokens)

    def traits(self) -> frozenset[str]:
        return traits_of({name: getattr(self, name) for name in LAW})


LAW = tuple(name for name in Change.model_fields if name != "max_tokens")


def altered(how: Configuration, **changes: Any) -> Configuration:
    """The configuration with its first law changed."""
    return replace(how, sampling=changed(how.sampling, **changes)) if changes else how


def changed(law: Sampling, **changes: Any) -> Sampling:
    """The law with these fields changed. Raises ValueError for a value outside its range."""
    return replace(law, id="", **changes)


def traits_of(changes: dict[str, Any]) -> frozenset[str]:
    """Traits of a method that may give a law these values (None = leaves them)."""
    off = {"top_p": 1, "top_k": 0, "min_p": 0, "banned": (), "repetition_penalty": 1, "presence_penalty": 0}
    greedy = frozenset({GREEDY}) if changes.get("temperature") == 0 else frozenset()
    return greedy | frozenset(
        HEATS if n == "temperature" else TRUNCATES if n in ("top_p", "top_k", "min_p", "banned") else PENALISES
        for n, value in changes.items()
        if value is not None and (n == "temperature" or value != off.get(n, 0))
    )


def tokens_allowed(method: str, tokens: float, most: int) -> None:
    """Raise ConfigError for an answer longer than was planned with."""
    if not 1 <= tokens <= most:
        raise ConfigError(
            f"control.configure {method!r}: max_tokens = {tokens:g} is outside 1 to generate.max_tokens = {most}",
            "raise generate.max_tokens, with which budget and context are planned, or lower the method's",
        )


def law_allowed(method: str, **changes: Any) -> None:
    """Raise ConfigError where a law with these values is none."""
    try:
        changed(Sampling(), **changes)
    except ValueError as error:
        raise ConfigError(f"control.configure {method!r}: {error}", "give a value in that range") from None


def refuse_bans(settings: Any, where: str, vocabulary: int) -> None:
    """Raise ConfigError for banned tokens, anywhere in these settings, that the model does not have, and for bans that leave nothing to
    say."""
    for banned in _bans(settings):
        if outside := sorted(i for i in banned if not 0 <= i < vocabulary):
            raise ConfigError(
                f"{where}: banned holds the token {outside[0]}, the model's are 0 to {vocabulary - 1}",
                "take it out; ids are those of the model's own tokenizer",
            )
        if len(set(banned)) == vocabulary:
            raise ConfigError(f"{where}: banned holds all {vocabulary} tokens of the model", "leave some to sample from")


def _bans(settings: Any) -> Iterator[tuple[int, ...]]:
    """What is called `banned`, however deep it lies."""
    if isinstance(settings, BaseModel):
        for name, value in settings:
            if name == "banned" and value:
                yield value
            else:
                yield from _bans(value)
    elif isinstance(settings, dict | tuple | list):
        for value in settings.values() if isinstance(settings, dict) else settings:
            yield from _bans(value)
