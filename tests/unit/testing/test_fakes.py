from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.testing.fakes import with_placeholders

FILE = """
[dependencies.payments]
base_url = "${PAYMENTS_URL}"
auth = { header = "Authorization", value = "Bearer ${PAYMENTS_TOKEN}" }

[dependencies.parcels]
base_url = "https://${PARCELS_HOST}/v1"
webhook = { secrets = ["${PARCELS_SECRET}"] }
"""


def test_placeholders_fit_where_they_are_used() -> None:
    settings = with_placeholders(FILE, {"PAYMENTS_TOKEN": "t-1", "OTHER": "x"})
    config = parse_config(FILE, settings)
    assert config.dependencies["payments"].base_url == "http://payments-url.test"
    assert config.dependencies["parcels"].base_url == "https://parcels-host/v1"
    assert (settings["PAYMENTS_TOKEN"], settings["OTHER"]) == ("t-1", "x")


def test_what_is_no_toml_names_no_settings() -> None:
    assert with_placeholders("a = = 1", {"A": "1"}) == {"A": "1"}
