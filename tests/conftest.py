"""Small random checkpoints, and verifiers and draft sources made for tests, for every room."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings

from tests.warm.starting import WarmStarts

# No example has a time: on a busy machine any may take long. A failure is told as it was found,
# with what reproduces it: a test's own limit would end a long search for a shorter example, and
# hide it. `pytest --hypothesis-profile=shorter` searches. Where CI is set, hypothesis by itself
# draws the same examples for ever.
PATIENT = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=False,
)
settings.register_profile("shorter", PATIENT)
settings.register_profile(
    "patient", PATIENT, phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.target)
)
settings.load_profile("patient")

# As structlog's own, but tracebacks are plain: rich ones of many faults take minutes.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.StackInfoRenderer(),
        structlog.dev.set_exc_info,
        structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)


LONG_ROOMS = ("scenario", "scripts", "node")
"""Whose tests wait for processes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first: those that are left at the end are short, and all workers end together."""

    def place(item: pytest.Item) -> int:
        rooms = set(item.path.parts)
        return next((n for n, room in enumerate(LONG_ROOMS) if room in rooms), len(LONG_ROOMS))

    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """What collecting makes lives on: nobody searches it for garbage, again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What collecting imported lives as long as the process: no search for garbage visits it.

    Nor is it searched now: that takes a second in each worker, and finds little.
    """
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def warm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the process that agents are copies of, one for all workers.

    Of `make test` also for what it runs beside: tests/warm/beside.py.
    """
    if "TESTS_WARM_FOLDER" in os.environ:
        return Path(os.environ["TESTS_WARM_FOLDER"])
    own = tmp_path_factory.getbasetemp()
    # Below the run's folder each worker of xdist has one of its own.
    run = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder = run / "warm"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _same_codecs() -> Iterator[None]:
    """No agent measures codecs of its own accord: which one a quality has could change."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KAKEYA_CODEC_SAMPLING", "false")
        yield


@pytest.fixture(scope="session", autouse=True)
def warm_starts(warm_folder: Path) -> Iterator[WarmStarts]:
    """Agents of a `LocalFleet` start as copies of a process that has imported the libraries.

    All workers share it. Commands can be such copies too.
    """
    warm = WarmStarts(warm_folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("scripts.support.agent_process.start_process", warm.start)
        yield warm
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
    from scripts.train import tiny_families  # noqa: PLC0415

    tiny_families.save_random_checkpoint(folder, architecture, seed=seed, shards=shards, **config)
    return folder


@pytest.fixture(scope="session")
def random_drafter(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes the folder of a random DFlash drafter: (target_folder, name, version=1, **config)."""
    made: dict[str, Path] = {}

    def make(
        target_folder: Path,
        name: str = "drafter",
        *,
        seed: int = 0,
        version: int = 1,
        manifest: bool = True,
        **config: object,
    ) -> Path:
        key = repr((target_folder, name, seed, version, manifest, sorted(config.items(), key=str)))
        if key not in made:
            from scripts.train import tiny_dflash  # noqa: PLC0415

            folder = tmp_path_factory.mktemp("drafter") / name
            made[key] = tiny_dflash.write_random_dflash(
                folder, target_folder, seed, version=version, manifest=manifest, **config
            )
        return made[key]

    return make
