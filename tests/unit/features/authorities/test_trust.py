import ssl
from pathlib import Path

import pytest

from durable_retry.attempt.http_client import SignInError
from durable_retry.features.authorities.trust import trust
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.rules.config.dependency import Dependency
from tests.support.certificates import make_self_signed


def read(keys: str = "") -> Dependency:
    text = f'[dependencies.payments]\nbase_url = "https://a.example"\n{keys}'
    return parse_config(text, {}).dependencies["payments"]


def test_connections_trust_the_authorities_and_say_when_the_file_went(tmp_path: Path) -> None:
    files = make_self_signed(tmp_path)
    dependency = read(f'ca = "{files.certificate}"')
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust(read(), context)
    assert context.get_ca_certs() == []
    trust(dependency, context)
    assert len(context.get_ca_certs()) == 1
    files.certificate.unlink()
    with pytest.raises(SignInError, match="the ca of payments cannot be read"):
        trust(dependency, context)
