r"""One spelling for what LaTeX, unicode and plain text spell in many ways.

Invariants: tidying never drops a sign, a digit or a word of the answer, only layout; every function is linear in the text; what
has no plain spelling stays as it is, so that the reader refuses it instead of guessing.

The spelling: `⦃ ⦄` set braces (`\{`), `⦅ ⦆` bars that say which side they are (`\left|`), `⟪ ⟫ ⏎ &` matrices, `⟨words⟩` text set
as such (`\text{...}`), `≤ ≥ ≠ ∈ ≈ ± ∓ ∪ ∩ ∖ ∞ ∅ π √ °` one character each, `^` powers, `*` products.
"""

from __future__ import annotations

import re
import unicodedata

from gfcr.filter.verifiers.math.vocabulary import names

SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", "0123456789+-=()ni"))
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()"))
_SCRIPTS = re.compile("[" + "".join(SUPERSCRIPTS) + "]+|[" + "".join(SUBSCRIPTS) + "]+")
_GREEK_NAMES = {
    letter: f"\\{unicodedata.name(letter).rpartition(' ')[2].lower().replace('lamda', 'lambda')} "
    for letter in "αβγδεζηθκλνξρσυχψω"
} | {letter: f"\\{name} " for letter, name in zip("ΓΔΘΛΞΨ", ("Gamma", "Delta", "Theta", "Lambda", "Xi", "Psi"))}
_GREEK = re.compile("[" + "".join(_GREEK_NAMES) + "]")
_VULGAR = re.compile(r"(?<=\d)?\s*([¼-¾⅐-⅞↉])")
_CHARACTERS = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "×": "*", "·": "*", "⋅": "*", "∗": "*", "✕": "*",
        "÷": "/", "∕": "/", "⁄": "/", "≦": "≤", "⩽": "≤", "≧": "≥", "⩾": "≥", "≃": "≈", "≅": "≈", "∶": ":",
        "º": "°", "˚": "°", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2007": " ", "\u200b": "", "\ufeff": "", "′": "'",
        "’": "'", "‘": "'", "“": '"', "”": '"', "，": ",", "；": ";", "、": ",", "。": ".", "：": ":", "（": "(", "）": ")",
        "€": "", "£": "", "¥": "", "ϕ": "φ", "Π": "∏", "Σ": "∑", "∣": "|", "‖": "|", "⟨": "(", "⟩": ")",
    }
)  # fmt: skip
_COMMANDS = {
    "dfrac": "\\frac", "tfrac": "\\frac", "cfrac": "\\frac", "dbinom": "\\binom", "tbinom": "\\binom",
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "le": "≤", "leq": "≤", "leqslant": "≤", "leqq": "≤", "ge": "≥", "geq": "≥",
    "geqslant": "≥", "geqq": "≥", "lt": "<", "gt": ">", "ne": "≠", "neq": "≠", "pm": "±", "mp": "∓", "cup": "∪", "cap": "∩",
    "setminus": "∖", "smallsetminus": "∖", "backslash": "∖", "in": "∈", "approx": "≈", "simeq": "≈", "thickapprox": "≈",
    "infty": "∞", "infin": "∞", "pi": "π", "degree": "°", "circ": "°", "emptyset": "∅", "varnothing": "∅", "ldots": "…",
    "dots": "…", "cdots": "…", "dotsc": "…", "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "lvert": "⦅",
    "rvert": "⦆", "vert": "|", "mid": "|", "langle": "(", "rangle": ")", "lbrace": "⦃", "rbrace": "⦄", "lbrack": "[",
    "rbrack": "]", "colon": ":", "equiv": "=", "land": " and ", "lor": " or ", "wedge": " and ", "vee": " or ", "prime": "'",
    "varphi": "φ", "phi": "φ", "varepsilon": "\\epsilon ", "vartheta": "\\theta ", "iota": "ι",
    "displaystyle": " ", "textstyle": " ", "scriptstyle": " ", "limits": "", "nolimits": "", "rm": "", "bf": "", "it": "",
    "quad": " ", "qquad": " ", "enspace": " ", "thinspace": " ", "hspace": " ", "hfill": " ", "nonumber": "", "notag": "",
    "boldsymbol": "", "bm": "", "mathstrut": "", "square": "□", "newline": " ", "Big": "", "big": "", "bigg": "", "Bigg": "",
    "bigl": "", "bigr": "", "Bigl": "", "Bigr": "", "left": "", "right": "", "operatorname": "", "mathop": "", "euro": "",
    "lbrac": "[", "tau": "τ",
}  # fmt: skip
_COMMAND = re.compile(r"\\(q?quad|[A-Za-z]+)\*?")
_SPACING = re.compile(r"\\[,;:> ]|~|\\hspace\{[^{}]*\}|\\hskip\s*[\d.]+\w\w")
_BLANKS = re.compile(r"\s{3,}")
_NEGATIVE_SPACE = re.compile(r"\\!\s*")
_BARS = re.compile(r"\\(left|right)\s*(\\?\||\\vert|\.)")
_MATRIX = re.compile(r"\\(begin|end)\s*\{((?:small)?[pbB]?matrix|array|smallmatrix)\*?\}(?:\s*\{[lcr| ]*\})?")
_ALIGN = re.compile(r"\\(?:begin|end)\s*\{(?:align|aligned|equation|gather|split|gathered|multline|alignat)\*?\}|\\hline")
_LOOKS = re.compile(
    r"\\(?:text)?color\s*\{[^{}]*\}|\\(?:underline|large|Large|LARGE|huge|Huge|small|normalsize|tiny)(?![A-Za-z])"
)
_SETS = re.compile(r"\\(?:mathbb|mathbf|Bbb|mathds)\s*(?:\{\s*([RQZNC])\s*\}|([RQZNC])(?![A-Za-z]))")
_SETS_NAMES = str.maketrans("RQZNC", "ℝℚℤℕℂ")
_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|texttt|textsf|mbox|mathrm|mathbf|mathit|mathsf|mathtt|rm|bf|operatorname\*?|hbox)"
    r"\s*\{((?:[^{}]|\^\{-?\d\})*)\}"
)
_VECTOR = re.compile(r"\\(?:vec|overrightarrow|hat|widehat|bar|overline|tilde)\s*\{\s*([A-Za-z]{1,4})\s*\}")
_OVER = re.compile(r"\{([^{}\\]*)\\over(?![a-z])([^{}]*)\}|^([^{}\\]*)\\over(?![a-z])([^{}]*)$")
_MODULUS = re.compile(r"\(?\s*\\[pb]?mod\s*\{?\s*(\w+)\s*\}?\s*\)?")
_ROW_END = re.compile(r"\\\\(?:\*|(?:\s*\[\s*-?[\d.]+\s*(?:pt|ex|em|mm|cm|in)\s*\])?)")
_CHOOSE_BEFORE = re.compile(r"(?:(?<![\w)}])|\{\s*\}\s*)[_^]\s*\{?(\d{1,3})\}?\s*C_\s*\{?(\d{1,3})\}?(?!\d)")
_CHOOSE = re.compile(r"(?<![A-Za-z\\])C_\{?(\d{1,3})\}?\s*\^\s*\{?(\d{1,3})\}?(?!\d)")
_TIMES_TEN = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*(?:\^|\*\*))")
_DEGREE = re.compile(r"\^\s*(?:\{\s*°\s*\}|°)")
_CONNECTOR = re.compile(r"^\s*[,;]?\s*(and|or|und|et|y)\s*[,;]?\s*$", re.IGNORECASE)
_CHINESE = str.maketrans({"和": " and ", "或": " or "})


