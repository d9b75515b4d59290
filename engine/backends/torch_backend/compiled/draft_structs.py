"""The structs of `drafter.h` for ctypes, field by field, and what its library is made of."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p

from kakeya_fleet.engine.backends.torch_backend.compiled.library import HEADERS, Recipe
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import Matrix, declare_workers


class DraftLayer(Structure):
    """A drafter's layer."""

    _fields_ = (
        ("joint", Matrix),
        ("output", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("attention_deltas", Matrix),
        ("mlp_deltas", Matrix),
        ("attention_base", c_void_p),
        ("mlp_base", c_void_p),
        ("input_norm", c_void_p),
        ("middle_norm", c_void_p),
        ("head_norm", c_void_p),
        ("is_causal", c_int32),
        ("window", c_int32),
    )


class Drafter(Structure):
    """All layers, and the norm behind them."""

    _fields_ = (
        ("layers", c_int32),
        ("hidden", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_size", c_int32),
        ("inner", c_int32),
        ("taps", c_int32),
        ("group_size", c_int32),
        ("epsilon", c_float),
        ("layer", POINTER(DraftLayer)),
        ("last_norm", c_void_p),
    )


class DraftBlock(Structure):
    """A block's rows, and the slots that they attend to."""

    _fields_ = (
        ("rows", c_int32),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("slots", c_void_p),
        ("slot_count", c_int64),
        ("first", c_int64),
        ("begin", c_int64),
        ("hidden", c_void_p),
    )


def _declare(library: ctypes.CDLL) -> None:
    declare_workers(library)
    library.kakeya_draft.argtypes = (c_void_p, POINTER(Drafter), POINTER(DraftBlock), c_int32)
    library.kakeya_draft.restype = None
    library.kakeya_candidates.argtypes = (
        c_void_p,
        POINTER(Matrix),
        c_void_p,
        c_int32,
        c_int32,
        c_void_p,
        c_void_p,
        c_int32,
    )
    library.kakeya_candidates.restype = None


DRAFTER = Recipe("drafter", ("drafter.cpp", "drafter.h", *HEADERS), 1, _declare)
