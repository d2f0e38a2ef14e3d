"""Whether an answer's JSON value fits a schema.

Invariants: JSON Schema as the library `jsonschema` reads it, never fetching anything; a schema that is none is refused when the gate is
built; patterns in a schema may take for ever, so with one the gate runs where it can be killed.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gfcr.context import Build
from gfcr.errors import ConfigError, MissingExtra
from gfcr.filter.texts.spoken import spoken
from gfcr.filter.texts.values import NoValue, find, plain
from gfcr.filter.verdicts import passes, refused, short, unjudged, unscorable
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import Status, StopReason, Task, Verdict

LONGEST = 200_000
"""Characters of the longest value that is held against a schema."""


class BadSchema(ValueError):
    """A schema that is none; the message says why."""


def fault(value: Any, schema: Mapping[str, Any]) -> str:
    """Why the value does not fit, with its place; empty where it does. Raises BadSchema, MissingExtra."""
    checker = _checker(_frozen(schema))
    try:
        error = next(iter(checker.iter_errors(plain(value))), None)
    except RecursionError:
        return "nested too deeply"
    except Exception as broken:  # a reference that leads nowhere, a pattern that is none
        raise BadSchema(f"{type(broken).__name__}: {broken}") from None
    if error is None:
        return ""
    place = "$" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
    return f"{place}: {error.message[:200]}"


def checked(schema: Any, where: str) -> Mapping[str, Any]:
    """The schema, once it is known to be one. Raises ConfigError that names `where`, MissingExtra."""
    if not isinstance(schema, Mapping):
        raise ConfigError(f"{where} is {short(schema)}, not a JSON schema", "give an object")
    try:
        _checker(_frozen(schema))
    except BadSchema as error:
        raise ConfigError(f"{where} is no JSON schema: {error}", "correct it") from None
    return schema


def _frozen(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(schema, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise BadSchema(str(error)) from None


@lru_cache(maxsize=256)
def _checker(text: str) -> Any:
    try:
        library = importlib.import_module("jsonschema")
        referencing = importlib.import_module("referencing")
    except ImportError:
        raise MissingExtra("jsonschema", "structured", "a JSON schema") from None
    schema = json.loads(text)
    cls = library.validators.validator_for(schema, default=library.Draft202012Validator)
    try:
        cls.check_schema(schema)
    except library.exceptions.SchemaError as error:
        raise BadSchema(error.message[:200]) from None
    return cls(schema, registry=referencing.Registry())


@method("json-schema", Slot.GATE, title="JSON that fits a schema", criterion="reliability", faithfulness=Faithfulness.OURS)
class JsonSchema:
    """Refuses a finished answer whose JSON value does not fit the schema, or that has none."""

    class Settings(FrozenModel):
        json_schema: dict[str, Any] | None = None
        """The schema (inline). None: each task's own, from `column`; where neither is, any JSON value passes."""
        column: str = "json_schema"
        """Column (`Task.meta`) with a task's own schema, which goes before the recipe's."""
        lenient: bool = True
        """Read typographic or single quotes, comments, commas before a bracket and Python's literals as JSON, too."""

    name, version = "json-schema", "1"

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings
        own = [task for task in (build.tasks if build else ()) if task.meta.get(settings.column) is not None]
        if settings.json_schema is not None:
            checked(settings.json_schema, "filter.gates 'json-schema': json_schema")
        for task in own:
            checked(task.meta[settings.column], f"filter.gates 'json-schema': task {task.id}: column {settings.column!r}")
        self.bounded = build is not None and settings.json_schema is None and not own

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if (unheard := unjudged(self, stop)) is not None:
            return unheard
        own = task.meta.get(self.settings.column)
        schema = self.settings.json_schema if own is None else own
        verdicts = [self._zone(zone, schema) for zone in dict.fromkeys((*spoken(text), text))]  # a string may hold `<think>`
        return next((v for v in verdicts if v.status is not Status.INVALID), verdicts[0])

    def _zone(self, zone: str, schema: Any) -> Verdict:
        try:
            value, start, end = find(zone, self.settings.lenient, _type(schema))
        except NoValue as error:
            return refused(self, f"no JSON value: {error}")
        if schema is None:
            return passes(self, "a JSON value")
        if end - start > LONGEST:
            return passes(self, f"not held against the schema: longer than {LONGEST} characters")
        try:
            why = fault(value, checked(schema, "its schema"))
        except (BadSchema, ConfigError) as error:
            return unscorable(self, str(error).partition("\n")[0])
        return refused(self, f"does not fit the schema: {why}") if why else passes(self, "fits the schema")


def _type(schema: Any) -> type | None:
    """The type of value that a schema speaks of, so that a footnote's `[1]` is not taken for it."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind is None and isinstance(schema, Mapping) and ("properties" in schema or "required" in schema):
        kind = "object"
    return {"object": dict, "array": list}.get(kind) if isinstance(kind, str) else None
