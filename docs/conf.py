"""The documentation's site: `make docs` builds it into `.site/`; every warning fails the build."""

import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

project = "Durable Retry"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md"]  # `index.md` has its text.
html_theme = "furo"
html_title = project
html_show_copyright = False
myst_heading_anchors = 4
# Links to files of the repository are not pages of the site; tests/unit/test_documents.py checks them.
suppress_warnings = ["myst.xref_missing"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autoclass_content = "class"
napoleon_numpy_docstring = False
default_role = "code"

_SECTIONS = ("Args:", "Attributes:", "Raises:", "Returns:", "Yields:")


def _mark_examples(
    _app: object, _what: str, _name: str, _item: object, _options: object, lines: list[str]
) -> None:
    """Make the indented examples of a docstring code blocks."""
    end = next((at for at, line in enumerate(lines) if line.strip() in _SECTIONS), len(lines))
    for at in reversed(range(1, end)):
        if lines[at].startswith("    ") and not lines[at - 1].strip() and not _continues(lines[:at]):
            lines[at:at] = [".. code-block:: python", ""]


def _continues(before: list[str]) -> bool:
    """Whether an indented line after an empty one goes on with the example before."""
    last = next((line for line in reversed(before) if line.strip()), "")
    return last.startswith("    ")


def setup(app: Sphinx) -> None:
    """Add what Markdown and docstrings here have and Sphinx does not know."""
    app.connect("autodoc-process-docstring", _mark_examples, priority=400)
    # The site shows the diagrams' source: drawing them takes a script of a foreign host.
    app.add_lexer("mermaid", TextLexer)
