"""Settings of recipes and methods: what they are made of, and how it is told that one is wrong.

Invariants: settings are frozen, an unknown key is an error with the nearest known one; a number, a truth value and a text are
three things, and none is taken for another (a whole number may stand for a number, nothing else); an error names the key, the
value and what to write instead.
"""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, GetCoreSchemaHandler, Tag, ValidationError
from pydantic_core import CoreSchema, ErrorDetails

from gfcr.errors import ConfigError, literal


def _be_strict(schema: Any) -> None:
    """Numbers and truth values only as they are. (Pydantic's `strict` for a whole model would also refuse a list for a tuple.)"""
    if isinstance(schema, dict):
        if schema.get("type") in ("int", "float", "bool"):
            schema["strict"] = True
        for key, inner in schema.items():
            if key not in ("metadata", "serialization", "default"):
                _be_strict(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _be_strict(inner)


class FrozenModel(BaseModel):
    """Base of all settings: frozen, strict about numbers and truth values, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _be_strict(schema)
        return schema

    def traits(self) -> frozenset[str]:
        """Traits a method has under these settings, beside those it always has."""
        return frozenset()


class MethodRef(BaseModel):
    """A method by name; the other keys are that method's settings."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str

    def values(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


def _several(value: Any) -> str:
    return "<several>" if isinstance(value, (list, tuple)) else "<one>"


OneOrSeveral = Annotated[
    Annotated[MethodRef, Tag("<one>")] | Annotated[tuple[MethodRef, ...], Tag("<several>")], Discriminator(_several)
]
"""One method, or a list of them; what is wrong in one is told of that one."""


_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a section",
}
_NAMED = ("MethodRef", "GymDataset")
"""Tables that are a name with settings beside it."""
_BOUNDS = {
    "greater_than": "above {gt}",
    "greater_than_equal": "of {ge} or more",
    "less_than": "below {lt}",
    "less_than_equal": "of {le} or less",
    "finite_number": "that is finite",
}
_BRANCH = re.compile(r"(float|int|bool|str|none|constrained-\w+|(nullable|literal|list|tuple|dict|function-\w+)\[.*)$")
"""What pydantic adds to a key's place for a branch of a union."""


def config_error(error: ValidationError, where: str, model: type[BaseModel], hint: str = "") -> ConfigError:
    """A pydantic error as what, where, which value, what to do (and `hint`)."""
    first = error.errors()[0]
    if first["type"] == "extra_forbidden":
        return _unknown_key(first, where, model)
    path = _path(first)
    same = [e for e in error.errors() if _path(e) == path]
    value = first.get("input")
    wanted = " or ".join(dict.fromkeys(filter(None, map(_wanted, same))))
    if wanted and all(_wanted(e) for e in same):
        shown = repr(value) if isinstance(value, float) else _shown(value)  # 100000.0 is not 100000 where that is the point
        why = f"takes {wanted}, and {shown} was given"
    else:
        why = first["msg"] if isinstance(value, dict) else f"{first['msg']} (got {value!r})"
    remedies = [*filter(None, (_instead(e, path, value) for e in same)), "correct the value"]
    remedy = next((r for r in remedies if r.startswith("did you mean")), remedies[0])
    return ConfigError(f"{where}: {path or 'value'}{' ' if wanted else ': '}{why}", remedy + (f"; {hint}" if hint else ""))


def _path(error: ErrorDetails) -> str:
    parts = [str(part) for part in error["loc"] if not str(part).startswith("<")]  # tags of "one or several"
    while len(parts) > 1 and _BRANCH.match(parts[-1]):
        parts.pop()
    return ".".join(parts)


def _wanted(error: ErrorDetails) -> str:
    """What may stand there, in words; empty for what is not about the kind of value."""
    if error["type"] == "model_type" and error.get("ctx", {}).get("class_name") in _NAMED:
        return "one table with a name"
    if error["type"] in ("literal_error", "enum"):
        return str(error["ctx"]["expected"])
    return _WANTED.get(error["type"], "")


def _shown(value: Any) -> str:
    """A value with its kind, where that is what is wrong."""
    text = literal(value)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    kind = "text" if isinstance(value, str) else "a list" if isinstance(value, (list, tuple)) else ""
    return f"{text} ({kind})" if kind else text


def _instead(error: ErrorDetails, path: str, value: Any) -> str:
    """What to write; empty when nobody knows."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _BOUNDS:
        return f"give a number {_BOUNDS[kind].format(**context)}"
    if kind == "missing":
        return f"write all values of {path.rpartition('.')[0]}" if _place_in_list(path) else f"add {path}"
    if kind in ("literal_error", "enum"):
        known = re.findall(r"'([^']*)'", str(context["expected"]))
        near = difflib.get_close_matches(str(value).lower(), known, 1)
        return f"did you mean {near[0]!r}?" if near else f"write one of {context['expected']}"
    if kind in ("int_type", "int_from_float", "float_type", "bool_type"):
        return _number_instead(kind, path, value)
    if kind == "string_type" and isinstance(value, (bool, int, float)):
        return _write(path, f'"{literal(value)}"') + ", with quotes"
    if kind == "model_type":
        return _table_instead(path, value, context.get("class_name") in _NAMED)
    if kind in ("tuple_type", "list_type"):
        return f"write {path} = [{literal(value) if isinstance(value, (str, dict)) else '...'}]"
    return ""


def _place_in_list(path: str) -> bool:
    return path.rpartition(".")[2].isdigit()


def _write(path: str, right: str) -> str:
    whole, _, place = path.rpartition(".")
    return f"write {right} as number {int(place) + 1} of {whole}" if _place_in_list(path) else f"write {path} = {right}"


def _number_instead(kind: str, path: str, value: Any) -> str:
    text = str(value).strip()
    if kind == "bool_type":
        known = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
        if text.lower() not in known:
            return f"write {path} = true or {path} = false"
        right = literal(known[text.lower()])
    elif isinstance(value, bool) or value is None:
        return f"write a number: {path} = ..."
    else:
        try:
            number = float(text.replace("_", ""))
        except ValueError:
            return f"write {'digits only' if kind != 'float_type' else 'a number like 0.5 or 6e-4'}: {path} = ..."
        if kind == "float_type":
            right = text
        elif not number.is_integer():
            return f"write a whole number, such as {path} = {round(number) if abs(number) < 1e15 else '...'}"
        else:
            right = str(int(number))
    return _write(path, right) + (", without quotes" if isinstance(value, str) and right == text else "")


def _table_instead(path: str, value: Any, named: bool) -> str:
    if not named:
        return f"write a section [{path}] with its keys"
    if isinstance(value, str):
        return _write(path, f"{{name = {literal(value)}}}")
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], (dict, str)):
        return f"write {path} = {literal(value[0] if isinstance(value[0], dict) else {'name': value[0]})}, without the brackets"
    if isinstance(value, list) and value:
        return f"it takes one: keep the one you want, {path} = {literal(value[0])}"
    return _write(path, '{name = "..."}')


def _unknown_key(error: ErrorDetails, where: str, model: type[BaseModel]) -> ConfigError:
    owner: Any = model
    for step in error["loc"][:-1]:
        inner = owner.model_fields.get(str(step)) if hasattr(owner, "model_fields") else None
        owner = inner.annotation if inner is not None else owner
    known = sorted(f.alias or name for name, f in getattr(owner, "model_fields", {}).items())
    last = str(error["loc"][-1])
    if near := places(model, last)[:1] or difflib.get_close_matches(last, known, 1):
        remedy = f"did you mean {near[0]!r}?"
    elif known:
        remedy = f"known keys: {', '.join(known)}"
    else:
        remedy = f"it has no settings: take {last!r} out (--set SLOT=NAME replaces a method with its settings)"
    return ConfigError(f"{where}: unknown key {'.'.join(map(str, error['loc']))!r}", remedy)


def places(model: type[BaseModel], name: str, prefix: str = "") -> list[str]:
    """Dotted keys of the model's sections that end in `name`, shallow ones first."""
    found = [f"{prefix}{name}"] if prefix and name in model.model_fields else []
    for key, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, FrozenModel):
            found += places(info.annotation, name, f"{prefix}{key}.")
    return sorted(found, key=lambda place: place.count("."))
