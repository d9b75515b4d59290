"""What a model is said to take on paper is what its verifier takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from kakeya_fleet.engine.backends import installed_backends, load_verifier
from kakeya_fleet.engine.backends.on_paper import read_on_paper
from kakeya_fleet.engine.backends.slab_verifier import SlabVerifier
from kakeya_fleet.engine.backends.torch_backend.compiled.decoder import CompiledDecoder
from kakeya_fleet.engine.backends.torch_backend.compiled.library import library
from kakeya_fleet.engine.backends.torch_backend.compiled.panels import Panels
from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import WholePanels
from kakeya_fleet.engine.backends.torch_backend.weight_sizes import OBJECT_BYTES
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import (
    ArchitectureUnsupported,
    BadParameters,
    KvStrategyUnsupported,
    OutOfMemory,
)
from kakeya_fleet.engine.models.model_folder import ModelFolder, resolve
from kakeya_fleet.engine.models.weight_choice import WEIGHTS
from kakeya_fleet.fleet.placement.fit import Way
from kakeya_fleet.node.planning.kv_ways import Question, ways
from scripts.train.tiny_families import FAMILIES
from tests.support.breadth import all_wide_but
from tests.support.gguf_files import write_gguf

Loaded = SlabVerifier[Any, Any]
TOKENS, SINK, WINDOW = 700, 4, 200


def identity(codec: str = "") -> RestorerSpec:
    """Keeps in the verifier's process what an archive keeps elsewhere."""
    return RestorerSpec(RestorerKind.IDENTITY, codec=codec)


def full(tokens: int) -> CacheSpec:
    return CacheSpec(CacheKind.CONTIGUOUS, capacity=tokens)


def packed(codec: str, tokens: int) -> CacheSpec:
    return CacheSpec(CacheKind.PACKED, capacity=tokens, sink=64, window=64, codec=codec)


def restored(sink: int, codec: str = "") -> CacheSpec:
    return CacheSpec(CacheKind.RESTORED, sink=sink, window=WINDOW, restorer=identity(codec))


SPECS: dict[str, Callable[[int], CacheSpec]] = {
    "full": full,
    "full, packed high": lambda tokens: packed("kvarn4", tokens),
    "full, packed economy": lambda tokens: packed("kvarn3", tokens),
    "restored": lambda _: restored(SINK),
    "restored, packed high": lambda _: restored(64, "kvarn4"),
    "restored, packed economy": lambda _: restored(64, "kvarn3"),
    "sink_window": lambda _: CacheSpec(CacheKind.SINK_WINDOW, sink=SINK, window=WINDOW),
}
"""The caches of sessions of so many tokens, by what the ways are called."""


OTHERS = ["heads of 20", "tiny"]
TRIED = [
    "LlamaForCausalLM",
    "Qwen3MoeForCausalLM",
    "GptOssForCausalLM",
    "Gemma4ForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    *OTHERS,
]
"""A family of each kind of layers, and one that sees pictures; the others are wide."""


@pytest.fixture(scope="module", params=all_wide_but(TRIED, [*FAMILIES, *OTHERS]))
def folder(request: pytest.FixtureRequest, random_checkpoint: Callable[..., Path]) -> ModelFolder:
    if request.param == "tiny":
        return resolve("tiny")
    odd = request.param == "heads of 20"
    path = random_checkpoint(head_dim=20) if odd else random_checkpoint(request.param)
    return ModelFolder(path, path.name)


@pytest.fixture(scope="module")
def verifier(folder: ModelFolder) -> Loaded:
    found = load_verifier(folder, backend="torch", dtype="auto")
    assert isinstance(found, SlabVerifier)
    return found


@pytest.fixture(scope="module")
def paper(folder: ModelFolder) -> ModelOnPaper:
    return read_on_paper(str(folder.path))


@pytest.fixture(scope="module")
def told(verifier: Loaded, paper: ModelOnPaper) -> dict[str, Way]:
    """All ways, in two thirds of what the model's longest history takes."""
    room = 2 * verifier.bytes_needed(full(verifier.info.context_length)) // 3
    found = ways(paper, Question(TOKENS, room, SINK, WINDOW))
    return {way.name: way for way in found}


def possible(verifier: Loaded, told: dict[str, Way]) -> Iterator[tuple[Way, CacheSpec]]:
    """The ways that can be, and the cache of each; the others are refused in the same words."""
    assert list(told) == list(SPECS)
    for name, way in told.items():
        spec = SPECS[name](TOKENS)
        if way.problem:
            with pytest.raises((BadParameters, KvStrategyUnsupported)) as refused:
                verifier.bytes_needed(spec)
            assert way == Way(way.strategy, way.quality, problem=str(refused.value))
            continue
        yield way, spec


def test_the_model_is_the_one_that_is_loaded(verifier: Loaded, paper: ModelOnPaper) -> None:
    info = verifier.info
    assert (paper.architecture, paper.dtype) == (info.architecture, info.dtype)
    assert paper.layout.context_length == info.context_length
    assert paper.layout.bytes_per_token == info.kv_bytes_per_token
    assert paper.layout.fixed_bytes == info.kv_fixed_bytes
    assert paper.layout.history_layer_count == info.history_layer_count


