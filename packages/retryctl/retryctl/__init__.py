"""The command line of Durable Retry, a client of its HTTP API."""

from typing import Final

__version__: Final = "0.1.0"
