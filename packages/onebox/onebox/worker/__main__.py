"""A worker process: `python -m onebox.worker`; see `onebox.worker.child`."""

import signal

from onebox.signals import stop_signals


def main() -> None:
    """Leave signals that ask to stop to the host, also while the worker is imported."""
    for number in stop_signals():
        # Not SIG_IGN, which programs that the app starts would inherit.
        signal.signal(number, lambda *_: None)
    # It takes a second.
    from onebox.worker.child import serve_host  # noqa: PLC0415

    serve_host()


if __name__ == "__main__":
    main()
