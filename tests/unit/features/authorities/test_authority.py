from pathlib import Path

import pytest

from durable_retry.features.authorities.authority import problems_of_authority
from durable_retry.rules.config.dependencies_file import ConfigError, parse_config
from durable_retry.rules.config.dependency import Dependency
from tests.support.certificates import make_self_signed


def read(keys: str = "") -> Dependency:
    text = f'[dependencies.payments]\nbase_url = "https://a.example"\n{keys}'
    return parse_config(text, {}).dependencies["payments"]


def problems_of(file: Path) -> list[tuple[str, str]]:
    return [(problem.pointer, problem.detail) for problem in problems_of_authority(read(f'ca = "{file}"'))]


def test_a_file_of_authorities_that_is_missing_or_is_no_pem_is_named(tmp_path: Path) -> None:
    files, none = make_self_signed(tmp_path), tmp_path / "none.pem"
    assert problems_of(files.certificate) == []
    assert list(problems_of_authority(read())) == []
    assert problems_of(none) == [("/ca", f"names no file: {none}")]
    none.write_text("no certificate")
    ((pointer, detail),) = problems_of(none)
    assert pointer == "/ca"
    assert detail.startswith("cannot be used: ")


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="ca"):
        read('ca = ""')
