"""The codecs that there are: one for keys and one for values under each name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kakeya_fleet.engine.codecs.grid_codec import Axis, GridCodec
from kakeya_fleet.engine.codecs.kv_codec import KvCodec
from kakeya_fleet.engine.codecs.lattice_codec import LatticeCodec
from kakeya_fleet.engine.codecs.lattices import d4, e8
from kakeya_fleet.engine.codecs.lossless import Lossless
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import TILE

if TYPE_CHECKING:
    from kakeya_fleet.engine.codecs.lattices import Lattice


def _rotated(bits: int) -> KvCodec:
    """Hadamard, then a grid a position."""
    name = f"int{bits}"
    codec = GridCodec(name, bits, Axis.TOKEN, group=TILE, rotates=True)
    return KvCodec(name, codec, codec)


def _kivi(bits: int, group: int = 32) -> KvCodec:
    """KIVI (arXiv 2402.02750): keys by channel, values by position, groups of 32."""
    name = f"kivi{bits}"
    return KvCodec(
        name,
        GridCodec(name, bits, Axis.CHANNEL, group),
        GridCodec(name, bits, Axis.TOKEN, group),
    )


def _kvarn(bits: int, value_bits: int | None = None) -> KvCodec:
    """KVarN (arXiv 2606.03458): rotated and balanced; keys by channel, values by position.

    Values may have fewer bits than keys: attention sums many of them, and each key picks some.
    """
    name, of_values = f"kvarn{bits}", bits if value_bits is None else value_bits
    return KvCodec(
        name if value_bits is None else f"{name}v{value_bits}",
        GridCodec(name, bits, Axis.CHANNEL, TILE, rotates=True, balances=True),
        GridCodec(f"kvarn{of_values}", of_values, Axis.TOKEN, 1 << 16, rotates=True, balances=True),
    )


def _lattice(lattice: Lattice, kind: str, bits: int) -> KvCodec:
    """Points of D4 or E8 (KakeyaLattice), of about so many bits a number."""
    name = f"{kind}-{bits}"
    codec = LatticeCodec(name, lattice)
    return KvCodec(name, codec, codec)


_REACH = {4: 8, 3: 4, 2: 2}
"""Of lattices, by bits: 2 * reach + 1 is just above 2**bits."""
_LOSSLESS = KvCodec("lossless", Lossless(), Lossless())
CODECS = {
    each.name: each
    for each in (
        _LOSSLESS,
        *map(_rotated, (8, 4)),
        *map(_kivi, (4, 3, 2)),
        *(_kvarn(*bits) for bits in ((4,), (4, 3), (3,), (3, 2), (2,))),
        *(_lattice(d4(reach), "d4", bits) for bits, reach in _REACH.items()),
        *(_lattice(e8(reach), "e8", bits) for bits, reach in _REACH.items()),
    )
}
"""By name, from most bits to fewest in each family."""


def codec_named(name: str) -> KvCodec:
    """Raises `CodecRefused` with the names that there are."""
    if name not in CODECS:
        raise CodecRefused(f"no codec {name!r}; there are {', '.join(CODECS)}")
    return CODECS[name]
