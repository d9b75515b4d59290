"""The outputs of some decoder layers during one forward."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from kakeya_fleet.engine.backends.torch_backend.dtypes import on_host
from kakeya_fleet.engine.contracts.features import Features


class TappedLayers:
    """Hooks on the layers `taps` for as long as the context lasts."""

    def __init__(self, layers: nn.ModuleList, taps: Iterable[int]) -> None:
        self._layers = layers
        self._taps = tuple(taps)
        self._hooks: list[RemovableHandle] = []
        self._outputs: dict[int, Tensor] = {}

    def __enter__(self) -> TappedLayers:
        for tap in self._taps:
            self._hooks.append(self._layers[tap].register_forward_hook(self._keeper(tap)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def keep(self, tap: int, output: Tensor) -> None:
        """An output [1, rows, hidden_size] that no layer gives, such as the final norm's."""
        self._outputs[tap] = output

    def features(self, taps: tuple[int, ...], rows: slice) -> Features | None:
        """What `taps` gave for `rows`, float32 [n, taps, hidden_size]; None for none."""
        if not taps:
            return None
        outputs = [self._outputs[tap][0, rows].to(torch.float32) for tap in taps]
        return on_host(torch.stack(outputs, dim=1))

    def _keeper(self, tap: int):  # type: ignore[no-untyped-def]
        def keep(_module: nn.Module, _inputs: object, output: Tensor | tuple[Tensor, ...]) -> None:
            self._outputs[tap] = output if isinstance(output, Tensor) else output[0]

        return keep
