"""SQL as text: the query in a reply, whether it orders its result, the constants it names.

Invariants: every function is linear in the text; the last marked query counts; nothing is guessed: a reply without marks is the
query, whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_THINK = "</think>"
_TAGS = ("answer", "sql")
_SQL_NAMES = frozenset({"sql", "sqlite", "sqlite3", "postgresql", "postgres", "mysql", "tsql", "duckdb"})
_TOKEN = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*(?:'|\Z)|\"(?:[^\"]|\"\")*(?:\"|\Z)|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)"
    r"|[^\W\d]\w*|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|\S",
    re.DOTALL,
)
_NAME = re.compile(r"[ \t]*([\w+#-]*)[ \t]*(?:\r?\n)?")
MOST_LITERALS = 24


def find_query(text: str) -> tuple[int, int]:
    """(start, end) of the query in a reply: inside the last `<answer>` or `<sql>`, there inside the last fenced block (one marked as
    SQL before others), else all of it, blanks stripped. What stands before `</think>` counts only when nothing follows it."""
    start, end = 0, len(text)
    if (at := text.rfind(_THINK)) >= 0 and text[at + len(_THINK) :].strip():
        start = at + len(_THINK)
    for tag in _TAGS:
        if inside := _last_tag(text, tag, start, end):
            start, end = inside
            break
    if block := _last_block(text, start, end):
        start, end = block
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _last_tag(text: str, tag: str, start: int, end: int) -> tuple[int, int] | None:
    close = text.rfind(f"</{tag}>", start, end)
    open_ = text.rfind(f"<{tag}>", start, close if close >= 0 else end)
    if open_ < 0:
        return None
    return open_ + len(tag) + 2, close if close >= 0 else end  # a tag that nobody closed reaches to the end


def _last_block(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Inside of the last fenced block marked as SQL, else of the last one without another language's name."""
    marked = plain = None
    at = text.find("```", start, end)
    while at >= 0:
        close = text.find("```", at + 3, end)
        inside = at + 3, close if close >= 0 else end
        name = _NAME.match(text, *inside)
        word = name[1].lower() if name else ""
        if name and word in _SQL_NAMES:
            marked = name.end(), inside[1]
        elif name and (not word or text[name.end() - 1 : name.end()] != "\n"):
            # a block without a name; or one on the fence's own line, whose first word is the query's
            plain = (name.end() if not word else inside[0]), inside[1]
        at = text.find("```", close + 3, end) if close >= 0 else -1
    return marked or plain


def placed(sql: str) -> Iterator[tuple[str, int, int, int]]:
    """(token, depth of parentheses around it, start, end), comments left out."""
    depth = 0
    for found in _TOKEN.finditer(sql):
        token = found.group()
        if token.startswith(("--", "/*")):
            continue
        if token == ")":
            depth -= 1
        yield token, depth, found.start(), found.end()
        if token == "(":
            depth += 1


def is_ordered(sql: str) -> bool:
    """Whether the outer query has an ORDER BY; one in a comment, a text, a subquery or a window does not count."""
    before = ""
    for token, depth, _, _ in placed(sql):
        word = token.upper()
        if depth == 0 and before == "ORDER" and word == "BY":
            return True
        before = word if depth == 0 else ""
    return False


def literals(sql: str) -> tuple[str | int | float, ...]:
    """The constants a query names, in order, at most MOST_LITERALS."""
    out: list[str | int | float] = []
    for token, _, _, _ in placed(sql):
        if token[0] == "'" and len(token) > 1 and token.endswith("'"):
            out.append(token[1:-1].replace("''", "'"))
        elif token[0].isdigit() or (token[0] == "." and len(token) > 1):
            out.append(int(token) if token.isdigit() and len(token) < 19 else float(token))
        if len(out) == MOST_LITERALS:
            break
    return tuple(out)