def tidy(text: str) -> str:
    """The text in the one spelling above, without mathematics delimiters (`$`, `\\(`), layout and sizing commands."""
    text = _BLANKS.sub("  ", text.replace("~", " "))
    if not text.isascii():
        text = unicode_maths(text)
    text = text.replace("{,}", ",").replace("{.}", ".").replace("{:}", ":")
    if "\\" in text:
        text = _latex(text)
    text = _CHOOSE_BEFORE.sub(lambda m: f"\\binom{{{m[1]}}}{{{m[2]}}}", _CHOOSE.sub(_choose, text))
    text = _TIMES_TEN.sub("*", text)
    text = (
        text.replace("$", " ").replace("**", "^").replace("<=", "≤").replace(">=", "≥").replace("!=", "≠").replace("...", "…")
    )
    text = text.replace("+-", "±") if "+-" in text and not re.search(r"[\d\w]\s*\+-", text) else text
    return _DEGREE.sub("°", text).strip()


def _choose(match: re.Match[str]) -> str:
    n, k = match.groups()
    return f"\\binom{{{n}}}{{{k}}}" if int(n) >= int(k) and int(n) > 1 else match.group()


def unicode_maths(text: str) -> str:
    """Unicode digits, scripts, fractions and signs in ASCII or in the one spelling."""
    text = text.translate(_CHARACTERS)
    text = _VULGAR.sub(lambda m: _vulgar(m.group(1)), text)
    text = _SCRIPTS.sub(_script, text)
    text = _GREEK.sub(lambda m: _GREEK_NAMES[m.group()], text)
    if "√" in text:
        text = text.replace("√", "\\sqrt ")
    return "".join(map(_digit, unicodedata.normalize("NFKC", "".join(map(_digit, text))).translate(_CHARACTERS)))


def _digit(character: str) -> str:
    """Digits of every script and number letters (Ⅳ) in ASCII."""
    if character < "\x80":
        return character
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    if unicodedata.category(character) == "Nl":
        return str(int(unicodedata.numeric(character)))
    return character


