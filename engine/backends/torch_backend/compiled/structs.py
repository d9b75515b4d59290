"""The structs of `decoder.h` for ctypes, field by field."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p

PANEL = 32
"""Columns of a panel of weights."""
FLOAT32, BFLOAT16, INT8, INT4, PAIRS, INT2, FINE_INT8, FINE_INT4 = 0, 1, 2, 3, 4, 5, 6, 7
"""Formats of numbers in memory: PAIRS are bfloat16 with inputs rounded to such,
FINE ones whole numbers with inputs of fifteen bits."""
PROJECT, ATTEND, FINISH = 1, 2, 4
"""Phases of a layer."""
WHOLE = PROJECT | ATTEND | FINISH
VERSION = 10
"""Of these structs; `kakeya_version` tells that of the library."""


class Matrix(Structure):
    """Weights in panels."""

    _fields_ = (
        ("panels", c_void_p),
        ("bias", c_void_p),
        ("inputs", c_int32),
        ("columns", c_int32),
        ("format", c_int32),
    )


class Layer(Structure):
    """A decoder layer."""

    _fields_ = (
        ("joint", Matrix),
        ("output", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("input_norm", c_void_p),
        ("middle_norm", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
    )


class Model(Structure):
    """A decoder and its head."""

    _fields_ = (
        ("layers", c_int32),
        ("hidden", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_size", c_int32),
        ("inner", c_int32),
        ("cache_format", c_int32),
        ("epsilon", c_float),
        ("scaling", c_float),
        ("layer", POINTER(Layer)),
        ("last_norm", c_void_p),
        ("head", Matrix),
    )


class Preview(Structure):
    """A head in few bits, which tells where logits are computed."""

    _fields_ = (("large", Matrix), ("rest", Matrix), ("order", c_void_p), ("kept", c_int32))


class Segment(Structure):
    """Key slots of one segment of a cache."""

    _fields_ = (("numbers", c_void_p), ("slots", c_int32))


class Grid(Structure):
    """How a grid packed tiles."""

    _fields_ = (
        ("head_size", c_int32),
        ("bits", c_int32),
        ("group", c_int32),
        ("rotation", c_int32),
        ("is_by_channel", c_int32),
        ("balances", c_int32),
        ("is_narrow", c_int32),
    )


class PackedSegments(Structure):
    """One group's segments of packed tiles."""

    _fields_ = (
        ("keys", Grid),
        ("values", Grid),
        ("segments", POINTER(Segment)),
        ("segment_count", c_int32),
        ("key_bytes", c_int64),
        ("tile_bytes", c_int64),
    )


class Store(Structure):
    """One group of layers of a cache."""

    _fields_ = (
        ("segments", POINTER(Segment)),
        ("segment_count", c_int32),
        ("layers", c_int32),
        ("origin", c_int64),
        ("sink", c_int64),
        ("window", c_int64),
        ("ring", c_int64),
        ("reach", c_int64),
        ("tile", c_int64),
        ("packed", POINTER(PackedSegments)),
    )


class Feed(Structure):
    """One session's rows."""

    _fields_ = (
        ("stores", POINTER(Store)),
        ("first_row", c_int32),
        ("rows", c_int32),
        ("position", c_int64),
    )


class Batch(Structure):
    """The rows of a forward, and the memory that it computes in."""

    _fields_ = (
        ("feeds", POINTER(Feed)),
        ("feed_count", c_int32),
        ("rows", c_int32),
        ("group_of_layer", POINTER(c_int32)),
        ("place_of_layer", POINTER(c_int32)),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("hidden", c_void_p),
        ("normed", c_void_p),
        ("joint", c_void_p),
        ("mixed", c_void_p),
        ("totals", c_void_p),
        ("maxima", c_void_p),
        ("inner", c_void_p),
        ("tap_of_layer", POINTER(c_int32)),
        ("taps", c_int32),
        ("tapped", c_void_p),
    )


class Read(Structure):
    """Rows that attend to one layer's segments, packed or not."""

    _fields_ = (
        ("packed", POINTER(PackedSegments)),
        ("segments", POINTER(Segment)),
        ("values", POINTER(c_void_p)),
        ("segment_count", c_int32),
        ("head_size", c_int32),
        ("format", c_int32),
        ("kv_heads", c_int32),
        ("groups", c_int32),
        ("queries", c_int32),
        ("scaling", c_float),
        ("rows", c_void_p),
        ("firsts", c_void_p),
        ("ends", c_void_p),
        ("mixed", c_void_p),
        ("totals", c_void_p),
        ("maxima", c_void_p),
    )


def declare_workers(library: ctypes.CDLL) -> None:
    """Says what the functions take that every library has."""
    library.kakeya_version.restype = c_int32
    library.kakeya_workers.restype = c_void_p
    library.kakeya_free_workers.argtypes = (c_void_p,)
    library.kakeya_free_workers.restype = None


def declare(library: ctypes.CDLL) -> None:
    """Says what the functions of the decoder's `library` take."""
    declare_workers(library)
    library.kakeya_layers.argtypes = (
        c_void_p,
        POINTER(Model),
        POINTER(Batch),
        c_int32,
        c_int32,
        c_int32,
        c_int32,
    )
    library.kakeya_logits.argtypes = (
        c_void_p,
        POINTER(Model),
        POINTER(Preview),
        POINTER(Batch),
        POINTER(c_int32),
        c_int32,
        c_void_p,
        c_int32,
    )
    library.kakeya_product.argtypes = (
        c_void_p,
        POINTER(Matrix),
        c_void_p,
        c_int32,
        c_void_p,
        c_int32,
    )
    library.kakeya_rows.argtypes = (POINTER(Matrix), POINTER(c_int64), c_int64, c_void_p)
    library.kakeya_unpack.argtypes = (
        c_void_p,
        POINTER(Grid),
        c_void_p,
        c_int64,
        c_int64,
        c_void_p,
        c_int32,
    )
    library.kakeya_pack.argtypes = (
        c_void_p,
        POINTER(Grid),
        c_void_p,
        c_int64,
        c_void_p,
        c_int64,
        c_int32,
    )
    library.kakeya_pack.restype = c_int32
    library.kakeya_attend.argtypes = (c_void_p, POINTER(Read), c_int32)
    for name in (
        "kakeya_attend",
        "kakeya_layers",
        "kakeya_logits",
        "kakeya_product",
        "kakeya_rows",
        "kakeya_unpack",
    ):
        getattr(library, name).restype = None
