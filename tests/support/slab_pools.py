"""What a pool of slabs keeps for later."""

from typing import Any

from kakeya_fleet.engine.memory.slab_pool import SlabPool


def spare_bytes(pool: SlabPool[Any]) -> int:
    """Bytes of slabs given back and kept."""
    kept = sum(slab.nbytes for spares in pool._spares.values() for slab in spares)
    assert kept == pool._spare_bytes
    return kept
