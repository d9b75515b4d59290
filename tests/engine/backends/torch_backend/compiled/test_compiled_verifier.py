"""The compiled decoder: torch's numbers, and the same bits however a history arrives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.compiled import library as libraries
from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.backends.torch_backend.torch_verifier import TorchVerifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support import restored_caches as caches
from tests.support.breadth import all_wide_but, wide
from tests.support.forwards import told
from tests.support.small_verifiers import FITTING

# No norms and one K/V head a query head; sliding layers; biases; norms of heads.
FAMILIES: dict[str, dict[str, object]] = {
    "LlamaForCausalLM": {"num_key_value_heads": 4},
    "MistralForCausalLM": {"sliding_window": 24},
    "Qwen2ForCausalLM": {"hidden_size": 128},
    "Qwen3ForCausalLM": {"tie_word_embeddings": True},
}
SPECS = {
    "full": CacheSpec(CacheKind.CONTIGUOUS, capacity=600),
    "ring": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=47),
    # Of several segments, and wide enough for forwards of 64 rows.
    "wide ring": CacheSpec(CacheKind.SINK_WINDOW, sink=5, window=512),
    "restored": caches.restored(sink=5, window=47),
}
PACKED = CacheSpec(CacheKind.PACKED, capacity=600, sink=64, window=64, codec="kvarn4v3", grows=True)
TOKENS = [(17 * index + index * index // 3) % 96 for index in range(560)]
"""Past both rings, and into the third segment of 256 slots."""
DTYPES = ("float32", "bfloat16")
MET = {
    (family, DTYPES[(number + place // 2 + place % 2) % 2], name)
    for number, family in enumerate(FAMILIES)
    for place, name in enumerate(SPECS)
}
"""The caches in which each is compared with torch."""
CUTS = ([64], [3, 1, 16, 7])
SPANS = ((0, 72, 1), (72, 248, 16), (248, 312, 1), (312, 504, 16), (504, 560, 1))
"""First, end and size of blocks: one at a time where rings, tiles and segments begin and end."""
SLIDING = "MistralForCausalLM"
"""No layer of it sees all of the history: nothing is evicted that could be restored."""


def loaded(folder: Path, dtype: str) -> Verifier:
    return load_verifier(ModelFolder(folder, "random"), backend="torch", dtype=dtype)


@pytest.fixture(scope="module")
def of(random_checkpoint: Callable[..., Path]) -> Callable[[str, str], Verifier]:
    """of(family, dtype): the compiled verifier."""

    @cache
    def make(family: str, dtype: str) -> Verifier:
        found = loaded(random_checkpoint(family, **(FITTING | FAMILIES[family])), dtype)
        assert isinstance(found, CompiledVerifier)
        return found

    return make


@pytest.fixture
def by_torch(
    random_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], Verifier]]:
    """by_torch(family, dtype): the same model by torch's own operators."""
    monkeypatch.setenv(libraries.SWITCH, "off")
    libraries.library.cache_clear()

    def make(family: str, dtype: str) -> Verifier:
        found = loaded(random_checkpoint(family, **(FITTING | FAMILIES[family])), dtype)
        assert isinstance(found, TorchVerifier)
        return found

    yield make
    libraries.library.cache_clear()


def run(
    verifier: Verifier, spec: CacheSpec, cut: list[int], count: int = len(TOKENS)
) -> np.ndarray:
    """The logits of the first `count` of `TOKENS`."""
    own = verifier.allocate(spec)
    try:
        return caches.run(verifier, own, TOKENS[:count], cut)
    finally:
        own.release()


def run_singly(verifier: Verifier, spec: CacheSpec) -> np.ndarray:
    own = verifier.allocate(spec)
    try:
        rows = [caches.run(verifier, own, TOKENS[first:end], [size]) for first, end, size in SPANS]
        return np.concatenate(rows)
    finally:
        own.release()


