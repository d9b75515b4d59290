"""A node looks at the machine's addresses, and goes on where it cannot."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tests.node.conftest import StartAgent


async def test_a_node_without_a_file_to_open_looks_again(
    start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it saw before the files were gone is acted on at the next look."""
    moves = (await start_agent()).node.control.moves
    rerouted: list[bool] = []

    async def reroute() -> None:
        rerouted.append(True)

    monkeypatch.setattr(moves._peers, "reroute", reroute)

    def failing(number: int) -> Callable[[], bool]:
        def look() -> bool:
            raise OSError(number, "no file")

        return look

    await moves.look()
    rerouted.clear()
    with monkeypatch.context() as without:
        without.setattr(moves._surroundings, "look", lambda: True)
        without.setattr(moves._own, "look", failing(errno.EMFILE))
        await moves.look()
        without.setattr(moves._surroundings, "look", failing(errno.ENFILE))
        await moves.look()
        without.setattr(moves._surroundings, "look", failing(errno.EIO))
        with pytest.raises(OSError, match="no file"):
            await moves.look()
    assert not rerouted
    await moves.look()
    assert rerouted == [True]
    await moves.look()
    assert rerouted == [True]
