import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from durable_retry.base.masking import Masking, Show
from durable_retry.base.names import Category
from durable_retry.base.text import Secret
from durable_retry.base.validation import UNRESOLVED_DETAIL
from durable_retry.rules.circuit.retry_budget import RetryBudgetSettings
from durable_retry.rules.circuit.states import CircuitSettings
from durable_retry.rules.config.dependencies_file import ConfigError, key_path, parse_config
from durable_retry.rules.config.dependency import Auth, Dependency, IdempotencySettings
from durable_retry.rules.retry.policy import PRESETS, RetryOverride, RetryPolicy, Timeouts
from durable_retry.rules.retry.rules import AnswerRule
from durable_retry.settings.configuration import find_dependency, using

CONTRACT = """
[defaults]
[defaults.retry]
preset = "standard"

[dependencies.payments]
base_url = "https://payments.example.com/v1"
headers = { Accept = "application/json" }
auth = { header = "Authorization", value = "Bearer ${PAYMENTS_TOKEN}" }

[dependencies.payments.timeouts]
connect_seconds = 2
attempt_seconds = 10
deadline_seconds = 3600

[dependencies.payments.retry]
preset = "standard"
strategy = "exponential"
max_attempts = 5
initial_seconds = 2.0
factor = 2.0
max_seconds = 60.0
schedule_seconds = []
jitter = "full"
respect_retry_after = true
max_retry_after_seconds = 300

[dependencies.payments.circuit]
enabled = true
failure_ratio = 0.5
minimum_calls = 10
window_seconds = 30
consecutive_failures = 0
slow_call_seconds = 0
slow_call_ratio = 1.0
break_seconds = 30
max_break_seconds = 600
half_open_calls = 1

[dependencies.payments.retry_budget]
ratio = 0.2
minimum_per_second = 1.0

[dependencies.payments.idempotency]
header = "Idempotency-Key"
ttl_seconds = 86400
fingerprint = []

[dependencies.payments.classify]
404 = "transient"
"""

NO_POINTER = "is not a JSON pointer: it begins with /, and ~ stands only in ~0 or ~1 (RFC 6901)"
NO_SCALAR = "must be a string, a finite number, true or false"
NO_HEADER_NAME = "is not a header name (RFC 9110 section 5.1), or is longer than 128 characters"
SETTINGS = {
    "PAYMENTS_TOKEN": "s3cret",
    "HOST": "example.com",
    "VAULT": "@Microsoft.KeyVault(SecretUri=https://v.vault.azure.net/secrets/s)",
}


def a(rest: str = "", base_url: str = "https://a.example.com") -> str:
    """Give a file with one dependency called a."""
    return f'[dependencies.a]\nbase_url = "{base_url}"\n{rest}'


def dependency_of(text: str) -> Dependency:
    return parse_config(text, SETTINGS).dependencies["a"]


def problems_of(text: str, **limits: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, SETTINGS, **limits)
    return {key_path(problem.pointer): problem.detail for problem in caught.value.problems}


@pytest.mark.parametrize("scheme", ["https", "HTTPS", "Https"])
def test_a_scheme_counts_in_any_case(scheme: str) -> None:
    config = parse_config(a(base_url=f"{scheme}://A.example.com/V1"), {})
    assert config.dependencies["a"].base_url == "https://A.example.com/V1"


def test_the_contracts_own_example_is_read() -> None:
    payments = parse_config(CONTRACT, SETTINGS).dependencies["payments"]
    assert payments.base_url == "https://payments.example.com/v1"
    assert payments.headers == {"Accept": "application/json"}
    assert payments.auth == Auth("Authorization", Secret("Bearer s3cret"))
    assert payments.timeouts == Timeouts(connect_seconds=2, attempt_seconds=10, deadline_seconds=3600)
    assert payments.retry == RetryPolicy()
    assert payments.circuit == CircuitSettings()
    assert payments.retry_budget == RetryBudgetSettings()
    assert payments.idempotency == IdempotencySettings()
    assert payments.classify == {"404": Category.TRANSIENT}