def require_same_bits(verifier: Verifier, spec: CacheSpec) -> None:
    """However a history is cut, with one thread, two and three."""
    expected = run(verifier, spec, [16]).tobytes()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert run_singly(verifier, spec).tobytes() == expected
        for count, cut in enumerate(CUTS, start=2):
            torch.set_num_threads(count)
            assert run(verifier, spec, cut).tobytes() == expected, (count, cut)
    finally:
        torch.set_num_threads(threads)


# Each family, and of `MET` each cache in each dtype.
@pytest.mark.parametrize(
    ("dtype", "family"),
    all_wide_but(
        [
            ("float32", "LlamaForCausalLM"),
            ("float32", SLIDING),
            ("bfloat16", "Qwen2ForCausalLM"),
            ("bfloat16", "Qwen3ForCausalLM"),
        ],
        [(dtype, family) for dtype in DTYPES for family in FAMILIES],
        several=True,
    ),
)
def test_it_computes_what_torch_does(
    family: str,
    dtype: str,
    of: Callable[[str, str], Verifier],
    by_torch: Callable[[str, str], Verifier],
) -> None:
    reference = by_torch(family, dtype)
    libraries.library.cache_clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(libraries.SWITCH)
        compiled = of(family, dtype)
    for name, spec in SPECS.items():
        # Pairs: every family and each dtype meet every cache.
        if (family, name) == (SLIDING, "restored") or (family, dtype, name) not in MET:
            continue
        found, expected = run(compiled, spec, [16]), run(reference, spec, [16])
        apart = np.abs(found - expected)
        if dtype == "float32":
            assert apart.max() < 2e-5 * np.abs(expected).max(), (name, apart.max())
        else:
            # Torch rounds every layer's numbers; here only weights and caches are narrow.
            assert apart.mean() < 0.1 * np.abs(expected).mean(), (name, apart.mean())


@pytest.mark.parametrize(
    ("family", "dtype", "name"),
    [
        ("LlamaForCausalLM", "float32", "full"),
        wide("LlamaForCausalLM", "bfloat16", "wide ring"),
        wide(SLIDING, "bfloat16", "full"),
        (SLIDING, "float32", "ring"),
        wide("Qwen2ForCausalLM", "bfloat16", "restored"),
        ("Qwen3ForCausalLM", "float32", "restored"),
        wide("Qwen2ForCausalLM", "float32", "packed"),
        ("Qwen3ForCausalLM", "bfloat16", "packed"),
    ],
)
def test_neither_cuts_nor_threads_change_a_bit(
    family: str, dtype: str, name: str, of: Callable[[str, str], Verifier]
) -> None:
    require_same_bits(of(family, dtype), PACKED if name == "packed" else SPECS[name])


def test_sessions_of_every_kind_share_a_forward(of: Callable[[str, str], Verifier]) -> None:
    """Of each its own bits; one whose stores are elsewhere among others."""
    verifier = of("Qwen2ForCausalLM", "float32")
    alone = {name: run(verifier, spec, [16]) for name, spec in SPECS.items()}
    own = {name: verifier.allocate(spec) for name, spec in SPECS.items()}
    counts = {"full": 16, "ring": 1, "wide ring": 31, "restored": 9}
    done = dict.fromkeys(SPECS, 0)
    while min(done.values()) < 100:
        feeds = {}
        for name, count in counts.items():
            tokens = TOKENS[done[name] : done[name] + count]
            if tokens:
                feeds[name] = Feed(own[name], tokens, want_logits=True)
        outputs = verifier.forward_batch(list(feeds.values()))
        for (name, feed), output in zip(feeds.items(), outputs, strict=True):
            end = done[name] + len(feed.token_ids)
            assert told(output).tobytes() == alone[name][done[name] : end].tobytes(), name
            done[name] = end


