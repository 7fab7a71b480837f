"""Environment variables that the command line reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; an empty one counts as not set.

    Attributes:
        name: Name in the environment.
        meaning: One sentence for a person.
        default: Value when it is not set; "" for none.
    """

    name: str
    meaning: str
    default: str = ""

    def get(self, environ: Mapping[str, str]) -> str:
        """Return the value, or the default."""
        return environ.get(self.name) or self.default


URL: Final = Variable("DURABLE_RETRY_URL", "Base URL of the app; `--url` wins.", "http://localhost:7071")
KEY: Final = Variable("DURABLE_RETRY_KEY", "Function key, if the app needs one; `--function-key` wins.")

VARIABLES: Final = (URL, KEY)
