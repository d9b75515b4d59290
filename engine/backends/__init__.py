"""Back ends by name. Nothing above this package imports a tensor library."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

from kakeya_fleet.engine.contracts.draft import Proposer
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import BadParameters, ModelUnusable
from kakeya_fleet.engine.models.digests import weight_bytes
from kakeya_fleet.engine.models.model_folder import ModelFolder, Progress
from kakeya_fleet.engine.models.weight_reading import told_of_weights
from kakeya_fleet.engine.restoration.stores import EvictedStores
from kakeya_fleet.engine.verifiers.thread_count import Threads

BACKENDS = {
    "mlx": "kakeya_fleet.engine.backends.mlx_backend",
    "torch": "kakeya_fleet.engine.backends.torch_backend.torch_verifier",
}
"""Module of each back end; it has `load_verifier` with the signature of `_Backend`."""

DFLASH = {
    "mlx": "kakeya_fleet.engine.backends.mlx_backend.dflash",
    "torch": "kakeya_fleet.engine.backends.torch_backend.dflash",
}
"""Module of each back end with `load_dflash`."""

MASKED_DIFFUSION = {"torch": "kakeya_fleet.engine.backends.torch_backend.masked_diffusion"}
"""Module of each back end with `load_masked_diffusion`."""

SHARDING = {
    "mlx": "kakeya_fleet.engine.backends.mlx_backend.sharding",
    "torch": "kakeya_fleet.engine.backends.torch_backend.sharding",
}
"""Module of each back end with `load_shard`."""

LIBRARIES = {"mlx": ("mlx", "mlx_lm"), "torch": ("torch", "transformers")}
"""What each back end cannot do without; the extra of the same name installs it."""

AUTO = "auto"
"""Stands for the back end that suits this machine; see `suited_backend`."""


ENCODERS = {
    "mlx": "kakeya_fleet.engine.backends.mlx_backend.dflash.checkpoint",
    "torch": "kakeya_fleet.engine.backends.torch_backend.dflash.encoder",
}
"""Module of each back end with `load_encoder`."""

ARCHIVE_STORES = "kakeya_fleet.engine.backends.torch_backend.archive_stores"
"""It has `TorchArchiveStores`."""

STORES_BESIDE = "kakeya_fleet.engine.backends.torch_backend.stores_beside"
"""It has `stores_beside`."""

THREADS = "kakeya_fleet.engine.backends.torch_backend.threads"
"""It has `TorchThreads`."""


class _Backend(Protocol):
    def load_verifier(
        self, folder: ModelFolder, *, dtype: str, available_bytes: int | None
    ) -> Verifier: ...


class _Sharding(Protocol):
    def load_shard(self, folder: ModelFolder, *, dtype: str, rank: int, size: int) -> Verifier: ...


class _Encoders(Protocol):
    def load_encoder(self, folder: Path) -> ContextEncoder: ...


class _ArchiveStores(Protocol):
    def TorchArchiveStores(self, budget_bytes: int) -> EvictedStores: ...  # noqa: N802 - a class


class _StoresBeside(Protocol):
    def stores_beside(self, verifier: Verifier) -> EvictedStores | None: ...


class _Threads(Protocol):
    def TorchThreads(self) -> Threads: ...  # noqa: N802 - a class


class _DFlash(Protocol):
    def load_dflash(self, folder: ModelFolder, target: ModelFolder, *, dtype: str) -> Proposer: ...


class _MaskedDiffusion(Protocol):
    def load_masked_diffusion(self, folder: ModelFolder, *, dtype: str) -> Proposer: ...


def installed_backends() -> tuple[str, ...]:
    """The back ends whose libraries are installed. Imports none of them."""
    return tuple(name for name in LIBRARIES if not _missing(name))


def suited_backend() -> str:
    """MLX on Apple silicon, torch elsewhere; the other one if only that is installed.

    Raises `ModelUnusable` when none is.
    """
    apple = platform.system() == "Darwin" and platform.machine() == "arm64"
    installed = installed_backends()
    for name in ("mlx", "torch") if apple else ("torch", "mlx"):
        if name in installed:
            return name
    raise ModelUnusable(
        "no back end is installed: pip install 'kakeya-fleet[torch]', or 'kakeya-fleet[mlx]' "
        "on a Mac with Apple silicon",
        backend=AUTO,
    )


def load_verifier(
    folder: ModelFolder,
    *,
    backend: str = AUTO,
    dtype: str = "float32",
    available_bytes: int | None = None,
    reading: Progress | None = None,
) -> Verifier:
    """The model in `folder`, ready to verify. The first call imports the back end.

    `backend`: one of `BACKENDS`, or `AUTO`. `dtype`: `float32` or `bfloat16`, of
    weights and K/V. `available_bytes`: memory the weights may take; what the
    machine has available if None. `reading` hears of (done bytes, total bytes) of
    the weights, in this thread. Raises a `ModelUnusable`, also when the back
    end is not installed, or `BadParameters` for an unknown back end or dtype.
    """
    module = _module(_chosen(backend))
    with _told(reading, folder):
        return module.load_verifier(folder, dtype=dtype, available_bytes=available_bytes)


def import_backend(backend: str = AUTO) -> None:
    """Imports what `load_verifier` and its like need: seconds that hold up other threads.

    Raises as `load_verifier` does when the back end is not there.
    """
    _module(_chosen(backend))


def import_dflash(backend: str = AUTO) -> None:
    """Imports what `load_dflash` needs, as `import_backend` does."""
    name = _chosen(backend)
    _imported(name, DFLASH[name])


def import_masked_diffusion() -> None:
    """Imports what `load_masked_diffusion` needs, as `import_backend` does."""
    _imported("torch", MASKED_DIFFUSION["torch"])


def import_archives() -> None:
    """Imports what `archive_stores` needs, as `import_backend` does."""
    _imported("torch", ARCHIVE_STORES)


def load_shard(
    folder: ModelFolder, *, backend: str, dtype: str = "float32", rank: int, size: int
) -> Verifier:
    """The part of the model in `folder` that rank `rank` of `size` computes.

    Joins the other ranks first, and waits for them: torch over gloo, at MASTER_ADDR
    and MASTER_PORT; MLX as MLX_RANK and MLX_HOSTFILE, or jaccl's variables, say.
    From then on every rank makes the same calls in the same order. `bytes` of any
    kind are those of one rank. Raises as `load_verifier`, `ArchitectureUnsupported`
    also for a model that cannot be split over so many, and `ModelUnusable` when
    the others are not found.
    """
    name = _chosen(backend)
    module = cast(_Sharding, _imported(name, SHARDING[name]))
    return module.load_shard(folder, dtype=dtype, rank=rank, size=size)


def load_dflash(
    folder: ModelFolder,
    target: ModelFolder,
    *,
    backend: str = AUTO,
    dtype: str = "float32",
    reading: Progress | None = None,
) -> Proposer:
    """The DFlash drafter in `folder` for the verifier in `target`.

    `backend` and `reading` as for `load_verifier`. Raises a `ModelUnusable`, also when the back end
    is not installed, or `BadParameters`.
    """
    name = _chosen(backend)
    module = cast(_DFlash, _imported(name, DFLASH[name]))
    with _told(reading, folder, target):
        return module.load_dflash(folder, target, dtype=dtype)


def load_masked_diffusion(
    folder: ModelFolder,
    *,
    backend: str = AUTO,
    dtype: str = "float32",
    reading: Progress | None = None,
) -> Proposer:
    """The masked-diffusion model in `folder`, on torch whatever `AUTO` stands for elsewhere.

    Raises as `load_dflash`, and `ModelUnusable` for another back end asked for by name.
    """
    if backend != AUTO and _chosen(backend) not in MASKED_DIFFUSION:
        raise ModelUnusable(
            f"{folder.model_id} is a masked-diffusion model, which the back end {backend} does not"
            f" serve: leave out the back end, or choose {', '.join(MASKED_DIFFUSION)}",
            model_id=folder.model_id,
            backend=backend,
        )
    module = cast(_MaskedDiffusion, _imported("torch", MASKED_DIFFUSION["torch"]))
    with _told(reading, folder):
        return module.load_masked_diffusion(folder, dtype=dtype)


def load_encoder(folder: Path) -> ContextEncoder:
    """The context encoder of the DFlash drafter in `folder`, read with the suited back end.

    What it makes does not depend on the back end. Raises a `ModelUnusable`, also when
    none is installed.
    """
    name = suited_backend()
    return cast(_Encoders, _imported(name, ENCODERS[name])).load_encoder(folder)


def archive_stores(budget_bytes: int) -> EvictedStores:
    """Evicted stores that share a budget. Imports torch.

    Raises a `ModelUnusable` when torch is not installed.
    """
    module = cast(_ArchiveStores, _imported("torch", ARCHIVE_STORES))
    return module.TorchArchiveStores(budget_bytes)


def threads_of(verifier: Verifier) -> Threads | None:
    """The threads that forwards of `verifier` take; None where its back end has no say in them."""
    if verifier.info.backend != "torch":
        return None
    return cast(_Threads, _imported("torch", THREADS)).TorchThreads()


def stores_beside(verifier: Verifier) -> EvictedStores | None:
    """Evicted stores in the verifier's own process, whose bytes count in its pool.

    Their arithmetic is that of archives with the same library on the same kind of
    processor. None for a verifier of another back end than torch.
    """
    if verifier.info.backend != "torch":
        return None
    module = cast(_StoresBeside, _imported("torch", STORES_BESIDE))
    return module.stores_beside(verifier)


def _told(reading: Progress | None, *folders: ModelFolder) -> AbstractContextManager[None]:
    """While it lasts `reading` hears of the weights in `folders`."""
    if reading is None:
        return nullcontext()
    return told_of_weights(sum(weight_bytes(folder.path) for folder in folders), reading)


def _chosen(backend: str) -> str:
    """The back end's name behind `backend`. Raises `BadParameters` for one that is unknown."""
    name = suited_backend() if backend == AUTO else backend
    if name not in BACKENDS:
        raise BadParameters(f"no back end {name!r}; there are: {AUTO}, {', '.join(BACKENDS)}")
    return name


def _module(name: str) -> _Backend:
    """The back end `name`. Raises `ModelUnusable` unless its libraries are there and whole."""
    return cast(_Backend, _imported(name, BACKENDS[name]))


def _imported(name: str, module: str) -> ModuleType:
    """`module` of the back end `name`. Raises `ModelUnusable` if its libraries are not there."""
    advice = f"pip install 'kakeya-fleet[{name}]'"
    missing = _missing(name)
    if missing:
        raise ModelUnusable(
            f"the back end {name} needs {', '.join(missing)}: {advice}", backend=name
        )
    try:
        with _no_collection():
            return importlib.import_module(module)
    except ImportError as error:
        raise ModelUnusable(
            f"the back end {name} is not installed whole ({error}): {advice}", backend=name
        ) from error


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the collector of cycles: looking for garbage is a fifth of a large import's time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _missing(name: str) -> list[str]:
    """The libraries of the back end `name` that are not installed."""
    return [lib for lib in LIBRARIES[name] if importlib.util.find_spec(lib) is None]
