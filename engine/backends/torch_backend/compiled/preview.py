"""A head in few bits, which tells where the likeliest ids are.

A draft needs the likeliest ids of its model alone, and of a small model the head is a third of what
a token reads. The head in two bits, but for the inputs that are large in all texts, which have
eight, is a third of one in eight; where its logits are the largest, a sixteenth of the vocabulary,
the head itself is read. What that wins and loses: scripts/bench/draft_forwards.py.

Sources: Shim et al., "SVD-Softmax: Fast Softmax Approximation on Large Vocabulary Neural Networks"
(2017), whose preview is of fewer inputs; Dettmers et al., "LLM.int8()" (2022), for the few inputs
that are large whatever the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.compiled import structs
from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library
from kakeya_fleet.engine.backends.torch_backend.compiled.panels import AnyPanels, rows_of
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import Part, Product
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import PANEL
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import (
    WholePanels,
    block_bytes,
    whole_panels,
)
from kakeya_fleet.engine.models.weight_choice import GROUP

LARGE_BITS, REST_BITS = 8, 2
KEPT = 16
"""One of so many panels is kept."""
LEAST_PANELS = 512
"""Of a head that is worth a preview: a smaller one is little of what a token reads."""
PART_PANELS = 32
"""So many are read of the head at once."""


class Preview:
    """Of a head in panels."""

    def __init__(self, library: Library, head: AnyPanels, sizes: Tensor, kept: int) -> None:
        """Logits are to be computed in `kept` panels a row, at most all of `head`.

        `sizes` [inputs] are how large the head's inputs are; they are multiples of `GROUP`, two
        of them at least.
        """
        order = sizes.argsort(descending=True, stable=True)
        # Within both parts as they come.
        self.order = torch.cat([order[:GROUP].sort().values, order[GROUP:].sort().values])
        self.large = _some(library, head, self.order[:GROUP], LARGE_BITS)
        self.rest = _some(library, head, self.order[GROUP:], REST_BITS)
        # What the struct points into.
        names = self.order.to(torch.int32)
        self._kept = (head, names)
        rest = self.rest.matrix
        if head.bias is not None:
            rest.bias = head.bias.data_ptr()
        self.struct = structs.Preview(
            self.large.matrix, rest, names.data_ptr(), min(kept, head.width // PANEL)
        )


def is_worth_it(head: AnyPanels) -> bool:
    """Whether `head` is large, and groups that share a scale divide its inputs."""
    inputs = int(head.matrix.inputs)
    return head.width // PANEL >= LEAST_PANELS and inputs % GROUP == 0 and inputs > GROUP


def preview_bytes(head: AnyPanels) -> int:
    """What the preview takes of a head which it is worth for."""
    panels, rest = head.width // PANEL, int(head.matrix.inputs) // GROUP - 1
    return panels * (block_bytes(LARGE_BITS) + rest * block_bytes(REST_BITS))


def preview_of(library: Library, head: AnyPanels, sizes: Tensor) -> Preview:
    """That of a head which it is worth for; see `Preview`."""
    return Preview(library, head, sizes, head.width // PANEL // KEPT)


def _some(library: Library, head: AnyPanels, inputs: Tensor, bits: int) -> WholePanels:
    """The head of some of its inputs."""
    parts = [
        Part(len(ids), len(inputs), has_bias=False, read=partial(_read, library, head, ids, inputs))
        for ids in _ids(head)
    ]
    return whole_panels(Product(parts), bits)


def _ids(head: AnyPanels) -> Iterator[range]:
    step = PART_PANELS * PANEL
    for first in range(0, head.columns, step):
        yield range(first, min(first + step, head.columns))


def _read(library: Library, head: AnyPanels, ids: range, inputs: Tensor) -> tuple[Tensor, None]:
    return rows_of(library, head, ids)[:, inputs], None
