import json
from typing import Any

import pytest

from durable_retry.base import secret_names
from durable_retry.base.masking import MASKED
from durable_retry.base.secret_names import is_secret_name

MULTIPART = (
    '--b\r\nContent-Disposition: form-data; filename="a"; name="pin"\r\n\r\n{}\r\n--b\r\n'
    'Content-Disposition: form-data; name="n"\r\n\r\n3\r\n--b--'
)
SECRETS = """
    password Password PASSWD user_password newPassword password2 passwordHash password_encrypted
    new-password-confirmation pass_phrase passcode DB_PASS pwd user.pwd secret client_secret
    clientSecretValue secret_key token access_token refreshTokens id-token X-CSRF-Token jwt api_key
    X-Api-Key apiKeys APIKey auth_key private_key sshKey signing-key hmac_key AccountKey
    Ocp-Apim-Subscription-Key x-functions-key session_id PHPSESSID connection_string credentials
    Proxy-Authorization Set-Cookie cvv_code cvvCode CVV2 cvc card_cvc security_code cardSecurityCode
    pin_code pinCode PIN card_pin pin_number otp_code one_time_code smsCode verification_code
    recovery_codes two_factor_code authorization_code credit_card creditCard creditcards
    credit_card_number card_number cardNo debit-card pan pan_number account_number accountNo
    bank_account_no creditorIBAN iban_code ssn social_security_number passport_number user[password]
    app_creds X-Amz-Signature pass otp cvv2 iban tokens password_confirmation passwordConfirmation
    passwords sessionId Account-Number userPass accessToken1 access_tokens token_hash
    user%5Bpassword%5D
"""
OTHERS = """
    pinned pinnedAt panel token_count max_tokens total_tokens tokenizer passenger passengers bypass
    author authority authorized authored_by passed compass password_policy password_changed_at
    passwordless secretary token_type token_expires_in secret_name secret_version primary_key
    sort_key routing_key idempotency_key public_key cache_key keyboard monkey zip_code postal_code
    country_code status_code error_code currencyCode promo_code reason_code card_type cardBrand
    card_last4 cardinality scorecard dashboard discard_reason credit_limit debit_amount account_id
    account_name order_number phone_number invoiceNo page_no session_count sessions cookie_policy
    span timespan company japan japan_code shipping mapping spin_code signature design significant
    author_code passport api_key_id key_count pin_count number no code value company_number
    span_number optout opinion password_free prompt_tokens completionTokens tokens_used spin
    confirmation 1 key é
"""


@pytest.mark.parametrize("name", SECRETS.split())
def test_names_of_secrets_are_recognised_in_any_notation(name: str) -> None:
    assert is_secret_name((), name)


@pytest.mark.parametrize("name", ["", "x" * 70, *OTHERS.split()])
def test_harmless_names_are_not(name: str) -> None:
    assert not is_secret_name((), name)


def test_fields_have_wildcards() -> None:
    fields = ("card*holder*name", "vat")
    assert is_secret_name(fields, "CardAndHolderAndName")
    assert is_secret_name(fields, "cardholdername")
    assert not is_secret_name(fields, "holder_card_name")


def test_the_cache_of_names_has_short_ones_only_and_long_ones_are_decided_all_the_same() -> None:
    before = secret_names._decide_short.cache_info().currsize
    names = [f"{number}{'x' * 60_000}_password" for number in range(50)]
    assert all(is_secret_name((), name) for name in names)
    assert secret_names._decide_short.cache_info().currsize == before


