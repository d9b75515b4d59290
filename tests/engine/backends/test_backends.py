"""Which back end loads a model, and what is imported for it."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kakeya_fleet.engine import backends
from kakeya_fleet.engine.backends import BACKENDS, installed_backends, load_verifier, suited_backend
from kakeya_fleet.engine.backends.backend import LoadVerifier
from kakeya_fleet.engine.backends.mlx_backend.backend import MlxBackend
from kakeya_fleet.engine.backends.torch_backend.backend import TorchBackend
from kakeya_fleet.engine.errors import BadParameters, DeviceUnavailable, ModelUnusable
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.proposers.loading import load_proposer


def run(program: str, *arguments: str) -> str:
    """What `program` prints in a process of its own."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, check=True, capture_output=True, timeout=100, text=True
    ).stdout.strip()


def without(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As if a library of the back end `name` were not installed."""
    back_end = BACKENDS[name]
    assert isinstance(back_end, MlxBackend | TorchBackend)
    absent = replace(back_end, libraries=("no_such_library",))
    monkeypatch.setitem(BACKENDS, name, absent)


def test_no_more_is_imported_than_is_asked_for() -> None:
    """Neither to choose a back end, nor, by an archive's node or a drafter's, to serve.

    An archive's node starts in the time that torch takes.
    """
    program = """
import sys
def imported(*names):
    print(*(name in sys.modules for name in names))

from kakeya_fleet.engine.backends import BACKENDS, installed_backends
installed_backends()
imported("mlx", "mlx_lm", "torch", "transformers", "safetensors")
BACKENDS["torch"].kernels()
BACKENDS["torch"].archive_stores()
imported("torch", "transformers")
from kakeya_fleet.engine.proposers.loading import import_proposer, load_proposer
import_proposer("tiny-dflash")
load_proposer("tiny-dflash")
imported("transformers.modeling_utils")
"""
    assert run(program).splitlines() == [
        "False False False False False",
        "True False",
        "False",
    ]


def test_the_back_end_suits_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for system, machine, installed, suited in (
        ("Darwin", "arm64", ("mlx", "torch"), "mlx"),
        ("Darwin", "arm64", ("torch",), "torch"),
        ("Darwin", "x86_64", ("mlx", "torch"), "torch"),
        ("Linux", "aarch64", ("mlx", "torch"), "torch"),
        ("Linux", "x86_64", ("mlx",), "mlx"),
    ):
        monkeypatch.setattr(platform, "system", lambda system=system: system)
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        monkeypatch.setattr(backends, "installed_backends", lambda names=installed: names)
        assert suited_backend() == suited, (system, machine, installed)


def test_no_back_end_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BACKENDS:
        without(monkeypatch, name)
    assert installed_backends() == ()
    with pytest.raises(ModelUnusable, match=r"pip install 'kakeya-fleet\[torch\]'"):
        suited_backend()


def test_a_back_end_that_cannot_be_imported_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Broken(MlxBackend):
        def verifiers(self) -> LoadVerifier:
            raise ImportError("a shared object")

    monkeypatch.setitem(BACKENDS, "mlx", Broken(libraries=()))
    with pytest.raises(ModelUnusable, match=r"pip install 'kakeya-fleet\[mlx\]'") as caught:
        load_verifier(ModelFolder(tmp_path, "any"), backend="mlx")
    assert caught.value.metadata["backend"] == "mlx"


def test_a_back_end_without_one_of_its_libraries_says_which(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without(monkeypatch, "mlx")
    with pytest.raises(ModelUnusable, match=r"needs no_such_library: pip install"):
        load_verifier(ModelFolder(tmp_path, "any"), backend="mlx")


def test_an_unknown_back_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadParameters, match="auto, mlx, torch"):
        load_verifier(ModelFolder(tmp_path, "any"), backend="abacus")


def test_auto_loads_the_suited_one(random_checkpoint: Callable[..., Path]) -> None:
    verifier = load_verifier(ModelFolder(random_checkpoint(), "random"), backend="auto")
    assert verifier.info.backend == suited_backend()


def test_a_drafter_is_computed_by_the_back_end_that_suits_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert load_proposer("tiny-dflash").info.backend == "mlx"
    assert load_proposer("tiny-dflash", backend="torch").info.backend == "torch"


def test_a_drafter_on_an_unknown_back_end_is_refused() -> None:
    with pytest.raises(BadParameters, match="auto, mlx, torch"):
        load_proposer("tiny-dflash", backend="abacus")


def test_a_masked_model_on_mlx_is_refused_by_name(tmp_path: Path) -> None:
    """And not computed by another back end than the one asked for."""
    folder = tmp_path / "masked"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["BertForMaskedLM"]}')
    with pytest.raises(ModelUnusable, match="back end mlx does not serve") as caught:
        load_proposer(str(folder), backend="mlx")
    assert caught.value.metadata == {"model_id": "masked", "backend": "mlx"}


def test_a_masked_model_on_a_device_is_refused_by_name(tmp_path: Path) -> None:
    """The processor computes it, and does not do so unasked where a device was asked for."""
    folder = tmp_path / "masked"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["BertForMaskedLM"]}')
    with pytest.raises(DeviceUnavailable, match="the processor alone computes") as caught:
        load_proposer(str(folder), device="cuda")
    assert caught.value.metadata == {"model_id": "masked", "device": "cuda"}


def test_a_device_by_name_is_torchs_wherever_another_back_end_suits(
    monkeypatch: pytest.MonkeyPatch, random_checkpoint: Callable[..., Path]
) -> None:
    monkeypatch.setattr(backends, "suited_backend", lambda: "mlx")
    folder = ModelFolder(random_checkpoint(), "random")
    info = load_verifier(folder, device="cpu").info
    assert (info.backend, info.device) == ("torch", "cpu")
    with pytest.raises(DeviceUnavailable, match="mlx chooses what it computes with by itself"):
        load_verifier(folder, backend="mlx", device="cpu")


def test_mlx_needs_no_torch_and_leaves_the_process_as_it_was(
    random_checkpoint: Callable[..., Path],
) -> None:
    """Neither to load and compute nor to draft. mlx-lm's own import lowers the limit of open
    files, for good.
    """
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    program = """
import resource, sys
# As on a Mac without torch, which transformers would import for nothing.
sys.modules["torch"] = None
from pathlib import Path
import numpy as np
from kakeya_fleet.engine import backends
from kakeya_fleet.engine.models.model_folder import ModelFolder, resolve
from kakeya_fleet.engine.proposers.loading import load_proposer
before = resource.getrlimit(resource.RLIMIT_NOFILE)
backends.load_verifier(ModelFolder(Path(sys.argv[1]), "any"), backend="mlx")
print(before == resource.getrlimit(resource.RLIMIT_NOFILE), "mlx_lm.generate" in sys.modules)
proposer = load_proposer("tiny-dflash", backend="mlx")
state = proposer.open([5, 6, 7])
state.take_features(0, np.ones((2, 256), np.float32))
print(len(state.propose((), 15, 0).token_ids))
backends.suited_backend = lambda: "mlx"
print(backends.load_encoder(resolve("tiny-dflash").path).spec == proposer.encoder.spec)
print(before == resource.getrlimit(resource.RLIMIT_NOFILE), sys.modules["torch"])
from mlx_lm.utils import load_model
model, _ = load_model(Path(sys.argv[1]))
import mlx.core as mx
print(model(mx.array([[1, 2, 3]])).shape)
"""
    assert run(program, str(random_checkpoint())).splitlines() == [
        "True False",
        "15",
        "True",
        "True None",
        "(1, 3, 96)",
    ]
