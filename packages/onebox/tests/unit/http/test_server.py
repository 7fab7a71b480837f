import socket

import pytest

from onebox.http.server import base_url, bind


class Bound(socket.socket):
    """A socket that claims to be bound to an address which this machine need not have."""

    name: tuple[object, ...] = ()

    def getsockname(self) -> tuple[object, ...]:
        return self.name


@pytest.mark.parametrize(
    ("name", "url"),
    [
        (("127.0.0.1", 7071), "http://127.0.0.1:7071"),
        (("0.0.0.0", 80), "http://127.0.0.1:80"),  # noqa: S104 # an address to test with
        (("192.168.1.2", 1), "http://192.168.1.2:1"),
        (("::1", 7071, 0, 0), "http://[::1]:7071"),
        (("::", 7071, 0, 0), "http://[::1]:7071"),
        (("fe80::1%eth0", 7071, 0, 2), "http://[fe80::1%eth0]:7071"),
    ],
)
def test_the_url_is_one_that_this_machine_reaches(name: tuple[object, ...], url: str) -> None:
    with Bound() as listener:
        listener.name = name
        assert base_url(listener) == url


def test_port_0_takes_a_free_one() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert base_url(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
