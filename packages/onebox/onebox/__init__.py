"""Runs any Durable Functions 2.x Python app on one machine: no Functions host, no Docker, no cloud."""

__version__ = "0.1.0"


class CannotStartError(Exception):
    """Something the user has to change before onebox can serve; the message has a line per mistake."""


class HostEndedError(Exception):
    """onebox has ended by itself, where the Functions host does; the message says why."""
