import pytest

from kakeya_fleet.node.config.config import build
from kakeya_fleet.node.config.ports import NEIGHBOURS, passed_over, ports_to_try
from kakeya_fleet.node.errors import BadConfig

USUAL = 7600
NEAR = tuple(range(USUAL, USUAL + NEIGHBOURS))


@pytest.mark.parametrize(
    ("asked", "last", "tried"),
    [
        # One that is named is had, or the start fails.
        (7650, 7601, (7650,)),
        (0, 0, (0,)),
        (0, 7601, (7601, 0)),
        (None, 0, (*NEAR, 0)),
        (None, 9, (9, *NEAR, 0)),
        # None is tried twice.
        (None, 7601, (7601, *(port for port in NEAR if port != 7601), 0)),
    ],
)
def test_which_ports_are_tried_in_which_order(
    asked: int | None, last: int, tried: tuple[int, ...]
) -> None:
    assert ports_to_try(asked, last, USUAL) == tried


def test_which_ports_were_taken() -> None:
    assert passed_over((9, 7600, 7601, 0), 7601) == (9, 7600)
    assert passed_over((7600, 7601, 0), 7600) == ()
    # Any free one was had: all before it were taken.
    assert passed_over((7600, 7601, 0), 40123) == (7600, 7601)


@pytest.mark.parametrize("key", ["bind", "http_bind"])
def test_a_port_may_be_left_open_of_every_host(key: str) -> None:
    for host in ("127.0.0.1", "[::1]", "0.0.0.0"):
        config = build({key: f"{host}:auto", "insecure": True}, {})
        address = config.bind_address if key == "bind" else config.http_address
        assert address == (host.strip("[]"), None)
    for wrong in (":auto", "auto", "127.0.0.1:any"):
        with pytest.raises(BadConfig) as caught:
            build({key: wrong}, {})
        assert caught.value.metadata["key"] == key
    with pytest.raises(BadConfig):
        build({"peers": ["127.0.0.1:auto"]}, {})
