"""Names of secrets, and texts that hold one beside its name: a form, an error, XML, or a repr of Python.

    without_secrets("Login(user='a', password='b')", is_secret)    # Login(user='a', password='***')

A text is read once from its beginning, so the time that it takes is linear in its length.
"""

import base64
import re
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any, Final
from urllib.parse import unquote

from durable_retry.base.text import MASK

_SECRET_WORDS: Final = (
    *("password", "passwd", "passphrase", "passcode", "passkey", "secret", "token", "credential", "creds"),
    *("iban", "ssn", "sessid", "connectionstring", "amzsignature", "socialsecurity"),
)
"""Words that name a secret behind any others, also without a separator: `dbPassword`, `authtoken`."""

_PAIRS: Final = (
    (
        ("key", "keys"),
        (
            *("api", "app", "auth", "private", "access", "account", "subscription", "function", "functions"),
            *("master", "shared", "signing", "encryption", "decryption", "session", "secret"),
            *("hmac", "aes", "ssh", "pgp", "gpg", "license", "storage"),
        ),
    ),
    (
        ("code", "codes"),
        (
            *("security", "verification", "auth", "authorization", "authentication", "access", "recovery"),
            *("backup", "reset", "login", "onetime", "twofactor", "factor", "mfa", "2fa", "sms", "unlock"),
        ),
    ),
    (("number", "numbers", "no", "num", "nr"), ("card", "account", "cc", "passport")),
    (("card", "cards"), ("credit", "debit", "bank")),
    (("id", "ids"), ("session",)),
    (("pass",), ("db", "user", "smtp", "ftp", "admin", "root", "sql", "mail", "proxy")),
)
"""Words that name a secret only behind some others: `api_key` does, `sort_key` does not."""

KNOWN_SECRETS: Final = (
    *(f"*{word}" for word in _SECRET_WORDS),
    *(f"*{word}s" for word in ("password", "passcode", "secret", "credential", "iban", "connectionstring")),
    *(f"*{kind}tokens" for kind in ("access", "auth", "refresh", "session", "api", "id")),
    *(f"*{before}{last}" for lasts, befores in _PAIRS for last in lasts for before in befores),
    *("tokens", "authorization", "proxyauthorization", "bearer", "cookie", "cookies", "setcookie", "pass"),
)
"""Names that are masked everywhere; capitals, `_`, `-` and the like do not count."""

_SHORT_WORDS: Final = (
    *("pwd", "psw", "pw", "pin", "puk", "otp", "totp", "jwt"),
    *("cvv", "cvc", "cvn", "csc", "pan", "sig"),
)
_LAST_WORDS: Final = frozenset(word + end for word in _SHORT_WORDS for end in ("", "code", "number"))
"""Words that name a secret by themselves or behind others (`card_pin`), but not inside of a word."""

_REPEATED: Final = frozenset(
    [
        *("confirm", "confirmed", "confirmation", "again", "repeat", "repeated", "verify", "hash", "value"),
        *("old", "new", "current", "plain", "plaintext", "raw", "encrypted", "encoded", "base64"),
    ]
)
"""Words behind a name that mean the same secret once more."""

_COUNTED: Final = _REPEATED | {"code", "codes", "number", "no", "num"}
"""Words that do so, too, unless they end one of `_PAIRS`: `cvv_code`."""

NAMING: Final = ("name", "key", "field", "header", "Name", "Key", "Field", "Header")
NAMED: Final = frozenset(["value", "values", "raw_value", "Value", "Values", "rawValue"])
"""Members that have a name, and what it names: `{"name": "password", "value": "x"}`."""