def test_what_is_left_out_has_the_contracts_defaults() -> None:
    assert dependency_of(a()) == Dependency(name="a", base_url="https://a.example.com")


def test_what_operations_bring_unless_they_say_so_is_of_a_dependency_alone() -> None:
    assert dependency_of(a('priority = "low"')).priority == "low"
    assert set(problems_of(a('priority = "urgent"'))) == {"dependencies.a.priority"}


def test_what_an_operation_may_override_has_the_defaults_of_the_policy() -> None:
    override = RetryOverride().model_dump()
    assert override.pop("preset") == "standard"
    assert override == TypeAdapter(RetryPolicy).dump_python(RetryPolicy(), mode="json")


def test_no_dependencies_is_a_config_too() -> None:
    assert parse_config("", {}).dependencies == {}


def test_defaults_are_overridden_key_by_key() -> None:
    text = """
    [defaults.retry]
    preset = "rate_limited"
    max_attempts = 7
    [defaults.circuit]
    break_seconds = 5
    half_open_calls = 3
    [defaults.headers]
    Accept = "text/plain"
    X-App = "mine"
    [dependencies.a]
    base_url = "http://a"
    headers = { Accept = "application/json" }
    [dependencies.a.retry]
    initial_seconds = 1
    [dependencies.a.circuit]
    break_seconds = 6
    """
    found = dependency_of(text)
    assert found.retry.max_attempts == 7
    assert found.retry.initial_seconds == 1
    assert found.retry.jitter == PRESETS["rate_limited"].policy.jitter
    assert found.circuit == CircuitSettings(break_seconds=6, half_open_calls=3)
    assert found.headers == {"Accept": "application/json", "X-App": "mine"}


def test_settings_are_put_in_wherever_they_are_named() -> None:
    found = dependency_of(
        a('auth = { header = "X-Key", value = "${PAYMENTS_TOKEN}" }', "https://${HOST}/v1/")
    )
    assert found.base_url == "https://example.com/v1"
    assert found.auth == Auth("X-Key", Secret("s3cret"))


def shown_to_clients(dependency: Dependency) -> dict[str, Any]:
    shown: dict[str, Any] = TypeAdapter(Dependency).dump_python(dependency, mode="json")
    return shown


def test_secrets_never_show() -> None:
    found = dependency_of(
        a('headers = { X-Token = "${PAYMENTS_TOKEN}", Accept = "x" }\nauth.value = "plain-secret"')
    )
    shown = [
        repr(found),
        str(found),
        f"{found.auth}",
        json.dumps(shown_to_clients(found)),
        repr(found.headers),
    ]
    assert not any("s3cret" in text or "plain-secret" in text for text in shown)
    assert found.headers["X-Token"] == Secret("s3cret")
    assert found.headers["Accept"] == "x"


HEADERS = """
headers.X-Tenant = "${TENANT}"
headers.X-Vendor-Key = "${PAYMENTS_TOKEN}"
headers.X-Partition-Key = "eu"
headers.X-Signed = "${PAYMENTS_TOKEN}"
headers.Authorization = "Bearer plain"
headers.Accept = "x"
masking.fields = ["x-signed"]
"""


def test_a_header_is_secret_by_its_name_or_as_a_key_from_a_setting_and_other_settings_are_none() -> None:
    found = parse_config(a(HEADERS), SETTINGS | {"TENANT": "contoso"}).dependencies["a"]
    secret = {name for name, value in found.headers.items() if isinstance(value, Secret)}
    assert secret == {"X-Vendor-Key", "X-Signed", "Authorization"}
    assert found.headers["X-Tenant"] == "contoso"
    assert found.fixed_headers == secret | {"X-Tenant"}
    assert "fixed_headers" not in shown_to_clients(found)


