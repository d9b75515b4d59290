from __future__ import annotations

import errno

import pytest

from kakeya_fleet.engine.memory import system_memory
from tests.node.conftest import StartAgent


async def test_a_node_without_a_file_to_open_tells_the_memory_that_it_read_last(
    start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = (await start_agent()).node.watch._report
    before = report.now().load.memory_free_bytes

    def fails(number: int) -> None:
        def read() -> int:
            raise OSError(number, "no file")

        monkeypatch.setattr(system_memory, "available_bytes", read)

    fails(errno.EMFILE)
    assert report.now().load.memory_free_bytes > 0
    assert report.levels().memory_free_bytes == report.now().load.memory_free_bytes
    fails(errno.EIO)
    with pytest.raises(OSError, match="no file"):
        report.now()
    monkeypatch.undo()
    assert before > 0
