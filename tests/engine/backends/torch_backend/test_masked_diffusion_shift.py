"""The declared prediction shift against what a model's own predictions say."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest
import torch

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion import (
    load_masked_diffusion,
    shift_probe,
)
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.shift_probe import (
    LENGTH,
    PERIODS,
    PROBES,
    UNPROBED,
    Scores,
    ShiftEvidence,
    judge,
    probe_shift,
    student_t,
)
from kakeya_fleet.engine.errors import TrainedForAnother
from kakeya_fleet.engine.models.model_folder import ModelFolder
from scripts.train.masked_diffusion import CHECKPOINT, Settings, build_model, export, sha256, train
from scripts.train.tiny_masked import save_masked_checkpoint, write_config

PERIOD = 6
QUICK = Settings(
    steps=120,
    layers=1,
    peak_rate=1e-2,
    shortest_period=PERIOD,
    longest_period=PERIOD,
    longest_block=8,
    length=LENGTH,
)
"""Learned in two seconds, since one period is all it has to count."""


@pytest.fixture
def one_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes of the period that the trained models know: to learn four takes minutes."""
    monkeypatch.setattr(shift_probe, "PERIODS", (PERIOD,) * len(PERIODS))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model that learned to copy at shift 1, which Qwen 3's layers do not imply."""
    settings = dataclasses.replace(QUICK, shift=1)
    model, losses = train(settings)
    assert sum(losses[-10:]) < 10 * 1.5
    folder = tmp_path_factory.mktemp("trained")
    export(folder, model, settings)
    return folder


def redeclare(folder: Path, copy: Path, **entries: object) -> Path:
    """The model in `folder` under another config, in `copy`."""
    for name in ("model.safetensors", "tokenizer.json"):
        (copy / name).write_bytes((folder / name).read_bytes())
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_config(copy, config | entries)
    return copy


def test_the_declared_shift_is_borne_out_whatever_the_seed(trained: Path, one_period: None) -> None:
    proposer = load_masked_diffusion(ModelFolder(trained, "copies"))
    assert (proposer.info.prediction_shift, proposer.info.shift_checked) == (1, True)
    for seed in range(3):
        found = probe_shift(proposer._model, 64, 512, seed=seed)
        assert found.shift == 1
        assert found.margin < 0
        assert found.probe_count == 2 * PROBES


@pytest.mark.parametrize("declared", [0, None], ids=["declared", "implied by the family"])
def test_the_other_shift_is_refused_with_both_and_the_mend(
    trained: Path, one_period: None, tmp_path: Path, declared: int | None
) -> None:
    copy = redeclare(trained, tmp_path, prediction_shift=declared)
    with pytest.raises(TrainedForAnother, match='set "prediction_shift": 1') as caught:
        load_masked_diffusion(ModelFolder(copy, "copies"))
    assert caught.value.metadata["declared_shift"] == "0"
    assert caught.value.metadata["found_shift"] == "1"


@pytest.mark.parametrize(
    ("architecture", "width", "shift"),
    [
        ("BertForMaskedLM", 0.02, 0),
        ("BertForMaskedLM", 1.0, 1),
        ("Qwen3ForCausalLM", 0.02, 1),
        ("Qwen3ForCausalLM", 1.0, 0),
    ],
)
def test_without_training_any_shift_loads_unchecked(
    tmp_path: Path, architecture: str, width: float, shift: int
) -> None:
    folder = save_masked_checkpoint(
        tmp_path,
        architecture,
        initializer_range=width,
        tie_word_embeddings=True,
        prediction_shift=shift,
    )
    info = load_masked_diffusion(ModelFolder(folder, "random")).info
    assert (info.prediction_shift, info.shift_checked) == (shift, False)


