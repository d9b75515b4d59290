"""The collector of cycles, in a process whose models are most of its objects.

Libraries and models are 400,000 objects. To look through all of them takes 0.3 s, in which no
other thread runs, and whoever sends a body of many lists has it done: so they are set aside
once they are loaded (`gc.freeze`). What is set aside is never freed by the collector, and a
model's modules refer to each other: when a role is removed, all of it is looked through again.
"""

from __future__ import annotations

import gc


def set_aside() -> None:
    """Keeps the collector from what lives now, until `free_removed`."""
    gc.collect()
    gc.freeze()


def free_removed() -> None:
    """Frees what nothing refers to any more, of what was set aside too; that stays set aside."""
    was_set_aside = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()
    if was_set_aside:
        gc.freeze()