_MOST_CACHED_CHARS: Final = 64
"""Anybody may send a name of any length, and the cache keeps 4,096 of them."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def is_secret_name(fields: tuple[str, ...], name: str) -> bool:
    """Return whether a name is one of `KNOWN_SECRETS`, or one of the fields, in any notation."""
    decide = _decide_short if len(name) <= _MOST_CACHED_CHARS else _decide
    return decide(fields, name)


def counts_tokens(name: str, value: Any) -> bool:
    """Return whether a value is a number of tokens, as models of language count them."""
    is_number = isinstance(value, int | float) or (isinstance(value, str) and value.isdecimal())
    return is_number and plain_name(name).endswith("tokens")


def plain_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _decide(fields: tuple[str, ...], name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(unquote(name))]
    return (
        any(_is_known(_without_ends(words, ends)) for ends in (_REPEATED, _COUNTED))
        or _pattern_of(fields).fullmatch(plain_name(name)) is not None
    )


def _without_ends(words: list[str], ends: frozenset[str]) -> list[str]:
    count = len(words)
    while count > 1 and (words[count - 1] in ends or words[count - 1].isdecimal()):
        count -= 1
    return words[:count]


def _is_known(words: list[str]) -> bool:
    is_last = bool(words) and words[-1] in _LAST_WORDS
    return is_last or _pattern_of(KNOWN_SECRETS).fullmatch("".join(words)) is not None


_decide_short: Final = lru_cache(maxsize=4_096)(_decide)


@cache
def _pattern_of(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(_pattern_text, names)) or r"(?!)")


def _pattern_text(name: str) -> str:
    # `(?>.*?x)` takes the first x and tries no other: a long name costs no more than its length.
    first, *parts = map(plain_name, name.split("*"))
    middle = "".join(f"(?>.*?{part})" for part in parts[:-1] if part)
    return first + middle + "".join(f".*{part}" for part in parts[-1:])


_MAY_HOLD: Final = re.compile(r"[=:<@;?(%\[]|bearer|basic", re.IGNORECASE)

_OTHER_QUOTE: Final = r"&quot;|&apos;|&\#(?:0?39|34);|(?:\\{1,7}u00|%(?:25)?)2[27]"
"""A quote as HTML, JSON and a URL write it."""

_KEY: Final = re.compile(
    rf"""(?:(?=["'`\\&%])(?P<quote>\\{{0,7}}["'`]|{_OTHER_QUOTE})(?P<quoted>[^"'`\\\r\n]{{1,100}}?)(?P=quote)
         |(?<![\w.$%\[\]-])(?P<bare>[\w.$%\[\]-]++))
        \s{{0,20}}(?P<sign>=>|:=|=(?!=)|:(?![:/])|%(?:25)?3[aA])(?:\s|%(?:25)?20|\+){{0,20}}""",
    re.VERBOSE,
)
"""A name and the sign behind it."""

_QUOTED_VALUE: Final = re.compile(
    rf"""[bru]{{0,2}}(?:"(?:\\.|[^"\\])*+(?:"|\\?\Z)|'(?:\\.|[^'\\])*+(?:'|\\?\Z)
        |(?P<quote>\\{{1,7}}["']|{_OTHER_QUOTE})(?:.*?(?<!\\)(?P=quote)|.*))""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_BARE_VALUE: Final = re.compile(r"""(?:[^\s&;,"'`<>)\]}\\]|,(?!\s|\Z|[\w.-]{1,100}=)|["'`<>)\]}\\](?=\w))+""")
_GROUP_BEGIN: Final = re.compile(r"(?:[A-Za-z_][\w.]*+)?[\[({]")
_GROUP_PART: Final = re.compile(
    r"""(?:"(?:\\.|[^"\\])*+(?:"|\\?\Z)|'(?:\\.|[^'\\])*+(?:'|\\?\Z)|[\[({]|[\])}])""", re.DOTALL
)
_ANGLED: Final = re.compile(r"<[^<>]*+>?")
_REST_OF_LINE: Final = re.compile(r"(?P<scheme>(?:\w+[ ]+)?)(?:[^\r\n\\]|\\(?![rn]))+")
_ONLY_LETTERS: Final = re.compile(r"[A-Za-z]+[.!?]?")
_LINE_END: Final = re.compile(r"[ \t]*(?:[\r\n]|\Z)")

_ELEMENT: Final = re.compile(
    r"""(?P<open>(?<!\w)<|&lt;)(?P<name>[A-Za-z_][\w.-]*+(?::[\w.-]++)?)
        (?:\s+[\w.:-]++\s*=\s*(?:"[^"<>]*+"|'[^'<>]*+'|&quot;[^&<>]*+&quot;))*+\s*(?:>|&gt;)""",
    re.VERBOSE,
)
"""The beginning of an XML element; `List<Token>` and `<Token object at 0x7f>` are none."""