@pytest.mark.parametrize("secret", ["whsec_!", "whsec_c2hvcnQ="])
def test_a_webhook_secret_that_cannot_sign_is_refused_and_not_shown(secret: str) -> None:
    text = f'[dependencies.a]\nbase_url = "https://a.example.com"\nwebhook = {{ secrets = ["{secret}"] }}'
    with pytest.raises(ConfigError) as caught:
        parse_config(text, {})
    (problem,) = caught.value.problems
    assert key_path(problem.pointer) == "dependencies.a.webhook.secrets.0"
    assert secret not in str(caught.value)


def test_a_webhook_secret_of_24_bytes_can_sign() -> None:
    secret = "whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
    text = f'[dependencies.a]\nbase_url = "https://a.example.com"\nwebhook = {{ secrets = ["{secret}"] }}'
    assert parse_config(text, {}).dependencies["a"].webhook.secrets == (Secret(secret),)


def test_json_refuses_a_secret_rather_than_leak_it() -> None:
    with pytest.raises(TypeError):
        json.dumps(Secret("s3cret"))


def test_secrets_compare_by_value() -> None:
    assert Secret("a") == Secret("a")
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    assert Secret("a") != "a"
    assert str(Secret("a")) == f"{Secret('a')}" == "***"


def test_every_mistake_is_reported_at_once_with_its_key_path() -> None:
    text = """
    nonsense = 1
    [defaults.retry]
    preset = "standart"
    [dependencies.a]
    base_url = "ftp://a"
    headers = { "Ho st" = "x", X-Key = "${MISSING}", Host = "b", Fine = "a\\nb" }
    auth = { header = "Authorization" }
    [dependencies.a.retry]
    max_attempts = "5"
    jittr = "full"
    [dependencies.a.timeouts]
    connect_seconds = 20
    attempt_seconds = 10
    [dependencies.a.circuit]
    failure_ratio = 2
    [dependencies.a.classify]
    404 = "fine"
    "a b" = "transient"
    a = { status = 40, pointer = "code", equals = [1], category = "throttle" }
    b = { pointer = "/x", header = "y", equals = 1 }
    c = { header = "a", equals = 1, category = "malformed", sattus = 400 }
    d = { header = "a b", equals = "1", category = "malformed" }
    e = {}
    f = { pointer = "/x", equals = nan, category = "malformed" }
    [dependencies.a.idempotency]
    header = "Content-Length"
    fingerprint = ["/ok", "not"]
    [dependencies.a.masking]
    show = "some"
    fields = ["iban", "*"]
    pointers = ["/request/json/name", "/json/name", "request"]
    [dependencies."b c"]
    """
    assert problems_of(text) == {
        "nonsense": "is not a known table",
        "defaults.retry.preset": "must be 'standard', 'rate_limited', 'critical', 'webhook', 'fixed' "
        "or 'none'",
        "dependencies.a.base_url": "must begin with http:// or https://, not 'ftp://a'",
        'dependencies.a.headers."Ho st"': NO_HEADER_NAME,
        "dependencies.a.headers.X-Key": "the app setting MISSING is missing",
        "dependencies.a.headers.Host": "may not be set: it is written by the app itself",
        "dependencies.a.headers.Fine": "may hold visible ASCII characters, spaces and tabs only",
        "dependencies.a.auth.value": "is required",
        "dependencies.a.retry.max_attempts": "must be a whole number",
        "dependencies.a.retry.jittr": 'is not a known key; did you mean "jitter"?',
        "dependencies.a.timeouts.connect_seconds": "20 s is more than attempt_seconds, 10 s",
        "dependencies.a.circuit.failure_ratio": "must be less than or equal to 1",
        "dependencies.a.classify.404": "must be 'transient', 'throttled', 'ambiguous', 'malformed', "
        "'unauthorized', 'not_found' or 'business_rule'",
        'dependencies.a.classify."a b"': "must be a status code (100 to 599), an exception's name or the "
        "name of a rule",
        "dependencies.a.classify.a.status": "must be greater than or equal to 100",
        "dependencies.a.classify.a.pointer": NO_POINTER,
        "dependencies.a.classify.a.equals": NO_SCALAR,
        "dependencies.a.classify.a.category": "must be 'transient', 'throttled', 'ambiguous', 'malformed', "
        "'unauthorized', 'not_found' or 'business_rule'",
        "dependencies.a.classify.b.category": "is required",
        "dependencies.a.classify.b.header": "cannot stand beside a pointer into the body: a rule looks at "
        "one place",
        "dependencies.a.classify.c.header": "is text: equals must be a string",
        "dependencies.a.classify.c.sattus": 'is not a known key; did you mean "status"?',
        "dependencies.a.classify.d.header": "is not a header name (RFC 9110 section 5.1)",
        "dependencies.a.classify.e.category": "is required",
        "dependencies.a.classify.e.equals": "is required",
        "dependencies.a.classify.e.header": "is required where the rule has no pointer into the body",
        "dependencies.a.classify.f.equals": NO_SCALAR,
        "dependencies.a.idempotency.header": "may not be set: it is written by the app itself",
        "dependencies.a.idempotency.fingerprint.1": NO_POINTER,
        "dependencies.a.masking.show": "must be 'masked', 'none' or 'all'",
        "dependencies.a.masking.fields.1": "must name a field; * stands for any text beside "
        "letters or digits",
        "dependencies.a.masking.pointers.1": "must begin with /request, /input, /data, /message, /result",
        "dependencies.a.masking.pointers.2": "is not a JSON pointer: it begins with /, and ~ stands only in "
        "~0 or ~1 (RFC 6901)",
        'dependencies."b c"': "a name is letters, digits, _, . and -",
    }


