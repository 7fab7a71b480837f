"""What an archive holds, and how an entity's state is kept."""

import pytest

from onebox.hub.archive import Parts, pack, packed_state, unpack, unpacked_state


@pytest.mark.parametrize(
    "parts",
    [
        Parts(b"", None, None, None),
        Parts(b"history", "", None, '{"a": "é"}'),
        Parts(b"\0" * 5000, "in", "out", ""),
    ],
)
def test_what_is_packed_is_unpacked(parts: Parts) -> None:
    assert unpack(pack(parts)) == parts


@pytest.mark.parametrize("state", [None, "", "{}", "é" * 600, "x" * 5000])
def test_an_entitys_state_is_read_as_it_was_written(state: str | None) -> None:
    assert unpacked_state(packed_state(state)) == state


def test_a_long_state_of_an_entity_is_packed() -> None:
    stored = packed_state("x" * 5000)
    assert isinstance(stored, bytes)
    assert len(stored) < 100
