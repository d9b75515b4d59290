"""Two processes that share one model over the ring compute what one computes alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("torch", reason="torch is not installed, which makes the checkpoints")

from kakeya_fleet.engine.backends import load_verifier  # noqa: E402
from kakeya_fleet.engine.backends.mlx_backend import sharding  # noqa: E402
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelUnusable, WeightsMismatch  # noqa: E402
from kakeya_fleet.engine.models.model_folder import ModelFolder  # noqa: E402
from tests.support.breadth import all_wide_but  # noqa: E402
from tests.support.packed_checkpoint import quantize  # noqa: E402

DEADLINE_SECONDS = 240.0
HOST = "127.77.7.7" if sys.platform == "linux" else "127.0.0.1"
"""Where nobody calls a node that has gone, whose port it may have been."""
HISTORY = [(13 * index + index * index // 3) % 96 for index in range(60)]
RING = {"sink": 3, "window": 13}
FULL = {"capacity": 120}
CHUNKS = ([16, 16, 16, 12], [1, 7, 32, 20])

# Run by the process of all ranks, and by the test itself for the whole model.
PROGRAM = """
import json, os, sys
if __name__ == "__main__":
    # As on a Mac without torch, which transformers would import for nothing.
    sys.modules["torch"] = None
import numpy as np
from pathlib import Path
from kakeya_fleet.engine.backends.mlx_backend.mlx_verifier import load_verifier
from kakeya_fleet.engine.backends.mlx_backend.sharding import load_shard
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.errors import EngineError
from kakeya_fleet.engine.contracts.verifier import Feed

def run(verifier, history, spec, chunks, greedy):
    kind = CacheKind.CONTIGUOUS if "capacity" in spec else CacheKind.SINK_WINDOW
    cache = verifier.allocate(CacheSpec(kind, **spec))
    logits, taps, first = [], [], 0
    for count in chunks:
        feed = Feed(cache, history[first:first + count], True, (0, verifier.info.layer_count - 1))
        output = verifier.forward_batch([feed])[0]
        logits.append(output.logits)
        taps.append(output.features)
        first += count
    tokens = []
    for index in range(greedy):
        tokens.append(int((logits[-1] if not index else step)[-1].argmax()))
        step = verifier.forward(cache, tokens[-1:], want_logits=True)
        if index == greedy // 2:
            # As after a rejected draft.
            verifier.forward(cache, [5, 6, 7], want_logits=False)
            cache.truncate(cache.length - 3)
    return dict(logits=np.concatenate(logits), taps=np.concatenate(taps), tokens=np.array(tokens),
                bytes=np.array(cache.memory_bytes), kv=np.array(verifier.info.kv_bytes_per_token))

if __name__ == "__main__":
    # What a rank imports once it loads.
    from mlx_lm.models import llama, qwen2, qwen3, qwen3_5
    from transformers.models import auto
    ranks = json.loads(sys.argv[1])
    # They are copies of this process: importing takes longer than all that they compute.
    copies = []
    for rank, jobs in enumerate(ranks):
        copies.append(os.fork())
        if copies[-1] == 0:
            os.environ["MLX_RANK"] = str(rank)
            break
    else:
        codes = [os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) for copy in copies]
        print(json.dumps(codes))
        sys.exit()
    size = len(ranks)
    for folder, dtype, out, cases in jobs:
        path = Path(folder)
        try:
            verifier = load_shard(ModelFolder(path, path.name), dtype=dtype, rank=rank, size=size)
        except EngineError as error:
            Path(f"{out}-{rank}.error").write_text(f"{type(error).__name__}: {error}")
            sys.exit(3)
        for name, (history, spec, chunks, greedy) in cases.items():
            np.savez(f"{out}-{name}-{rank}.npz", **run(verifier, history, spec, chunks, greedy))