def test_each_way_takes_what_the_verifier_takes(verifier: Loaded, told: dict[str, Way]) -> None:
    for way, spec in possible(verifier, told):
        cache = verifier.allocate(spec)
        assert way.resident_bytes == verifier.bytes_needed(spec) == cache.memory_bytes, way.name
        cache.release()


def test_an_archive_keeps_what_is_said(verifier: Loaded, told: dict[str, Way]) -> None:
    for way, spec in possible(verifier, told):
        before = verifier._evicted_pool.used_bytes
        cache = verifier.allocate(spec)
        cache.fill(TOKENS, seed=1)
        kept = verifier._evicted_pool.used_bytes - before
        assert way.archive_bytes == kept, way.name
        assert bool(kept) is (spec.kind is CacheKind.RESTORED)
        cache.release()


def test_the_longest_that_fits_fits_and_one_token_more_does_not(
    verifier: Loaded, told: dict[str, Way]
) -> None:
    room = 2 * verifier.bytes_needed(full(verifier.info.context_length)) // 3
    for way, _ in possible(verifier, told):
        longest, spec = way.longest_tokens, SPECS[way.name]
        if longest:
            assert verifier.bytes_needed(spec(longest)) <= room, way.name
        if longest < verifier.info.context_length:
            assert verifier.bytes_needed(spec(longest + 1)) > room, way.name


def test_mlx_takes_what_is_said(
    folder: ModelFolder, random_checkpoint: Callable[..., Path]
) -> None:
    if "mlx" not in installed_backends():
        pytest.skip("the libraries of the back end mlx are not installed")
    if folder.path == random_checkpoint("GptOssForCausalLM"):
        with pytest.raises(ArchitectureUnsupported, match="GptOssForCausalLM is not served"):
            read_on_paper(str(folder.path), backend="mlx")
        return
    paper = read_on_paper(str(folder.path), backend="mlx")
    verifier = load_verifier(
        folder, backend="mlx", dtype="auto", available_bytes=paper.loading_bytes["auto"]
    )
    for way in ways(paper, Question(TOKENS, 1 << 30, SINK, WINDOW)):
        if not way.problem:
            assert way.resident_bytes == verifier.bytes_needed(SPECS[way.name](TOKENS)), way.name
    with pytest.raises(OutOfMemory) as refused:
        load_verifier(
            folder, backend="mlx", dtype="auto", available_bytes=paper.loading_bytes["auto"] - 1
        )
    assert refused.value.metadata["needed_bytes"] == str(paper.loading_bytes["auto"])


def test_bits_are_those_of_the_packed_bytes(verifier: Loaded, told: dict[str, Way]) -> None:
    for way, spec in possible(verifier, told):
        if spec.packed_by:
            shape = verifier.evicted_shape(spec)
            numbers = replace(shape, codec="").bytes_per_position // shape.item_bytes
            assert way.bits == pytest.approx(8 * shape.bytes_per_position / numbers)
            assert way.divergence_nats > 0
        else:
            assert way.bits == (32 if verifier.info.dtype == "float32" else 16)
            assert way.divergence_nats == 0


def held_bytes(decoder: CompiledDecoder) -> int:
    """Bytes of all tensors of a decoder's weights."""
    tensors: list[torch.Tensor] = [decoder._last_norm]
    kept: list[object] = [decoder._head, decoder._embedding, *decoder._kept]
    while kept:
        each = kept.pop()
        if isinstance(each, tuple | list):
            kept += each
        elif isinstance(each, Panels):
            kept += [each.panels, each.bias]
        elif isinstance(each, WholePanels):
            kept += [each.blocks, each.bias]
        elif isinstance(each, torch.Tensor):
            tensors.append(each)
    return sum(tensor.nbytes for tensor in tensors)


COMPILED = itertools.product(
    [False, True], ["float32", "bfloat16"], ["Qwen2ForCausalLM", "Qwen3ForCausalLM"], WEIGHTS
)


@pytest.mark.parametrize(
    ("tied", "dtype", "architecture", "weights"),
    all_wide_but(
        # Each pair of two of them, but of biases and tied heads.
        lambda case: (
            (case[0] == (case[2] == "Qwen3ForCausalLM"))
            and (case[1] == "bfloat16") == (case[0] == (WEIGHTS.index(case[3]) % 2 == 0))
        ),
        COMPILED,
        several=True,
    ),
)
def test_weights_take_what_the_compiled_forward_keeps(
    random_checkpoint: Callable[..., Path], weights: str, architecture: str, dtype: str, tied: bool
) -> None:
    if library() is None:
        pytest.skip("there is no C++ compiler here")
    path = random_checkpoint(
        architecture,
        head_dim=32,
        hidden_size=128,
        intermediate_size=96,
        vocab_size=130,
        tie_word_embeddings=tied,
    )
    loaded = load_verifier(
        ModelFolder(path, "random"), backend="torch", dtype=dtype, weights=weights
    )
    assert isinstance(loaded, CompiledVerifier)
    assert read_on_paper(str(path), dtype=dtype).weight_bytes[weights] == held_bytes(
        loaded._decoder
    )


