import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from textwrap import dedent

from docs.published import published
from scripts.processes import ROOT
from tests.support.commands import ran

_FENCE = re.compile(r"^ *(`{3,}) *([^\n]*)\n(.*?)^ *\1 *$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_MARKUP = re.compile(r"[`*]|\[([^\]]*)\]\([^)]*\)")
_NO_PART_OF_A_SLUG = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        document: The name of its document, from the root.
        line: Where it begins, from 1.
        language: The first word behind the fence.
        marks: What stands behind it: `needs=az` is {"needs": "az"}.
        text: What is inside.
    """

    document: str
    line: int
    language: str
    marks: dict[str, str]
    text: str

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    def commands(self) -> list[str]:
        """Its lines without comments and blank ones."""
        lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in self.text.splitlines())
        return [line for line in lines if line]


@dataclass(frozen=True)
class Document:
    """One page; `name` is its path from the root."""

    name: str

    @property
    def path(self) -> Path:
        return ROOT / self.name

    @cached_property
    def text(self) -> str:
        """As the site publishes it."""
        text = self.path.read_text(encoding="utf-8")
        return published(self.name.removeprefix("docs/").removesuffix(".md"), text)

    @cached_property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return _FENCE.sub("", self.text)

    def links(self) -> list[str]:
        """Targets of the links that stay in the repository, with their anchors."""
        targets = _LINK.findall(_CODE.sub("", self.prose))
        return [target for target in targets if "://" not in target and not target.startswith("mailto:")]

    def anchors(self) -> set[str]:
        """What links to headings may end in, as GitHub makes it."""
        found: dict[str, int] = {}
        for heading in _HEADING.findall(self.prose):
            plain = _MARKUP.sub(r"\1", heading).strip().lower()
            slug = _NO_PART_OF_A_SLUG.sub("", plain).replace(" ", "-")
            found[slug] = found.get(slug, 0) + 1
        return {
            slug if number == 0 else f"{slug}-{number}" for slug, n in found.items() for number in range(n)
        }

    def blocks(self, *languages: str) -> Iterator[Block]:
        """Its fenced blocks of some languages."""
        for match in _FENCE.finditer(self.text):
            language, *marks = match[2].split() or [""]
            if language in languages:
                options = dict(mark.partition("=")[::2] for mark in marks)
                line = self.text.count("\n", 0, match.start()) + 1
                yield Block(self.name, line, language, options, dedent(match[3]))


@cache
def documents() -> tuple[Document, ...]:
    """Every page that the repository has or is about to have."""
    listed = ran(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], check=True)
    return tuple(Document(name) for name in sorted(listed.stdout.splitlines()) if (ROOT / name).exists())


def blocks(*languages: str) -> list[Block]:
    """The fenced blocks of all documents."""
    return [block for document in documents() for block in document.blocks(*languages)]


def readme_curl() -> str:
    """The first command in the README that calls the app."""
    found = Document("README.md").blocks("sh")
    return next(block.text for block in found if block.text.startswith("curl"))