SUM = "295 s + 10 s to spare = 305 s, more than host.json's functionTimeout of 300 s"
NO_WAIT = 'must list at least one wait for strategy "schedule"'


@pytest.mark.parametrize(
    ("keys", "places"),
    [
        ("timeouts = { attempt_seconds = 295, connect_seconds = 0 }", {"timeouts.attempt_seconds": SUM}),
        ("timeouts = { attempt_seconds = 295, colour = 1 }", {"timeouts.attempt_seconds": SUM}),
        ("timeouts = { attempt_seconds = 0, connect_seconds = 20 }", {}),
        ('retry = { strategy = "schedule", jitter = "some" }', {"retry.schedule_seconds": NO_WAIT}),
        ('retry = { strategy = "schedule", schedule_seconds = [-1] }', {}),
        ('timeouts = 5\nretry.strategy = "schedule"', {"retry.schedule_seconds": NO_WAIT}),
        (
            "timeouts = { attempt_seconds = 295 }\n[defaults.timeouts]\nattempt_seconds = 0",
            {"timeouts.attempt_seconds": SUM},
        ),
        ("colour = 1\nwas = ['b']\n[dependencies.b]", {"was.0": "b is a dependency of its own"}),
    ],
)
def test_a_mistake_hides_none_in_the_same_table_and_makes_none(keys: str, places: dict[str, str]) -> None:
    problems = problems_of(a(keys), function_timeout_seconds=300)
    assert len(problems) == 1 + len(places)
    assert {f"dependencies.a.{place}": detail for place, detail in places.items()}.items() <= problems.items()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("localhost:9000", ", not 'localhost:9000'"),
        ("payments.example.com/v1", ", not 'payments.example.com/v1'"),
        ("ftp://files", ", not 'ftp://files'"),
        ("user:secret@payments.example.com", ""),
        ("c2VjcmV0LWtleQ==", ""),
    ],
)
def test_a_url_without_a_scheme_names_value_and_setting(value: str, shown: str) -> None:
    text = '[dependencies.a]\nbase_url = "${PAYMENTS_URL}"\n'
    with pytest.raises(ConfigError) as caught:
        parse_config(text, {"PAYMENTS_URL": value})
    (problem,) = caught.value.problems
    assert problem.detail == f"must begin with http:// or https://{shown} (the app setting PAYMENTS_URL)"


def test_the_error_is_one_line_for_each_mistake() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config("[dependency.a]", {})
    assert str(caught.value) == (
        'dependencies.toml cannot be used:\n  dependency: is not a known table; did you mean "dependencies"?'
    )