@pytest.mark.parametrize(
    "usage", [{"tokens": 7, "max_tokens": 5}, {"prompt_tokens": 1, "completion_tokens": 2}, {"tokens": "7"}]
)
def test_counts_of_tokens_are_shown(usage: dict[str, Any]) -> None:
    assert MASKED.value(usage) == usage
    text = ", ".join(f"{name}={value}" for name, value in usage.items())
    assert MASKED.text(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<password>x1</password>", "<password>***</password>"),
        ('<a:pin n="1"><![CDATA[x1]]></a:pin> end', '<a:pin n="1">***</a:pin> end'),
        ("<token><token>x1</token>x2</token><n>3</n>", "<token>***</token><n>3</n>"),
        ("got {'key': 'pin', 'value': 'x1'} of n", "got {'key': 'pin', 'value': '***'} of n"),
        ("<token>cut x1\nx2", "<token>***"),
        (
            MULTIPART.format("x1"),
            MULTIPART.format("***"),
        ),
        ("sent <token>cut x1\nmore", "sent <token>***\nmore"),
        ("sent <token>" * 20 + "x1", "sent <token>***"),
        ("<token><token>x1</token>x2", "<token>***"),
        ("List<Token> of <Token object at 0x7f> is wrong", "List<Token> of <Token object at 0x7f> is wrong"),
        ("<token/><n>3</n>", "<token/><n>3</n>"),
        ('<user password="x1" name="a"/>', '<user password="***" name="a"/>'),
        ("&lt;pin&gt;x1&lt;/pin&gt;", "&lt;pin&gt;***&lt;/pin&gt;"),
        ("https://u:p@ss@h/?sig=x1#f", "https://***@h/?sig=***"),
        ("https://h/?a=1&amp;access_token=x1", "https://h/?a=1&amp;access_token=***"),
        ("Bearer x", "Bearer ***"),
        ("Basic dTpw", "Basic ***"),
        ("Basic dTo_cA", "Basic ***"),
        ("Basic plan", "Basic plan"),
        ("Basic 12345", "Basic 12345"),
        ("sent Bearer abcdefghijklmnopqrstuvwxyz to it", "sent Bearer *** to it"),
        ("Login(password='x1', n=2)", "Login(password='***', n=2)"),
        ("{'password': 'it\\'s x1', 'n': 2}", "{'password': '***', 'n': 2}"),
        ("Login(password=Token(value='x) 1', more=[1]), n=2)", "Login(password=***, n=2)"),
        ("Login(password=Token(value='x1", "Login(password=***"),
        ("Login(password=<Token x1>)", "Login(password=***)"),
        ("password=SecretStr('x1')", "password=***"),
        ("token=b'x1'", "token='***'"),
        ("token=None, n=1", "token=None, n=1"),
        ("password=", "password="),
        ("password: ", "password: "),
        ("X-Api-Key: ", "X-Api-Key: "),
        ('{"tokens": ["x1", {"a": "x2"}], "n": 1, cut', '{"tokens": "***", "n": 1, cut'),
        ('{\\"pin\\": \\"x\\\\\\"1\\", \\"n\\": 2', '{\\"pin\\": \\"***\\", \\"n\\": 2'),
        ('{\\"pin\\": \\"x1', '{\\"pin\\": \\"***\\"'),
        ("user=a&password=x)1&n=1", "user=a&password=***&n=1"),
        ("Server=h;Pwd=x1;n=1", "Server=h;Pwd=***;n=1"),
        ("h:6380,password=x1=,ssl=True", "h:6380,password=***,ssl=True"),
        ("h:6380,password=x,1 next", "h:6380,password=*** next"),
        ("X-Api-Key: x1 x2\r\nDate: now", "X-Api-Key: ***\r\nDate: now"),
        ('Authorization: Digest username="a", response="x1"\nn: 1', "Authorization: Digest ***\nn: 1"),
        ("Authorization: x1 x2", "Authorization: ***"),
        ("['Cookie: a=x1; b=x2', 'n: 1']", "['Cookie: ***', 'n: 1']"),
        ("password: x1 and more", "password: *** and more"),
        ("password: onlyletters\nn: 1", "password: ***\nn: 1"),
        ("token: The token has expired", "token: The token has expired"),
        ("password: String should have 8 characters", "password: String should have 8 characters"),
        ("if password == other: pass", "if password == other: pass"),
        ("compass=north; passenger: 5", "compass=north; passenger: 5"),
        ("got &quot;pin&quot;: &quot;x1&quot;, 2", "got &quot;pin&quot;: &quot;***&quot;, 2"),
        ("got &#39;pin&#39;:&#39;x1&#39;", "got &#39;pin&#39;:&#39;***&#39;"),
        ("\\u0022pin\\u0022:\\u0022x1\\u0022", "\\u0022pin\\u0022:\\u0022***\\u0022"),
        ("data=%7B%22pin%22%3A%22x1%22%7D&n=1", "data=%7B%22pin%22%3A%22***%22%7D&n=1"),
        ("%2522pin%2522%253A%2520%2522x1%2522", "%2522pin%2522%253A%2520%2522***%2522"),
        ("[('pin', 'x1'), ('n', '2')]", "[('pin', '***'), ('n', '2')]"),
        ("[(b'authorization', b'x1')]", "[(b'authorization', b'***')]"),
        ('[["n", "2"], ["pin", "x1"], ["pan", "x', '[["n", "2"], ["pin", "***"], ["pan", "***"'),
        ('[["pin", "x1"', '[["pin", "***"'),
        ('required: ["pin", "mail"]', 'required: ["pin", "mail"]'),
        ('{"header": "pin", "value": "x1", cut', '{"header": "pin", "value": "***", cut'),
        ("sent to //u:p@ss@h/a", "sent to //***@h/a"),
        ("https:\\/\\/u:p@h\\/a", "https:\\/\\/***@h\\/a"),
        ("?to=https%3A%2F%2Fu%3Ap%40h%2F", "?to=https%3A%2F%2F***%40h%2F"),
        ("?to=https%3A%2F%2Fh%3Fsig%3Dx1%26n%3D2", "?to=https%3A%2F%2Fh%3Fsig%3D***%26n%3D2"),
    ],
)
def test_the_values_behind_secret_names_are_masked_in_any_text(text: str, shown: str) -> None:
    assert MASKED.text(text) == shown
    assert MASKED.text(shown) == shown


