"""The command `onebox`, also as `python -m onebox`."""

import sys

from onebox.signals import end_when_asked

_SERVING = {"start", "storage"}


def main() -> None:
    """Run a command; one that serves ends with 0 at a signal, also while it is imported."""
    if not _SERVING.isdisjoint(sys.argv[1:2]):
        end_when_asked()
    # It takes a second.
    from onebox.cli import main as run_command  # noqa: PLC0415

    run_command()


if __name__ == "__main__":
    main()
