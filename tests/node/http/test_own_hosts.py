import pytest

from kakeya_fleet.node.http.own_hosts import OwnHosts

HOSTS = OwnHosts(["127.0.0.1", "mini-1", "llm.example", ""])


@pytest.mark.parametrize(
    ("header", "reached_at", "allowed"),
    [
        ("127.0.0.1:7500", "127.0.0.1", True),
        ("localhost:7500", "127.0.0.1", True),
        ("LOCALHOST", "::1", True),
        ("app.localhost", "127.0.0.1", True),
        ("[::1]:7500", "::1", True),
        ("[::ffff:127.0.0.1]:7500", "127.0.0.1", False),
        ("10.0.0.5:7500", "10.0.0.5", True),
        ("10.0.0.5:7500", "::ffff:10.0.0.5", True),
        ("mini-1:7500", "10.0.0.5", True),
        ("llm.example.", "10.0.0.5", True),
        # A page's own name that it lets point here.
        ("evil.example:7500", "127.0.0.1", False),
        ("127.0.0.1.evil.example", "127.0.0.1", False),
        ("localhost.evil.example", "127.0.0.1", False),
        # Another machine's address, and the name of a loopback that was not reached.
        ("10.0.0.6", "10.0.0.5", False),
        ("localhost", "10.0.0.5", False),
        ("", "127.0.0.1", False),
        ("[::1", "127.0.0.1", False),
        ("user@localhost", "127.0.0.1", False),
    ],
)
def test_hosts(header: str, reached_at: str, allowed: bool) -> None:
    assert HOSTS.allows_host(header, reached_at) is allowed


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://127.0.0.1:7500", True),
        ("http://127.0.0.1:7501", False),
        ("http://evil.example", False),
        ("null", False),
        ("file://127.0.0.1:7500", False),
        ("", False),
    ],
)
def test_origins(origin: str, allowed: bool) -> None:
    assert HOSTS.allows_origin(origin, "127.0.0.1:7500") is allowed
