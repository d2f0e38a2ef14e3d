"""Names that the reader knows: functions, Greek letters, units that look like letters, short words that are no products.

Invariant: data only; a name that is not here is a symbol or a word.
"""

from __future__ import annotations

from gfcr.filter.verifiers.math.units import MULTIPLIERS, PERCENT, UNITS


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTIONS = {
    "sin": "sin", "cos": "cos", "tan": "tan", "tg": "tan", "cot": "cot", "ctg": "cot", "sec": "sec", "csc": "csc", "cosec": "csc",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctg": "atan", "arccot": "acot", "asin": "asin", "acos": "acos",
    "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "coth": "coth", "sh": "sinh", "ch": "cosh", "th": "tanh",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "arsinh": "asinh", "arcosh": "acosh", "artanh": "atanh",
    "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "exp": "exp", "ln": "ln", "log": "log", "lg": "lg", "sqrt": "sqrt",
    "cbrt": "cbrt", "abs": "abs", "floor": "floor", "ceil": "ceil", "gcd": "gcd", "lcm": "lcm", "max": "max", "min": "min",
    "factorial": "fact", "binomial": "binom", "Gamma": "gamma", "gamma": "gamma", "cis": "cis",
}  # fmt: skip
AS_COMMAND_ONLY = frozenset({"sh", "ch", "th", "gamma", "Gamma"})
UNSPLIT = AS_COMMAND_ONLY | {"cis"}
"""Functions that are not looked for inside a run of letters (preCISe)."""
SHORT_ARGUMENT = names("sin cos tan cot sec csc asin acos atan acot sinh cosh tanh coth asinh acosh atanh ln log lg exp cis")
"""Functions whose argument may stand without brackets."""
INVERSE = {"sin": "asin", "cos": "acos", "tan": "atan", "cot": "acot", "sinh": "asinh", "cosh": "acosh", "tanh": "atanh"}
GREEK = names(
    "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma upsilon chi psi omega Gamma Delta Theta Lambda "
    "Xi Sigma Upsilon Psi Omega Phi ell hbar Re Im aleph triangle angle partial"
)
PLAIN_GREEK = names("alpha beta theta lambda sigma omega delta epsilon rho")
CONSTANTS = {"π": ("k", "pi"), "∞": ("k", "inf"), "e": ("k", "e"), "i": ("k", "i")}
CALLED = frozenset("fghFGHφ")
"""Letters that before a bracket are functions and not factors."""
CLOSERS = {"(": ")", "[": "]", "⦃": "⦄", "{": "}", "⦅": "⦆", "⌊": "⌋", "⌈": "⌉"}


def measure(run: str) -> bool:
    return run in MEASURES or (len(run) > 2 and run.endswith("s") and run[:-1] in MEASURES)


MEASURES = frozenset(UNITS) | frozenset(MULTIPLIERS) | PERCENT
SPACED_UNITS = names("m s g h l L N J W V A C K F km cm mm kg mg ft in mi hr ms ml mL kW Hz Pa kJ eV lb oz yd am pm AM PM")
SPLITTABLE = frozenset(name for name in FUNCTIONS if len(name) > 2 and name not in UNSPLIT) | {"ln", "lg", "pi"}
SMALL_WORDS = names("no on is it to of or if as at by we he be do go in an am up us so me my")
WORDS = names(
    "the and yes not odd one two six ten all any are can cat dog day few for get had has her him his how its let man new now off old "
    "our out own per put red run saw say see set she sum too top use was way who why you bird even true none won win tie blue box bin "
    "hen cow pig sun mon tue wed thu fri sat jan feb mar apr may jun jul aug sep oct nov dec cup pen"
)
