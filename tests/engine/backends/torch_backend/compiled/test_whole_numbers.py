"""Weights of eight and four bits: exact sums, the same bits everywhere, and who has none."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from kakeya_fleet.engine.backends import for_drafts, load_verifier
from kakeya_fleet.engine.backends.torch_backend.compiled import library as libraries
from kakeya_fleet.engine.backends.torch_backend.compiled.decoder import FINER
from kakeya_fleet.engine.backends.torch_backend.compiled.panels import rows_of
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import product_of
from kakeya_fleet.engine.backends.torch_backend.compiled.product_check import (
    require_exact_products,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import PANEL
from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import (
    WholePanels,
    whole_panels,
)
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Verifier
from kakeya_fleet.engine.errors import ModelUnusable, WeightFormatUnsupported
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.weight_choice import GROUP
from tests.engine.backends.torch_backend.compiled.test_compiled_verifier import (
    SPECS,
    require_same_bits,
    run,
)
from tests.support.breadth import wide
from tests.support.small_verifiers import FITTING

FITTING_GROUPS = FITTING | {"intermediate_size": 96}
SEED = 20_261_124


@pytest.fixture(scope="module")
def own() -> libraries.Library:
    found = libraries.library()
    if found is None:
        pytest.skip("there is no compiled decoder here")
    return found


def product(
    library: libraries.Library, panels: WholePanels, inputs: Tensor, *, finely: bool = False
) -> Tensor:
    workers = library.functions.kakeya_workers()
    found = torch.empty(len(inputs), panels.width)
    matrix = panels.matrix
    if finely:
        matrix.format = FINER[matrix.format]
    library.functions.kakeya_product(
        workers, ctypes.byref(matrix), inputs.data_ptr(), len(inputs), found.data_ptr(), 2
    )
    library.functions.kakeya_free_workers(workers)
    return found[:, : panels.columns]


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_the_largest_numbers_are_exact(own: libraries.Library, sign: int) -> None:
    """Instructions that saturate would be found here: each four products are 4 * 127 * 255."""
    groups = 8
    weight = torch.full((40, groups * GROUP), 127.0)
    weight[1::2] = -127.0
    inputs = torch.full((7, groups * GROUP), 127.0 * sign)
    expected = inputs.to(torch.int64) @ weight.to(torch.int64).T
    found = product(own, whole_panels(product_of(weight), 8), inputs)
    assert torch.equal(found.to(torch.int64), expected)
    # Of four bits 0 and 15 stand for the least and the most of a group.
    weight = torch.tensor([0.0, 15.0]).repeat(40, groups * GROUP // 2)
    expected = inputs.to(torch.int64) @ weight.to(torch.int64).T
    found = product(own, whole_panels(product_of(weight), 4), inputs)
    assert torch.equal(found.to(torch.int64), expected)


def test_a_processor_whose_products_saturate_is_refused(own: libraries.Library) -> None:
    require_exact_products(own)

    class Saturating:
        """The library's functions, with a bound to what a sum can be."""

        def __getattr__(self, name: str) -> object:
            return getattr(own.functions, name)

        def kakeya_product(self, *words: object) -> None:
            own.functions.kakeya_product(*words)
            rows, found = words[3], words[4]
            assert isinstance(rows, int)
            assert isinstance(found, int)
            outputs = (ctypes.c_float * (rows * 32)).from_address(found)
            for index, value in enumerate(outputs):
                outputs[index] = max(-(2.0**21), min(2.0**21, value))

    saturating = replace(own, functions=Saturating())  # type: ignore[arg-type]  # as one of ctypes
    with pytest.raises(ModelUnusable, match="not exact on this processor"):
        require_exact_products(saturating)


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_processors_read_the_same_weights(
    processors: dict[str, libraries.Library], bits: int
) -> None:
    generator = torch.Generator().manual_seed(SEED)
    panels = whole_panels(product_of(torch.randn(70, 96, generator=generator)), bits)
    found = {rows_of(each, panels, range(70)).numpy().tobytes() for each in processors.values()}
    assert len(found) == 1


@pytest.mark.parametrize(("bits", "most"), [(8, 0.5), (4, 1.0)])
def test_a_weight_is_off_by_half_a_step_at_most(
    own: libraries.Library, bits: int, most: float
) -> None:
    """Of four bits by more where the ends of a group were cut off, which the whole wins by."""
    weight = torch.randn(70, 96, generator=torch.Generator().manual_seed(SEED))
    weight[3] = 0.0
    found = rows_of(own, whole_panels(product_of(weight), bits), range(70))
    grouped = weight.view(70, 3, GROUP)
    steps = grouped.abs().amax(2) / 127 if bits == 8 else (grouped.amax(2) - grouped.amin(2)) / 15
    apart = (found.view(70, 3, GROUP) - grouped).abs()
    assert bool((apart <= most * steps[..., None] * 1.5 + 1e-7).all())
    assert float(apart.mean()) < 0.3 * float(steps.mean())


