"""`fleet fit`: real headers and shapes in, a verdict, a table and JSON out; nothing is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.node.cli.main import run
from kakeya_fleet.node.cli.shell.completing import possibilities
from tests.support.gguf_files import write_gguf

GIB = 1 << 30
LLAMA = "layers=32,kv-heads=32,head-dim=128,parameters=6738415616"
MISTRAL = "layers=32,kv-heads=8,head-dim=128,parameters=7241732096"
Told = Callable[..., str]
Fields = dict[str, Any]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """What the command says: `told(*words, code=0)`; the errors if it fails."""

    def ask(*words: str, code: int = 0) -> str:
        assert run(["fit", *words]) == code
        out, err = capsys.readouterr()
        return out or err

    return ask


def fields(told: Told, *words: str, code: int = 0) -> Fields:
    found: Fields = json.loads(told(*words, "--json", code=code))
    return found


def by_name(found: Fields) -> dict[tuple[str, str], Fields]:
    return {(way["strategy"], way["quality"]): way for way in found["ways"]}


def test_a_hundred_thousand_tokens_of_llama_2_7b_on_24_gib(told: Told) -> None:
    """All of them take 49 GiB; packed, they fit beside weights of four bits."""
    asked = ("--shape", LLAMA, "--memory", "24GiB", "--context", "100000")
    found = fields(told, *asked, "--weights", "int4")
    ways = by_name(found)
    # 98 segments of 1,024 positions, half a MiB each.
    assert ways["full", "lossless"]["resident_bytes"] == 98 * GIB // 2
    assert ways["full", "lossless"]["fits"] == "no"
    assert ways["full", "high"]["fits"] == ways["full", "economy"]["fits"] == "with_budget"
    assert ways["full", "economy"]["resident_bytes"] < ways["full", "high"]["resident_bytes"]
    assert ways["full", "high"]["resident_bytes"] < 15 * GIB
    assert ways["full", "high"]["longest_tokens"] > 130_000
    assert found["weight_bytes"]["int4"] == 6738415616 * 5 // 8
    assert found["fits"] is True
    first, budget = told(*asked, "--weights", "int4").splitlines()[:2]
    assert first == (
        "100,000 tokens fit: full, packed high, 14.1 GiB of K/V beside 3.9 GiB of weights."
    )
    assert "--kv-budget-bytes" in budget


def test_in_bfloat16_llama_2_7b_needs_an_archive_or_smaller_weights(told: Told) -> None:
    """Beside 12.6 GiB of weights 11.4 GiB are left: packed to 3.56 bits they just fit."""
    asked = ("--shape", LLAMA, "--memory", "24GiB", "--context", "100000")
    assert told(*asked).startswith("100,000 tokens fit: full, packed economy, 11.0 GiB of K/V")
    first, *others = told(
        "--shape", LLAMA, "--memory", "20GiB", "--context", "100000"
    ).splitlines()[:3]
    assert first.startswith("100,000 tokens fit: restored, 576.0 MiB of K/V beside 12.6 GiB")
    assert "in an archive elsewhere" in first
    assert "fewer tokens" in others[0]
    assert "--weights int8" in others[1] or "--weights int4" in others[1]


def test_a_hundred_thousand_tokens_of_mistral_7b_on_24_gib(told: Told) -> None:
    """With 8 heads in place of 32 they fit as they are, beside weights of four bits."""
    asked = ("--shape", MISTRAL, "--memory", "24GiB", "--context", "100000")
    ways = by_name(fields(told, *asked, "--weights", "int4"))
    assert ways["full", "lossless"]["resident_bytes"] == 98 * GIB // 8
    assert told(*asked, "--weights", "int4").startswith(
        "100,000 tokens fit: full, 12.2 GiB of K/V beside 4.2 GiB of weights."
    )
    # In bfloat16 10.5 GiB are left.
    assert told(*asked).startswith("100,000 tokens fit: full, packed high, 3.5 GiB of K/V")


def test_a_published_model_is_read_from_its_file(told: Told) -> None:
    found = fields(told, "smollm2", "--memory", "16GiB")
    assert found["architecture"] == "LlamaForCausalLM"
    assert (found["dtype"], found["positions"], found["tokens"]) == ("bfloat16", 8192, 8192)
    assert found["weight_bytes"]["auto"] > 2 * found["file_bytes"]
    ways = by_name(found)
    # 30 layers of 3 heads of 64 channels.
    assert ways["full", "lossless"]["resident_bytes"] == 8192 * 2 * 30 * 3 * 64 * 2
    assert ways["full", "high"]["bits"] == 4.75
    assert ways["full", "high"]["divergence_nats"] == 0.0015
    assert ways["full", "economy"]["divergence_nats"] == 0.0070
    assert found["measured_on"] == "SmolLM2-135M-Instruct"
    assert {way["longest_tokens"] for way in found["ways"]} == {8192}


def test_the_memory_is_this_machines_unless_it_is_given(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_memory, "available_bytes", lambda: 3 * GIB)
    memory = fields(told, "tiny")["memory"]
    assert (memory["memory_bytes"], memory["is_of_this_machine"]) == (3 * GIB, True)
    assert memory["budget_bytes"] == 3 * GIB // 4
    assert "memory 3.00 GiB free here" in told("tiny")
    assert fields(told, "tiny", "--memory", "2GiB")["memory"]["is_of_this_machine"] is False


def test_windows_and_sinks_are_those_of_a_session(told: Told) -> None:
    small = fields(told, "tiny", "--window", "64", "--sink", "0", "--memory", "1GiB")
    assert (small["sink_tokens"], small["window_tokens"]) == (0, 64)
    usual = fields(told, "tiny", "--memory", "1GiB")
    assert (usual["sink_tokens"], usual["window_tokens"]) == (4, 1024)
    name = ("sink_window", "lossless")
    assert by_name(small)[name]["resident_bytes"] < by_name(usual)[name]["resident_bytes"]
    assert "is 0 + 64 positions" in told("tiny", "--window", "64", "--sink", "0")


def test_a_context_beyond_the_positions_is_said(told: Told) -> None:
    beyond, fit = told("tiny", "--memory", "1GiB", "--context", "100000", code=1).splitlines()[:2]
    assert beyond.startswith("100,000 tokens are beyond the 2,048 positions of tiny")
    assert fit.startswith("2,048 tokens fit: full")


def test_what_does_not_fit_says_why_and_what_would(told: Told) -> None:
    out = told(
        "--shape",
        LLAMA,
        "--memory",
        "13GiB",
        "--context",
        "100000",
        "--window",
        "4096",
        "--sink",
        "0",
        code=1,
    )
    assert "tokens do not fit" in out.splitlines()[0]
    assert "--weights int8" in out or "--weights int4" in out
    nothing = told("--shape", LLAMA, "--memory", "8GiB", "--context", "10", code=1)
    assert nothing.startswith("Nothing fits: a model of this shape takes 12.6 GiB at once")
    assert "with --weights int8 it loads, 6.7 GiB" in " ".join(nothing.split())


def test_heads_that_cannot_be_packed_say_so_in_their_rows(told: Told) -> None:
    out = told("--shape", "layers=2,kv-heads=2,head-dim=20,parameters=7e6", "--context", "1000")
    row = next(line for line in out.splitlines() if line.startswith("full, packed high  "))
    assert "impossible" in row
    assert "heads of 20 channels have no blocks of 8 or more" in out
    sliding = f"{MISTRAL},sliding-window=4096"
    out = told("--shape", sliding, "--memory", "24GiB", "--context", "100000")
    assert out.startswith("100,000 tokens fit: full, 576.0 MiB of K/V")
    assert out.count("no layer of this model sees all of the history") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a model, or give its --shape"),
        (("tiny", "--shape", LLAMA), "name a model, or give its --shape"),
        (("--shape", "layers=32,kv-heads=8"), "head-dim, parameters are missing"),
        (("--shape", LLAMA.replace("layers=32", "layers=0")), "layers is '0'"),
        (("--shape", LLAMA.replace("layers=32", "layers=-4")), "layers is '-4'"),
        (("--shape", LLAMA.replace("layers=32", "layers=1e99")), "layers is '1e99'"),
        (("--shape", LLAMA.replace("layers=32", "layers=nan")), "layers is 'nan'"),
        (("--shape", LLAMA.replace("layers=32", "layers=1.5")), "layers is '1.5'"),
        (("--shape", f"{LLAMA},layers=2"), "layers is given twice"),
        (("--shape", f"{LLAMA},heads=2"), "'heads=2' is no field of a shape; they are layers"),
        (("--shape", LLAMA), "a shape without positions=N needs --context"),
        (("tiny", "--memory", "24GB"), "'24GB' is no whole number of bytes"),
        (("tiny", "--memory", "0"), "0 bytes hold nothing"),
        (("tiny", "--memory", "much"), "write such as 24GiB"),
        (("tiny", "--context", "0"), "--context"),
    ],
)
def test_wrong_usage_is_refused_with_its_mend(
    told: Told, words: tuple[str, ...], said: str
) -> None:
    assert said in told(*words, code=2)


def test_models_that_cannot_be_read_are_refused_by_name(told: Told, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but no more")
    error = fields(told, str(broken), code=3)["error"]
    assert error["reason"] == "GGUF_INVALID"
    error = fields(told, "no-such-model", code=3)["error"]
    assert error["reason"] == "MODEL_NOT_FOUND"
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["FooForCausalLM"]}')
    assert fields(told, str(folder), code=3)["error"]["reason"] == "ARCHITECTURE_UNSUPPORTED"
    assert "fetch the file" in told("org/name:file.gguf", code=3)


def test_a_checkpoint_that_breaks_off_is_refused(
    told: Told, random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    source = random_checkpoint()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    weights = tmp_path / "model.safetensors"
    assert fields(told, str(tmp_path))["file_bytes"] == weights.stat().st_size
    weights.write_bytes(weights.read_bytes()[:-100])
    assert fields(told, str(tmp_path), code=3)["error"]["reason"] == "WEIGHTS_MISMATCH"


def test_nothing_is_converted_or_kept(
    told: Told,
    random_checkpoint: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write_gguf(random_checkpoint("LlamaForCausalLM"), tmp_path / "small.gguf")
    assert fields(told, str(path))["model"] == "small"
    assert not (tmp_path / "cache").exists()


def test_weights_that_a_model_has_not_are_refused(
    told: Told, random_checkpoint: Callable[..., Path]
) -> None:
    path = random_checkpoint(intermediate_size=40)
    error = fields(told, str(path), "--weights", "int4", code=3)["error"]
    assert error["reason"] == "WEIGHT_FORMAT_UNSUPPORTED"
    assert "int4" in fields(told, str(path))["weights_refused"]


def test_models_with_names_are_completed_and_files_left_to_the_shell() -> None:
    assert [each.value for each in possibilities(["fit"], "t")] == ["tiny"]
    assert possibilities(["fit"], "models/")[0].type == "file"
