"""What is kept is found again where everything that rounds is the same, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kakeya_fleet.engine.backends import arithmetic_of, load_verifier
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.verifiers import kept_exactness
from kakeya_fleet.engine.verifiers.exactness import Exactness
from kakeya_fleet.engine.verifiers.kept_exactness import settle_once


@pytest.fixture(scope="module")
def model(random_checkpoint: Callable[..., Path]) -> Path:
    return random_checkpoint(num_hidden_layers=1, max_position_embeddings=200)


@pytest.fixture
def verifier(model: Path) -> Verifier:
    return load_verifier(ModelFolder(model, "random"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept_exactness, "records_folder", lambda: tmp_path / "kept")
    return tmp_path / "kept"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[Exactness]:
    """What was checked, and not read: a check finds that all but the narrowest forwards agree."""
    made: list[Exactness] = []

    def counted(verifier: Verifier, *, seed: int = 0) -> Exactness:
        del seed
        verifier.use_row_counts(verifier.row_counts[1:])
        made.append(Exactness(True, verifier.row_counts, verifier.thread_count))
        return made[-1]

    monkeypatch.setattr(kept_exactness, "settle", counted)
    return made


def test_a_second_load_leaves_the_verifier_as_the_check_did(
    model: Path, verifier: Verifier, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real check."""
    found = settle_once(verifier, arithmetic_of(verifier))
    monkeypatch.delattr(kept_exactness, "settle")
    # By another name it is the same model.
    again = load_verifier(ModelFolder(model, "another"))
    loaded = again.row_counts
    assert settle_once(again, arithmetic_of(again)) == found
    assert again.row_counts == verifier.row_counts == found.row_counts
    assert set(found.row_counts) <= set(loaded)
    assert len(list(folder.iterdir())) == 1


def test_whatever_rounds_otherwise_is_checked_anew(
    verifier: Verifier, folder: Path, checks: list[Exactness], monkeypatch: pytest.MonkeyPatch
) -> None:
    named = arithmetic_of(verifier)
    assert torch.__version__ in named
    loaded = verifier.row_counts

    def check(arithmetic: str = named, seed: int = 0) -> int:
        verifier.use_row_counts(loaded)
        settle_once(verifier, arithmetic, seed=seed)
        return len(checks)

    assert check() == check() == 1
    assert check("torch 99") == 2
    assert check(seed=1) == 3
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert check() == 4
    monkeypatch.delenv("ATEN_CPU_CAPABILITY")
    monkeypatch.setattr(kept_exactness, "_processor", lambda: "another")
    assert check() == 5
    monkeypatch.setattr(kept_exactness, "_engine_digest", lambda: "after a change")
    assert check() == 6
    # Row counts that it came with.
    verifier.use_row_counts(loaded[:-1])
    settle_once(verifier, named)
    assert len(checks) == 7
    assert check() == 7
    assert len(list(folder.iterdir())) == 7


def test_weights_of_other_numbers_and_threads_are_checked_anew(
    verifier: Verifier, folder: Path, checks: list[Exactness]
) -> None:
    class Other:
        """The verifier, as if it were another."""

        def __init__(self, **differs: Any) -> None:
            self.differs = differs

        def __getattr__(self, name: str) -> Any:
            return self.differs.get(name, getattr(verifier, name))

    settle_once(Other(), "x")
    info = replace(verifier.info, weights_digest="0" * 64)
    settle_once(Other(info=info), "x")
    settle_once(Other(thread_count=7), "x")
    assert len(checks) == len(list(folder.iterdir())) == 3


def test_where_nobody_can_say_what_rounds_nothing_is_kept(
    verifier: Verifier, folder: Path, checks: list[Exactness]
) -> None:
    class OfATest:
        info = verifier.info

    # Made of a back end's, and by none: a group, a wrapper.
    assert arithmetic_of(OfATest()) == ""  # type: ignore[arg-type]
    for _ in range(2):
        settle_once(verifier, "")
    assert len(checks) == 2
    assert not folder.exists()


@pytest.mark.parametrize(
    "words",
    [
        "",
        "{",
        "[]",
        '{"exact": true}',
        '{"exact": 1, "row_counts": [1], "thread_count": 1}',
        '{"exact": true, "row_counts": [], "thread_count": 1}',
        '{"exact": true, "row_counts": ["1"], "thread_count": 1}',
        '{"exact": true, "row_counts": [0], "thread_count": 1}',
        # Of no verifier that would ask.
        '{"exact": true, "row_counts": [7, 64], "thread_count": 1}',
        '{"exact": true, "row_counts": [64], "thread_count": 12}',
        '{"exact": true, "row_counts": [4], "thread_count": 1}',
    ],
)
def test_a_record_that_is_none_is_made_again(
    verifier: Verifier, folder: Path, checks: list[Exactness], words: str
) -> None:
    loaded = verifier.row_counts
    found = settle_once(verifier, "x")
    (path,) = folder.iterdir()
    path.write_text(words)
    verifier.use_row_counts(loaded)
    assert settle_once(verifier, "x") == found
    assert len(checks) == 2
    assert json.loads(path.read_text())["row_counts"] == list(found.row_counts)


def test_a_folder_that_cannot_be_used_costs_the_check_alone(
    verifier: Verifier, folder: Path, checks: list[Exactness]
) -> None:
    folder.write_text("a file in its place")
    loaded = verifier.row_counts
    found = settle_once(verifier, "x")
    verifier.use_row_counts(loaded)
    assert settle_once(verifier, "x") == found
    assert len(checks) == 2


def test_the_oldest_records_go_first(
    verifier: Verifier, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_exactness, "MOST_RECORDS", 2)
    monkeypatch.setattr(
        kept_exactness, "settle", lambda *_, **__: Exactness(True, verifier.row_counts, 1)
    )
    for arithmetic in ("a", "b", "c"):
        settle_once(verifier, arithmetic)
    assert len(list(folder.iterdir())) == 2
