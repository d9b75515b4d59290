"""Codecs as the library takes them."""

from __future__ import annotations

from kakeya_fleet.engine.backends.torch_backend.compiled.structs import Grid, PackedSegments
from kakeya_fleet.engine.codecs.grid_codec import Axis, GridCodec
from kakeya_fleet.engine.codecs.hadamard import rotation_block
from kakeya_fleet.engine.codecs.kv_codec import KvCodec
from kakeya_fleet.engine.codecs.tile import Codec

LANES = 16
"""Numbers of which the library takes multiples: channels of a head, and of a grid."""
MOST_HEAD = 512
"""Channels of the largest heads that it attends to as they are packed."""


def grid_of(codec: Codec, head_dim: int, *, narrow: bool) -> Grid | None:
    """How it packs tiles of such heads; None for what the library does not know."""
    if not isinstance(codec, GridCodec):
        return None
    group = codec.group_size(head_dim)
    if head_dim % LANES or group % LANES:
        return None
    return Grid(
        head_size=head_dim,
        bits=codec.bits,
        group=group,
        rotation=rotation_block(head_dim) if codec.rotates else 0,
        is_by_channel=codec.axis is Axis.CHANNEL,
        balances=codec.balances,
        is_narrow=narrow,
    )


def packed_segments(codec: KvCodec, head_dim: int) -> PackedSegments | None:
    """Segments that it packs, none of them yet; None where the library cannot attend to them.

    It does to keys by channel and values by position.
    """
    keys, values = (grid_of(each, head_dim, narrow=False) for each in (codec.keys, codec.values))
    if keys is None or values is None or not keys.is_by_channel or values.is_by_channel:
        return None
    if head_dim > MOST_HEAD:
        return None
    return PackedSegments(
        keys=keys,
        values=values,
        key_bytes=codec.keys.tile_bytes(head_dim),
        tile_bytes=codec.tile_bytes(head_dim),
    )