class Table:
    """Predicts as it is told: `knows(ids, row)` gives the position whose token the row knows."""

    mask_token_id = 0
    prediction_shift = 0

    def __init__(
        self, knows: Callable[[torch.Tensor, int], int | None], *, sees_itself: bool = False
    ) -> None:
        self.knows = knows
        self.sees_itself = sees_itself

    def log_probabilities(self, ids: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        logits = torch.zeros(len(ids), len(rows), 50)
        for text in range(len(ids)):
            for place, row in enumerate(rows):
                at = self.knows(ids[text], row)
                if at is not None:
                    logits[text, place, ids[text, at % PERIODS[text]]] = 6.0 + text % 3
                if self.sees_itself:
                    logits[text, place, ids[text, row]] = 20.0
        logits += torch.randn(logits.shape, generator=torch.Generator().manual_seed(4)) * 0.3
        logits[..., self.mask_token_id] = -torch.inf
        return logits.log_softmax(-1)


def test_what_clear_evidence_is() -> None:
    def found(model: Table) -> int | None:
        return probe_shift(model, 50, 100).shift

    assert found(Table(lambda _ids, row: row)) == 0
    assert found(Table(lambda _ids, row: row + 1)) == 1
    assert found(Table(lambda _ids, _row: None)) is None
    # The row of a visible token favours that token: margins are large, but nothing is read.
    blind = Table(lambda _ids, _row: None, sees_itself=True)
    assert probe_shift(blind, 50, 100).margin_t > 5
    assert found(blind) is None
    # A visible row that still knows the next token, as a causal model's did, proves nothing.
    adapted = Table(lambda ids, row: row + 1 if ids[row] != 0 else None)
    assert probe_shift(adapted, 50, 100).margin < 0
    assert found(adapted) is None


def test_a_model_that_miscounts_one_period_does_not_pass_for_the_other_shift() -> None:
    """It reads rows of some periods one position off, with full confidence."""

    def found(wrong: Collection[int]) -> ShiftEvidence:
        model = Table(lambda ids, row: row + 1 if period(ids) in wrong else row)
        return probe_shift(model, 50, 100)

    def period(ids: torch.Tensor) -> int:
        unmasked = ids[:8].tolist()
        return next(size for size in PERIODS if ids[size] == unmasked[0])

    assert found({5, 8}).shift is None
    assert found({5, 6, 8}).shift is None
    assert found(set(PERIODS)).shift == 1


def test_margins_that_contradict_each_other_prove_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    strong = 3 + torch.rand(PROBES, generator=generator, dtype=torch.float64)
    weak = torch.rand(PROBES, generator=generator, dtype=torch.float64) / 10
    chance = torch.randn(PROBES, generator=generator, dtype=torch.float64)
    skills = (strong, strong)
    assert judge(Scores(strong, skills), Scores(weak, skills)).shift == 0
    assert judge(Scores(strong, skills), Scores(-weak, skills)).shift is None
    vague = chance - chance.mean() + 0.2
    assert 0 < student_t(vague) < 3
    assert judge(Scores(strong, skills), Scores(vague, skills)).shift is None
    assert judge(Scores(strong, (weak, strong)), Scores(strong, (weak, strong))).shift is None
    assert judge(Scores(-strong, skills), Scores(-weak, skills)).shift == 1


def test_student_s_t_is_that_of_the_textbooks() -> None:
    assert student_t(torch.tensor([1.0, 2.0, 3.0, 4.0])) == pytest.approx(2.5 / (1.29099445 / 2))
    assert student_t(torch.tensor([2.0, 2.0])) == math.inf
    assert student_t(torch.tensor([-1.0, 1.0])) == 0.0


def test_where_no_probe_fits_none_is_made() -> None:
    model = Table(lambda _ids, row: row)
    assert probe_shift(model, max(PERIODS), 100) == UNPROBED
    assert probe_shift(model, 50, LENGTH - 1) == UNPROBED
    assert probe_shift(model, 50, 100, excluded=range(3, 50)) == UNPROBED


def test_training_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Killed after a checkpoint, a run ends with the weights of one that was not."""
    settings = dataclasses.replace(QUICK, steps=4, hidden=12, rows=4)
    whole, _ = train(settings, tmp_path / "whole")
    state = torch.load(tmp_path / "whole" / CHECKPOINT, weights_only=True)
    assert state["step"] == 4
    part = tmp_path / "part"
    train(settings, part, stop_at=2)
    resumed, losses = train(settings, part)
    assert len(losses) == 2
    for name, tensor in resumed.state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[name]), name
    with pytest.raises(ValueError, match="other settings"):
        train(dataclasses.replace(settings, seed=1), part)
    export(tmp_path / "out", resumed, settings)
    manifest = json.loads((tmp_path / "out" / "training.json").read_text(encoding="utf-8"))
    assert manifest["files"]["model.safetensors"] == sha256(tmp_path / "out/model.safetensors")
    assert not torch.equal(
        build_model(settings).model.embed_tokens.weight, resumed.model.embed_tokens.weight
    )
