"""The documentation's site: `make docs` builds it into `.site/`; every warning fails the build."""

import re
import shutil
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.published import MADE, contents_below, is_in_sidebar, published  # noqa: E402 # from the folder above

project = "Durable Retry"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["README.md"]  # It is the index of a reader of the repository; `index.md` is the site's.
html_theme = "furo"
html_title = project
html_show_copyright = False
html_copy_source = False  # Each page's Markdown is written beside its HTML.
myst_heading_anchors = 4
html_static_path = ["_static"]
html_css_files = ["site.css"]
myst_enable_extensions = ["attrs_inline", "attrs_block"]  # pictures for light and for dark pages; the doors
copybutton_exclude = ".linenos, .gp, .go"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autoclass_content = "class"
napoleon_numpy_docstring = False
default_role = "code"

MERMAID = ROOT / ".site-tools" / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"
"""Draws the diagrams. `make docs` installs it; a site that is only checked does without."""

_SUMMARY = (
    "Durable Retry repeats calls to other services from an Azure Functions app in Python until they succeed"
    " or a person must decide, through crashes and deployments, and shows the reason of every wait."
)
_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")
_DRAW = """
document.querySelectorAll("div.highlight-mermaid").forEach((block) => {
  const drawing = document.createElement("pre");
  drawing.className = "mermaid";
  drawing.textContent = block.textContent;
  block.replaceWith(drawing);
});
const isDark = document.body.dataset.theme === "dark" || matchMedia("(prefers-color-scheme: dark)").matches;
mermaid.initialize({ theme: isDark ? "dark" : "neutral" });
"""
_DESCRIBED = re.compile(r".*?\b(Flow|Pages)\[(.+)\]")
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


def _show_results(
    _app: object, what: str, _name: str, _item: object, _options: object, signature: str, returned: str | None
) -> tuple[str, str | None] | None:
    """Show what a call of the client returns in place of the flow that describes it."""
    found = _DESCRIBED.fullmatch(returned or "")
    if what != "method" or found is None:
        return None
    return signature, f"Iterator[{found[2]}]" if found[1] == "Pages" else found[2]


def _lead_out_of_the_site(app: Sphinx, name: str, source: list[str]) -> None:
    """Let links to files beside `docs/` lead to the repository, and complete the page."""
    folder = Path(app.srcdir, name).parent

    def led(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(ROOT / "docs") and target != ROOT / "docs" / "README.md":
            return link[0]
        # In HTML, since Markdown refuses the addresses of files, to which a site that is not published leads.
        text = re.sub(r"`([^`]*)`", r"<code>\1</code>", link[1])
        return f'<a href="{app.config.source_url}/{target.relative_to(ROOT)}{link[3] or ""}">{text}</a>'

    source[0] = published(name, source[0])
    _write(app, f"{name}.md", source[0])
    head = "" if is_in_sidebar(name) else "---\norphan: true\n---\n\n"
    source[0] = head + _LINK.sub(led, source[0]) + contents_below(name)


def _list_for_programs(app: Sphinx, error: Exception | None) -> None:
    """Write llms.txt (llmstxt.org): the Markdown of every page in the sidebar's order, then the decisions."""
    if error is not None:
        return
    env = app.env
    lines = [f"# {project}", "", f"> {_SUMMARY}"]
    for shelf in env.get_doctree("index").findall(addnodes.toctree):
        names = [name for _, name in shelf["entries"]]
        pages = [page for name in names for page in (name, *env.toctree_includes.get(name, ()))]
        lines += ["", f"## {shelf['caption']}", ""]
        lines += [f"- [{env.titles[name].astext()}]({name}.md)" for name in pages]
    decisions = sorted(name for name in env.titles if not is_in_sidebar(name))
    lines += [f"- [{env.titles[name].astext()}]({name}.md)" for name in decisions]
    _write(app, "llms.txt", "\n".join(lines) + "\n")


def _write(app: Sphinx, name: str, text: str) -> None:
    path = Path(app.outdir, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _bring_mermaid(app: Sphinx, error: Exception | None) -> None:
    if error is None and MERMAID.exists():
        shutil.copy(MERMAID, Path(app.outdir, "_static", "mermaid.js"))


def setup(app: Sphinx) -> None:
    """Add what Markdown and docstrings here have and Sphinx does not know."""
    app.connect("autodoc-process-docstring", _mark_examples, priority=400)
    app.connect("autodoc-process-signature", _show_results)
    # Links to files beside `docs/` lead here: `-D source_url=https://...` for a site that is published.
    app.add_config_value("source_url", ROOT.as_uri(), "html")
    app.connect("source-read", _lead_out_of_the_site)
    app.connect("env-get-outdated", lambda *_: list(MADE))
    app.connect("build-finished", _list_for_programs)
    app.add_lexer("mermaid", TextLexer)
    if MERMAID.exists():
        app.connect("build-finished", _bring_mermaid)
        app.add_js_file("mermaid.js", priority=900)
        app.add_js_file(None, body=_DRAW, priority=901)