def test_weights_beyond_float16s_scales_are_refused_and_tiny_ones_are_near(
    own: libraries.Library,
) -> None:
    weight = torch.randn(40, 64, generator=torch.Generator().manual_seed(SEED))
    for bits, most in ((8, 1e7), (4, 1e5)):
        with pytest.raises(WeightFormatUnsupported, match=r"up to .*leave `--weights` at auto"):
            whole_panels(product_of(most * weight), bits)
        tiny = 1e-4 * weight
        found = rows_of(own, whole_panels(product_of(tiny), bits), range(40))
        assert float((found - tiny).abs().max()) < (0.05 if bits == 8 else 0.2) * 1e-4


def test_a_number_that_is_none_is_seen(own: libraries.Library) -> None:
    panels = whole_panels(product_of(torch.ones(32, 64)), 8)
    for wrong in (float("nan"), float("inf")):
        inputs = torch.ones(2, 64)
        inputs[1, 40] = wrong
        found = product(own, panels, inputs)
        assert bool(found[0].isfinite().all())
        assert not bool(found[1].isfinite().any())


@pytest.mark.parametrize("bits", [8, 4])
def test_inputs_of_fifteen_bits_are_nearer_a_hundred_times(
    own: libraries.Library, bits: int
) -> None:
    """Of any number of rows, at the widest ranges; and a row's bits are its own."""
    generator = torch.Generator().manual_seed(SEED)
    panels = whole_panels(product_of(torch.randn(70, 96, generator=generator)), bits)
    inputs = torch.randn(9, 96, generator=generator) * torch.logspace(-6, 6, 9)[:, None]
    exact = inputs.double() @ rows_of(own, panels, range(70)).double().T

    def apart(found: Tensor) -> Tensor:
        return (found.double() - exact).abs().amax(1) / exact.abs().amax(1)

    fine = product(own, panels, inputs, finely=True)
    assert bool((apart(fine) < 1e-4).all())
    assert bool((100 * apart(fine) < apart(product(own, panels, inputs))).all())
    for count in (1, 2, 3, 5):
        alone = [product(own, panels, each, finely=True) for each in torch.split(inputs, count)]
        assert torch.equal(torch.cat(alone), fine), count


def test_numbers_that_are_none_are_seen_finely_too(own: libraries.Library) -> None:
    panels = whole_panels(product_of(torch.ones(32, 64)), 4)
    inputs = torch.ones(3, 64)
    inputs[1, 40], inputs[2] = float("inf"), 0.0
    found = product(own, panels, inputs, finely=True)
    assert bool((found[0] == 64.0).all())
    assert not bool(found[1].isfinite().any())
    assert bool((found[2] == 0.0).all())


@pytest.fixture(scope="module")
def of(random_checkpoint: Callable[..., Path]) -> Callable[[str, str], Verifier]:
    @cache
    def make(family: str, weights: str) -> Verifier:
        folder = ModelFolder(random_checkpoint(family, **FITTING_GROUPS), "random")
        return load_verifier(folder, backend="torch", weights=weights)

    return make


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("family", "weights", "name"),
    [
        ("LlamaForCausalLM", "int8", "full"),
        ("MistralForCausalLM", "int4", "ring"),
        # Caches hold what they hold with any weights: `test_compiled_verifier`.
        wide("Qwen2ForCausalLM", "int4", "wide ring"),
        wide("Qwen3ForCausalLM", "int8", "restored"),
        ("Qwen2ForCausalLM", "bf16", "ring"),
    ],
)
def test_neither_cuts_nor_threads_change_a_bit(
    family: str, weights: str, name: str, of: Callable[[str, str], Verifier]
) -> None:
    verifier = of(family, weights)
    assert isinstance(verifier, CompiledVerifier)
    # Another one than that of the checkpoint's own numbers, which these are not.
    assert verifier.info.quantization == (
        weights if weights == "bf16" else f"{weights}-g{GROUP}-f16"
    )
    require_same_bits(verifier, SPECS[name])


