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


def test_a_terminal_gets_colour() -> None:
    record = logging.LogRecord("x", logging.ERROR, "x", 1, "broken", None, None)
    assert "\x1b[31mERROR: broken\x1b[0m" in LineFormatter(colour=True).format(record)
    assert "\x1b" not in LineFormatter(colour=False).format(record)
