"""Devices of torch's: what is asked for is where all of it is, and what is not there is refused.

No device is needed: a pretended one computes with the processor and refuses to mix places. With
one in the machine `fleet check MODEL --device` and `pytest -m device` prove the same there.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from kakeya_fleet.engine.backends import (
    arithmetic_of,
    device_facts,
    device_use,
    load_dflash,
    load_verifier,
    stores_beside,
)
from kakeya_fleet.engine.backends.torch_backend import (
    checkpoint,
    kernels,
    packed_linear,
    torch_verifier,
)
from kakeya_fleet.engine.backends.torch_backend.device import HOST
from kakeya_fleet.engine.backends.torch_backend.torch_verifier import ROW_COUNTS, TorchVerifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import ConditionedDraftState
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Verifier
from kakeya_fleet.engine.errors import (
    BadParameters,
    DeviceUnavailable,
    OutOfKvMemory,
    OutOfMemory,
    WeightFormatUnsupported,
)
from kakeya_fleet.engine.memory.allocation import told_as_shortage
from kakeya_fleet.engine.models.model_folder import ModelFolder, resolve
from kakeya_fleet.engine.speculation.stream_proof import prove_streams
from kakeya_fleet.engine.verifiers.exactness import settle
from tests.support.breadth import all_wide_but
from tests.support.pretended_device import (
    PLACE,
    PRETENDED,
    PretendedDevice,
    PretendedTensor,
    TwoDevices,
    pretended,
)

HISTORY = [(13 * index + index * index // 3) % 96 for index in range(90)]
SPECS = {
    "contiguous": CacheSpec(CacheKind.CONTIGUOUS, capacity=200),
    "sink_window": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13),
    "packed": CacheSpec(CacheKind.PACKED, capacity=200, sink=64, window=20, codec="kvarn4"),
    "restored": CacheSpec(
        CacheKind.RESTORED, sink=3, window=19, restorer=RestorerSpec(RestorerKind.IDENTITY)
    ),
}
CASES = [
    ("Qwen3ForCausalLM", "sink_window", "bfloat16"),
    ("Qwen3ForCausalLM", "packed", "float32"),
    ("Qwen3ForCausalLM", "packed", "bfloat16"),
    ("Qwen3ForCausalLM", "restored", "float32"),
    ("LlamaForCausalLM", "contiguous", "float32"),
    ("Gemma3ForCausalLM", "sink_window", "float32"),
    ("Gemma4ForCausalLM", "contiguous", "bfloat16"),
    ("Qwen3_5ForCausalLM", "restored", "bfloat16"),
]
"""Pairwise: plain families and others, shared layers, recurrent states, every kind of cache."""
KEPT = [
    case
    for case in CASES
    if case[:2] not in {("Qwen3ForCausalLM", "restored"), ("Gemma3ForCausalLM", "sink_window")}
    and case != ("Qwen3ForCausalLM", "packed", "bfloat16")
]
"""Each cache, and each kind of layer."""
NEAR = 2e-4
"""A device computes a whole tensor by one formula where the processor is given pieces."""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendedDevice]:
    with pretended(monkeypatch) as mode:
        yield mode


@pytest.fixture
def plain_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor computes with torch's own operators, as a device does."""
    monkeypatch.setattr(torch_verifier, "library", lambda: None)
    for module in (packed_linear, torch_verifier):
        monkeypatch.setattr(module, "can_pack", lambda *_: False)


def loaded(folder: Path, device: str = PRETENDED, dtype: str = "float32") -> Verifier:
    return load_verifier(ModelFolder(folder, "random"), device=device, dtype=dtype)