def test_what_is_no_toml_says_where() -> None:
    assert "line 1" in problems_of("a = = 1")["the file"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("dependencies = 1", "dependencies"),
        ("defaults = 1", "defaults"),
        ("dependencies.a = 1", "dependencies.a"),
    ],
)
def test_tables_must_be_tables(text: str, key: str) -> None:
    assert problems_of(text) == {key: "must be a table"}


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("https://${HOST", "holds ${ without its }"),
        ("https://${}", '"${}" does not name an app setting'),
        ("https://${A B}", '"${A B}" does not name an app setting'),
        ("https://${NO}", "the app setting NO is missing"),
        ("https://${VAULT}", f"the app setting VAULT {UNRESOLVED_DETAIL}"),
    ],
)
def test_broken_references_are_reported_once(text: str, detail: str) -> None:
    assert problems_of(a(base_url=text)) == {"dependencies.a.base_url": detail}


@pytest.mark.parametrize(
    "url",
    [
        "payments",
        "//host/x",
        "https://",
        "https://h:port",
        "https://[::1",
        "https://u:p@h",
        "https://h?x=1",
        "https://h#x",
        "https://h/?",
        "https://h h",
        "file:///etc",
    ],
)
def test_a_base_url_is_plain_http(url: str) -> None:
    assert set(problems_of(a(base_url=url))) == {"dependencies.a.base_url"}


def test_an_empty_idempotency_header_means_no_deduplication() -> None:
    assert dependency_of(a('idempotency = { header = "", fingerprint = ["/json/id"] }')).idempotency == (
        IdempotencySettings(header="", fingerprint=("/json/id",))
    )


def test_timeouts_under_the_functions_own_show_the_sum() -> None:
    found = problems_of(a("timeouts.attempt_seconds = 55"), function_timeout_seconds=60)
    assert found == {
        "dependencies.a.timeouts.attempt_seconds": "55 s + 10 s to spare = 65 s, more than host.json's "
        "functionTimeout of 60 s"
    }
    assert parse_config(a("timeouts.attempt_seconds = 50"), {}, function_timeout_seconds=60).dependencies


def test_a_written_attempt_longer_than_the_deadline_is_a_mistake() -> None:
    found = problems_of(a("timeouts = { attempt_seconds = 9, deadline_seconds = 8 }"))
    assert found == {"dependencies.a.timeouts.attempt_seconds": "9 s is more than deadline_seconds, 8 s"}


def test_timeouts_that_nobody_wrote_shrink_to_fit() -> None:
    assert dependency_of(a("timeouts.deadline_seconds = 1.5")).timeouts == Timeouts(
        connect_seconds=1.5, attempt_seconds=1.5, deadline_seconds=1.5
    )
    assert dependency_of(a("timeouts.attempt_seconds = 1")).timeouts.connect_seconds == 1


def test_the_defaults_shrink_under_what_the_dependency_writes() -> None:
    text = "[defaults.timeouts]\nattempt_seconds = 20\n" + a("timeouts.deadline_seconds = 5")
    assert dependency_of(text).timeouts.attempt_seconds == 5


def test_no_deadline_is_no_limit() -> None:
    assert dependency_of(a("timeouts.deadline_seconds = 0")).timeouts.attempt_seconds == 10


def test_unlimited_attempts_without_deadline_are_a_warning() -> None:
    text = a("retry.max_attempts = -1\ntimeouts.deadline_seconds = 0")
    warnings = parse_config(text, {}).warnings
    assert [warning.pointer for warning in warnings] == ["/dependencies/a/retry/max_attempts"]
    assert parse_config(a(), {}).warnings == ()


def test_a_schedule_is_read() -> None:
    found = dependency_of(a('retry = { strategy = "schedule", schedule_seconds = [1, 2.5] }'))
    assert found.retry.schedule_seconds == (1, 2.5)


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "true", '"2"', "1e12"])
def test_durations_are_sane_numbers(value: str) -> None:
    assert set(problems_of(a(f"retry.initial_seconds = {value}"))) == {"dependencies.a.retry.initial_seconds"}


