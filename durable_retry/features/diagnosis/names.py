"""Names that histories see."""

from typing import Final

DIAGNOSIS: Final = "diagnosis"
DIAGNOSE: Final = "diagnose"