def test_rejected_tokens_leave_nothing(of: Callable[[str, str], Verifier]) -> None:
    verifier = of("Qwen3ForCausalLM", "float32")
    for spec in SPECS.values():
        expected = run(verifier, spec, [16])
        own = verifier.allocate(spec)
        for first in range(0, 300, 5):
            wrong = [95 - token for token in TOKENS[first + 5 : first + 12]]
            logits = verifier.forward(own, TOKENS[first : first + 5] + wrong, want_logits=True)
            assert logits is not None
            assert logits[:5].tobytes() == expected[first : first + 5].tobytes()
            own.truncate(first + 5)


def test_what_layers_give_is_told(
    of: Callable[[str, str], Verifier], by_torch: Callable[[str, str], Verifier]
) -> None:
    reference = by_torch("LlamaForCausalLM", "float32")
    libraries.library.cache_clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(libraries.SWITCH)
        compiled = of("LlamaForCausalLM", "float32")
    found = []
    for verifier in (compiled, reference):
        own = verifier.allocate(SPECS["full"])
        (output,) = verifier.forward_batch([Feed(own, TOKENS[:9], False, taps=(0, 1))])
        assert output.features is not None
        found.append(output.features)
    np.testing.assert_allclose(found[0], found[1], atol=2e-5 * np.abs(found[1]).max())


def test_without_a_compiler_torch_computes_and_says_so(
    random_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(libraries, "user_cache_path", lambda _name: tmp_path)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with pytest.raises(libraries.CompilingFailed, match="no C\\+\\+ compiler"):
        libraries._made(())
    libraries.library.cache_clear()
    try:
        folder = random_checkpoint("LlamaForCausalLM", **FITTING)
        assert isinstance(loaded(folder, "float32"), TorchVerifier)
    finally:
        libraries.library.cache_clear()


def test_what_the_compiler_says_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libraries, "user_cache_path", lambda _name: tmp_path)
    monkeypatch.setattr(libraries, "OPTIONS", ("-std=c++20", "-no-such-option"))
    with pytest.raises(libraries.CompilingFailed, match="no-such-option"):
        libraries._made(())
    assert [path.name for path in (tmp_path / "compiled").iterdir()] == ["locks"]


def test_on_a_full_disk_no_compiler_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[object] = []
    monkeypatch.setattr(libraries, "user_cache_path", lambda _name: tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(free=4096))
    monkeypatch.setattr("subprocess.run", lambda *words, **_: started.append(words))
    with pytest.raises(libraries.CompilingFailed, match=r"4096 bytes free.*free the disk"):
        libraries._made(())
    assert not started
    assert [path.name for path in (tmp_path / "compiled").iterdir()] == ["locks"]


def test_of_several_that_ask_at_once_one_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Past what holds the threads of a process apart: as nodes of one machine do."""
    began, told = threading.Barrier(3), []

    def compiler(command: list[str], **_: object) -> None:
        told.append(command)
        # Long enough for one that does not wait to be seen.
        threading.Event().wait(0.2)
        Path(command[command.index("-o") + 1]).write_text("a library")

    monkeypatch.setattr(libraries, "COMPILERS", ("true",))
    monkeypatch.setattr("subprocess.run", compiler)
    target = tmp_path / "compiled" / "decoder.so"

    def make() -> None:
        began.wait()
        libraries._make(target, (), libraries.DECODER)

    threads = [threading.Thread(target=make) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 1
    assert target.read_text() == "a library"


def test_a_processor_whose_pairs_are_other_ones_takes_two_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = libraries.library()
    if own is None:
        pytest.skip("there is no compiled decoder here")
    asked: list[tuple[str, ...]] = []

    def recorded(options: tuple[str, ...]) -> Path:
        asked.append(options)
        return own.path

    monkeypatch.setattr(libraries, "_made", recorded)
    monkeypatch.setattr(libraries, "_processor_options", lambda: (libraries.PAIRS_OPTION,))
    monkeypatch.setattr(libraries, "pairs_are_right", lambda _functions: False)
    libraries.library.cache_clear()
    try:
        assert libraries.library() is not None
    finally:
        libraries.library.cache_clear()
    assert asked == [(libraries.PAIRS_OPTION,), ()]
