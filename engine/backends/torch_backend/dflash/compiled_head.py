"""The target's head and the candidates that it names, as one call of a drafter's library."""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.dflash.kernels import Candidates
from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library
from kakeya_fleet.engine.backends.torch_backend.compiled.threads import Workers
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import WholePanels


class CompiledHead:
    """`candidates` of `DraftEnds`. One call at a time."""

    def __init__(self, library: Library, head: WholePanels) -> None:
        """`head` in eight bits, [vocabulary_size, hidden_size]."""
        self._functions = library.functions
        self._workers = Workers(library)
        self._head = head
        self._matrix = head.matrix

    def __call__(self, hidden: Tensor, count: int) -> Candidates:
        """Of `hidden` [n, hidden_size], `count` a row, at most the vocabulary's size."""
        rows = hidden.contiguous()
        ids = np.empty((len(rows), count), np.int32)
        logits = np.empty((len(rows), count), np.float32)
        self._functions.kakeya_candidates(
            self._workers,
            ctypes.byref(self._matrix),
            rows.data_ptr(),
            len(rows),
            count,
            ids.ctypes.data,
            logits.ctypes.data,
            torch.get_num_threads(),
        )
        return ids.astype(np.int64), logits
