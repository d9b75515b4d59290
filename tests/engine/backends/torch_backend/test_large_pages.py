"""What forwards read whole is in memory for which large pages are asked."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.compiled.panels import Panels, panels_of
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import product_of
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import WholePanels
from kakeya_fleet.engine.backends.torch_backend.kernels import TorchSegment
from kakeya_fleet.engine.backends.torch_backend.large_pages import (
    PAGE_BYTES,
    empty_on_large_pages,
)
from tests.support.breadth import wide

CHOICES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
pytestmark = pytest.mark.skipif(not CHOICES.exists(), reason="this kernel has no large pages")


def is_asked_for(tensor: Tensor) -> bool:
    """Whether the mapping that has its middle is flagged so (proc_pid_smaps(5), `hg`)."""
    middle, found = tensor.data_ptr() + tensor.nbytes // 2, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            first, end = (int(each, 16) for each in words[0].split("-"))
            found = first <= middle < end
        elif found and words[0] == "VmFlags:":
            return "hg" in words
    raise AssertionError("no mapping has it")


def test_only_whole_pages_are_asked_for() -> None:
    large = empty_on_large_pages(4, PAGE_BYTES, dtype=torch.uint8)
    assert is_asked_for(large)
    assert (large.shape, large.dtype) == ((4, PAGE_BYTES), torch.uint8)
    assert empty_on_large_pages(3, 5, dtype=torch.bfloat16).shape == (3, 5)
    assert empty_on_large_pages(0, 5, dtype=torch.float32).nbytes == 0


@pytest.mark.parametrize("weights", ["auto", "int8", wide("int4")])
def test_weights_are(weights: str) -> None:
    rows = torch.randn(4096, 2048) / 3
    panels = panels_of(product_of(rows), weights)
    if isinstance(panels, WholePanels):
        assert is_asked_for(panels.blocks)
        return
    assert isinstance(panels, Panels)
    # As wide as the numbers need, which is found out when the first are there.
    assert panels.panels.dtype == torch.float32
    assert is_asked_for(panels.panels)
    assert torch.equal(panels.panels[[0, -1], :, [0, -1]], rows[[0, -1]])


def test_caches_are_and_begin_with_zeros() -> None:
    segment = TorchSegment((8, 2, 4, 1024, 64), torch.bfloat16)
    (tensor,) = segment.arrays
    assert is_asked_for(tensor)
    assert not tensor.any()
