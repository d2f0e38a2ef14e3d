"""Whether an answer's program can be read: Python's compiler, SQLite's parser.

Invariants: nothing of the answer is run; the grammar is the one that the verifier behind the gate uses; what this process does not want
to read (too long) passes unjudged. A reader of foreign text may crash its process, so both gates run where that is no harm.
"""

from __future__ import annotations

import re
import sqlite3
import warnings
from collections.abc import Callable, Mapping

from gfcr.context import Build
from gfcr.filter.texts.fences import programs
from gfcr.filter.texts.spoken import spoken
from gfcr.filter.texts.values import NoValue, strict
from gfcr.filter.verdicts import passes, refused, unjudged
from gfcr.filter.verifiers.code.extract import answer
from gfcr.filter.verifiers.sql.text import find_query
from gfcr.registry import Faithfulness, FrozenModel, Slot, method
from gfcr.types import StopReason, Task, Verdict

LONGEST = 500_000
"""Characters of the longest program that is read."""
PYTHON = frozenset({"python", "py", "python3", "ipython", "pycon"})
SQL = frozenset({"sql", "sqlite", "sqlite3"})
_PROMPT = re.compile(r"^(?:>>> ?|\.\.\. ?)", re.MULTILINE)


@method("code-compiles", Slot.GATE, title="the program compiles", criterion="reliability", faithfulness=Faithfulness.OURS)
class CodeCompiles:
    """Refuses a finished answer whose Python program (its last fenced block, else all of it) does not compile."""

    class Settings(FrozenModel):
        need_fence: bool = False
        """Refuse an answer without a fenced block, too. False: without one the whole text is the program."""

    name, version, bounded = "code-compiles", "1", False

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if (unheard := unjudged(self, stop)) is not None:
            return unheard
        if self.settings.need_fence and "```" not in text and "~~~" not in text:
            return refused(self, "no fenced block")
        meant = answer(text, None)  # as the verifier reads it
        if (
            sum(map(len, meant.files.values())) <= LONGEST
            and any(map(str.strip, meant.files.values()))
            and not _faults(meant.files)
        ):
            return passes(self, "the program can be read")
        return _any(self, text, PYTHON, _reads, "program")


def _any(
    gate: CodeCompiles | SqlParses, text: str, languages: frozenset[str], fault: Callable[[str], str], what: str
) -> Verdict:
    """Passes when any text that may be meant as the program can be read; else what is wrong with the likeliest one. The text as it
    stands is tried last: a program may speak of `<think>` itself."""
    found = [p for zone in dict.fromkeys((*spoken(text), text)) for p in programs(zone, languages)]
    if not found:
        return refused(gate, f"no {what} in it")
    first = ""
    for candidate in dict.fromkeys(found):
        if len(candidate) > LONGEST:
            return passes(gate, f"not read: {len(candidate)} characters, more than {LONGEST}")
        why = fault(candidate)
        if not why:
            return passes(gate, f"the {what} can be read")
        first = first or why
    return refused(gate, first)


def _reads(source: str) -> str:
    """Why a program, or the lines of a session (`>>> `), or the files of a map of them, cannot be read."""
    why = _compiles(source)
    if why and _PROMPT.search(source):
        return _compiles("\n".join(_PROMPT.sub("", line) for line in source.splitlines() if _PROMPT.match(line))) and why
    if source.lstrip().startswith("{"):
        try:
            files = strict(source)
        except NoValue:
            return why
        if isinstance(files, dict) and files and all(isinstance(text, str) for text in files.values()):
            return _faults(files)
    return why


def _faults(files: Mapping[str, str]) -> str:
    """What is wrong with the first Python file that cannot be read; empty where all can."""
    faults = ((name, _compiles(text)) for name, text in files.items() if name.endswith(".py"))
    return next((f"{name[:60]}: {fault}" for name, fault in faults if fault), "")


def _compiles(source: str) -> str:
    """Why the source does not compile; empty where it does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(source, "<answer>", "exec", dont_inherit=True, optimize=0)
        except SyntaxError as error:
            return f"line {error.lineno}: {error.msg}" if error.lineno else str(error.msg)
        except (ValueError, OverflowError) as error:  # a null character, a lone surrogate
            return str(error)[:200]
        except (RecursionError, MemoryError):
            return "nested too deeply for Python's compiler"
    return ""


@method("sql-parses", Slot.GATE, title="the query parses", criterion="reliability", faithfulness=Faithfulness.OURS)
class SqlParses:
    """Refuses a finished answer whose query (its last fenced block, else all of it) is no SQL to SQLite's own parser. Names of tables and
    columns are not looked up: that is the verifier's business."""

    class Settings(FrozenModel):
        one: bool = True
        """Refuse a second statement. False: the first one decides."""

    name, version, bounded = "sql-parses", "1", False

    def __init__(self, settings: Settings, build: Build | None = None) -> None:
        self.settings = settings

    def judge(self, task: Task, text: str, stop: StopReason) -> Verdict:
        if (unheard := unjudged(self, stop)) is not None:
            return unheard
        return _any(self, text, SQL, self._query, "query")

    def _query(self, text: str) -> str:
        start, end = find_query(text)  # as the verifier reads it
        return min((self._fault(query) for query in dict.fromkeys((text, text[start:end]))), key=bool)

    def _fault(self, text: str) -> str:
        query = text.strip().rstrip(";").strip()
        if not query:
            return "no query in it"
        if re.match(r"EXPLAIN\b", query, re.IGNORECASE):
            query = re.sub(r"EXPLAIN(?:\s+QUERY\s+PLAN)?\s*", "", query, count=1, flags=re.IGNORECASE) or "SELECT 1"
        return _parses(query, self.settings.one)


def _parses(query: str, one: bool) -> str:
    """Why the text is no SQL; empty where it is. SQLite reads a statement to its end before it looks anything up and asks the authoriser,
    who denies everything: so nothing is expanded, planned or run."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.set_authorizer(_deny)
        connection.execute("EXPLAIN " + query)
    except sqlite3.ProgrammingError as error:
        if "one statement" in str(error):  # the first one is none (a comment): what follows was not read
            return "several statements" if one else ""
        return ""  # parameters without values
    except sqlite3.Warning:
        return "several statements" if one else ""
    except sqlite3.Error as error:
        said = str(error)
        if re.search(r"syntax error|unrecognized token|incomplete input|parser stack overflow|null character", said):
            return said
        return "several statements" if one and _second(query) else ""
    except (ValueError, UnicodeEncodeError) as error:
        return str(error)[:200]
    finally:
        connection.close()
    return "several statements" if one and _second(query) else ""


def _deny(*asked: object) -> int:
    return sqlite3.SQLITE_DENY


_TOKEN = re.compile(
    r"""'(?:[^']|'')*(?:'|\Z)|"(?:[^"]|"")*(?:"|\Z)|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)|--[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z)|;|[^;'"`\[\-/]+|.""",
    re.DOTALL,
)


def _second(query: str) -> bool:
    """Whether anything but blanks and comments follows a semicolon (outside of quotes; a trigger's body has its own)."""
    if re.match(r"(?:--[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/|\s)*CREATE\b.{0,40}?\bTRIGGER\b", query, re.IGNORECASE | re.DOTALL):
        return False
    ended = False
    for token in _TOKEN.finditer(query):
        said = token.group()
        if said == ";":
            ended = True
        elif ended and said.strip() and not said.startswith(("--", "/*")):
            return True
    return False
