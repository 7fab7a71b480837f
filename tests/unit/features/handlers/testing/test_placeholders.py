import pytest

import durable_retry
from durable_retry.features.handlers.testing.placeholders import with_placeholders
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.testing import run_handler

FILE = """
[dependencies.payments]
base_url = "${PAYMENTS_URL}"
auth = { header = "Authorization", value = "Bearer ${PAYMENTS_TOKEN}" }

[dependencies.parcels]
base_url = "https://${PARCELS_HOST}/v1"
webhook = { secrets = ["${PARCELS_SECRET}"] }

[dependencies.bank]
base_url = "${BANK_URL}"
auth = { oauth = { token_url = "${BANK_TOKEN_URL}", client_id = "${CLIENT}", client_secret = "${SECRET}" } }
tls = { certificate = "${BANK_CERTIFICATE}" }
"""


def test_placeholders_fit_where_they_are_used() -> None:
    settings = with_placeholders(FILE, {"PAYMENTS_TOKEN": "t-1", "OTHER": "x"})
    config = parse_config(FILE, settings)
    assert config.dependencies["payments"].base_url == "http://payments-url.test"
    assert config.dependencies["parcels"].base_url == "https://parcels-host/v1"
    assert (settings["PAYMENTS_TOKEN"], settings["OTHER"]) == ("t-1", "x")


async def pay(call: durable_retry.Call) -> int:
    answer = await call.client.post("/charges", json={})
    return answer.status_code


@pytest.mark.usefixtures("no_handlers")
async def test_a_fake_asks_for_neither_token_nor_certificate() -> None:
    durable_retry.operation("pay", dependency="bank")(pay)
    run = await run_handler("pay", {}, config=FILE)
    assert run.result == 200


def test_what_is_no_toml_names_no_settings() -> None:
    assert with_placeholders("a = = 1", {"A": "1"}) == {"A": "1"}
