"""`python -m onebox start`."""

from onebox.cli import main

if __name__ == "__main__":
    main()
