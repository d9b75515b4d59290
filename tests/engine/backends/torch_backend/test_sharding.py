"""A model in parts: the parts together are the model, and no rank has more than its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch
from transformers import Qwen3Config

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend import stored_tensors
from kakeya_fleet.engine.backends.torch_backend.sharding import shard_of
from kakeya_fleet.engine.backends.torch_backend.sharding_plan import RankSum
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import StoredTensor
from kakeya_fleet.engine.backends.torch_backend.torch_verifier import TorchVerifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.features import Features
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Verifier
from kakeya_fleet.engine.errors import ArchitectureUnsupported
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.breadth import all_wide_but
from tests.support.forwards import told

SPECS = {
    "full": CacheSpec(CacheKind.CONTIGUOUS, capacity=128),
    "window": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13),
}
HISTORY = [(11 * index + index * index // 7) % 96 for index in range(60)]
SCALE = 0.12
"""Of the weights: logits of a few units, whose float32 numbers are apart by less than 1e-6."""
FAMILIES = {
    "LlamaForCausalLM": {"attention_bias": True},
    "Qwen2ForCausalLM": {},
    "Qwen3ForCausalLM": {},
    "Gemma3ForCausalLM": {},
}


Result = TypeVar("Result")


class Threads:
    """Ranks that are threads of this process; the last ones to come may be any."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._barrier = threading.Barrier(count)
        self._parts: dict[int, torch.Tensor] = {}

    def sum_of(self, rank: int) -> RankSum:
        def add(partial: torch.Tensor) -> torch.Tensor:
            self._parts[rank] = partial
            self._barrier.wait(20)
            total = self._parts[0].clone()
            for other in range(1, self.count):
                total = total + self._parts[other]
            self._barrier.wait(20)
            return total

        return add

    def load(self, folder: Path) -> list[TorchVerifier]:
        return [
            shard_of(
                ModelFolder(folder, "random"),
                dtype="float32",
                rank=rank,
                size=self.count,
                add=self.sum_of(rank),
            )
            for rank in range(self.count)
        ]

    def run(
        self, function: Callable[[TorchVerifier], Result], parts: Sequence[TorchVerifier]
    ) -> list[Result]:
        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(function, parts))


def history_logits(verifier: Verifier, spec: CacheSpec, block: int) -> tuple[Logits, Features]:
    cache = verifier.allocate(spec)
    logits: list[Logits] = []
    features: list[Features] = []
    for first in range(0, len(HISTORY), block):
        feed = Feed(cache, HISTORY[first : first + block], True, (1,))
        output = verifier.forward_batch([feed])[0]
        assert output.features is not None
        logits.append(told(output))
        features.append(output.features)
    return np.concatenate(logits), np.concatenate(features)


@pytest.mark.parametrize(
    "name", all_wide_but(["Gemma3ForCausalLM", "LlamaForCausalLM"], sorted(FAMILIES))
)
def test_parts_give_the_logits_and_features_of_the_whole(
    random_checkpoint: Callable[..., Path], name: str
) -> None:
    folder = random_checkpoint(name, initializer_range=SCALE, **FAMILIES[name])
    ranks = Threads(2)
    parts = ranks.load(folder)
    whole = load_verifier(ModelFolder(folder, "random"), backend="torch")
    for kind, spec in SPECS.items():
        expected, features = history_logits(whole, spec, 9)
        assert expected.std() > 0.3, kind
        found = ranks.run(partial(history_logits, spec=spec, block=9), parts)
        for logits, tapped in found:
            assert np.abs(logits - expected).max() <= 1e-5, kind
            assert np.abs(tapped - features).max() <= 1e-5, kind
            assert np.array_equal(logits.argmax(1), expected.argmax(1)), kind
        # Every rank decides the same, bit for bit.
        assert found[0][0].tobytes() == found[1][0].tobytes(), kind


