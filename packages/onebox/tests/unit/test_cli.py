import pytest

from onebox.cli import build_parser


@pytest.mark.parametrize(
    ("arguments", "choices"),
    [
        (["keys", "add", "pager", "--role", "boss"], "reader"),
        (["start", "--storage-ports", "nope"], "fixed"),
    ],
)
def test_a_word_that_is_none_to_choose_from_is_answered_with_those(
    arguments: list[str], choices: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        build_parser().parse_args(arguments)
    assert choices in capsys.readouterr().err.partition("choose from")[2]