def read(verifier: Verifier, spec: CacheSpec) -> Logits:
    """The logits of a history past all windows, in blocks of several sizes, some rejected."""
    cache = verifier.allocate(spec)
    history = HISTORY if spec is SPECS["packed"] else HISTORY[:56]
    rows: list[Logits] = []
    sizes = (16, 5, 1, 16, 11)
    turn = 0
    while cache.length < len(history):
        begin = cache.length
        block = history[begin : begin + sizes[turn % len(sizes)]]
        logits = verifier.forward(cache, block, want_logits=True)
        assert logits is not None
        if turn % 2 and len(block) > 1:
            cache.truncate(begin + 1)
            logits = logits[:1]
        rows.append(logits)
        turn += 1
    fork = cache.fork(cache.length)
    more = verifier.forward(fork, HISTORY[:3], want_logits=True)
    assert more is not None
    fork.release()
    cache.release()
    return np.concatenate([*rows, more])


@pytest.mark.parametrize(("architecture", "spec", "dtype"), all_wide_but(KEPT, CASES, several=True))
def test_a_model_on_a_device_is_the_model(
    architecture: str,
    spec: str,
    dtype: str,
    plain_host: None,
    random_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = random_checkpoint(architecture)
    here = loaded(folder, "cpu", dtype)
    expected = read(here, SPECS[spec])
    with pretended(monkeypatch):
        there = loaded(folder, dtype=dtype)
        assert isinstance(there, TorchVerifier)
        assert (there.device.kind, there.thread_count) == (PRETENDED, 0)
        assert there.row_counts == ROW_COUNTS
        # As many rows a forward as there: each number takes a kernel of its own here.
        there.use_row_counts(here.row_counts)
        got = read(there, SPECS[spec])
    off = np.abs(got - expected).max() / np.abs(expected).max()
    assert off < (NEAR if dtype == "float32" else 0.05)


def test_all_that_it_has_is_there(device: PretendedDevice) -> None:
    verifier = load_verifier(resolve("tiny"), device=PRETENDED)
    assert isinstance(verifier, TorchVerifier)
    model = verifier._model
    held = [*model.layers.parameters(), *model.layers.buffers(), model._head.weight]
    assert held
    assert all(isinstance(each, PretendedTensor) for each in held)
    cache = verifier.allocate(SPECS["sink_window"])
    assert all(isinstance(each, PretendedTensor) for each in cache.arrays)
    # Each tensor by itself, and the frequencies of rotations.
    assert device.moves["cpu", PRETENDED] == device.moves.total() > 20


def test_logits_come_back_once_a_forward(device: PretendedDevice) -> None:
    """Of all sessions together; nothing does of a forward whose logits nobody wants."""
    verifier = load_verifier(resolve("tiny"), device=PRETENDED)
    caches = [verifier.allocate(SPECS["contiguous"]) for _ in range(3)]
    device.moves.clear()
    verifier.forward_batch([Feed(cache, [1, 2, 3], False) for cache in caches])
    assert device.moves[PRETENDED, "cpu"] == 0
    verifier.forward_batch([Feed(cache, [4, 5], cache is not caches[1]) for cache in caches])
    assert device.moves[PRETENDED, "cpu"] == 1
    device.moves.clear()
    taps = (0, verifier.info.layer_count - 1)
    (output,) = verifier.forward_batch([Feed(caches[0], [6], True, taps)])
    assert output.features is not None
    assert output.features.shape == (1, 2, verifier.info.hidden_size)
    assert device.moves[PRETENDED, "cpu"] == 2
    # Ids, positions and a mask for each kind of layers: no more for more layers.
    assert device.moves["cpu", PRETENDED] <= 4


def test_it_is_exact_there_and_its_streams_are_too(
    device: PretendedDevice, random_checkpoint: Callable[..., Path]
) -> None:
    verifier = loaded(random_checkpoint(num_hidden_layers=1, max_position_embeddings=64))
    # Which of all agree is no matter of the device: `test_exactness`.
    verifier.use_row_counts((16,))
    assert settle(verifier).exact
    proof = prove_streams(verifier)
    assert proof.holds
    assert proof.is_past_window
    assert device.moves[PRETENDED, "cpu"] > 0


def test_a_drafter_on_a_device_is_the_drafter(
    monkeypatch: pytest.MonkeyPatch, random_checkpoint: Callable[..., Path], random_drafter: object
) -> None:
    assert callable(random_drafter)
    target = random_checkpoint()
    vectors = np.random.default_rng(3).standard_normal((len(HISTORY), 32), np.float32)
    for version in (1, 2):
        folder = random_drafter(
            target,
            f"drafter-{version}",
            version=version,
            layer_types=["sliding_attention"] * 2,
            sliding_window=9,
        )

        def drafted(device: str, folder: Path = folder) -> list[tuple[int, ...]]:
            proposer = load_dflash(
                ModelFolder(folder, "drafter"), ModelFolder(target, "random"), device=device
            )
            state = proposer.open(HISTORY[:20])
            assert isinstance(state, ConditionedDraftState)
            found = []
            for end in range(20, 62, 7):
                state.take_features(state.features_end, vectors[state.features_end : end - 1])
                found.append(state.propose((), 7, 0).token_ids)
                state.commit(HISTORY[end : end + 7])
            return found

        expected = drafted("cpu")
        assert any(expected)
        with pretended(monkeypatch) as mode:
            assert drafted(PRETENDED) == expected, version
            assert mode.moves[PRETENDED, "cpu"] > 0


def test_a_drafters_context_and_ends_are_there(
    device: PretendedDevice, random_checkpoint: Callable[..., Path], random_drafter: object
) -> None:
    assert callable(random_drafter)
    target = random_checkpoint()
    folder = random_drafter(target)
    proposer = load_dflash(
        ModelFolder(folder, "drafter"), ModelFolder(target, "random"), device=PRETENDED
    )
    context = proposer.model.new_context()  # type: ignore[attr-defined]
    assert isinstance(context._slots, PretendedTensor)
    assert isinstance(proposer.model._masks, PretendedTensor)  # type: ignore[attr-defined]


def test_what_a_store_beside_it_gives_back_is_no_caches(
    device: PretendedDevice, random_checkpoint: Callable[..., Path]
) -> None:
    """Both take slabs of one pool, of equal sizes; a store keeps them in the host's memory."""
    verifier = loaded(random_checkpoint())
    stores = stores_beside(verifier)
    assert stores is not None
    assert isinstance(verifier, TorchVerifier)
    spec = CacheSpec(
        CacheKind.RESTORED, sink=3, window=19, restorer=RestorerSpec(RestorerKind.ARCHIVE)
    )
    assert spec.restorer is not None
    cache = verifier.allocate(spec, stores.make(verifier.evicted_shape(spec), spec.restorer))
    for first in range(0, len(HISTORY), 15):
        verifier.forward(cache, HISTORY[first : first + 15], want_logits=False)
    cache.release()
    growing = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=600, grows=True))
    for first in range(0, len(HISTORY), 15):
        verifier.forward(growing, HISTORY[first : first + 15], want_logits=True)
    assert all(isinstance(each, PretendedTensor) for each in growing.arrays)


