"""Needle recall, real text and the benchmark of restoring: their quick runs, and their figures."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scripts.bench.restored as bench_restored
import scripts.eval.needle as eval_needle
import scripts.eval.restored_text as eval_restored_text
from kakeya.text import TextCodec
from kakeya_fleet.engine.backends import load_encoder, load_verifier
from kakeya_fleet.engine.backends.torch_backend.projection import (
    Projection,
    ProjectionConfig,
    RestoredLayer,
    Source,
    save_projection,
)
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.models.digests import weights_digest
from kakeya_fleet.engine.models.model_folder import ModelFolder
from scripts.bench.restored_memory import slope
from scripts.bench.restored_steps import crossing
from scripts.eval.needle_cases import Score, Tally, is_evicted
from scripts.eval.recall_task import RecallCase
from scripts.eval.restoration_error import LogitGap
from scripts.eval.teacher_forced import logits_of
from scripts.eval.text_questions import asked_texts
from scripts.eval.text_quotes import quotes_of
from scripts.eval.text_sides import perplexity_of, read_text
from scripts.plot.looks import begin
from scripts.plot.needle import draw as draw_needle
from scripts.plot.restored import draw as draw_restored
from scripts.train.tiny_dflash import write_random_dflash

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "engine" / "shipped" / "tiny"


@pytest.fixture(scope="module")
def verifier(
    random_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A random verifier with the shipped one's tokenizer."""
    folder = tmp_path_factory.mktemp("evaluated") / "verifier"
    shutil.copytree(random_checkpoint(vocab_size=4096, max_position_embeddings=512), folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def drafter(verifier: Path) -> Path:
    """A random drafter for it, with a random learned map."""
    folder = write_random_dflash(verifier.parent / "drafter", verifier)
    config = json.loads((verifier / "config.json").read_text())
    encoder = load_encoder(folder)
    layer = RestoredLayer(config["num_key_value_heads"], config["head_dim"], key_norm=True)
    projection = Projection(
        ProjectionConfig(
            source=Source.FEATURES,
            width=encoder.spec.width,
            rank=0,
            layers=(layer,) * config["num_hidden_layers"],
            norm_eps=1e-6,
            rotary_scaling=1.0,
            verifier_model_id="verifier",
            verifier_digest=weights_digest(verifier),
            encoder_digest=encoder.spec.digest,
        )
    )
    save_projection(projection, folder / "restorer", torch.float32)
    return folder


def drawn_alike(
    draw: Callable[[dict[str, Any], Path], None], report: dict[str, Any], folder: Path
) -> bool:
    begin()
    for copy in "ab":
        draw(report, folder / f"{copy}.svg")
    first, second = ((folder / f"{copy}.svg").read_bytes() for copy in "ab")
    return first == second and first.startswith(b"<?xml")


def test_exact_restorers_are_full_attention_and_others_are_measured(
    verifier: Path, drafter: Path, tmp_path: Path
) -> None:
    target = tmp_path / "needle.json"
    words = ["--quick", "--verifier", str(verifier), "--restorer", str(drafter)]
    eval_needle.main([*words, "--archive", "64MiB", "--out", str(target)])
    report = json.loads(target.read_text())
    assert [rung["context_tokens"] for rung in report["rungs"]] == [96, 160]
    for rung in report["rungs"]:
        full = rung["strategies"]["full"]
        assert full["cases"] == 3
        assert full["anatomy"]["effective_attention"] == 1.0
        for name, cases in (("restored archive", 3), ("restored identity", 2)):
            found = rung["strategies"][name]
            assert found["cases"] == cases
            assert found["kl_nats_mean"] < 1e-6
            anatomy = found["anatomy"]
            assert anatomy["same_tokens_as_full"] == 1.0
            assert anatomy["effective_attention"] == pytest.approx(1.0, abs=1e-5)
            assert max(anatomy["key_error_by_layer"] + anatomy["value_error_by_layer"]) < 1e-6
            assert anatomy["restorer_bytes"] > 0
        assert rung["strategies"]["restored archive"]["hits"] == full["hits"]
        window = rung["strategies"]["sink_window"]["anatomy"]
        learned = rung["strategies"]["restored projection"]["anatomy"]
        assert window["key_error_by_layer"] is None
        assert 0.0 < window["effective_attention"] < 0.999
        # Random values for keys of some size: as far off as guessing is.
        assert min(learned["key_error_by_layer"]) > 0.1
        assert 0.0 < learned["effective_attention"] < 0.999
        assert learned["same_tokens_as_full"] <= 1.0
    # The verifier keeps as much at both contexts, whatever it restores.
    kept = [rung["strategies"]["restored archive"]["anatomy"] for rung in report["rungs"]]
    assert kept[0]["sustained_kv_bytes"] == kept[1]["sustained_kv_bytes"]
    assert "restored, projection" in target.with_suffix(".md").read_text()
    assert [(cell["control"], cell["chance"]) for cell in report["controls"]] == [
        ("absent key", 1.0),
        ("2 facts", 0.5),
        ("4 facts", 0.25),
    ]
    for cell in report["controls"]:
        found = {name: figures["hits"] for name, figures in cell["strategies"].items()}
        assert found["restored archive"] == found["full"]
        assert "restored identity" not in found
    # A part that is not measured again stays as it was.
    eval_needle.main([*words, "--archive", "local", "--parts", "controls", "--out", str(target)])
    again = json.loads(target.read_text())
    assert again["rungs"] == report["rungs"]
    assert again["parts"]["recall"] == report["parts"]["recall"]
    assert drawn_alike(draw_needle, report, tmp_path)


def test_memory_and_speed_of_restoring(tmp_path: Path) -> None:
    target = tmp_path / "restored.json"
    words = ["--quick", "--parts", "memory", "speed", "--archive", "local", "--restorer", ""]
    bench_restored.main([*words, "--out", str(target)])
    report = json.loads(target.read_text())
    memory = report["memory"]["strategies"]
    assert report["memory"]["verifier_bytes_constant"]
    assert memory["full"]["slopes"]["kv_bytes"] > 0
    assert memory["restored archive"]["slopes"]["kv_bytes"] == 0.0
    stored = [cell["restorer_bytes"] for cell in memory["restored archive"]["cells"]]
    assert stored[-1] > stored[0] > 0
    assert all(cell["peak_step_bytes"] > 0 for cell in memory["full"]["cells"])
    cells = report["speed"]["cells"]
    assert [(cell["context_tokens"], cell["tokens_a_step"]) for cell in cells] == [
        (96, 1),
        (96, 16),
        (256, 1),
        (256, 16),
    ]
    assert cells[0]["strategies"]["full"]["over_full"]["median"] == 1.0
    assert set(report["speed"]["crossing_tokens"]) == {"restored archive", "restored identity"}
    assert drawn_alike(draw_restored, report, tmp_path)


def test_a_fact_is_evicted_when_its_value_is() -> None:
    prompt = np.zeros(100, np.int64)

    def case(start: int) -> RecallCase:
        return RecallCase(prompt, prompt[:1], start)

    # The last query is at 99 and sees, with a window of 20, positions from 80 on.
    assert is_evicted(case(73), 7, 4, 20)
    assert not is_evicted(case(74), 7, 4, 20)
    assert not is_evicted(case(0), 7, 7, 20)
    assert is_evicted(case(0), 7, 6, 20)


def test_a_tally_counts_hits_with_their_interval() -> None:
    scores = [Score(index < 150, index >= 100, LogitGap(0.5, 0.75)) for index in range(200)]
    found = Tally(scores).summary()
    assert (found["hits"], found["recall"]) == (150, 0.75)
    assert found["wilson_95"] == pytest.approx([0.6857, 0.8049], abs=1e-3)
    assert found["fact_evicted"] == {"cases": 100, "share": 0.5, "hits": 50}
    assert (found["kl_nats_mean"], found["argmax_agreement"]) == (0.5, 0.75)


def test_a_text_is_read_in_chunks_as_it_is_in_one(verifier: Path) -> None:
    model = load_verifier(ModelFolder(verifier, "verifier"), backend="torch")
    tokens = np.random.default_rng(3).integers(0, 4096, 150).tolist()
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=150)
    cache, other = model.allocate(spec), model.allocate(spec)
    reading = read_text(model, cache, tokens, every=7)
    expected = torch.from_numpy(logits_of(model, other, tokens)).log_softmax(-1)
    losses = torch.nn.functional.nll_loss(expected[:-1], torch.tensor(tokens[1:]), reduction="none")
    assert reading.nats == pytest.approx(losses.numpy(), abs=1e-4)
    assert reading.places == pytest.approx(expected[::7].numpy(), abs=1e-4)
    assert reading.seconds > 0
    assert perplexity_of([reading.nats]) == pytest.approx(math.exp(losses.mean()), rel=1e-4)
    cache.release()
    other.release()


