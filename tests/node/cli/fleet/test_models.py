"""`fleet models`: what was converted on this machine, in a table, in JSON, and cleared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kakeya_fleet.engine.models.converted_models import converted
from kakeya_fleet.node.cli.main import run

WEIGHTS = "model.safetensors"


def write(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(bytes(3 << 20))


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("one", "two"):
        source = tmp_path / f"{name}.gguf"
        source.write_text(name)
        converted(source, name, "bfloat16", needed_bytes=3 << 20, weights=WEIGHTS, make=write)


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_they_are_listed_with_the_room_they_take(
    two: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["models"]) == 0
    title, _head, first, second = told(capsys).splitlines()
    assert "6.00 MiB" in title
    assert first.split()[:2] == ["one", "bfloat16"]
    assert second.split()[:2] == ["two", "bfloat16"]
    assert run(["models", "--json"]) == 0
    models = json.loads(told(capsys))["models"]
    assert [each["name"] for each in models] == ["one", "two"]
    assert all(each["byte_count"] > 3 << 20 for each in models)


def test_they_are_cleared_by_name_or_all(two: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "clear", "one"]) == 0
    assert "1 cleared, 3.00 MiB" in told(capsys)
    assert run(["models", "clear", "--all", "--json"]) == 0
    assert [each["name"] for each in json.loads(told(capsys))["cleared"]] == ["two"]
    assert run(["models"]) == 0
    assert "no model was converted" in told(capsys)


def test_a_name_that_none_has_clears_nothing(two: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "clear", "one", "three"]) == 3
    assert "no converted model is called three; there is one, two" in capsys.readouterr().err
    assert run(["models", "clear"]) == 2
    assert run(["models", "clear", "--all", "one"]) == 2
    capsys.readouterr()
    assert run(["models", "--json"]) == 0
    assert len(json.loads(told(capsys))["models"]) == 2