@pytest.mark.usefixtures("own")
def test_eight_bits_are_nearer_to_the_checkpoint_than_four(
    of: Callable[[str, str], Verifier],
) -> None:
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=600)
    whole = run(of("LlamaForCausalLM", "auto"), spec, [64])

    def apart(weights: str) -> float:
        found = run(of("LlamaForCausalLM", weights), spec, [64])
        return float(np.abs(found - whole).mean() / np.abs(whole).mean())

    assert apart("int8") < 0.1, apart("int8")
    assert 2 * apart("int8") < apart("int4") < 1.0, apart("int4")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_a_drafter_computes_few_rows_finely_and_reads_as_a_verifier(
    weights: str, of: Callable[[str, str], Verifier]
) -> None:
    verifier = of("LlamaForCausalLM", weights)
    drafter = for_drafts(verifier, ModelFolder(Path(), "random"))

    def said(each: Verifier, pieces: Sequence[int]) -> Logits:
        cache = each.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=128))
        tokens = [index % 90 for index in range(sum(pieces))]
        for count in pieces[:-1]:
            each.forward(cache, [tokens.pop(0) for _ in range(count)], want_logits=False)
        found = each.forward(cache, tokens, want_logits=True)
        assert found is not None
        cache.release()
        return found.copy()

    assert not np.array_equal(said(drafter, [5]), said(verifier, [5]))
    assert np.array_equal(said(drafter, [3, 1, 2])[-1], said(drafter, [6])[-1])
    # Behind a history that was read as verifiers do: all of what it attends to is theirs.
    taps = Feed(
        drafter.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=64)), range(64), False, (1,)
    )
    other = replace(taps, cache=verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=64)))
    read, expected = drafter.forward_batch([taps])[0], verifier.forward_batch([other])[0]
    assert read.features is not None
    assert expected.features is not None
    assert np.array_equal(read.features, expected.features)


def test_processors_compute_the_same_bits(
    processors: dict[str, libraries.Library],
    random_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those whose instructions this one has, by the library that each of them would make.

    Not optimised, they are slow: a history of two times the ring.
    """
    folder = ModelFolder(random_checkpoint("Qwen2ForCausalLM", **FITTING_GROUPS), "random")
    module = "kakeya_fleet.engine.backends.torch_backend.torch_verifier.library"
    for weights in ("auto", "int8", "int4"):
        found = set()
        for library in processors.values():
            monkeypatch.setattr(module, lambda library=library: library)
            verifier = load_verifier(folder, backend="torch", dtype="bfloat16", weights=weights)
            found.add(run(verifier, SPECS["ring"], [16], count=112).tobytes())
        assert len(found) == 1, weights


def test_libraries_of_one_process_share_nothing_of_their_own(
    processors: dict[str, libraries.Library],
) -> None:
    """A thread's memory of one would else be another's, whose instructions want it elsewhere."""
    for library in processors.values():
        listing = ["nm", "--dynamic", "--demangle", "--defined-only", str(library.path)]
        symbols = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
        assert " T kakeya_product" in symbols
        assert not [line for line in symbols.splitlines() if " u " in line and "kakeya::" in line]


@pytest.mark.parametrize("finely", [False, True])
@pytest.mark.parametrize("bits", [8, 4])
def test_rows_are_what_they_are_alone_on_every_processor(
    bits: int, *, finely: bool, processors: dict[str, libraries.Library]
) -> None:
    """Of inputs that go by several stretches, in one to four passes."""
    generator = torch.Generator().manual_seed(SEED)
    panels = whole_panels(product_of(torch.randn(70, 480, generator=generator)), bits)
    # Also the least number of eight bits, which this repository makes none of, and files may have.
    panels.blocks[:, :, -PANEL * 4 :: 3] = 0
    inputs = torch.randn(13, 480, generator=generator)
    found = set()
    for library in processors.values():
        whole = product(library, panels, inputs, finely=finely)
        for count in (1, 2, 3, 4, 7):
            some = product(library, panels, inputs[:count].contiguous(), finely=finely)
            assert torch.equal(some, whole[:count]), count
        found.add(whole.numpy().tobytes())
    assert len(found) == 1


def test_sizes_that_groups_do_not_divide_are_refused_by_name(
    random_checkpoint: Callable[..., Path],
) -> None:
    folder = ModelFolder(random_checkpoint("LlamaForCausalLM", **FITTING), "random")
    with pytest.raises(WeightFormatUnsupported, match=r"multiples of 32.*leave `--weights`"):
        load_verifier(folder, backend="torch", weights="int8")


@pytest.mark.parametrize("family", ["LlamaForCausalLM", "Gemma3ForCausalLM"])
def test_a_machine_without_a_compiler_refuses_them_by_name(
    family: str, random_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "kakeya_fleet.engine.backends.torch_backend.torch_verifier.library"
    monkeypatch.setattr(module, lambda: None)
    folder = ModelFolder(random_checkpoint(family, **FITTING_GROUPS), "random")
    with pytest.raises(WeightFormatUnsupported, match=r"need a C\+\+ compiler"):
        load_verifier(folder, backend="torch", weights="int8")
    # What needs none is there all the same.
    assert load_verifier(folder, backend="torch", weights="bf16").info.quantization == "bf16"


def test_what_mlx_has_quantized_is_not_quantized_again(
    random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    mlx_lm = pytest.importorskip("mlx_lm", reason="MLX is not installed")
    source = random_checkpoint("LlamaForCausalLM", **FITTING_GROUPS)
    mlx_lm.convert(str(source), str(tmp_path / "mlx"), quantize=True, q_bits=4, q_group_size=32)
    with pytest.raises(WeightFormatUnsupported, match="not quantized already"):
        load_verifier(ModelFolder(tmp_path / "mlx", "a"), backend="mlx", weights="int8")
