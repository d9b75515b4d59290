"""The accelerator on a card is one that the node's back ends compute with."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from kakeya_fleet.node.config import machine as described


@pytest.fixture
def on(monkeypatch):
    """Pretends to be another machine: its system, its processor, its back ends."""

    def pretend(system, processor, backends):
        monkeypatch.setattr(platform, "system", lambda: system)
        monkeypatch.setattr(platform, "machine", lambda: processor)
        monkeypatch.setattr(described, "installed_backends", lambda: backends)
        monkeypatch.setattr(described, "_processor_of_macos", lambda: "Apple M4")
        return described.machine()

    return pretend


@pytest.mark.parametrize("backends", [(), ("torch",), ("mlx", "torch")])
def test_a_graphics_card_that_no_back_end_uses_is_not_named(
    on, monkeypatch, tmp_path, backends
) -> None:
    card = tmp_path / "0000:01:00.0" / "information"
    card.parent.mkdir()
    card.write_text("Model: \t NVIDIA H100\n")
    glob = Path.glob

    def with_a_card(path, pattern):
        cards = str(path) == "/proc/driver/nvidia/gpus"
        return [card] if cards else glob(path, pattern)

    monkeypatch.setattr(Path, "glob", with_a_card)
    found = on("Linux", "x86_64", backends).accelerator
    assert found.kind == "cpu"
    assert "NVIDIA" not in found.name


@pytest.mark.parametrize(
    ("processor", "backends", "kind"),
    [
        ("arm64", ("mlx", "torch"), "metal"),
        ("arm64", ("torch",), "cpu"),
        ("x86_64", ("torch",), "cpu"),
    ],
)
def test_a_mac_computes_with_metal_where_mlx_does(on, processor, backends, kind) -> None:
    found = on("Darwin", processor, backends).accelerator
    assert (found.kind, found.name) == (kind, "Apple M4")
