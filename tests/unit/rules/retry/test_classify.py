import httpx
import pytest

from durable_retry.base.names import Category
from durable_retry.rules.operations.request import is_unprotected
from durable_retry.rules.retry.classify import (
    Classification,
    Sent,
    classify_failure,
    classify_status,
    is_refusal,
)
from durable_retry.rules.retry.retry_after import RetryHint

CONTRACT = {
    "transient": (408, 425, 500, 502, 503, 504),
    "throttled": (429,),
    "malformed": (400, 405, 406, 411, 413, 414, 415, 422, 431, 501),
    "unauthorized": (401, 403, 407),
    "not_found": (404, 410),
    "business_rule": (402, 409, 412, 423),
}
NAMED = {code: name for name, codes in CONTRACT.items() for code in codes}


def names_of(error: type[BaseException]) -> list[str]:
    return [cls.__name__ for cls in error.__mro__]


@pytest.mark.parametrize("status_code", range(100, 600))
def test_every_status_code_is_classified_as_the_contract_says(status_code: int) -> None:
    rest = "malformed" if status_code < 500 else "transient"
    expected = None if 200 <= status_code < 300 else NAMED.get(status_code, rest)
    assert classify_status(status_code) == expected


@pytest.mark.parametrize("unprotected", [True, False])
@pytest.mark.parametrize("status_code", set(range(400, 500)) - {460, 499} | {503})
def test_a_refusal_with_a_usable_hint_means_later(status_code: int, *, unprotected: bool) -> None:
    expected = Category.THROTTLED if status_code in {403, 429, 503} else Category.TRANSIENT
    assert classify_status(status_code, retry_hint=RetryHint(0), unprotected=unprotected) is expected


@pytest.mark.parametrize("status_code", range(100, 600))
def test_a_hint_that_cannot_be_read_changes_nothing(status_code: int) -> None:
    unreadable = RetryHint(0, "", ("ignored",))
    assert classify_status(status_code, retry_hint=unreadable) == classify_status(status_code)


@pytest.mark.parametrize("status_code", {*range(100, 400), *range(500, 600)} - {503})
def test_a_hint_changes_nothing_about_other_answers(status_code: int) -> None:
    assert classify_status(status_code, retry_hint=RetryHint(0)) == classify_status(status_code)


@pytest.mark.parametrize("unprotected", [True, False])
def test_a_conflict_with_an_attempt_whose_end_is_unknown_passes(*, unprotected: bool) -> None:
    assert classify_status(409, after_unknown=True, unprotected=unprotected) is Category.TRANSIENT


@pytest.mark.parametrize("status_code", set(range(100, 600)) - {409})
def test_an_unknown_end_changes_nothing_about_other_answers(status_code: int) -> None:
    assert classify_status(status_code, after_unknown=True) == classify_status(status_code)


@pytest.mark.parametrize("hint", [None, RetryHint(1)])
@pytest.mark.parametrize("status_code", [460, 499])
def test_a_proxy_that_lost_its_caller_says_nothing_of_the_effect(
    status_code: int, hint: RetryHint | None
) -> None:
    assert classify_status(status_code, retry_hint=hint, unprotected=True) is Category.AMBIGUOUS
    assert not is_refusal(status_code)


@pytest.mark.parametrize("status_code", [500, 502, 504, 507, 599])
def test_a_failure_while_working_on_an_unprotected_request_is_ambiguous(status_code: int) -> None:
    assert classify_status(status_code, unprotected=True) is Category.AMBIGUOUS


@pytest.mark.parametrize("status_code", [408, 425, 429, 503])
def test_an_unprotected_request_that_was_refused_unprocessed_may_be_sent_again(status_code: int) -> None:
    assert classify_status(status_code, unprotected=True) == NAMED[status_code]


@pytest.mark.parametrize("status_code", [201, 302, 400, 404, 409, 501])
def test_protection_changes_nothing_about_a_definite_answer(status_code: int) -> None:
    assert classify_status(status_code, unprotected=True) == classify_status(status_code)


ERRORS = sorted({*range(400, 600)} - {429})


@pytest.mark.parametrize("status_code", ERRORS)
def test_a_dependency_that_says_retry_makes_any_error_transient(status_code: int) -> None:
    assert classify_status(status_code, advice=True) is Category.TRANSIENT


@pytest.mark.parametrize("status_code", ERRORS)
def test_a_dependency_that_says_do_not_retry_is_asked_once(status_code: int) -> None:
    final = classify_status(status_code, advice=False, after_unknown=True, retry_hint=None)
    assert final not in {Category.TRANSIENT, None}
    assert final in {classify_status(status_code), Category.MALFORMED}


