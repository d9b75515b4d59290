"""A head in two bits: whose logits it leaves are the head's own, and they are the largest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from kakeya_fleet.engine.backends import for_drafts, load_verifier
from kakeya_fleet.engine.backends.torch_backend.compiled import library as libraries
from kakeya_fleet.engine.backends.torch_backend.compiled.panels import panels_of, rows_of
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import product_of
from kakeya_fleet.engine.backends.torch_backend.compiled.preview import (
    KEPT,
    LEAST_PANELS,
    Preview,
    preview_of,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import PANEL
from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier, Drafting
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import whole_panels
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Verifier
from kakeya_fleet.engine.errors import OutOfMemory
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.proposers.autoregressive import AutoregressiveProposer
from tests.engine.backends.torch_backend.compiled.test_whole_numbers import FITTING_GROUPS, product
from tests.support.breadth import wide

SEED = 20_261_128
VOCABULARY = 700
KEEPS = 3
TOKENS = [int(each) for each in np.random.default_rng(SEED).integers(0, VOCABULARY, 24)]
LARGE = PANEL * LEAST_PANELS

pytestmark = pytest.mark.skipif(
    libraries.library() is None, reason="there is no compiled decoder here"
)


@pytest.fixture(params=[wide(("float32", "auto")), ("bfloat16", "auto"), ("float32", "int8")])
def whole(
    request: pytest.FixtureRequest, random_checkpoint: Callable[..., Path]
) -> CompiledVerifier:
    """Heads of each format."""
    dtype, weights = request.param
    path = random_checkpoint("LlamaForCausalLM", vocab_size=VOCABULARY, **FITTING_GROUPS)
    folder = ModelFolder(path, "random")
    verifier = load_verifier(folder, backend="torch", dtype=dtype, weights=weights)
    assert isinstance(verifier, CompiledVerifier)
    return verifier


def own_library() -> libraries.Library:
    found = libraries.library()
    assert found is not None
    return found


def previewed(verifier: CompiledVerifier, kept: int = KEEPS) -> CompiledVerifier:
    preview = Preview(own_library(), verifier._decoder._head, verifier._sizes_before_head(), kept)
    return drafting(verifier, preview)


def drafting(verifier: CompiledVerifier, preview: Preview | None = None) -> CompiledVerifier:
    """It with the whole head, unless there is a `preview`."""
    parts = verifier._decoder, verifier.info, verifier._layout
    return CompiledVerifier(*parts, Drafting(preview))


def logits_of(verifier: Verifier, pieces: list[int]) -> Logits:
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=64))
    found, first = [], 0
    for piece in pieces:
        own = verifier.forward(cache, TOKENS[first : first + piece], want_logits=True)
        assert own is not None
        found.append(own.copy())
        first += piece
    cache.release()
    return np.concatenate(found)


def guessed(preview: Preview, inputs: np.ndarray) -> np.ndarray:
    """The rough logits of inputs [n, hidden], which are not rounded."""
    every = range(preview.rest.columns)
    weight = torch.cat(
        [rows_of(own_library(), each, every) for each in (preview.large, preview.rest)], dim=1
    )
    found: np.ndarray = (torch.from_numpy(inputs)[:, preview.order] @ weight.T).numpy()
    return found


def test_what_is_left_are_the_heads_own_logits_where_the_rough_ones_are_largest(
    whole: CompiledVerifier,
) -> None:
    rough = previewed(whole)
    expected, found = logits_of(drafting(whole), [24]), logits_of(rough, [24])
    kept = np.isfinite(found)
    assert np.array_equal(found[kept], expected[kept])
    assert np.all(found[~kept] == -np.inf)
    drafts = drafting(whole)
    cache = drafts.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=64))
    depth = whole.info.layer_count
    features = drafts.forward_batch([Feed(cache, TOKENS, False, (depth,))])[0].features
    assert features is not None
    assert rough._drafting is not None
    assert rough._drafting.preview is not None
    guesses = guessed(rough._drafting.preview, features.reshape(len(TOKENS), -1))
    most = np.maximum.reduceat(guesses, np.arange(0, VOCABULARY, PANEL), axis=1)
    for row, left in enumerate(kept):
        panels = {int(each) // PANEL for each in np.flatnonzero(left)}
        assert len(panels) == KEEPS
        # All of a panel's, the last of which is not full.
        assert left.sum() == sum(min(PANEL, VOCABULARY - PANEL * panel) for panel in panels)
        others = [most[row, panel] for panel in range(most.shape[1]) if panel not in panels]
        # Inputs are rounded to eight bits.
        slack = 0.02 * float(np.abs(most[row]).max())
        assert min(most[row, panel] for panel in panels) >= max(others) - slack, row


def test_neither_cuts_nor_threads_change_what_is_left(whole: CompiledVerifier) -> None:
    rough = previewed(whole)
    expected = logits_of(rough, [24])
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            for pieces in ([1] * 24, [5, 7, 12]):
                assert np.array_equal(logits_of(rough, pieces), expected), (count, pieces)
    finally:
        torch.set_num_threads(threads)


def test_one_that_keeps_all_leaves_all(whole: CompiledVerifier) -> None:
    everything = previewed(whole, kept=10_000)
    assert np.array_equal(logits_of(everything, [24]), logits_of(drafting(whole), [24]))


@pytest.mark.parametrize("dtype", [wide(torch.float32), torch.bfloat16])
def test_the_likeliest_id_is_found_where_some_inputs_are_large(dtype: torch.dtype) -> None:
    """As those of trained models are: with these in two bits too, one id in ten would be missed."""
    generator = torch.Generator().manual_seed(SEED)
    size, inputs = LARGE, 96
    sizes = torch.ones(inputs)
    sizes[torch.randperm(inputs, generator=generator)[:4]] = 100.0
    weight = (torch.randn(size, inputs, generator=generator) / sizes.sqrt()).to(dtype)
    noise = torch.randn(200, inputs, generator=generator)
    rows = weight[torch.randint(0, size, (200,), generator=generator)].float()
    hidden = sizes * (rows + 3.0 * noise / sizes.sqrt())
    expected = (hidden @ weight.float().T).argmax(1) // PANEL
    head = panels_of(product_of(weight), dtype=dtype)

    def missed(told: Tensor) -> int:
        preview = preview_of(own_library(), head, told)
        assert preview.struct.kept == LEAST_PANELS // KEPT
        most = torch.from_numpy(guessed(preview, hidden.numpy())).view(200, -1, PANEL).amax(2)
        chosen = most.topk(preview.struct.kept, dim=1).indices
        return int((chosen != expected[:, None]).all(1).sum())

    with_eight_bits, without = missed(sizes.square()), missed(1.0 - sizes)
    assert without >= 15, (without, SEED)
    assert 4 * with_eight_bits <= without, (with_eight_bits, without, SEED)


def test_products_of_two_bits_are_what_the_weights_say() -> None:
    """Exact sums of inputs that eight bits say, at the largest of them."""
    library = own_library()
    generator = torch.Generator().manual_seed(SEED)
    panels = whole_panels(product_of(torch.randn(70, 96, generator=generator)), 2)
    assert len(set(rows_of(library, panels, range(70)).flatten().tolist())) > 4
    inputs = torch.randint(-127, 128, (7, 96), generator=generator).to(torch.float32)
    inputs[:, ::32] = 127.0
    expected = inputs.double() @ rows_of(library, panels, range(70)).double().T
    found = product(library, panels, inputs).double()
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-3)
    assert float((found - expected).abs().max()) < 1e-3 * float(expected.abs().max())


def test_processors_find_the_same(processors: dict[str, libraries.Library]) -> None:
    """By products of two bits of the library that each would make."""
    generator = torch.Generator().manual_seed(SEED)
    panels = whole_panels(product_of(torch.randn(70, 96, generator=generator)), 2)
    inputs = torch.randn(7, 96, generator=generator)
    assert (
        len({product(each, panels, inputs).numpy().tobytes() for each in processors.values()}) == 1
    )


def test_of_two_bits_a_weight_is_off_by_a_step_at_most_but_at_the_ends() -> None:
    weight = torch.randn(70, 96, generator=torch.Generator().manual_seed(SEED))
    weight[3] = 0.0
    weight[4] = 1e7
    found = rows_of(own_library(), whole_panels(product_of(weight), 2), range(70))
    assert bool(found.isfinite().all())
    assert bool((found[3].abs() < 2.0).all())
    assert float(found[4].min()) > 9e4
    near = (weight.abs() < 1.8) & (torch.arange(70) > 4)[:, None]
    assert float((found - weight)[near].abs().max()) < 1.0


def test_numbers_that_are_none_leave_as_many_panels(whole: CompiledVerifier) -> None:
    """A model that computes none drafts nothing of use, and stops nobody."""
    rough = previewed(whole)
    decoder = rough._decoder
    decoder._last_norm.fill_(float("nan"))
    found = logits_of(rough, [24])
    assert not np.isfinite(found).any()


@pytest.mark.parametrize(
    ("vocabulary", "size", "has_one"),
    [(LARGE, 64, True), (LARGE - PANEL, 64, False), wide(LARGE, 48, False)],
)
def test_heads_that_it_is_worth_for_have_one(
    vocabulary: int, size: int, has_one: bool, random_checkpoint: Callable[..., Path]
) -> None:
    config = {**FITTING_GROUPS, "vocab_size": vocabulary, "hidden_size": size}
    folder = ModelFolder(random_checkpoint("LlamaForCausalLM", **config), "random")
    loaded = load_verifier(folder, backend="torch")
    drafts = for_drafts(loaded, folder)
    assert isinstance(drafts, CompiledVerifier)
    assert drafts._drafting is not None
    assert (drafts._drafting.preview is not None) is has_one
    # The verifier's own logits are whole all the same.
    assert np.isfinite(logits_of(loaded, [24])).all()
    assert np.isfinite(logits_of(drafts, [24])).all() is np.bool_(not has_one)
    state = AutoregressiveProposer(drafts).open(TOKENS)
    assert len(state.propose([], 4, 1).token_ids) == 4
    state.close()


def test_a_preview_that_does_not_fit_is_refused_before_it_is_made(
    random_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**FITTING_GROUPS, "vocab_size": LARGE, "hidden_size": 96}
    folder = ModelFolder(random_checkpoint("LlamaForCausalLM", **config), "random")
    loaded = load_verifier(folder, backend="torch")
    assert isinstance(loaded, CompiledVerifier)
    needed = loaded.preview_bytes
    # Of 96 inputs 32 have eight bits and the others two, each 32 with a scale of sixteen.
    assert needed == LARGE * (32 * 8 + 16 + 2 * (32 * 2 + 16)) // 8
    left = needed
    monkeypatch.setattr(system_memory, "available_bytes", lambda: left)
    drafts = for_drafts(loaded, folder)
    assert isinstance(drafts, CompiledVerifier)
    assert drafts._drafting is not None
    preview = drafts._drafting.preview
    assert preview is not None
    assert preview.large.blocks.nbytes + preview.rest.blocks.nbytes == needed
    left = needed - 1
    with pytest.raises(OutOfMemory, match=f"needs {needed:,} bytes"):
        for_drafts(loaded, folder)


def test_what_is_not_compiled_drafts_as_it_is(
    random_checkpoint: Callable[..., Path],
) -> None:
    folder = ModelFolder(random_checkpoint("Gemma3ForCausalLM"), "random")
    loaded = load_verifier(folder, backend="torch")
    assert for_drafts(loaded, folder) is loaded
