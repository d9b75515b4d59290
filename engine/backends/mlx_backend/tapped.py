"""The outputs of some decoder layers during one forward."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

import mlx.core as mx


class _Tap:
    """Stands in for a layer of the library's model and keeps what it returns."""

    def __init__(self, layer: object, found: dict[int, mx.array], index: int) -> None:
        self._layer = layer
        self._found = found
        self._index = index

    def __getattr__(self, name: str) -> object:
        return getattr(self._layer, name)

    def __call__(self, *arguments: object, **options: object) -> object:
        output = self._layer(*arguments, **options)  # type: ignore[operator]
        self._found[self._index] = output[0] if isinstance(output, tuple) else output
        return output


class TappedLayers:
    """Taps in the list of layers `layers` for as long as the context lasts.

    `outputs` then has the hidden states [1, rows, hidden_size] of each by index.
    """

    def __init__(self, layers: list[object], taps: Iterable[int]) -> None:
        self._layers = layers
        self._taps = frozenset(taps)
        self._originals: dict[int, object] = {}
        self.outputs: dict[int, mx.array] = {}

    def __enter__(self) -> TappedLayers:
        for tap in self._taps:
            self._originals[tap] = self._layers[tap]
            self._layers[tap] = _Tap(self._layers[tap], self.outputs, tap)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for tap, layer in self._originals.items():
            self._layers[tap] = layer
        self._originals.clear()