@pytest.mark.parametrize(
    ("document", "shown"),
    [
        ({"callback_url": "https://u:p@h/?sig=x"}, {"callback_url": "https://***@h/?sig=***"}),
        ({"auth": "Bearer x"}, {"auth": "Bearer ***"}),
        ({"a": '{"b": "{\\"pin\\": \\"x1\\"}"}'}, {"a": '{"b": "{\\"pin\\": \\"***\\"}"}'}),
        (["token=x1"], ["token=***"]),
        ({"a": '"pin=x1"'}, {"a": '"pin=***"'}),
        ({"a": '{"pin": "x1", "n": 1e400}'}, {"a": '{"pin": "***", "n": "1e400"}'}),
        ({"a": '{"pin": "x1", "n": "\\ud800"}'}, {"a": '{"pin": "***", "n": "\\ud800"}'}),
    ],
)
def test_every_text_of_a_document_is_masked(document: Any, shown: Any) -> None:
    assert MASKED.value(document) == shown


def test_of_a_repeated_member_no_value_is_forgotten() -> None:
    assert MASKED.text('{"pin": "x1", "pin": null}') == '{"pin": null}'
    assert MASKED.text('{"n": {"pin": "x1", "pin": "x2"}}') == '{"n": {"pin": "***"}}'


WORK = 60_000
"""Characters: a search that begins anew at each of them, and goes to the end, takes minutes."""


@pytest.mark.parametrize(
    "part",
    [
        *("password=", '"', "\\", "'\\'", "password='\\'", "password=(", "password=([{", "<password>", "<a "),
        *(
            "<password></password>",
            "<password>\n",
            "&lt;pin a=&quot;b&quot;",
            "Bearer ",
            "Bearer +",
            "a://",
            "a://b",
            "password=,a",
            "a: ",
            "[password]=",
        ),
        *(
            'password=\\"',
            "&lt;password&gt;",
            "cookie: a\n",
            "password" + " " * 30,
            "a",
            "&amp;",
            "token='a(",
            "&quot;",
            "%22pin%22%3A",
            "('pin', '",
            "//",
            "%2F%2Fa",
            "pin%3D",
            "pin%3Da%26",
        ),
    ],
)
def test_no_text_makes_masking_slow(part: str) -> None:
    MASKED.text(part * (WORK // len(part)))
    MASKED.text(json.dumps({"a": part * (WORK // len(part))}))


def test_many_elements_without_an_end_do_not_make_masking_slow() -> None:
    text = "".join(f"see <n{number}_token>\n" for number in range(WORK // 20))
    assert MASKED.text(text).count("***") == 17
