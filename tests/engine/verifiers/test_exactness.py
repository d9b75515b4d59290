"""The check at load that finds whether, and with which forwards, a verifier is exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.on_paper import read_on_paper
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Output, Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.verifiers.exactness import (
    HEAP_BYTES,
    Exactness,
    bytes_needed,
    is_exact,
    settle,
)
from tests.support.breadth import wide
from tests.support.replacing import replace_method
from tests.support.small_verifiers import FITTING


@pytest.fixture(scope="module")
def long(random_checkpoint: Callable[..., Path]) -> Verifier:
    """Of positions for every case of the check."""
    path = random_checkpoint(num_hidden_layers=1, max_position_embeddings=4096)
    return load_verifier(ModelFolder(path, "random"))


@pytest.fixture(scope="module")
def verifier(random_checkpoint: Callable[..., Path]) -> Verifier:
    """Of few positions: the check has half as many cases, before and behind a segment's border."""
    path = random_checkpoint(num_hidden_layers=1, max_position_embeddings=300, **FITTING)
    return load_verifier(ModelFolder(path, "random"))


class Altered:
    """`inner`, with the logits of each forward altered by `alter(feeds, rows, logits)`."""

    def __init__(
        self,
        inner: Verifier,
        alter: Callable[[Sequence[Feed], int, list[Logits]], None],
        device: str = "cpu",
    ) -> None:
        self._inner = inner
        self.info = replace(inner.info, device=device)
        self._alter = alter
        self.allocate = inner.allocate
        self.bytes_needed = inner.bytes_needed
        self.use_row_counts = inner.use_row_counts
        self.evicted_shape = inner.evicted_shape
        inner.use_row_counts((4, 8, 16, 32, 64))

    @property
    def pool(self) -> Any:
        return self._inner.pool

    @property
    def row_counts(self) -> tuple[int, ...]:
        return self._inner.row_counts

    @property
    def thread_count(self) -> int:
        return self._inner.thread_count

    def shallow(self) -> Altered:
        return self

    def forward(self, cache: Any, token_ids: Sequence[int], *, want_logits: bool) -> Any:
        return self.forward_batch([Feed(cache, token_ids, want_logits)])[0].logits

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        total = sum(len(feed.token_ids) for feed in feeds)
        rows = next(count for count in self.row_counts if count >= total)
        outputs = self._inner.forward_batch(feeds)
        self._alter(feeds, rows, [output.logits for output in outputs if output.logits is not None])
        return outputs


def flip(logits: list[Logits]) -> None:
    """Changes the last bit of one number."""
    if logits:
        logits[0].view("int32")[0, 0] ^= 1


def flip_all(logits: list[Logits]) -> None:
    """Changes the last bit of every number: as another kernel, whatever the block."""
    for each in logits:
        each.view("int32")[:] ^= 1


def test_this_back_end_is_exact_with_all_its_row_counts(long: Verifier) -> None:
    long.use_row_counts((4, 8, 16, 32, 64))
    assert settle(long) == Exactness(
        exact=True, row_counts=(4, 8, 16, 32, 64), thread_count=torch.get_num_threads()
    )
    assert long.pool.used_bytes == 0


def test_row_counts_that_round_differently_are_left_out(verifier: Verifier) -> None:
    altered = Altered(verifier, lambda _, rows, logits: flip(logits) if rows in (8, 64) else None)
    assert not is_exact(altered)
    assert settle(altered) == Exactness(
        exact=True, row_counts=(4, 16, 32), thread_count=verifier.thread_count
    )
    assert verifier.row_counts == (4, 16, 32)