_PART: Final = re.compile(
    r"""(?P<head>Content-Disposition:[^\r\n;]*+(?:;(?!\s*name=)[^\r\n;]*+)*+;\s*name=(?P<name>"[^"\r\n]*+"|[^\s;]++)
        [^\r\n]*+(?:\r?\n[^\r\n]++){0,9}+\r?\n\r?\n)(?P<value>.*?)(?=\r?\n--|\Z)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
"""A field of a `multipart/form-data` body."""

_XML: Final = re.compile(r"\s*(?:<|&lt;)")
_MOST_OPEN: Final = 16
"""Elements without an end: each costs a search to the end of the text. After so many the rest is masked."""

_USER: Final = re.compile(
    r"""(?:(?<=//)|(?<=/\\/))[^\s/?#<>"\\]+(?=@)|(?<=%2F%2F)(?:(?!%2F|%3F|%23)[^\s/?#<>"\\])+(?=%40)""",
    re.VERBOSE | re.IGNORECASE,
)
"""User and password in an address."""

_CODED_PAIR: Final = re.compile(
    r"""(?P<head>(?:(?<![\w.%-])|(?<=3F)|(?<=26)|(?<=23))(?P<name>[\w.-]{1,100})%(?:25)?3D)
        (?:(?!%(?:25)?26)[^\s&\\"'<>])+""",
    re.VERBOSE | re.IGNORECASE,
)
"""A parameter of an address that is one itself."""

_PAIR: Final = re.compile(
    r"""(?P<head>(?:\(|(?:(?<=[\[,])|(?<=[\[,]\s))\[)
            \s?b?(?P<quote>["'])(?P<name>[^"'\\\r\n]{1,100})(?P=quote),\s?b?)
        (?:"(?:\\.|[^"\\])*+(?:"|\\?\Z)|'(?:\\.|[^'\\])*+(?:'|\\?\Z))(?P<end>\s?(?:[)\]]|\Z))""",
    re.VERBOSE | re.DOTALL,
)
"""A tuple of Python, or a list in a list, with a name and a value, as in a list of headers."""

_SCHEMES: Final = frozenset({"bearer", "basic", "digest", "negotiate"})

_SCHEME: Final = re.compile(
    r"(?P<before>\b(?:Bearer|Basic)(?:\s|%20|\+)+)(?:(?=[^\s\d]{0,200}\d)[\w.~+/%-]{8,}|[\w.~+/%-]{24,})=*",
    re.IGNORECASE,
)
"""A credential of HTTP; a word without a digit behind `basic` is none."""

_WHOLE_BEARER: Final = re.compile(r"\s*Bearer\s+\S+\s*", re.IGNORECASE)
_WHOLE_BASIC: Final = re.compile(r"\s*Basic\s+(?P<pair>[A-Za-z0-9+/_-]+=*)\s*", re.IGNORECASE)

_HOST_KEY: Final = re.compile(r"""(?P<before>(?:[?&]|&amp;)code=)[^&\s;,#"'}]+""", re.IGNORECASE)
"""A key of an Azure function in the query of an address; elsewhere a `code` is no secret."""


def without_secrets(text: str, is_secret: Callable[[str], bool]) -> str:
    """Return a text, which is not JSON, without credentials and without the values of secret names."""
    if _MAY_HOLD.search(text) is None:
        return text
    if _is_credential(text):
        return f"{text.split(maxsplit=1)[0]} {MASK}"
    text = _PART.sub(partial(_shown_part, is_secret), text)
    if "%" in text:
        text = _CODED_PAIR.sub(partial(_shown_part, is_secret), text)
    if "(" in text or "[" in text:
        text = _PAIR.sub(partial(_shown_pair, is_secret), text)
    text = _without_elements(text, is_secret)
    text = _without_pairs(text, is_secret)
    if "@" in text or "%40" in text:
        text = _USER.sub(MASK, text)
    return _HOST_KEY.sub(rf"\g<before>{MASK}", _SCHEME.sub(rf"\g<before>{MASK}", text))


def _is_credential(text: str) -> bool:
    if _WHOLE_BEARER.fullmatch(text) is not None:
        return True
    basic = _WHOLE_BASIC.fullmatch(text)
    if basic is None:
        return False
    pair = basic["pair"].rstrip("=")
    try:
        return b":" in base64.b64decode(
            pair + "=" * (-len(pair) % 4), altchars=b"-_" if set(pair) & set("-_") else None
        )
    except ValueError:
        return False


def _shown_part(is_secret: Callable[[str], bool], part: re.Match[str]) -> str:
    return f"{part['head']}{MASK}" if is_secret(part["name"].strip('"')) else part[0]


def _shown_pair(is_secret: Callable[[str], bool], pair: re.Match[str]) -> str:
    quote = pair["quote"]
    return f"{pair['head']}{quote}{MASK}{quote}{pair['end']}" if is_secret(pair["name"]) else pair[0]


def _without_elements(text: str, is_secret: Callable[[str], bool]) -> str:
    """Return a text without what stands inside of XML elements of secret names."""
    pieces, end, at, left_open = [], 0, 0, 0
    while element := _ELEMENT.search(text, at):
        at = element.end()
        if not is_secret(element["name"].rpartition(":")[2]):
            continue
        pieces += [text[end:at], MASK]
        end = _end_of_element(text, element["open"], element["name"], at)
        if end < 0:
            left_open += 1
            end = len(text) if left_open > _MOST_OPEN else _end_of_open_element(text, at)
        at = end
    return "".join([*pieces, text[end:]])


def _end_of_element(text: str, bracket: str, name: str, at: int) -> int:
    """Return where the content of an element ends; -1 where no end of it follows."""
    opening, closing, depth, end = f"{bracket}{name}", f"{bracket}/{name}", 1, at
    while depth and end >= 0:
        end = text.find(closing, at)
        depth += text.count(opening, at, end) - 1
        at = end + len(closing)
    return end


def _end_of_open_element(text: str, at: int) -> int:
    """Return the end of the text if it is XML, which was cut; of any other text the end of the line."""
    line_end = -1 if _XML.match(text) else text.find("\n", at)
    return len(text) if line_end < 0 else line_end


def _without_pairs(text: str, is_secret: Callable[[str], bool]) -> str:
    """Return a text without the values behind secret names."""
    pieces, end, at, is_next_secret = [], 0, 0, False
    while key := _KEY.search(text, at):
        at = key.end()
        name = key["quoted"] or key["bare"]
        is_named = is_next_secret and name in NAMED
        is_next_secret = name in NAMING and is_secret(_quoted_text(text, at))
        if not (is_named or is_secret(name)):
            continue
        shown, after = _value_at(text, at, key)
        if after > at and not counts_tokens(name, text[at:after]):
            pieces += [text[end:at], shown]
            end = at = after
    return "".join([*pieces, text[end:]])


def _quoted_text(text: str, at: int) -> str:
    quoted = _QUOTED_VALUE.match(text, at)
    return "" if quoted is None else quoted[0].strip("\\\"'")


def _value_at(text: str, at: int, key: re.Match[str]) -> tuple[str, int]:
    """Return what is shown in place of the value at a place, and its end; the place itself for none."""
    if key["sign"] == ":" and key["bare"] and _is_header(key["bare"]):
        return _rest_of_line(text, at, key.start())
    if quoted := _QUOTED_VALUE.match(text, at):
        quote = quoted["quote"] or quoted[0].lstrip("bruBRU")[0]
        return f"{quote}{MASK}{quote}", quoted.end()
    quote = key["quote"] or ""
    shown, after = f"{quote}{MASK}{quote}", _end_of_structure(text, at)
    if after > at:
        return shown, after
    if key["sign"] == ":" and not quote:
        return _value_of_line(text, at)
    bare = _BARE_VALUE.match(text, at)
    is_value = bare is not None and bare[0].lower() not in {"null", "none"}
    return (shown, bare.end()) if bare is not None and is_value else ("", at)


def _end_of_structure(text: str, at: int) -> int:
    """Return the end of a list, an object, a call or a `<...>` at a place; the place itself for none."""
    if _GROUP_BEGIN.match(text, at):
        return _end_of_group(text, at)
    angled = _ANGLED.match(text, at)
    return at if angled is None else angled.end()


def _end_of_group(text: str, at: int) -> int:
    """Return the end of a list, an object or a call, or of the text, where that is cut."""
    depth = 0
    for part in _GROUP_PART.finditer(text, at):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(part[0], 0)
        if depth == 0 and part[0] in ")]}":
            return part.end()
    return len(text)


def _is_header(name: str) -> bool:
    return "-" in name or plain_name(name) in {"authorization", "cookie"}


def _value_of_line(text: str, at: int) -> tuple[str, int]:
    """Return what is shown of one word; a sentence behind a name is shown."""
    word = _BARE_VALUE.match(text, at)
    if word is None:
        return "", at
    is_prose = _ONLY_LETTERS.fullmatch(word[0]) and not _LINE_END.match(text, word.end())
    return ("", at) if is_prose else (MASK, word.end())


def _rest_of_line(text: str, at: int, begin: int) -> tuple[str, int]:
    """Return what is shown of a header's value, which ends with the line, or with a quote around the line."""
    rest = _REST_OF_LINE.match(text, at)
    if rest is None:
        return "", at
    around = text[begin - 1 : begin]
    end = text.find(around, at, rest.end()) if around in {"'", '"'} else -1
    scheme = rest["scheme"] if rest["scheme"].strip().lower() in _SCHEMES else ""
    return scheme + MASK, rest.end() if end < 0 else end
