"""The command `retryctl`, also as `python -m retryctl`."""

import sys


def main() -> int:
    """Run a command; Ctrl-C shows no stack trace while it is imported, either."""
    try:
        from retryctl.cli import main as run  # noqa: PLC0415

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
