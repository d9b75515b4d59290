"""The contract of evicted stores: they keep what left the window, and attend to it.

A `restored` cache keeps sink and window itself. Query i attends besides to the
evicted positions `sink <= j <= i - window`: to those the store computes
attention where they lie, and the two parts are merged by log-sum-exp (Milakov
and Gimelshein, 2018). What crosses to the store in a forward is one deposit and,
a layer, the queries; what comes back is one partial output a query, whatever
the length of the history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from kakeya_fleet.engine.contracts.features import ContextVectors, FeatureEncoder
from kakeya_fleet.engine.contracts.restorer_spec import RestorerSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float32]"
Raw: TypeAlias = "NDArray[np.float32] | NDArray[np.uint16] | NDArray[np.uint8]"
"""Numbers as they lie in the cache, float32 or bfloat16 as its 16 bits; or packed, as bytes."""

NOTHING_SEEN = -1e30
"""The maximum of a query that sees nothing: finite, below any score."""


@dataclass(frozen=True, slots=True)
class EvictedKeysValues:
    """Keys and values of n positions, as they lie in the cache or packed.

    One array for each group of `engine.contracts.evicted_shape.EvictedShape`, in their
    order: [layers of the group, 2, kv_heads, n, head_dim], or as
    `engine.codecs.kv_codec.KvCodec` packs them, [layers, 1, kv_heads, n / 64, bytes].
    """

    groups: tuple[Raw, ...]


Evicted: TypeAlias = "EvictedKeysValues | ContextVectors"
"""What is deposited: context vectors [n, width] for `projection`, else keys and values."""


@dataclass(frozen=True, slots=True)
class PartialAttention:
    """Attention of n queries of one layer to the evicted positions, not yet divided.

    With scores s_j of the positions that a query sees: `maximum` m = max s_j,
    `total` = sum exp(s_j - m), both [heads, n, 1], and `output` [heads, n, head_dim]
    = sum exp(s_j - m) v_j. A query that sees nothing has output and total 0 and
    maximum `NOTHING_SEEN`.
    """

    output: Floats
    total: Floats
    maximum: Floats


@dataclass(frozen=True, slots=True)
class EvictedQueries:
    """Queries of one layer at positions `first` onwards: [heads, n, head_dim] float32.

    Rotary positions are applied. Scores are scaled by `scaling`. `layer` is the
    one whose keys are asked for.
    """

    layer: int
    first: int
    scaling: float
    queries: Floats


class EvictedStore(Protocol):
    """What one session has evicted. Called by one thread at a time.

    Every method raises `RestorerLost` when what was kept is not there any more,
    and from then on each does. A partial output's bits are a function of the
    query, its position and what was deposited: not of n, nor of the deposits' sizes.
    """

    @property
    def spec(self) -> RestorerSpec:
        """Which restorer."""
        ...

    @property
    def encoder(self) -> FeatureEncoder | None:
        """Makes the context vectors of `projection` on the verifier's side; None for the others.

        A cache takes it once, when it is allocated with the store. Its width is `spec.width`.
        """
        ...

    @property
    def length(self) -> int:
        """The positions from `sink` to this, exclusive, are deposited; 0 at first."""
        ...

    @property
    def stored_bytes(self) -> int:
        """Bytes of the tensors that keep them, where they lie."""
        ...

    def deposit(self, first: int, evicted: Evicted) -> None:
        """Takes final positions `first` onwards; `first` is `max(length, sink)`.

        Raises `RestorerRefused` for numbers that are not finite or shapes that
        are not the layers', `OutOfKvMemory` when the store is full.
        """
        ...

    def begin(self, queries: EvictedQueries) -> None:
        """Starts attention to all evicted positions that these queries see.

        All of them are deposited by then, else it is a `ValueError`. Raises
        `RestorerRefused` for a layer, a shape or numbers that cannot be asked for.
        """
        ...

    def finish(self) -> PartialAttention:
        """The result of the oldest `begin` that has not been asked for."""
        ...

    def abandon(self) -> None:
        """Drops every `begin` whose result has not been asked for, after a forward failed.

        Never raises, also when the store is lost: the forward's own error counts.
        """
        ...

    def fork(self, length: int) -> EvictedStore:
        """A store of the positions below `length`, for another session or to begin anew.

        Raises `OutOfKvMemory` with nothing taken.
        """
        ...

    def release(self) -> None:
        """Gives the memory back. A second release does nothing, and neither raises.

        The thread that ends the session calls, when no forward of it is under way.
        """
        ...