def _vulgar(character: str) -> str:
    top, _, bottom = unicodedata.normalize("NFKD", character).partition("⁄")
    return f" \\frac{{{top}}}{{{bottom}}}" if bottom else character


def _script(match: re.Match[str]) -> str:
    run = match.group()
    table = SUPERSCRIPTS if run[0] in SUPERSCRIPTS else SUBSCRIPTS
    return ("^{" if table is SUPERSCRIPTS else "_{") + "".join(table[c] for c in run) + "}"


def _latex(text: str) -> str:
    text = _ROW_END.sub("⏎", text)
    text = text.replace("\\(", " ").replace("\\)", " ").replace("\\[", " ").replace("\\]", " ")
    text = _NEGATIVE_SPACE.sub("", text)
    text = re.sub(r"(?<=\d)\\[,; ](?=\d{3}(?!\d))", ",", text)
    text = _BLANKS.sub("  ", _SPACING.sub(" ", text))
    text = text.replace("\\{", "⦃").replace("\\}", "⦄").replace("\\%", "%").replace("\\$", " ").replace("\\&", " and ")
    text = text.replace("\\#", "#").replace("\\_", "_").replace("\\|", "|")
    text = _BARS.sub(_bar, text)
    text = text.replace("\\begin{vmatrix}", "\\det\\begin{matrix}").replace("\\end{vmatrix}", "\\end{matrix}")
    text = _MATRIX.sub(lambda m: "⟪" if m.group(1) == "begin" else "⟫", text)
    text = _LOOKS.sub(" ", _ALIGN.sub(" ", text))
    text = _SETS.sub(lambda m: (m.group(1) or m.group(2)).translate(_SETS_NAMES), text)
    text = _VECTOR.sub(lambda m: m.group(1), text)
    for _ in range(3):  # \text{\textbf{...}}: inner ones first, each pass linear
        changed = _TEXT.sub(_set_text, text)
        if changed == text:
            break
        text = changed
    text = _OVER.sub(lambda m: f"\\frac{{{m[1] or m[3]}}}{{{m[2] or m[4]}}}", text)
    text = _MODULUS.sub(r"⟨mod \1⟩", text)
    text = _COMMAND.sub(_command, text)
    return text.rstrip("\\")


def _bar(match: re.Match[str]) -> str:
    if match.group(2) == ".":
        return ""
    return "⦅" if match.group(1) == "left" else "⦆"


def _set_text(match: re.Match[str]) -> str:
    inside = match.group(1)
    bare = inside.strip()
    if _CONNECTOR.match(inside):
        return f" {bare} "
    if not bare:
        return " "
    if inside[0] == " " and bare in _LETTER_UNITS:  # 5\text{ m}
        return f"⟨{bare}⟩"
    if (
        "⟨" in bare
        or re.fullmatch(r"[-+*/().,:\d\s]+|[A-Za-z]|\([A-Za-z]\)|[^A-Za-z⟨⟩]*", bare)
        or "operatorname" in match.group()
    ):
        return f" {bare} "
    if bare in ("cis", "lcm", "gcd") or (
        re.match(r"\\(?:mathrm|mathbf|mathit|operatorname)", match.group()) and bare in _NAMES
    ):
        return f" {bare} "
    return f"⟨{bare}⟩"


_LETTER_UNITS = names("m g s h l L N J W V")
_NAMES = names(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh arsinh arcosh artanh ln log exp lg sqrt "
    "gcd lcm max min cis"
)


def _command(match: re.Match[str]) -> str:
    name = match.group(1)
    spelled = _COMMANDS.get(name)
    if spelled is None:
        return match.group()
    return spelled


_QUOTES = re.compile(r"[⟨⟩\"`]")
_SPACES = re.compile(r"(?<=[^\W_])\s+(?=[^\W_])|\s+")
_ARTICLE = re.compile(r"^(?:an?|the) (?=\w{2})")
_WORDS = re.compile(r"(?:a )?[^\W\d_]{2,}[^\\∪∩=<>≤≥^_]*")


def text_key(text: str) -> str:
    """Text for comparing answers as text: layout, quotes and closing punctuation gone, white space where it divides nothing too;
    pure words without case. Braces stay: `\\frac{1}{23}` is not `\\frac{12}{3}`."""
    key = _QUOTES.sub(" ", tidy(text)).strip()
    key = _SPACES.sub(
        lambda m: " " if key[m.start() - 1 : m.start()].isalnum() and key[m.end() : m.end() + 1].isalnum() else "", key
    )
    key = key.strip(",;?:").rstrip(".") if len(key) > 1 else key
    return _ARTICLE.sub("", key.strip("!.").casefold()) if _WORDS.fullmatch(key) else key
