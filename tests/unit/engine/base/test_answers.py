from dataclasses import dataclass

import pytest
from pydantic import ValidationError

from durable_retry.engine.base.answers import Answer


class Shown(Answer):
    name: str
    count: int
    note: str | None = None


@dataclass
class Kept:
    name: str
    secret: str = "s"


def test_an_answer_takes_the_members_that_a_record_has_and_what_is_given_beside_it() -> None:
    assert Shown.taken_from(Kept("a"), count=2).to_json() == {"name": "a", "count": 2, "note": None}
    assert Shown.taken_from(Kept("a"), count=2, name="b").name == "b"


def test_a_member_that_neither_has_is_refused() -> None:
    with pytest.raises(ValidationError, match="count"):
        Shown.taken_from(Kept("a"))
