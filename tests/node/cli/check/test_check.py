"""`fleet check`: a real model loaded, proven and measured; refusals by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kakeya_fleet.engine.backends import installed_backends
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.speculation.stream_proof import StreamProof, prove_streams
from kakeya_fleet.engine.verifiers.exactness import Exactness
from kakeya_fleet.node.cli.check import checking
from kakeya_fleet.node.cli.main import run
from kakeya_fleet.node.cli.shell.completing import possibilities

Told = Callable[..., str]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """What the command says: `told(*words, code=0)`; the errors if it fails."""

    def ask(*words: str, code: int = 0) -> str:
        assert run(["check", *words]) == code
        out, err = capsys.readouterr()
        return out or err

    return ask


def test_the_shipped_model_is_exact_here(told: Told) -> None:
    found: dict[str, Any] = json.loads(told("tiny", "--backend", "torch", "--json"))
    assert (found["model"], found["backend"], found["holds"]) == ("tiny", "torch", True)
    device = found["device"]
    assert (device["kind"], device["dtypes"]) == ("cpu", ["float32", "bfloat16"])
    assert 0 < device["memory_free_bytes"] <= device["memory_total_bytes"]
    assert set(found["row_counts"]) <= set(found["row_counts_tried"])
    streams, speed = found["streams"], found["speed"]
    assert streams["same_with_lies"] is streams["same_in_pieces"] is True
    assert streams["history"] > streams["sink"] + streams["window"]
    assert 0 < streams["accepted"] < streams["drafted"]
    assert min(speed["decode_tokens_per_second"], speed["prefill_tokens_per_second"]) > 0
    assert speed["block_tokens"] == 32


def test_it_says_so_in_plain_words(told: Told) -> None:
    lines = told("tiny", "--backend", "torch", "--dtype", "float32").splitlines()
    assert lines[0].startswith("tiny: Qwen3ForCausalLM in float32, weights as they are stored,")
    assert "computed by torch on the processor" in lines[0]
    assert "are free there. It computes in float32 and bfloat16" in lines[1]
    assert lines[2].startswith("Forwards of ")
    assert "past sink 4 + window 64" in lines[3]
    assert lines[3].endswith(" true) the same, with a history that comes in pieces the same.")
    assert lines[4].startswith("Decodes at ")
    assert lines[5] == "tiny is exact here."


def test_what_is_not_exact_is_said_and_is_a_negative_result(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        checking, "settle", lambda verifier, seed: Exactness(False, verifier.row_counts, seed)
    )

    def lied_to(verifier: Verifier, seed: int) -> StreamProof:
        return dataclasses.replace(prove_streams(verifier, seed=seed), same_with_lies=False)

    monkeypatch.setattr(checking, "prove_streams", lied_to)
    said = told("tiny", "--backend", "torch", code=1)
    assert "Forwards are not exact" in said
    assert " true) another stream, with a history that comes in pieces the same." in said
    assert "tiny is NOT exact here" in said


def test_row_counts_that_round_otherwise_are_named(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(verifier: Verifier, seed: int) -> Exactness:
        verifier.use_row_counts((32,))
        return Exactness(True, (32,), seed)

    monkeypatch.setattr(checking, "settle", one)
    said = told("tiny", "--backend", "torch")
    assert "Forwards of 32 rows alone give the same bits, and are kept to; those of" in said
    assert "16 and 64 round otherwise here." in said


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_torch_was_not_built_for_is_refused_by_name(
    told: Told, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr(getattr(torch.backends, device), "is_built", lambda: False)
    error = json.loads(told("tiny", "--device", device, "--json", code=3))["error"]
    assert error["reason"] == "DEVICE_UNAVAILABLE"
    assert error["metadata"] == {"device": device}
    assert f"this torch ({torch.__version__}) has no {device.upper()}" in error["message"]


def test_a_device_that_is_not_in_the_machine_is_refused_by_name(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "torch finds no device with CUDA" in told("tiny", "--device", "cuda", code=3)


def test_a_back_end_that_takes_its_device_by_itself_says_so(told: Told) -> None:
    if "mlx" not in installed_backends():
        pytest.skip("the libraries of the back end mlx are not installed")
    said = told("tiny", "--backend", "mlx", "--device", "cpu", code=3)
    assert "mlx chooses what it computes with by itself" in said
    assert "--backend torch" in said


def test_a_model_that_is_not_there_is_refused(told: Told) -> None:
    error = json.loads(told("no/such/model.gguf", "--json", code=3))["error"]
    assert error["reason"] == "MODEL_NOT_FOUND"


def test_models_are_completed() -> None:
    assert [each.value for each in possibilities(["check"], "t")] == ["tiny"]
    assert {each.value for each in possibilities(["check", "tiny", "--device"], "")} >= {"cuda"}
