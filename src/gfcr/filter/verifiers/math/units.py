"""Words after a number: units that are known, with what they measure, and words that only say what was counted.

Invariant: two units that are both known and measure different things, or the same in other sizes, make different answers of equal
numbers; a unit that one side leaves out is no difference.
"""

from __future__ import annotations

import re
from fractions import Fraction

Unit = tuple[str, Fraction]
"""(what it measures, how many of the base unit)."""

_TABLE = """
length 1 m meter metre; 1/100 cm centimeter centimetre; 1/1000 mm millimeter millimetre; 1000 km kilometer kilometre; 1/10 dm
length 127/5000 in inch inches; 381/1250 ft foot feet; 1143/1250 yd yard; 201168/125 mi mile
length 1/1000000 µm μm micrometer micron; 1/1000000000 nm nanometer
mass 1 g gram gramme; 1000 kg kilogram kilo; 1/1000 mg milligram; 1000000 t ton tonne; 45359237/100000 lb lbs pound; 45359237/1600000 oz ounce
time 1 s sec second; 60 min minute; 3600 h hr hour; 86400 day; 604800 week; 1/1000 ms millisecond; 2629800 month; 31557600 year yr
volume 1 l liter litre; 1/1000 ml milliliter millilitre; 473176473/125000000 gal gallon; 1/100 cl; 1/10 dl
angle 1 deg degree
temperature 1 celsius °c; 1 kelvin
money 1 dollar usd buck; 1/100 cent
yuan 1 yuan rmb
euro 1 euro eur
rupee 1 rupee rs
energy 1 j joule; 1000 kj kilojoule; 1/6241509074460762607 ev; 3600000 kwh
force 1 n newton; 1000 kn
power 1 w watt; 1000 kw kilowatt
pressure 1 pa pascal; 1000 kpa; 101325 atm
voltage 1 v volt
current 1 a amp ampere
frequency 1 hz hertz; 1000 khz; 1000000 mhz
amount 1 mol mole
ohm 1 ohm ω
speed 1 mph kph kmh
rpm 1 rpm
point 1 pts pt
ordinal 1 st nd rd th
ratio 1/100 percent pct percentage percents; 1 times
"""


def _build() -> dict[str, Unit]:
    found: dict[str, Unit] = {}
    for line in _TABLE.strip().splitlines():
        kind, _, rest = line.partition(" ")
        for entry in rest.split(";"):
            size, *names = entry.split()
            found.update({name: (kind, Fraction(size)) for name in names})
    return found


UNITS = _build()
PERCENT = frozenset({"percent", "pct", "percentage", "percents", "per cent", "percentage points", "percentage point"})
MULTIPLIERS = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
SIGN = "$"
"""The unit of a number with a money sign: no difference to anything but money of another size."""
_PIECE = re.compile(r"([a-zµμω°]+)\.?(?:\s*\^\s*\{?(-?\d)\}?)?")
_ALIASES = {"mph": "mile/hour", "kph": "km/hour", "kmh": "km/hour"}
_ALIAS = re.compile(r"\b(?:mph|kph|kmh)\b")
_PREFIX = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_FILLER = frozenset({"of", "the", "a", "an", "in", "total", "each", "about"})


def plain(words: str) -> str:
    """The words without marks of text and case."""
    return re.sub(r"\s+", " ", words.replace("⟨", " ").replace("⟩", " ").replace("\\", " ")).strip().lower()


def unit(words: str) -> tuple[tuple[tuple[str, int], ...], Fraction] | None:
    """What the words measure (powers of base kinds) and in how many base units; None where a word is no unit."""
    text = _ALIAS.sub(lambda m: _ALIASES[m.group()], plain(words)).replace(" per ", "/").replace("-", " ")
    powers: dict[str, int] = {}
    factor = Fraction(1)
    for n, half in enumerate(text.split("/")):
        prefix = 1
        at = 0
        half = half.strip().replace("*", " ")
        while at < len(half):
            match = _PIECE.match(half, at)
            if match is None:
                return None
            at = match.end()
            while at < len(half) and half[at] == " ":
                at += 1
            name = match.group(1)
            if name in _PREFIX:
                prefix = _PREFIX[name]
                continue
            found = UNITS.get(name) or (UNITS.get(name[:-1]) if name.endswith("s") and len(name) > 2 else None)
            if found is None:
                if name in ("squared", "cubed"):
                    continue
                return None
            after = 2 if half[at:].startswith("squared") else 3 if half[at:].startswith("cubed") else 1
            power = int(match.group(2) or 1) * prefix * after * (-1 if n else 1)
            prefix = 1
            powers[found[0]] = powers.get(found[0], 0) + power
            factor *= found[1] ** power
    if powers.get("length", 0) == 3 and len(powers) == 1:
        return (("volume", 1),), factor * 1000
    return (tuple(sorted((k, p) for k, p in powers.items() if p)), factor) if powers else None


def priced(a: str, b: str) -> tuple[str, str]:
    """Two units, one of them SIGN: it means dollars beside money, else nothing."""
    if SIGN not in (a, b):
        return a, b
    measured = [unit(u) for u in (a, b) if u != SIGN]
    sign = "dollar" if measured and measured[0] is not None and measured[0][0] == (("money", 1),) else ""
    return (sign if a == SIGN else a), (sign if b == SIGN else b)


def same_things(a: str, b: str) -> bool:
    """Whether words that are no units may count the same things: the words of one are among the other's."""
    left, right = _stems(a), _stems(b)
    return left <= right or right <= left


def _stems(words: str) -> set[str]:
    return {w.rstrip("s.") for w in re.findall(r"\w+", plain(words))} - _FILLER
