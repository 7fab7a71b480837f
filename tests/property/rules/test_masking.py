"""Whatever form a secret has, its text is not shown; JSON stays JSON; masking twice equals masking once."""

import base64
import html
import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, quote_plus, urlencode
from xml.sax.saxutils import escape, quoteattr

from hypothesis import given
from hypothesis import strategies as st

from durable_retry.base.credentials import Credentials
from durable_retry.base.masking import MASKED

CREDENTIALS: Final = st.from_regex(r"[!-)+-~]([ !-)+-~]{4,80})[!-)+-~]", fullmatch=True)
"""They are visible ASCII, as header values are, without the mask's own character."""

VALUES: Final = st.from_regex(r"[0-9][A-Za-z0-9]{1,12}Q[A-Za-z0-9]{1,12}", fullmatch=True)
NAMES: Final = st.sampled_from(
    [
        *("password", "db_password", "passcode", "otp", "jwt", "session_id", "cvv2", "pan", "iban", "pwd"),
        *(
            "accountNumber",
            "passwordConfirmation",
            "api-key",
            "AccessToken",
            "client_secret",
            "refreshTokens",
        ),
    ]
)
WORDS: Final = st.sampled_from(["", "got ", "an error: ", '{"n": 1} ', "a=b ", "\n"])

ENCODINGS: Final[list[Callable[[str], str]]] = [
    str,
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    lambda text: "".join(f"%{ord(char):02x}" for char in text),
    lambda text: quote(text, safe=""),
    quote_plus,
    html.escape,
    lambda text: "".join(f"&#{ord(char)};" for char in text),
    lambda text: "".join(f"\\{ord(char):03o}" for char in text),
]
OUTER: Final[list[Callable[[str], str]]] = [
    str,
    lambda text: json.dumps(json.dumps(text)),
    lambda text: quote(text, safe=""),
    html.escape,
]
"""What is written into another document."""

FORMS: Final[list[Callable[[str, str], str]]] = [
    lambda name, value: json.dumps({name: value}),
    lambda name, value: json.dumps({"a": json.dumps({"b": json.dumps({name: value})})}),
    lambda name, value: json.dumps([{name: {"a": [value]}}]),
    lambda name, value: f'{{"{name}": "{value}", "{name}": null}}',
    lambda name, value: json.dumps({name: value, "n": 1})[:-1],
    lambda name, value: json.dumps(json.dumps({name: value}))[1:],
    lambda name, value: repr({name: value}),
    lambda name, value: f"Login({name}={value!r}, n=1)",
    lambda name, value: f"Login({name}=Secret(value={value!r}), n=1)",
    lambda name, value: urlencode({"a": "b", name: value, "n": 1}),
    lambda name, value: f"https://h/p?a=1&{name}={value}#end",
    lambda name, value: f"<a><{name}>{escape(value)}</{name}></a>",
    lambda name, value: f"<a {name}={quoteattr(value)}/>",
    lambda name, value: f"\n{name}: {value}\nDate: now",
    lambda name, value: json.dumps({"fields": [{"name": name, "value": value}]}),
    lambda name, value: json.dumps([{"key": name, "value": [value]}]),
    lambda name, value: json.dumps({"headers": [["n", "1"], [name, value]]}),
    lambda name, value: json.dumps([["n", "1"], [name, value]])[:-3],
    lambda name, value: json.dumps([{"header": name, "value": value, "n": 1}])[:-3],
    lambda name, value: f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n--b--\r\n',
    lambda name, value: (
        f"--b\nContent-Disposition: form-data; name={name}\nContent-Type: text/plain\n\na\n{value}\n--b--"
    ),
    lambda name, value: f"Server=h;{name}={value};n=1",
    lambda _, value: f"https://user:{value}@host/path",
    lambda _, value: f"{{'auth': 'Bearer {value}{'x' * 8}'}}",
    lambda _, value: json.dumps({"auth": f"Bearer {value}"}),
    lambda _, value: f"AccountName=a;AccountKey={base64.b64encode(value.encode()).decode()}{value};",
]


@given(credential=CREDENTIALS, encode=st.sampled_from(ENCODINGS), put=st.sampled_from(OUTER), before=WORDS)
def test_no_form_shows_a_credential_of_the_app(
    credential: str, encode: Callable[[str], str], put: Callable[[str], str], before: str
) -> None:
    written = put(encode(credential))
    known = Credentials([f"Bearer {credential}"])
    masked = known.masked(f"{before}<{written}>")
    assert written not in masked
    assert credential not in masked
    assert known.masked(masked) == masked


@given(
    credential=CREDENTIALS.filter(lambda text: "\\" not in text),
    encode=st.sampled_from(["\0".join, lambda text: "".join(f"={ord(char):02X}" for char in text)]),
    put=st.sampled_from([str, json.dumps, lambda text: json.dumps(json.dumps(text))]),
)
def test_no_coding_shows_a_credential_of_the_app(
    credential: str, encode: Callable[[str], str], put: Callable[[str], str]
) -> None:
    written = encode(credential)
    masked = Credentials([credential]).masked(f"<{put(written)}>")
    assert written[:12] not in masked
    assert "***" in masked


@given(credential=CREDENTIALS, cut=st.integers(4, 80), encode=st.sampled_from(ENCODINGS))
def test_the_beginning_of_a_credential_is_not_shown_where_a_text_was_cut(
    credential: str, cut: int, encode: Callable[[str], str]
) -> None:
    masked = Credentials([credential]).masked(f"got {encode(credential[:cut])}", is_cut=True)
    assert credential[:4] not in masked.removeprefix("got ")


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | NAMES, inner, max_size=3)
    ),
    max_leaves=12,
)


@given(document=JSON, credential=CREDENTIALS)
def test_json_stays_json(document: Any, credential: str) -> None:
    text = json.dumps({"a": document, "b": f"x {credential}"})
    assert json.loads(Credentials([credential]).masked(text))["b"] == "x ***"
    assert isinstance(json.loads(MASKED.text(text)), dict)


@given(name=NAMES, value=VALUES, form=st.sampled_from(FORMS), before=WORDS)
def test_no_form_shows_the_value_behind_a_secret_name(
    name: str, value: str, form: Callable[[str, str], str], before: str
) -> None:
    text = form(name, value)
    for shown in (MASKED.text(text), MASKED.text(before + text), MASKED.value([{"a": text}])[0]["a"]):
        assert value not in shown
        assert MASKED.text(shown) == shown


@given(document=JSON)
def test_masking_a_document_twice_is_masking_it_once(document: Any) -> None:
    once = MASKED.shown({"input": document})
    assert MASKED.shown(once) == once


PARTS: Final = [*"=:;,<>/\\\"'`()[]{}&?@%# \n-_.1*ab", "pin", "token", "Bearer ", "://", '\\"', "X-Api-Key: "]


@given(parts=st.lists(st.sampled_from(PARTS), max_size=40))
def test_masking_any_text_twice_is_masking_it_once(parts: list[str]) -> None:
    once = MASKED.text("".join(parts))
    assert MASKED.text(once) == once


@given(document=JSON)
def test_what_is_shown_and_sent_back_is_what_was_kept(document: Any) -> None:
    content = {"a": document, "pin": 1}
    shown = MASKED.shown({"input": content})["input"]
    assert MASKED.restored("input", shown | {"n": 2}, content) == content | {"n": 2}
