"""Words that a search looks for."""

import re
from typing import Final


def mentions(words: str, *texts: str | None) -> bool:
    """Return whether each word stands in one of the texts, as a part of it and in whatever case."""
    text = "\n".join(filter(None, texts)).casefold()
    return all(word in text for word in words.casefold().split())


def may_mention(words: str, json_text: str, *texts: str) -> bool:
    """Return False when at least one word is certainly in neither a JSON text nor the other texts.

    It costs far less than parsing the JSON text. Names of fields count as text, so True may be wrong.
    """
    return _PLAIN.fullmatch(words) is None or mentions(words, json_text, *texts)


_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*")
"""What JSON writes as it is."""