@pytest.mark.parametrize(
    ("module", "name"), [(kernels.TorchKernels, "_placed"), (checkpoint, "_compute_buffers")]
)
def test_a_tensor_that_is_left_on_the_host_is_found(
    device: PretendedDevice, monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    """So that the tests above say something: masks, and the frequencies of rotations."""
    if name == "_placed":
        monkeypatch.setattr(module, name, lambda _, tensor: tensor)
    else:
        whole = checkpoint._compute_buffers
        monkeypatch.setattr(module, name, lambda model, _: whole(model, HOST))
    verifier = load_verifier(resolve("tiny"), device=PRETENDED)
    cache = verifier.allocate(SPECS["contiguous"])
    with pytest.raises(TwoDevices):
        verifier.forward(cache, [1, 2, 3], want_logits=True)


def test_numbers_of_a_device_are_nobodys_before_they_are_fetched(device: PretendedDevice) -> None:
    there = torch.ones(3, device=PRETENDED)
    with pytest.raises((TypeError, RuntimeError)):
        there.numpy()
    assert there.cpu().numpy().tolist() == [1, 1, 1]


def test_what_it_is_is_told(device: PretendedDevice) -> None:
    verifier = load_verifier(resolve("tiny"), device=PRETENDED)
    assert verifier.info.device == PRETENDED
    facts = device_facts(PRETENDED)
    assert (facts.kind, facts.name) == (PRETENDED, "pretended")
    # What torch keeps and does not use is free.
    assert (facts.memory_total_bytes, facts.memory_free_bytes) == (8 << 30, (7 << 30) + (1 << 20))
    assert (facts.dtypes, facts.weights) == (("float32", "bfloat16"), ("auto", "bf16"))
    assert "pretended" in arithmetic_of(verifier)
    here = load_verifier(resolve("tiny"), device="cpu")
    assert (here.info.device, device_facts("cpu").kind) == ("cpu", "cpu")
    assert arithmetic_of(here) != arithmetic_of(verifier)


def test_how_busy_it_is_is_told_where_its_driver_tells_it(
    device: PretendedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NVMLError(Exception):
        pass

    told: list[int | Exception] = [93, 0, NVMLError("Not Supported"), 50]
    asked = []

    def utilization(place: torch.device) -> int:
        asked.append(place)
        answer = told.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(torch.cuda, "utilization", utilization)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert device_use(PRETENDED)() is None
    assert device_use("cpu")() is None
    assert not asked
    pynvml = types.ModuleType("pynvml")
    monkeypatch.setattr(pynvml, "NVMLError", NVMLError, raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    # The first is asked for while it is made, which opens the driver's library.
    read = device_use(PRETENDED)
    assert (len(asked), read()) == (1, 0.0)
    assert (read(), read()) == (None, None)
    assert (set(asked), told) == ({PLACE}, [50])


def test_the_memory_that_counts_is_the_devices(
    device: PretendedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1 << 20, 8 << 30))
    with pytest.raises(OutOfMemory, match="and 2,097,152 are available"):
        load_verifier(resolve("tiny"), device=PRETENDED)


FULL = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 79 GiB"),
    RuntimeError("MPS backend out of memory (MPS allocated: 5.96 GiB, max allowed: 9.07 GiB)"),
]


@pytest.mark.parametrize("error", FULL, ids=["cuda", "mps"])
def test_a_device_that_is_full_in_mid_load_is_said(
    device: PretendedDevice, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch_verifier, "laid_out", full)
    with pytest.raises(OutOfMemory, match="pretended has no memory left") as caught:
        load_verifier(resolve("tiny"), device=PRETENDED)
    assert caught.value.metadata == {"device": PRETENDED}


@pytest.mark.parametrize("error", FULL, ids=["cuda", "mps"])
def test_a_device_without_room_for_a_slab_is_a_shortage(error: Exception) -> None:
    with pytest.raises(OutOfKvMemory, match="out of memory"), told_as_shortage():
        raise error


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_products_of_whole_numbers_are_the_processors(
    device: PretendedDevice, weights: str
) -> None:
    with pytest.raises(WeightFormatUnsupported, match="the processor"):
        load_verifier(resolve("tiny"), device=PRETENDED, weights=weights)


def test_a_number_format_that_it_has_no_products_in_is_refused(
    device: PretendedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    with pytest.raises(DeviceUnavailable, match="no products in bfloat16: choose --dtype float32"):
        load_verifier(resolve("tiny"), device=PRETENDED, dtype="bfloat16")


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(BadParameters, match="auto, cpu, cuda, mps"):
        load_verifier(resolve("tiny"), device="abacus")