def test_bands_cover_a_text_once() -> None:
    assert eval_restored_text.bands(7999) == [(0, 1024), (1024, 2048), (2048, 4096), (4096, 7999)]
    assert eval_restored_text.bands(100) == [(0, 100)]


def test_a_quote_has_left_the_window_before_its_cue_is_read() -> None:
    left, of_prompt = quotes_of(range(1000), prompt=300, window=256)
    assert (left.where, of_prompt.where) == ("just outside the window", "of the prompt")
    # The query of position 999, the last that was read, sees those from 744 on.
    assert [*left.cue, *left.follows] == list(range(708, 744))
    assert [*of_prompt.cue, *of_prompt.follows] == list(range(100, 136))
    assert len(left.cue) == 12


def test_facts_come_once_at_every_depth_and_are_what_is_asked_for() -> None:
    codec = TextCodec.from_folder(SHIPPED)
    filler = codec.encode("def name(value):\n    return value\n" * 200)
    texts = list(asked_texts(codec, filler, 900, [1, 3], seed=2))
    assert texts == list(asked_texts(codec, filler, 900, [1, 3], seed=2))
    assert [text.facts for text in texts] == [1] * 5 + [3] * 5
    for text in texts:
        words = codec.decode(text.tokens)
        assert len(text.questions) == 3 * text.facts
        for question in text.questions:
            assert words.count(question.answer) == 1
            assert len(text.tokens) + len(question.prompt) <= 900 + 40
    depths = [question.depth for text in texts[:5] for question in text.questions]
    assert sorted(depths) == sorted([0, 1, 2, 3, 4] * 3)