def test_rules_on_answers_keep_their_order_and_a_status_may_name_one() -> None:
    text = """[dependencies.a.classify]
    404 = "transient"
    slow = { status = 400, pointer = "/code", equals = "ThrottlingException", category = "throttled" }
    400 = { header = "X-Error", equals = "gone", category = "not_found" }
    """
    found = dependency_of(a() + text).classify
    slow = AnswerRule(Category.THROTTLED, "ThrottlingException", status=400, pointer="/code")
    gone = AnswerRule(Category.NOT_FOUND, "gone", status=400, header="X-Error")
    assert list(found.items()) == [("404", Category.TRANSIENT), ("slow", slow), ("400", gone)]


def test_what_clients_see_of_a_dependency_has_every_table() -> None:
    shown = shown_to_clients(parse_config(CONTRACT, SETTINGS).dependencies["payments"])
    assert shown["auth"].items() >= {"header": "Authorization", "value": "***"}.items()
    assert shown["classify"] == {"404": "transient"}
    assert shown["idempotency"]["fingerprint"] == []
    assert shown_to_clients(dependency_of(a()))["auth"] is None
    assert shown["masking"] == {"show": "masked", "fields": [], "pointers": []}


def test_what_only_a_feature_carries_out_is_refused_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"circuit.by": "key_circuits", "webhook.secrets": "outbox", "retry.on_exhausted": "holding"}
    monkeypatch.setattr("durable_retry.plugins.names_of_absent", lambda: absent)
    off = 'circuit.by = ""\nwebhook.secrets = []\nretry.on_exhausted = "dead_letter"\n'
    parse_config(f"[dependencies.payments]\n{off}", {})
    secret = "d2ViaG9vay1zZWNyZXQtb2YtMzItYnl0ZXMtMTIzNDU="
    on = f'circuit.by = "limit_key"\nwebhook.secrets = ["{secret}"]\nretry.on_exhausted = "hold"\n'
    with pytest.raises(ConfigError) as refused:
        parse_config(f"[dependencies.payments]\n{on}", {})
    assert {problem.pointer: problem.detail for problem in refused.value.problems} == {
        "/dependencies/payments/circuit/by": "is of the feature key_circuits, which this app lacks",
        "/dependencies/payments/webhook/secrets": "is of the feature outbox, which this app lacks",
        "/dependencies/payments/retry/on_exhausted": (
            "must not be hold, which is of the feature holding, which this app lacks"
        ),
    }


def test_a_dependency_is_found_by_its_earlier_names() -> None:
    config = parse_config(a('was = ["old", "older"]'), {})
    assert list(config.dependencies) == ["a"]
    assert config.earlier_names == dict.fromkeys(["old", "older"], config.dependencies["a"])
    with using(config):
        found = [find_dependency(name) for name in ("a", "old", "older", "oldest")]
    assert found == [*[config.dependencies["a"]] * 3, None]


def test_an_earlier_name_is_that_of_one_dependency_alone() -> None:
    other = '\n[dependencies.b]\nwas = ["older", "old"]'
    assert problems_of(a('was = ["b", "old", "a", "old"]') + other) == {
        "dependencies.a.was.0": "b is a dependency of its own",
        "dependencies.a.was.2": "a is a dependency of its own",
        "dependencies.a.was.3": "old is an earlier name of a, too",
        "dependencies.b.was.1": "old is an earlier name of a, too",
    }
    assert problems_of(a('was = ["with space"]')) == {
        "dependencies.a.was.0": "a name is letters, digits, _, . and -"
    }


def test_masking_is_overridden_key_by_key_and_holds_for_what_has_no_dependency() -> None:
    config = parse_config(
        """
        [defaults.masking]
        show = "none"
        fields = ["iban"]
        [dependencies.a]
        base_url = "http://a"
        masking = { show = "masked", pointers = ["/input/name"] }
        """,
        {},
    )
    assert config.masking == Masking(Show.NONE, ("iban",))
    assert config.dependencies["a"].masking == Masking(Show.MASKED, ("iban",), ("/input/name",))
