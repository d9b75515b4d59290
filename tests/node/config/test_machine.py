"""The accelerator on a card is one that the node's back ends compute with."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kakeya_fleet.engine.contracts.device import DeviceFacts
from kakeya_fleet.fleet.cards.card import Accelerator
from kakeya_fleet.node.config import machine as described

On = Callable[[str, str, tuple[str, ...]], described.Machine]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> On:
    """Pretends to be another machine: its system, its processor, its back ends."""

    def pretend(system: str, processor: str, backends: tuple[str, ...]) -> described.Machine:
        monkeypatch.setattr(platform, "system", lambda: system)
        monkeypatch.setattr(platform, "machine", lambda: processor)
        monkeypatch.setattr(described, "installed_backends", lambda: backends)
        monkeypatch.setattr(described, "_processor_of_macos", lambda: "Apple M4")
        return described.machine()

    return pretend


@pytest.mark.parametrize("backends", [(), ("torch",), ("mlx", "torch")])
def test_a_graphics_card_that_no_back_end_uses_is_not_named(
    on: On, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backends: tuple[str, ...]
) -> None:
    card = tmp_path / "0000:01:00.0" / "information"
    card.parent.mkdir()
    card.write_text("Model: \t NVIDIA H100\n")
    glob = Path.glob

    def with_a_card(path: Path, pattern: str) -> Iterator[Path]:
        cards = str(path) == "/proc/driver/nvidia/gpus"
        return iter([card]) if cards else glob(path, pattern)

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
def test_a_mac_computes_with_metal_where_mlx_does(
    on: On, processor: str, backends: tuple[str, ...], kind: str
) -> None:
    found = on("Darwin", processor, backends).accelerator
    assert (found.kind, found.name) == (kind, "Apple M4")


def test_a_mac_whose_node_computes_with_torch_does_not_compute_with_metal(on: On) -> None:
    on("Darwin", "arm64", ("mlx", "torch"))
    assert described.machine(backend="torch").accelerator.kind == "cpu"
    assert described.machine(backend="mlx").accelerator.kind == "metal"


def test_what_it_computes_in_is_told_with_its_memory(on: On) -> None:
    found = on("Linux", "x86_64", ("torch",))
    own = found.accelerator
    assert own.memory_total_bytes == found.memory_total_bytes
    assert 0 < own.memory_free_bytes <= own.memory_total_bytes
    assert own.dtypes == ("float32", "bfloat16")
    assert on("Linux", "x86_64", ()).accelerator.dtypes == ()


def test_a_device_that_was_asked_for_is_on_the_card_with_its_own_memory() -> None:
    facts = DeviceFacts("cuda", "H100", 80 << 30, 70 << 30, ("float32",), ("auto", "bf16"))
    own = described.machine(facts).accelerator
    assert own == Accelerator("cuda", "H100", 80 << 30, 70 << 30, ("float32",))
    # The processor has no driver to name it.
    host = replace(facts, kind="cpu", name="")
    assert described.machine(host).accelerator.name == described.processor_name()