@pytest.mark.parametrize(
    ("tied", "weights"),
    all_wide_but(
        lambda case: case[0] == (WEIGHTS.index(case[1]) % 2 == 0),
        itertools.product([False, True], WEIGHTS),
        several=True,
    ),
)
def test_weights_take_what_mlx_keeps(
    random_checkpoint: Callable[..., Path], weights: str, tied: bool
) -> None:
    if "mlx" not in installed_backends():
        pytest.skip("the libraries of the back end mlx are not installed")
    path = random_checkpoint(
        head_dim=32, hidden_size=64, intermediate_size=96, tie_word_embeddings=tied
    )
    folder = ModelFolder(path, "random")
    loaded = load_verifier(folder, backend="mlx", dtype="bfloat16", weights=weights)
    paper = read_on_paper(str(path), backend="mlx", dtype="bfloat16")
    assert paper.weight_bytes[weights] == mlx_bytes(loaded)


def mlx_bytes(verifier: Verifier) -> int:
    # Not on every machine.
    from mlx.utils import tree_flatten  # noqa: PLC0415

    from kakeya_fleet.engine.backends.mlx_backend.mlx_verifier import MlxVerifier  # noqa: PLC0415

    assert isinstance(verifier, MlxVerifier)
    arrays = [array for _, array in tree_flatten(verifier._model._model.parameters())]
    return sum(array.nbytes for array in arrays)


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_of_a_config_alone_as_much_is_said(
    random_checkpoint: Callable[..., Path], tmp_path: Path, backend: str
) -> None:
    """As of a model of the hub, of which nothing else is fetched."""
    if backend not in installed_backends():
        pytest.skip(f"the libraries of the back end {backend} are not installed")
    source = random_checkpoint("Gemma3ForCausalLM")
    (tmp_path / "config.json").write_bytes((source / "config.json").read_bytes())
    whole = read_on_paper(str(source), backend=backend)
    alone = read_on_paper(str(tmp_path), backend=backend)
    assert (alone.file_bytes, alone.name) == (0, tmp_path.name)
    assert replace(alone, name=whole.name, file_bytes=whole.file_bytes) == whole


def test_the_shipped_models_weights_are_as_it_is_loaded() -> None:
    if library() is None:
        pytest.skip("there is no C++ compiler here")
    loaded = load_verifier(resolve("tiny"), backend="torch", dtype="auto", weights="int4")
    assert isinstance(loaded, CompiledVerifier)
    assert read_on_paper("tiny").weight_bytes["int4"] == held_bytes(loaded._decoder)


def test_loading_asks_for_what_is_said(folder: ModelFolder, paper: ModelOnPaper) -> None:
    require_foretold(folder, paper, "auto")


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Gemma3ForCausalLM"])
def test_loading_whole_numbers_asks_for_what_is_said(
    architecture: str, random_checkpoint: Callable[..., Path]
) -> None:
    """And for no more than they and one tensor take."""
    if library() is None:
        pytest.skip("there is no C++ compiler here")
    path = random_checkpoint(architecture, hidden_size=64, intermediate_size=96, head_dim=32)
    paper = read_on_paper(str(path))
    for weights in ("int8", "int4"):
        require_foretold(ModelFolder(path, "random"), paper, weights)
        # The embedding is the largest, of 96 tokens in float32; it is mapped and copied.
        besides = max(2 * 96 * 64 * 4 + OBJECT_BYTES, paper.working_bytes)
        assert paper.loading_bytes[weights] <= paper.weight_bytes[weights] + besides


def require_foretold(folder: ModelFolder, paper: ModelOnPaper, weights: str) -> None:
    """Loads in what is said on paper, and is refused by name in a byte less."""
    needed = paper.loading_bytes[weights]
    load = partial(load_verifier, folder, backend="torch", dtype="auto", weights=weights)
    load(available_bytes=needed)
    with pytest.raises(OutOfMemory) as refused:
        load(available_bytes=needed - 1)
    assert refused.value.metadata["needed_bytes"] == str(needed)


@pytest.mark.parametrize(
    "architecture", ["LlamaForCausalLM", "Gemma3ForCausalLM", "Qwen3_5ForCausalLM"]
)
def test_a_gguf_is_on_paper_what_its_conversion_is(
    architecture: str, random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    path = random_checkpoint(architecture)
    of_file = read_on_paper(str(write_gguf(path, tmp_path / "model.gguf")), dtype="float32")
    of_folder = read_on_paper(str(path), dtype="float32")
    assert of_file.layout == of_folder.layout
    assert of_file.weight_bytes == of_folder.weight_bytes
    assert of_file.loading_bytes == of_folder.loading_bytes
    assert of_file.working_bytes == of_folder.working_bytes
    assert of_file.name == "model"
