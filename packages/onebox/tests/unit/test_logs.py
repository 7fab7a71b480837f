import io
import logging
from collections.abc import Iterator

import pytest
from azure_functions_runtime import invocation_id_cv

from onebox.logs import LineFormatter, set_up_logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is logged; the root logger is left as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    set_up_logs(verbose=False, stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_has_the_instant_the_invocation_and_the_message(stream: io.StringIO) -> None:
    token = invocation_id_cv.set("1234567890")
    try:
        logging.getLogger("app").info("hello %s", "there")
    finally:
        invocation_id_cv.reset(token)
    line = stream.getvalue()
    assert line.startswith("[20")
    assert line.endswith("Z] 12345678 hello there\n")


def test_chatty_libraries_are_quiet_but_their_warnings_are_not(stream: io.StringIO) -> None:
    logging.getLogger("azure.core").info("a request")
    logging.getLogger("azure.core").warning("a problem")
    logging.getLogger("onebox.functions").debug("a turn")
    assert [line.partition("Z] ")[2] for line in stream.getvalue().splitlines()] == ["WARNING: a problem"]


FORGED = "[2026-01-01T00:00:00.000Z] forged"


@pytest.mark.parametrize(
    ("character", "text"),
    [
        ("\n", "\\n"),
        ("\r", "\\r"),
        ("\x1b", "\\x1b"),
        ("\x7f", "\\x7f"),
        ("\u2028", "\\u2028"),
        ("\u202e", "\\u202e"),
    ],
)
def test_a_control_character_is_escaped_wherever_it_comes_from(
    stream: io.StringIO, character: str, text: str
) -> None:
    logging.getLogger("onebox.functions").info("GET /api/x%s", character + FORGED)
    logging.getLogger("app").error("broken", exc_info=ValueError(character + FORGED))
    logging.getLogger("app").error("broken", extra={"frames": f"Traceback:\nKeyError: {character}{FORGED}"})
    lines = stream.getvalue().split("\n")
    assert f"GET /api/x{text}{FORGED}" in lines[0]
    assert not any(line.startswith(FORGED) for line in lines)
    assert character == "\n" or character not in stream.getvalue()


def test_what_can_be_read_stays(stream: io.StringIO) -> None:
    logging.getLogger("app").info("größer, 日本 and \\n")
    assert stream.getvalue().endswith("größer, 日本 and \\n\n")


def test_a_terminal_gets_colour() -> None:
    record = logging.LogRecord("x", logging.ERROR, "x", 1, "broken", None, None)
    assert "\x1b[31mERROR: broken\x1b[0m" in LineFormatter(colour=True).format(record)
    assert "\x1b" not in LineFormatter(colour=False).format(record)