def test_more_ranks_and_other_cuts_change_no_decision(
    random_checkpoint: Callable[..., Path],
) -> None:
    folder = random_checkpoint("LlamaForCausalLM", num_key_value_heads=4, initializer_range=SCALE)
    ranks = Threads(4)
    parts = ranks.load(folder)
    whole = load_verifier(ModelFolder(folder, "random"), backend="torch")
    expected, _ = history_logits(whole, SPECS["window"], 16)
    sixteen = ranks.run(lambda part: history_logits(part, SPECS["window"], 16), parts)
    seven = ranks.run(lambda part: history_logits(part, SPECS["window"], 7), parts)
    assert np.abs(sixteen[0][0] - expected).max() <= 1e-5
    assert sixteen[0][0].tobytes() == seven[2][0].tobytes()


def test_a_rank_reads_and_keeps_its_own_part_alone(
    random_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = random_checkpoint("Qwen3ForCausalLM")
    read: dict[int, int] = {}
    real = stored_tensors._read

    def counted(
        tensor: StoredTensor,
        part: stored_tensors.Part | None,
        made: Callable[[torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        found = real(tensor, part, made)
        read[len(sizes)] = read.get(len(sizes), 0) + found.numel()
        return found

    monkeypatch.setattr(stored_tensors, "_read", counted)
    sizes: list[int] = []
    whole = load_verifier(ModelFolder(folder, "random"), backend="torch")
    sizes.append(0)
    part = shard_of(
        ModelFolder(folder, "random"), dtype="float32", rank=1, size=2, add=lambda partial: partial
    )
    layers, embeddings = 2, 2 * 96 * 32
    norms = layers * (2 * 32 + 2 * 16) + 32
    assert read[1] == (read[0] - embeddings - norms) // 2 + embeddings + norms
    spec = SPECS["full"]
    assert 2 * part.bytes_needed(spec) == whole.bytes_needed(spec)
    assert 2 * part.info.kv_bytes_per_token == whole.info.kv_bytes_per_token
    assert part.info.weights_digest == whole.info.weights_digest


@pytest.mark.parametrize(
    ("name", "config", "size", "words"),
    [
        ("Qwen3ForCausalLM", {}, 3, "4 attention heads, which 3 ranks"),
        ("Qwen3ForCausalLM", {}, 4, "2 key and value heads, which 4 ranks"),
        (
            "LlamaForCausalLM",
            {"num_attention_heads": 5, "num_key_value_heads": 5, "hidden_size": 80},
            5,
            r"(gate|down|up)_proj has 48 values, which 5 ranks",
        ),
        ("Gemma4ForCausalLM", {}, 2, "1 key and value heads"),
        ("Qwen3MoeForCausalLM", {}, 2, "its experts are not split"),
        ("Phi3ForCausalLM", {}, 2, "is planned as"),
        ("Olmo2ForCausalLM", {}, 2, "is planned as"),
        ("Qwen3_5ForCausalLM", {}, 2, r"linear_attn\.\w+ is planned as colwise_gather_output"),
    ],
)
def test_what_cannot_be_split_is_refused_by_name(
    random_checkpoint: Callable[..., Path], name: str, config: dict[str, int], size: int, words: str
) -> None:
    folder = ModelFolder(random_checkpoint(name, **config), "random")
    with pytest.raises(ArchitectureUnsupported, match=words) as refused:
        shard_of(folder, dtype="float32", rank=0, size=size, add=lambda partial: partial)
    assert refused.value.metadata["ranks"] == str(size)


def test_a_plan_that_leaves_something_out_is_refused(
    random_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = dict(Qwen3Config.base_model_tp_plan)
    del plan["layers.*.self_attn.q_norm"]
    monkeypatch.setattr(Qwen3Config, "base_model_tp_plan", plan)
    folder = ModelFolder(random_checkpoint("Qwen3ForCausalLM"), "random")
    with pytest.raises(ArchitectureUnsupported, match=r"leaves out .*q_norm"):
        shard_of(folder, dtype="float32", rank=0, size=2, add=lambda partial: partial)
    monkeypatch.setattr(Qwen3Config, "base_model_tp_plan", None)
    with pytest.raises(ArchitectureUnsupported, match="no plan"):
        shard_of(folder, dtype="float32", rank=0, size=2, add=lambda partial: partial)
