"""Environment variables that onebox itself reads, beside those of the app that it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; an empty one counts as not set.

    Attributes:
        name: As the environment has it.
        meaning: For a person, one sentence.
        default: What holds when it is not set; "" when that is nothing.
    """

    name: str
    meaning: str
    default: str = ""

    def get(self, environ: Mapping[str, str]) -> str:
        """Return the value, or the default."""
        return environ.get(self.name) or self.default


STORAGE: Final = Variable(
    "AzureWebJobsStorage",
    "Connection string of the storage account; `UseDevelopmentStorage=true` uses or starts Azurite.",
)
SCRIPT: Final = Variable("PYTHON_SCRIPT_FILE_NAME", "The file that declares the app.", "function_app.py")
BLOB_PORT: Final = Variable("AZURITE_BLOB_PORT", "Azurite's port for blobs.", "10000")
QUEUE_PORT: Final = Variable("AZURITE_QUEUE_PORT", "Azurite's port for queues.", "10001")
TABLE_PORT: Final = Variable("AZURITE_TABLE_PORT", "Azurite's port for tables.", "10002")
BODY_LIMIT: Final = Variable(
    "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT", "The largest body of a request that is taken, in bytes.", "104857600"
)
CACHES: Final = Variable(
    "XDG_CACHE_HOME", "Where Azurite is installed once per user; `~/.cache` when it is not set."
)
NO_COLOR: Final = Variable("NO_COLOR", "Set to anything: the log has no colours (no-color.org).")

VARIABLES: Final = (STORAGE, SCRIPT, BLOB_PORT, QUEUE_PORT, TABLE_PORT, BODY_LIMIT, CACHES, NO_COLOR)
