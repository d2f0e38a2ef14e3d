"""Rows that tie under ORDER BY may come in any order: which rows of a reference tie.

The reference is run once more with its sort keys as further columns. Invariant: where the keys cannot be had for certain (a compound
query, DISTINCT, a name that may mean a column or an alias), nothing ties, and the order counts as it is: a doubt never makes a wrong
answer right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gfcr.filter.verifiers.sql.database import Row, Table
from gfcr.filter.verifiers.sql.text import placed

_COMPOUND = frozenset({"UNION", "EXCEPT", "INTERSECT", "VALUES", "WINDOW"})
_AFTER = frozenset({"LIMIT", "OFFSET", ";"})
_DIRECTION = frozenset({"ASC", "DESC", "NULLS", "FIRST", "LAST"})
Key = int | str
"""A sort key: the place of a result's column, or an expression."""


def sort_keys(sql: str, names: Sequence[str]) -> tuple[list[Key], int] | None:
    """(keys of the outer ORDER BY, where in the text further columns go); None where they are not known for certain. `names`: of the
    result's columns."""
    flat = [(token.upper(), token, start, end) for token, depth, start, end in placed(sql) if depth == 0]
    words = [word for word, _, _, _ in flat]
    if _COMPOUND & set(words) or words.count("SELECT") != 1 or words.count("FROM") != 1:
        return None
    select, source = words.index("SELECT"), words.index("FROM")
    order = next((i for i in range(len(words) - 1) if words[i : i + 2] == ["ORDER", "BY"]), -1)
    if not select < source < order or words[select + 1] in ("DISTINCT", "ALL"):
        return None
    keys: list[Key] = []
    term: list[int] = []
    for i in range(order + 2, len(flat) + 1):
        if i < len(flat) and words[i] not in _AFTER and words[i] != ",":
            term.append(i)
            continue
        if (key := _key(sql, [flat[t] for t in term], [name.lower() for name in names])) is None:
            return None
        keys.append(key)
        term = []
        if i == len(flat) or words[i] != ",":
            break
    return keys, flat[source][2]


def _key(sql: str, term: list[tuple[str, str, int, int]], names: list[str]) -> Key | None:
    while term and term[-1][0] in _DIRECTION:
        term = term[:-1]
    if not term:
        return None
    text = sql[term[0][2] : term[-1][3]]
    if len(term) == 1:
        word = _unquoted(text).lower()
        if text.isdigit():
            return int(text) - 1 if 0 < int(text) <= len(names) else None
        if names.count(word) == 1:
            return names.index(word)  # an alias goes before a column of the same name
        return None if word in names else text
    if len(term) == 3 and term[1][1] == ".":  # table.column is never an alias
        return text
    inner = {_unquoted(token).lower() for token, _, _, _ in placed(text)}
    return None if inner & set(names) else text


def with_keys(sql: str, names: Sequence[str]) -> tuple[str, list[int]] | None:
    """(the query with its sort keys as further columns, where in a row each key stands)."""
    found = sort_keys(sql, names)
    if found is None:
        return None
    keys, at = found
    expressions = [key for key in keys if isinstance(key, str)]
    places, further = [], len(names)
    for key in keys:
        places.append(key if isinstance(key, int) else further)
        further += isinstance(key, str)
    more = "".join(f", ({text})" for text in expressions)
    return f"{sql[:at]}{more} {sql[at:]}", places


def runs(wanted: Table, keyed: Table, places: Sequence[int]) -> list[int] | None:
    """Lengths of the runs of rows that tie, in order; None where the rows with keys are not the reference's rows."""
    if [row[: wanted.columns] for row in keyed.rows] != list(wanted.rows):
        return None
    out: list[int] = []
    last: Any = None
    for row in keyed.rows:
        key: Row = tuple(row[place] for place in places)
        if out and key == last:
            out[-1] += 1
        else:
            out.append(1)
        last = key
    return out


def _unquoted(token: str) -> str:
    return token[1:-1] if len(token) > 1 and token[0] in '"`[' else token
