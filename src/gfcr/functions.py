"""A user's own function as code that can be found again: `package.module:function` or `path/to/file.py:function`.

Invariants: a function is known by where it stands and by the digest of its file, so that a resumed run can say what changed;
loading a file runs it once per process and not as `__main__`; whatever a foreign file raises becomes a ConfigError that names it.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from gfcr.errors import ConfigError

_PREFIX = "gfcr_user_"
"""Of the module names of files that were loaded by path."""


def is_place(name: str) -> bool:
    """Whether a method's name is a place in code rather than a registered name."""
    return ":" in name


def split_place(place: str) -> tuple[str, str]:
    """(module or file, attribute). Raises ConfigError."""
    where, _, attribute = place.rpartition(":")
    if not where or not all(part.isidentifier() for part in attribute.split(".")):
        raise ConfigError(f"{place!r} names no function", "write package.module:function or path/to/file.py:function")
    return where, attribute


def short_name(name: str) -> str:
    """A method's name without the folders of a file: `rewards:right`; a registered name as it is."""
    if not is_place(name):
        return name
    where, attribute = split_place(name)
    return f"{Path(where).stem if where.endswith('.py') else where}:{attribute}"


def load_place(place: str) -> Any:
    """What stands there. Raises ConfigError: no such module or file, it cannot be imported, it has no such name."""
    where, attribute = split_place(place)
    found: Any = _module(where)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            module = _module(where)
            own = sorted(
                name
                for name, value in vars(module).items()
                if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
            )
            raise ConfigError(f"{where} has no {attribute!r}", f"it has {', '.join(own[:12]) or 'no function'}") from None
    return found


def place_of(function: Callable[..., Any]) -> str:
    """Where a function can be found again, from this and from other processes. Raises ConfigError for one that cannot: a lambda, a
    closure, a function typed at a prompt."""
    name, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", None)
    if not name or not module or "<" in name:
        raise ConfigError(
            f"{function!r} has no name by which another process could find it",
            "define it with `def` at the top of a module or a script file",
        )
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        if file is None or not Path(file).is_file():
            raise ConfigError(f"{name} was typed at a prompt, so no other process can find it", "put it into a file")
        return f"{Path(file).resolve()}:{name}"
    if module.startswith(_PREFIX):
        return f"{sys.modules[module].__file__}:{name}"
    return f"{module}:{name}"


def place_of_class(cls: type) -> str:
    """Where a class stands, for a message: `file.py:Class`, or `package.module:Class`; found again or not."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) if cls.__module__.startswith(_PREFIX) else None
    return f"{Path(file).name if file else cls.__module__}:{cls.__qualname__}"


def code_hash(place: str) -> str:
    """Digest of the file the place stands in (what that file imports is not part of it)."""
    where, _ = split_place(place)
    file = getattr(_module(where), "__file__", None)
    return file_hash(Path(file)) if file and Path(file).is_file() else "no file"


def file_hash(file: Path) -> str:
    return blake2b(file.read_bytes(), digest_size=8).hexdigest()


def code_of(cls: type, name: str) -> str | None:
    """Digest of the file a method that is not gfcr's own stands in, `name` being its name in the recipe; None for gfcr's own."""
    if is_place(name):
        return code_hash(name)
    if cls.__module__.partition(".")[0] == "gfcr":
        return None
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return file_hash(Path(file)) if file and Path(file).is_file() else "no file"


def own_place(error: BaseException) -> str:
    """`file.py:line` where an exception passed through a file of the user's last; empty when it passed through none."""
    found, at = "", error.__traceback__
    while at is not None:
        if str(at.tb_frame.f_globals.get("__name__", "")).startswith(_PREFIX):
            found = f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}"
        at = at.tb_next
    return found


def parameters(function: Callable[..., Any], place: str) -> dict[str, inspect.Parameter]:
    """A function's parameters by name. Raises ConfigError for what cannot be called."""
    if not callable(function):
        raise ConfigError(f"{place} is {type(function).__name__}, not a function", "name a function")
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        raise ConfigError(f"{place} does not tell its parameters", "wrap it in a function written with `def`") from None


@cache
def _module(where: str) -> ModuleType:
    if not where.endswith(".py"):
        return _import(where)
    file = Path(where).resolve()
    if not file.is_file():
        raise ConfigError(f"there is no file {where}", "check the path; in a recipe it is relative to the recipe")
    main = sys.modules["__main__"]
    if (own := getattr(main, "__file__", None)) and Path(own).resolve() == file:
        return main  # the running script itself: to run it again here would start it twice
    name = _PREFIX + blake2b(str(file).encode(), digest_size=6).hexdigest()
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # so that it finds its neighbours; last, so that it hides nothing
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ConfigError(f"{where} cannot be run: {type(error).__name__}: {error}", "correct the file") from error
    return module


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever a foreign module raises when it is imported
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"there is no module {error.name!r} (asked for as {name!r})",
                "install it, put its folder on PYTHONPATH, or name a file: path/to/file.py:function",
            ) from error
        raise ConfigError(
            f"the module {name} cannot be imported: {type(error).__name__}: {error}", "correct the module"
        ) from error