@pytest.mark.parametrize(
    ("device", "odd", "kept"),
    [
        ("cpu", (4, 8, 16, 32), (4, 8, 16, 32)),
        ("cuda", (4, 8, 16), (32, 64)),
        wide("mps", (4, 8, 16, 32), (64,)),
        ("cuda", (64,), (64,)),
    ],
)
def test_a_device_keeps_to_its_widest_forwards(
    verifier: Verifier, device: str, odd: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    """Few rows take as long there as many, which read a history faster."""
    altered = Altered(
        verifier, lambda _, rows, logits: flip_all(logits) if rows in odd else None, device
    )
    assert settle(altered).row_counts == kept


@pytest.mark.parametrize(
    ("device", "odd", "kept"), [("cpu", 64, (4, 8, 16, 32)), ("cuda", 64, (64,))]
)
def test_rounding_that_only_the_whole_model_shows_is_found(
    verifier: Verifier, device: str, odd: int, kept: tuple[int, ...]
) -> None:
    """In bfloat16 a few layers can hide that another kernel computes a forward."""

    class Deep(Altered):
        def shallow(self) -> Altered:
            return Altered(self._inner, lambda *_: None, device)

    altered = Deep(
        verifier, lambda _, rows, logits: flip_all(logits) if rows == odd else None, device
    )
    assert settle(altered).row_counts == kept


@pytest.mark.parametrize("behind", [0, 200])
def test_a_row_count_whose_last_rows_round_differently_is_left_out(
    verifier: Verifier, behind: int
) -> None:
    """As products on processors without AVX512 do: a tail of few rows takes another kernel.

    Of short histories the whole model is asked too, of longer ones its first layers alone.
    """

    def alter(feeds: Sequence[Feed], rows: int, logits: list[Logits]) -> None:
        filled = sum(len(feed.token_ids) for feed in feeds)
        if rows == filled == 64 and logits and feeds[0].cache.length > behind:
            logits[-1].view("int32")[-1, 0] ^= 1

    assert settle(Altered(verifier, alter)) == Exactness(
        exact=True, row_counts=(4, 8, 16, 32), thread_count=verifier.thread_count
    )


def test_counts_that_agree_alone_but_not_together_leave_one(verifier: Verifier) -> None:
    sizes: set[int] = set()

    def alter(_: Sequence[Feed], rows: int, logits: list[Logits]) -> None:
        # Only where row counts change from one forward of a case to the next.
        if len(altered.row_counts) > 2:
            sizes.add(rows)
            if len(sizes) > 1:
                flip(logits)

    altered = Altered(verifier, alter)
    assert settle(altered) == Exactness(
        exact=True, row_counts=(32,), thread_count=verifier.thread_count
    )


def test_what_no_row_count_mends_is_labelled_and_served_as_it_was(verifier: Verifier) -> None:
    def alter(feeds: Sequence[Feed], _: int, logits: list[Logits]) -> None:
        if len(feeds[0].token_ids) == 1:
            flip(logits)

    altered = Altered(verifier, alter)
    assert settle(altered) == Exactness(
        exact=False, row_counts=(4, 8, 16, 32, 64), thread_count=verifier.thread_count
    )
    assert verifier.row_counts == (4, 8, 16, 32, 64)
    assert verifier.pool.used_bytes == 0


def test_a_session_that_another_disturbs_is_found(verifier: Verifier) -> None:
    altered = Altered(verifier, lambda feeds, _, logits: flip(logits) if len(feeds) > 1 else None)
    assert not is_exact(altered)


def test_a_bit_that_only_rejected_tokens_change_is_found(verifier: Verifier) -> None:
    longest: dict[int, int] = {}
    keep: list[object] = []

    def alter(feeds: Sequence[Feed], _: int, logits: list[Logits]) -> None:
        cache = feeds[0].cache
        keep.append(cache)  # so that no id is used twice
        reached = longest.get(id(cache), 0)
        if cache.length - len(feeds[0].token_ids) < reached:
            flip(logits)
        longest[id(cache)] = max(reached, cache.length)

    assert not is_exact(Altered(verifier, alter))


@pytest.mark.parametrize("border", [256, wide(2048), 3072])
def test_a_segment_that_rounds_differently_is_found(long: Verifier, border: int) -> None:
    def alter(feeds: Sequence[Feed], rows: int, logits: list[Logits]) -> None:
        if feeds[0].cache.length > border and rows > 4:
            flip(logits)

    assert not is_exact(Altered(long, alter))


def test_one_row_takes_another_kernel_and_is_left_out(
    random_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real disagreement: a product with one row over 2,048 or more numbers."""
    counts = "kakeya_fleet.engine.backends.torch_backend.torch_verifier.ROW_COUNTS"
    monkeypatch.setattr(counts, (1, 4, 8, 16, 32, 64))
    path = random_checkpoint(
        num_hidden_layers=1, max_position_embeddings=100, intermediate_size=4096
    )
    wide = load_verifier(ModelFolder(path, "wide"))
    if wide.row_counts[0] != 1:
        pytest.skip("this machine has no packed products")
    found = settle(wide)
    assert found.exact
    if 1 in found.row_counts:
        pytest.skip("on this machine one row rounds as more do")
    assert found.row_counts == (4, 8, 16, 32, 64)


def test_a_model_whose_caches_are_large_is_checked_too(verifier: Verifier) -> None:
    altered = Altered(verifier, lambda _, rows, logits: flip(logits) if rows == 4 else None)
    replace_method(altered, "bytes_needed", lambda _: 1 << 40)
    assert settle(altered) == Exactness(
        exact=True, row_counts=(8, 16, 32, 64), thread_count=verifier.thread_count
    )


def test_a_model_of_few_positions_can_be_checked(random_checkpoint: Callable[..., Path]) -> None:
    path = random_checkpoint(num_hidden_layers=1, max_position_embeddings=48)
    assert settle(load_verifier(ModelFolder(path, "short"))).exact


def test_the_check_takes_no_more_keys_and_values_than_was_said(
    random_checkpoint: Callable[..., Path],
) -> None:
    """Sessions that share a forward behind the longest history take copies of it."""
    path = random_checkpoint(num_hidden_layers=1, max_position_embeddings=4096)
    inner = load_verifier(ModelFolder(path, "random"))
    taken: list[int] = []

    def watch(feeds: Sequence[Feed], rows: int, logits: list[Logits]) -> None:
        taken.append(inner.pool.used_bytes)

    assert is_exact(Altered(inner, watch))
    layout = read_on_paper(str(path)).layout
    longest = CacheSpec(CacheKind.CONTIGUOUS, capacity=3000)
    said = bytes_needed(layout, vocabulary_size=0) - HEAP_BYTES
    once = layout.bytes_needed(longest)
    assert once < max(taken) <= said - once
