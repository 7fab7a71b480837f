"""What stops onebox from starting."""


class CannotStartError(Exception):
    """Something the user has to change before onebox can serve; the message has a line per mistake."""
