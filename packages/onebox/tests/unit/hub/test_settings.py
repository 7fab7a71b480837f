import pytest

from onebox.hub.settings import VersionFailure, Versioning, VersionMatch, is_newer


@pytest.mark.parametrize(
    ("version", "than"),
    [
        ("1.1.0", "1.0.0"),
        ("2", "1"),
        ("10", "9"),
        ("1.10", "1.9"),
        ("1.0.0", "1.0"),
        ("1", ""),
        ("2025-02-01", "2025-01-31"),
        ("v2", "V1"),
        ("1.0-beta", "1.0"),
    ],
)
def test_versions_are_ordered_as_the_documentation_says(version: str, than: str) -> None:
    assert is_newer(version, than)
    assert not is_newer(than, version)


def test_no_version_is_newer_than_itself() -> None:
    assert not any(is_newer(version, version) for version in ("", "1", "1.2.3", "Beta"))
    assert not is_newer("beta", "BETA")


@pytest.mark.parametrize(
    ("match", "admitted"),
    [
        (VersionMatch.NONE, [None, "1.0", "2.0", "3.0"]),
        (VersionMatch.STRICT, ["2.0"]),
        (VersionMatch.CURRENT_OR_OLDER, [None, "1.0", "2.0"]),
    ],
)
def test_each_strategy_admits_its_versions(match: VersionMatch, admitted: list[str | None]) -> None:
    versioning = Versioning("2.0", match)
    assert [each for each in (None, "1.0", "2.0", "3.0") if versioning.admits(each)] == admitted


def test_an_app_without_a_version_leaves_those_with_one_alone() -> None:
    assert not Versioning(None, VersionMatch.CURRENT_OR_OLDER).admits("1.0")
    assert Versioning(None, VersionMatch.CURRENT_OR_OLDER).admits(None)
    assert Versioning(None, VersionMatch.STRICT).admits("")


def test_names_of_strategies_are_read_without_regard_to_case() -> None:
    assert VersionMatch("currentOrOlder") is VersionMatch.CURRENT_OR_OLDER
    assert VersionFailure("FAIL") is VersionFailure.FAIL
    with pytest.raises(ValueError, match="Newest"):
        VersionMatch("Newest")
