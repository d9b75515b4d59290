"""Small random checkpoints, and verifiers and draft sources made for tests, for every room."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import linked_pairs


@pytest.fixture(scope="session", autouse=True)
def warm_agents() -> Iterator[None]:
    """Agents of a `LocalFleet` start as copies of a process that has imported the libraries."""
    warm = _module("starting", Path(__file__).parent / "warm").WarmStarts()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kakeya_fleet.node.agent_process.start_process", warm.start)
        yield
    warm.close()


@pytest.fixture(scope="session")
def random_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes the folder of a random model: (architecture, seed=0, shards=False, **config)."""
    made: dict[str, Path] = {}

    def make(
        architecture: str = "Qwen3ForCausalLM",
        *,
        seed: int = 0,
        shards: bool = False,
        **config: object,
    ) -> Path:
        key = repr((architecture, seed, shards, sorted(config.items(), key=str)))
        if key not in made:
            made[key] = _save(
                tmp_path_factory.mktemp("checkpoint"), architecture, seed, shards, config
            )
        return made[key]

    return make


def _save(
    folder: Path, architecture: str, seed: int, shards: bool, config: dict[str, object]
) -> Path:
    # Most rooms' tests load no model: what it imports takes seconds.
    families = _module("tiny_families", Path(__file__).parents[1] / "scripts")
    families.save_random_checkpoint(folder, architecture, seed=seed, shards=shards, **config)
    return folder


def _module(name: str, folder: Path) -> ModuleType:
    """A module that cannot be imported by name: tests and scripts are no packages."""
    full_name = f"{folder.name}_room_{name}"
    if full_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(full_name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full_name] = module
        spec.loader.exec_module(module)
    return sys.modules[full_name]


def _load(name: str) -> ModuleType:
    """A module beside the engine's tests."""
    return _module(name, Path(__file__).parent / "engine")


@pytest.fixture(scope="session")
def random_drafter(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes the folder of a random DFlash drafter: (target_folder, name, seed=0, **config)."""
    made: dict[str, Path] = {}

    def make(
        target_folder: Path, name: str = "drafter", *, seed: int = 0, **config: object
    ) -> Path:
        key = repr((target_folder, name, seed, sorted(config.items(), key=str)))
        if key not in made:
            scripts = _module("tiny_dflash", Path(__file__).parents[1] / "scripts")
            folder = tmp_path_factory.mktemp("drafter") / name
            made[key] = scripts.write_random_dflash(folder, target_folder, seed, **config)
        return made[key]

    return make


@pytest.fixture(scope="session")
def linked_pair() -> Callable[..., object]:
    """`async with linked_pair("grpc") as (caller, served)`."""
    made: Callable[..., object] = linked_pairs.linked_pair
    return made
