"""The console: what people look at. The core never imports it; an app can leave it out."""

from typing import Final

__version__: Final = "0.1.0"