"""


def ports(count: int) -> list[int]:
    """Free ones of `HOST`, each of its own. Whoever comes to one first is a rank's peer."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def run_ranks(folder: Path, jobs: Sequence[Sequence[object]]) -> None:
    """Has each rank do its jobs; one that refuses writes why, and ends.

    Whoever is left after the deadline is killed.
    """
    hosts = folder / "hosts.json"
    hosts.write_text(json.dumps([[f"{HOST}:{port}"] for port in ports(len(jobs))]))
    program = folder / "ranks.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MLX_HOSTFILE": str(hosts)}
    process = subprocess.Popen(
        [sys.executable, str(program), json.dumps(jobs)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        told, errors = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        # Its ranks have its session, and may live where it does not.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, errors.decode()
    # What the library says stands before.
    codes: list[int] = json.loads(told.splitlines()[-1])
    assert set(codes) <= {0, 3}, errors.decode()


UNTIED: dict[str, object] = {"tie_word_embeddings": False}
WIDE: dict[str, object] = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 32}
MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("LlamaForCausalLM", UNTIED | {"attention_bias": True}),
    "qwen2": ("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    "qwen3.5": ("Qwen3_5ForCausalLM", {"tie_word_embeddings": True}),
    "quantized": ("Qwen3ForCausalLM", UNTIED | WIDE),
    "bfloat16": ("Qwen3ForCausalLM", UNTIED | {"seed": 3}),
}
CASES = {
    "full": (HISTORY, FULL, CHUNKS[0], 6),
    "ring": (HISTORY, RING, CHUNKS[0], 6),
    "cut": (HISTORY, RING, CHUNKS[1], 0),
}


TRIED = [
    *(("llama", case) for case in CASES),
    ("qwen2", "ring"),
    ("qwen3.5", "full"),
    ("quantized", "ring"),
    ("bfloat16", "full"),
]
"""Every split of weights, and every cache. Ranks turn round while they wait for each other."""


def dtype_of(name: str) -> str:
    return "bfloat16" if name == "bfloat16" else "float32"


@pytest.fixture(scope="module")
def folders(
    random_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    found = {
        name: random_checkpoint(family, **options) for name, (family, options) in MODELS.items()
    }
    root = tmp_path_factory.mktemp("quantized")
    found["quantized"] = quantize(found["quantized"], root / "packed", 8, 32)
    return found


@pytest.fixture(scope="module")
def shared(
    request: pytest.FixtureRequest,
    folders: dict[str, Path],
    random_checkpoint: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """What two ranks computed: NAME-CASE-RANK.npz. One pair of ranks for all models.

    As the last, each rank loads a model of its own, without cases.
    """
    root = tmp_path_factory.mktemp("ranks")
    asked: dict[str, dict[str, object]] = {name: {} for name in folders}
    for item in request.session.items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if item.path == request.path and {"name", "case"} <= params.keys():
            asked[params["name"]][params["case"]] = CASES[params["case"]]
    for case in CASES:
        asked["llama"][case] = CASES[case]
    jobs = [
        [str(path), dtype_of(name), str(root / name), asked[name]] for name, path in folders.items()
    ]
    others = [str(random_checkpoint(seed=rank)) for rank in (0, 1)]
    different = [[other, "float32", str(root / "different"), {}] for other in others]
    run_ranks(root, [[*jobs, last] for last in different])
    for name in folders:
        assert not list(root.glob(f"{name}-?.error"))
    return root


def whole(folder: Path, dtype: str, case: str) -> dict[str, np.ndarray]:
    program: dict[str, object] = {"__name__": "whole"}
    exec(PROGRAM, program)
    verifier = load_verifier(ModelFolder(folder, folder.name), backend="mlx", dtype=dtype)
    found: dict[str, np.ndarray] = program["run"](verifier, *CASES[case])  # type: ignore[operator]
    return found


@pytest.mark.parametrize(
    ("name", "case"),
    all_wide_but(TRIED, [(name, case) for name in MODELS for case in CASES], several=True),
)
def test_two_ranks_compute_what_one_computes(
    folders: dict[str, Path], shared: Path, name: str, case: str
) -> None:
    tolerance = 5e-2 if name == "bfloat16" else 1e-5
    ranks = [np.load(shared / f"{name}-{case}-{rank}.npz") for rank in (0, 1)]
    alone = whole(folders[name], dtype_of(name), case)
    for part in ("logits", "taps"):
        scale = max(1.0, float(np.abs(alone[part]).max()))
        for rank in ranks:
            assert np.abs(rank[part] - alone[part]).max() < tolerance * scale, part
        assert ranks[0][part].tobytes() == ranks[1][part].tobytes(), part
    if name != "bfloat16":
        assert all(rank["tokens"].tolist() == alone["tokens"].tolist() for rank in ranks)
    # Half of the heads, so half of the keys and values.
    assert all(2 * rank["kv"] == alone["kv"] for rank in ranks)
    if name != "qwen3.5":
        assert all(2 * rank["bytes"] == alone["bytes"] for rank in ranks)


def test_the_ring_and_the_cut_matter(shared: Path) -> None:
    """Were the window ignored, or both ranks the whole model, the rest would prove nothing."""
    found = {case: np.load(shared / f"llama-{case}-0.npz") for case in CASES}
    assert np.abs(found["full"]["logits"] - found["ring"]["logits"]).max() > 1e-2
    assert np.array_equal(found["ring"]["logits"], found["cut"]["logits"])


REFUSED = {
    "a family that mlx-lm does not split": ("Gemma3ForCausalLM", {}, 2, "does not split"),
    "another such family": ("Gemma4ForCausalLM", {}, 2, "does not split"),
    "experts": ("Qwen3MoeForCausalLM", {}, 2, "its experts are not split"),
    "heads": ("LlamaForCausalLM", {}, 3, "attention heads"),
    "heads of keys": ("Qwen3ForCausalLM", {}, 4, "key and value heads"),
    "heads of a recurrence": (
        "Qwen3_5ForCausalLM",
        {"linear_num_key_heads": 1, "linear_num_value_heads": 3},
        2,
        "recurrent",
    ),
    "rows": ("LlamaForCausalLM", {"intermediate_size": 45}, 2, "45"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_cannot_be_split_is_refused_before_anybody_is_joined(
    case: str,
    random_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    family, options, size, named = REFUSED[case]
    joined: list[object] = []
    monkeypatch.setattr(mx.distributed, "init", lambda *_, **__: joined.append(1))
    hosts = tmp_path / "hosts.json"
    hosts.write_text("[]")
    monkeypatch.setenv("MLX_RANK", "0")
    monkeypatch.setenv("MLX_HOSTFILE", str(hosts))
    path = random_checkpoint(family, **options)
    with pytest.raises(ArchitectureUnsupported, match=named) as caught:
        sharding.load_shard(ModelFolder(path, "any"), dtype="float32", rank=0, size=size)
    assert caught.value.metadata["ranks"] == str(size)
    assert not joined


def test_a_checkpoint_that_is_not_whole_is_refused_before_anybody_is_joined(
    random_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    joined: list[object] = []
    monkeypatch.setattr(mx.distributed, "init", lambda *_, **__: joined.append(1))
    hosts = tmp_path / "hosts.json"
    hosts.write_text("[]")
    monkeypatch.setenv("MLX_RANK", "1")
    monkeypatch.setenv("MLX_HOSTFILE", str(hosts))
    path = Path(shutil.copytree(random_checkpoint(), tmp_path / "model"))
    weights = mx.load(str(path / "model.safetensors"))
    weights.pop("model.norm.weight")
    mx.save_safetensors(str(path / "model.safetensors"), weights, {"format": "pt"})
    with pytest.raises(WeightsMismatch, match=r"missing: model\.norm\.weight"):
        sharding.load_shard(ModelFolder(path, "any"), dtype="float32", rank=1, size=2)
    assert not joined


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "MLX_RANK, MLX_HOSTFILE is not set"),
        ({"MLX_RANK": "1", "MLX_HOSTFILE": __file__}, "MLX_RANK is 1"),
        ({"MLX_RANK": "0", "MLX_HOSTFILE": "/nowhere"}, "/nowhere"),
        ({"MLX_RANK": "0", "MLX_JACCL_COORDINATOR": "a:1"}, "MLX_IBV_DEVICES is not set"),
    ],
    ids=str,
)
def test_an_environment_that_joins_nobody_is_named(
    given: dict[str, str],
    named: str,
    random_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("MLX_RANK", "MLX_HOSTFILE", "MLX_JACCL_COORDINATOR", "MLX_IBV_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ModelUnusable, match=named):
        sharding.load_shard(ModelFolder(random_checkpoint(), "m"), dtype="float32", rank=0, size=2)


def test_ranks_of_different_weights_refuse_each_other(shared: Path) -> None:
    for rank in (0, 1):
        said = (shared / f"different-{rank}.error").read_text()
        assert said.startswith(f"ModelUnusable: ranks {1 - rank} have other weights")
