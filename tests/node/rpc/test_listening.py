import socket

import pytest

from kakeya_fleet.node.errors import PortInUse
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


async def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(PortInUse, match=r"192\.0\.2\.77"):
        listen(make_server(), "192.0.2.77", 0, 0)
