"""Writes the file."""

from scripts.settings_reference.page import REFERENCE, reference


def main() -> None:
    """Write docs/settings.md anew."""
    REFERENCE.write_text(reference(), encoding="utf-8")
    print(f"wrote {REFERENCE}")


if __name__ == "__main__":
    main()
