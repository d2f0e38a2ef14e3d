"""Questions to a small shop's database. Invariants: the database is in the task (`schema_sql`), the reference is a query; whatever order
a question leaves open, its query does not fix, and what it asks to be ordered has no ties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from gfcr.types import Origin, Task

_CITIES = ("Bergen", "Cadiz", "Dover", "Essen", "Faro", "Ghent")
_NAMES = ("Ada", "Bo", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jun", "Kim", "Lea", "Max", "Nia", "Oto", "Pia")
_KINDS = ("books", "games", "garden", "music", "tools")
_TABLES = "customers(id, name, city), products(id, title, kind, price), orders(id, customer_id, product_id, quantity, month)"


def task(rng: Random, version: str) -> Task:
    names = rng.sample(_NAMES, rng.randrange(6, 12))
    prices = rng.sample(range(3, 90), rng.randrange(5, 10))
    customers = [(i, name, rng.choice(_CITIES)) for i, name in enumerate(names, 1)]
    products = [(i, f"P{i:02d}", rng.choice(_KINDS), price) for i, price in enumerate(prices, 1)]
    orders = [
        (i, rng.choice(customers[:-2])[0], rng.choice(products)[0], rng.randrange(1, 9), rng.randrange(1, 13))
        for i in range(1, rng.randrange(15, 40))
    ]
    kind = rng.choice(sorted(_QUESTIONS))
    question, gold, ordered = _QUESTIONS[kind](rng, names)
    schema = "\n".join(
        [
            "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL);",
            "CREATE TABLE products (id INTEGER PRIMARY KEY, title TEXT NOT NULL, kind TEXT NOT NULL, price INTEGER NOT NULL);",
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers,"
            " product_id INTEGER NOT NULL REFERENCES products, quantity INTEGER NOT NULL, month INTEGER NOT NULL);",
            *_inserts("customers", customers),
            *_inserts("products", products),
            *_inserts("orders", orders),
        ]
    )
    prompt = (
        f"A SQLite database has the tables {_TABLES}. {question} Look at the data with the tool as you need; "
        "your last answer is one SQL query in a ```sql block that returns what was asked for."
    )
    return Task(
        "tools.sqlite",
        prompt,
        gold,
        environment={"name": "sqlite", "schema_sql": schema},
        category=kind,
        origin=Origin("generated", "gfcr.tools.sqlite", version),
        meta={"ordered": ordered},
    )


def _inserts(table: str, rows: Sequence[tuple[int | str, ...]]) -> list[str]:
    return [f"INSERT INTO {table} VALUES ({', '.join(map(repr, row))});" for row in rows]


Question = tuple[str, str, bool]
_JOIN = "orders o JOIN customers c ON c.id = o.customer_id JOIN products p ON p.id = o.product_id"


def _in_city(rng: Random, names: list[str]) -> Question:
    city = rng.choice(_CITIES)
    return f"How many customers live in {city}?", f"SELECT count(*) FROM customers WHERE city = '{city}'", False


def _dearer(rng: Random, names: list[str]) -> Question:
    price = rng.randrange(10, 70)
    sql = f"SELECT title FROM products WHERE price > {price} ORDER BY title"
    return f"Which products cost more than {price}? Give their titles in alphabetical order.", sql, True


def _spent(rng: Random, names: list[str]) -> Question:
    name = rng.choice(names[:-2])
    sql = f"SELECT coalesce(sum(o.quantity * p.price), 0) FROM {_JOIN} WHERE c.name = '{name}'"
    return f"How much has {name} spent in all (quantity times price; 0 where there is no order)?", sql, False


def _without(rng: Random, names: list[str]) -> Question:
    month = rng.randrange(1, 13)
    sql = f"SELECT name FROM customers WHERE id NOT IN (SELECT customer_id FROM orders WHERE month >= {month})"
    return f"Which customers have no order in month {month} or later? Give their names.", sql, False


def _per_kind(rng: Random, names: list[str]) -> Question:
    least = rng.randrange(1, 9)
    sql = f"SELECT p.kind, sum(o.quantity) FROM {_JOIN} GROUP BY p.kind HAVING sum(o.quantity) >= {least} ORDER BY p.kind"
    what = f"For each kind of product of which at least {least} pieces were ordered: its name and the number of pieces"
    return f"{what}, in alphabetical order of the kinds.", sql, True


def _from_city(rng: Random, names: list[str]) -> Question:
    city, first = rng.choice(_CITIES), rng.randrange(1, 10)
    last = first + 2
    sql = f"SELECT count(DISTINCT o.customer_id) FROM {_JOIN} WHERE c.city = '{city}' AND o.month BETWEEN {first} AND {last}"
    return f"How many different customers from {city} ordered something in the months {first} to {last}?", sql, False


def _dearest_kind(rng: Random, names: list[str]) -> Question:
    kind = rng.choice(_KINDS)
    return (
        f"What does the dearest product of the kind {kind!r} cost?",
        f"SELECT max(price) FROM products WHERE kind = '{kind}'",
        False,
    )


def _never_ordered(rng: Random, names: list[str]) -> Question:
    most = rng.randrange(1, 5)
    sql = (
        "SELECT title FROM products p WHERE "
        f"(SELECT coalesce(sum(quantity), 0) FROM orders WHERE product_id = p.id) < {most} ORDER BY title"
    )
    return f"Of which products were fewer than {most} pieces ordered? Give their titles in alphabetical order.", sql, True


_QUESTIONS: dict[str, Callable[[Random, list[str]], Question]] = {
    "count": _in_city,
    "filter": _dearer,
    "join": _spent,
    "anti-join": _without,
    "group": _per_kind,
    "distinct": _from_city,
    "maximum": _dearest_kind,
    "subquery": _never_ordered,
}