def test_slopes_and_crossings() -> None:
    assert slope([256, 1024, 4096], [512, 512, 512]) == 0.0
    assert slope([1, 2, 3], [10, 30, 50]) == pytest.approx(20.0)
    with pytest.raises(ValueError, match="two lengths"):
        slope([5, 5], [1, 2])

    def cells(*ratios: float) -> list[dict[str, Any]]:
        return [
            {
                "context_tokens": context,
                "tokens_a_step": 1,
                "strategies": {"r": {"over_full": {"median": ratio}}},
            }
            for context, ratio in zip((256, 1024, 4096), ratios, strict=True)
        ]

    assert crossing(cells(0.5, 0.75, 1.25), "r", 1) == pytest.approx(2048.0)
    assert crossing(cells(0.5, 0.6, 0.9), "r", 1) is None
    assert crossing(cells(1.5, 1.6, 1.9), "r", 1) == 256.0
    assert crossing(cells(1.5, 0.6, 0.9), "r", 1) is None


def test_real_text_is_read_by_each_side_and_the_exact_ones_agree(
    verifier: Path, drafter: Path, tmp_path: Path
) -> None:
    words = (
        f"--model {verifier} --restorers {drafter} --archive 64MiB --texts 1 --length 300"
        " --contexts 260 --facts 1 2 --quoted 2 --quoted-prompt 60 --quoted-answer 90"
        " --behind 280 --rounds 2 --steps 3 --window 64"
    )
    target = tmp_path / "text.json"
    eval_restored_text.main([*words.split(), "--out", str(target)])
    report = json.loads(target.read_text())
    full, window, archive, packed, learned = report["texts"]["pages"]
    assert (full, window, archive) == ("full", "sink_window", "restored archive")
    for by_side in report["texts"].values():
        by_name = {name: side["bands"][0] for name, side in by_side.items()}
        own, left, kept = by_name[full], by_name[window], by_name[archive]
        made, rounded = by_name[learned], by_name[packed]
        assert own["to"] - own["from"] == 299
        assert (own["divergence_nats"], own["same_choice"]) == (0.0, 1.0)
        assert kept["divergence_nats"] < 1e-6
        assert kept["perplexity"] == pytest.approx(own["perplexity"], rel=1e-5)
        assert left["divergence_nats"] > 1e-6
        assert made["divergence_nats"] > 1e-6
        assert rounded["divergence_nats"] > kept["divergence_nats"]
    asked = report["facts"]["260"]
    for side in asked.values():
        # Five texts of one fact and five of two, each fact asked for in three ways.
        assert side["cases"] == 45
        assert {name: cell["cases"] for name, cell in side["by_facts"].items()} == {
            "1": 15,
            "2": 30,
        }
        assert {cell["cases"] for cell in side["by_depth"].values()} == {9}
    assert {where: cell["whole"]["cases"] for where, cell in report["quotes"][full].items()} == {
        "just outside the window": 2,
        "of the prompt": 2,
    }
    assert report["quotes"][full] == report["quotes"][archive]
    steps = report["steps"]["sides"]
    assert steps[full]["bytes_a_step"] == steps[window]["bytes_a_step"] == 0
    assert 0 < steps[learned]["bytes_a_step"] == steps[archive]["bytes_a_step"]
    # One vector of 32 float32 numbers; keys and values of two layers of 32 each.
    assert steps[learned]["bytes_a_position"] == 32 * 4
    assert steps[archive]["bytes_a_position"] == 2 * 2 * 32 * 4
    assert steps[full]["verifier_bytes"] > steps[archive]["verifier_bytes"]
    assert steps[archive]["restorer_bytes"] == steps[learned]["restorer_bytes"] > 0
