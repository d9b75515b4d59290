"""The collector of cycles, in a process whose models are most of its objects.

Libraries and models are 400,000 objects. To look through all of them takes 0.4 s, in which no
other thread runs, and whoever sends a body of many lists has it done: so they are set aside
as they are loaded (`gc.freeze`). What is set aside is never freed by the collector, and a
model's modules refer to each other: when a role is removed, all of it is looked through again. It
is set aside anew only a while later: a call that is ending holds the model still, in a cycle of its
own, which would never be found.

What lives for as long as a call takes is most of the rest. With Python's own thresholds a busy node
promotes it before it dies, and so looks through the 250,000 objects of its sessions every other
second, 0.15 s each time; with these it looks at what is young, in which it dies, for 40 ms at most.
What outlived that is looked through when no session is left (`free_ended`), which is 3,000 objects.
"""

from __future__ import annotations

import asyncio
import gc
import threading

THRESHOLDS = (10_000, 3, 500)
"""Objects made more than freed before the young are looked through, and how many passes of each
generation before the next one's; see `gc.set_threshold`. At 1 us an object a pass takes 10 ms, one
with what outlived the last three 40 ms, and the garbage of 40,000 objects waits for it at most. The
third generation's turn comes by itself where sessions are open for an hour of full load."""
ENDED_PASSES = 20
"""Of the second generation, after which there may be garbage in the third."""
ENDED_SECONDS = 10.0
"""In which what was under way with a removed model has ended."""

_aside = threading.Event()
"""Whether something is set aside: to count it takes a look at each, 0.1 s."""


def set_aside() -> None:
    """Keeps the collector from what lives now, until `free_removed`, and has it look rarely.

    At once: nobody looks for garbage in it. Modules leave 30 objects of 80,000 to free.
    """
    gc.freeze()
    _aside.set()
    gc.set_threshold(*THRESHOLDS)


def free_ended() -> None:
    """Looks through all that is not set aside, if it is time; for when that is little."""
    if gc.get_count()[2] >= ENDED_PASSES:
        gc.collect()


def set_loaded_aside() -> None:
    """Keeps the collector from what was loaded since `set_aside`; nothing where that was not.

    At once, for nobody looks for garbage in it: the next removal finds what there is.
    """
    if _aside.is_set():
        gc.freeze()


async def free_removed() -> None:
    """Frees what nothing refers to any more, of what was set aside too; that is again, later."""
    loop = asyncio.get_running_loop()
    if await asyncio.to_thread(_free):
        loop.call_later(ENDED_SECONDS, loop.run_in_executor, None, _set_ended_aside)


def _set_ended_aside() -> None:
    gc.collect()
    set_aside()


def _free() -> bool:
    """Whether something was set aside."""
    was_set_aside = _aside.is_set()
    if was_set_aside:
        _aside.clear()
        # What a program around the node has set aside stays so.
        gc.unfreeze()
    gc.collect()
    return was_set_aside
