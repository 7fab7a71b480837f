"""The signals that ask to stop, which onebox and its worker processes obey from their first line on."""

import os
import signal
from collections.abc import Iterator


def stop_signals() -> Iterator[signal.Signals]:
    """Yield what asks to stop; SIGHUP, a terminal that is closed, unless `nohup` has it ignored."""
    yield signal.SIGINT
    yield signal.SIGTERM
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        yield signal.SIGHUP


def end_when_asked() -> None:
    """End with 0 at a signal, until the event loop takes signals: nothing is under way before."""
    for number in stop_signals():
        signal.signal(number, lambda *_: os._exit(0))