@pytest.mark.parametrize("advice", [True, False])
def test_the_advice_of_a_dependency_changes_no_pause_no_doubt_and_no_success(*, advice: bool) -> None:
    assert classify_status(429, advice=advice) is Category.THROTTLED
    assert classify_status(403, retry_hint=RetryHint(1), advice=advice) is Category.THROTTLED
    assert classify_status(500, unprotected=True, advice=advice) is Category.AMBIGUOUS
    assert classify_status(200, advice=advice) is None
    assert classify_status(302, advice=advice) is Category.MALFORMED


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_idempotent_methods_need_no_protection(method: str) -> None:
    assert not is_unprotected(method, "")


@pytest.mark.parametrize("method", ["POST", "PATCH", "post"])
def test_unsafe_methods_are_protected_by_the_idempotency_header_alone(method: str) -> None:
    assert is_unprotected(method, "")
    assert not is_unprotected(method, "Idempotency-Key")


NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)
LOST = (
    httpx.ReadTimeout,
    httpx.ReadError,
    httpx.WriteTimeout,
    httpx.WriteError,
    httpx.CloseError,
    httpx.RemoteProtocolError,
    httpx.DecodingError,
    TimeoutError,
)
UNSENDABLE = (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL)


def every_httpx_exception() -> set[type[BaseException]]:
    found, pending = set(), [httpx.RequestError, httpx.InvalidURL]
    while pending:
        error = pending.pop()
        if error.__module__ == "httpx":
            found.add(error)
        pending.extend(error.__subclasses__())
    return found


def test_every_httpx_exception_is_known_by_itself_or_a_base() -> None:
    bases = {httpx.RequestError, httpx.TransportError, httpx.TimeoutException, httpx.NetworkError}
    known = {*NEVER_SENT, *LOST, *UNSENDABLE, httpx.PoolTimeout, httpx.TooManyRedirects}
    assert every_httpx_exception() - bases - {httpx.ProtocolError} <= known


@pytest.mark.parametrize("error", NEVER_SENT)
@pytest.mark.parametrize("unprotected", [True, False])
def test_a_connection_never_made_is_safe_to_retry(error: type[Exception], *, unprotected: bool) -> None:
    verdict = classify_failure(names_of(error), unprotected=unprotected)
    assert verdict == Classification(Category.TRANSIENT, Sent.NO)


def test_our_own_shortage_of_connections_costs_no_attempt() -> None:
    verdict = classify_failure(names_of(httpx.PoolTimeout), unprotected=True)
    assert verdict == Classification(Category.TRANSIENT, Sent.NO, counted=False)


@pytest.mark.parametrize("error", LOST)
def test_silence_after_sending_is_ambiguous_when_unprotected(error: type[Exception]) -> None:
    assert classify_failure(names_of(error)) == Classification(Category.TRANSIENT)
    assert classify_failure(names_of(error), unprotected=True) == Classification(Category.AMBIGUOUS)


@pytest.mark.parametrize("error", UNSENDABLE)
def test_what_cannot_be_sent_is_malformed(error: type[Exception]) -> None:
    assert classify_failure(names_of(error), unprotected=True) == Classification(Category.MALFORMED, Sent.NO)


def test_endless_redirects_are_malformed() -> None:
    assert classify_failure(names_of(httpx.TooManyRedirects)).category is Category.MALFORMED


def test_a_handlers_words_mean_nothing_elsewhere() -> None:
    assert classify_failure(["Rejected", "Exception"]) == Classification(Category.TRANSIENT)


def test_the_most_special_override_wins() -> None:
    rules = {"TimeoutException": Category.AMBIGUOUS, "ReadTimeout": Category.TRANSIENT}
    verdict = classify_failure(names_of(httpx.ReadTimeout), unprotected=True, rules=rules)
    assert verdict == Classification(Category.TRANSIENT)
    verdict = classify_failure(names_of(httpx.WriteTimeout), rules=rules)
    assert verdict == Classification(Category.AMBIGUOUS)


def test_an_override_of_something_else_changes_nothing() -> None:
    verdict = classify_failure(["KeyError"], unprotected=True, rules={"OSError": Category.MALFORMED})
    assert verdict == Classification(Category.AMBIGUOUS)


def test_a_failure_counts_unless_it_is_our_own() -> None:
    assert classify_failure(["ReadTimeout"]).counted
