"""Products with evicted keys round alike, however many queries and threads they have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend import product_rows
from kakeya_fleet.engine.backends.torch_backend.product_rows import query_counts
from kakeya_fleet.engine.backends.torch_backend.threads import TorchThreads, one_thread
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer
from kakeya_fleet.engine.errors import RestorerRefused
from kakeya_fleet.engine.kv.feed import Partial
from kakeya_fleet.engine.kv.kernels import MOST_QUERIES

LAYER = AttentionLayer(kv_heads=1, groups=5, head_dim=24)
Rounding = Callable[[Tensor], float]


@pytest.fixture
def rounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Rounding], None]]:
    """Products whose results are off by what the given function says of their rows."""

    def use(error: Rounding) -> None:
        def products(rows: Tensor, _feed: object, _scaling: float) -> Partial[Tensor]:
            seen = torch.ones(rows.shape[0], rows.shape[1], 1)
            return seen, rows * (1 + 1e-6 * error(rows)), seen

        monkeypatch.setattr(product_rows, "partial_attention", products)

    product_rows._counts_of_threads.cache_clear()
    yield use
    product_rows._counts_of_threads.cache_clear()


def counts_with(threads: int, layer: AttentionLayer = LAYER) -> tuple[int, ...]:
    """`query_counts` in a thread whose products take `threads`."""

    def found() -> tuple[int, ...]:
        TorchThreads().use(threads)
        return query_counts(layer, torch.float32)

    with ThreadPoolExecutor(1) as worker:
        return worker.submit(found).result()


def test_fewer_rows_are_used_only_where_they_agree(
    rounded: Callable[[Rounding], None],
) -> None:
    rounded(lambda rows: rows.shape[1] % 20)
    assert query_counts(LAYER, torch.float32) == (4, 8, 16)


def test_what_was_found_for_some_threads_is_not_taken_for_others(
    rounded: Callable[[Rounding], None],
) -> None:
    """As with one K/V head of seven groups: two threads round a single query otherwise."""
    rounded(lambda rows: float(rows.shape[1] == LAYER.groups and torch.get_num_threads() == 2))
    assert counts_with(1) == (1, 2, 4, 8, 16)
    assert counts_with(2) == (2, 4, 8, 16)
    assert counts_with(3) == (1, 2, 4, 8, 16)


def test_threads_that_round_even_the_widest_product_otherwise_are_refused(
    rounded: Callable[[Rounding], None],
) -> None:
    rounded(lambda _rows: float(torch.get_num_threads() == 2))
    assert counts_with(1) == (1, 2, 4, 8, 16)
    with pytest.raises(RestorerRefused, match="OMP_NUM_THREADS=1") as caught:
        counts_with(2)
    assert caught.value.metadata == {"threads": "2"}


@pytest.mark.parametrize("groups", [3, 7])
def test_what_is_used_on_this_machine_rounds_as_one_thread_does(groups: int) -> None:
    layer = AttentionLayer(kv_heads=1, groups=groups, head_dim=16)
    products = product_rows._RandomProducts(layer, torch.float32)
    with torch.inference_mode(), one_thread():
        alone = products.of(MOST_QUERIES)

    def with_threads(count: int) -> bool:
        TorchThreads().use(count)
        with torch.inference_mode():
            try:
                used = query_counts(layer, torch.float32)
            except RestorerRefused:
                # Rightly, where several threads round otherwise: Intel's AMX machines do.
                return count > 1 and not torch.equal(products.of(MOST_QUERIES), alone)
            return all(torch.equal(products.of(queries), alone) for queries in used)

    with ThreadPoolExecutor(1) as worker:
        assert all(worker.submit(with_threads, count).result() for count in (1, 2, 3, 5))


def test_a_thread_has_its_own_number_again_behind_what_it_did_alone() -> None:
    def seen() -> tuple[int, int, int]:
        TorchThreads().use(3)
        with one_thread():
            within = torch.get_num_threads()
        return 3, within, torch.get_num_threads()

    with ThreadPoolExecutor(1) as worker:
        assert worker.submit(seen).result() == (3, 1, 3)
