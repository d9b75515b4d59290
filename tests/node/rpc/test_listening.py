import socket

import pytest

from kakeya_fleet.node.config.ports import NEIGHBOURS
from kakeya_fleet.node.errors import PortInUse
from kakeya_fleet.node.rpc import listening
from kakeya_fleet.node.rpc.free_port import first_free
from kakeya_fleet.node.rpc.listening import listen, make_server


async def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"127\.0\.0\.1:{port}.*--bind") as caught:
            listen(make_server(), "127.0.0.1", port, 0)
        assert caught.value.metadata["port"] == str(port)


async def test_two_servers_never_share_a_port() -> None:
    first = make_server()
    port = listen(first, "127.0.0.1", 0, 0)
    await first.start()
    with pytest.raises(PortInUse):
        listen(make_server(), "127.0.0.1", port, 0)
    await first.stop(None)


async def test_the_last_port_is_taken_again_when_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert listen(make_server(), "127.0.0.1", 0, port) != port
    assert listen(make_server(), "127.0.0.1", 0, port) == port


async def test_where_nobody_names_a_port_it_is_the_usual_one_or_one_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, socket.socket() as held:
        taken = other.getsockname()[1]
        monkeypatch.setattr(listening, "GRPC_PORT", taken)
        assert taken < listen(make_server(), "127.0.0.1", None, 0) < taken + NEIGHBOURS
        # That of the last run before all others.
        held.bind(("127.0.0.1", 0))
        last = held.getsockname()[1]
        held.close()
        assert listen(make_server(), "127.0.0.1", None, last) == last


def test_the_first_port_that_is_free_is_found_and_any_where_none_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert first_free("127.0.0.1", [port, 0]) == 0
        assert first_free("127.0.0.1", [port]) == 0
    assert first_free("127.0.0.1", [port, 0]) == port


async def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(PortInUse, match=r"192\.0\.2\.77"):
        listen(make_server(), "192.0.2.77", 0, 0)
