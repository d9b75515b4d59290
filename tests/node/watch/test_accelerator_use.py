"""How busy the accelerator is: whatever its driver does, nobody waits for it."""

from __future__ import annotations

import threading

from kakeya_fleet.node.watch.accelerator_use import STALE_SECONDS, AcceleratorUse
from tests.support.calls import until


async def test_it_is_read_in_another_thread_and_told_at_the_next_look() -> None:
    readers: list[int] = []

    def read() -> float:
        readers.append(threading.get_ident())
        return 0.25

    use = AcceleratorUse(read)
    assert use.look() is None
    await until(lambda: use.look() == 0.25)
    use.close()
    assert threading.get_ident() not in readers
    assert len(set(readers)) == 1


async def test_a_driver_that_hangs_holds_up_nobody_and_is_told_no_more() -> None:
    now = 100.0
    hangs, begun = threading.Event(), threading.Event()

    def read() -> float:
        if begun.is_set():
            hangs.wait()
        begun.set()
        return 1.0

    use = AcceleratorUse(read, lambda: now)
    await until(lambda: use.look() == 1.0)
    now += STALE_SECONDS
    assert use.look() is None
    use.close()
    hangs.set()


def test_without_an_accelerator_there_is_no_thread() -> None:
    before = threading.active_count()
    use = AcceleratorUse(None)
    assert use.look() is None
    assert threading.active_count() == before
    use.close()
