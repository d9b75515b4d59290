"""Back ends by name. Nothing above this package imports a tensor library."""

from __future__ import annotations

import gc
import importlib.util
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kakeya_fleet.engine.backends.mlx_backend.backend import MlxBackend
from kakeya_fleet.engine.backends.torch_backend.backend import TorchBackend
from kakeya_fleet.engine.contracts import device as devices
from kakeya_fleet.engine.contracts.device import DeviceFacts
from kakeya_fleet.engine.errors import BadParameters, DeviceUnavailable, ModelUnusable
from kakeya_fleet.engine.memory.allocation import told_as_unloadable
from kakeya_fleet.engine.models import weight_choice
from kakeya_fleet.engine.models.digests import weight_bytes
from kakeya_fleet.engine.models.own_dtype import settled_dtype
from kakeya_fleet.engine.models.weight_reading import told_of_weights
from kakeya_fleet.engine.restoration.narrowed_encoder import NarrowedEncoder

if TYPE_CHECKING:
    from kakeya_fleet.engine.backends.backend import Backend
    from kakeya_fleet.engine.contracts.draft import Proposer
    from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder, EncoderWeights
    from kakeya_fleet.engine.contracts.features import FeatureEncoder
    from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
    from kakeya_fleet.engine.contracts.verifier import Verifier
    from kakeya_fleet.engine.models.model_folder import ModelFolder, Progress
    from kakeya_fleet.engine.restoration.learned_map import LearnedMap
    from kakeya_fleet.engine.restoration.stores import EvictedStores
    from kakeya_fleet.engine.verifiers.thread_count import Threads

BACKENDS: dict[str, Backend] = {each.name: each for each in (MlxBackend(), TorchBackend())}
"""By name. None has imported its libraries."""

TORCH = "torch"
"""The back end whose devices can be chosen."""

AUTO = "auto"
"""Stands for the back end that suits this machine; see `suited_backend`."""

MANY_MODULES = 50
"""Of a library that an import brings: torch brings thousands, a module of this tree itself."""

Capability = TypeVar("Capability")


def installed_backends() -> tuple[str, ...]:
    """The back ends whose libraries are installed. Imports none of them."""
    return tuple(name for name, backend in BACKENDS.items() if not _missing(backend))


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
    weights: str = weight_choice.AUTO,
    device: str = devices.AUTO,
    available_bytes: int | None = None,
    reading: Progress | None = None,
) -> Verifier:
    """The model in `folder`, ready to verify. The first call imports the back end.

    `backend`: one of `BACKENDS`, or `AUTO`. `dtype`: `float32` or `bfloat16`, of
    weights and K/V, or `auto`: the checkpoint's own. `weights`: what products take them
    as, one of `weight_choice.WEIGHTS`. `device`: what computes it,
    one of `engine.contracts.device.DEVICES`. `available_bytes`: memory of the device that the
    weights may take; what it has available if None. A load that lacks some in the end
    is an `OutOfMemory` too. `reading` hears of
    (done bytes, total bytes) of the weights, in this thread. Raises a `ModelUnusable`,
    also when the back end is not installed or has no such weights, or `BadParameters`
    for an unknown back end, dtype or device.
    """
    load = _imported(_chosen(backend, device), lambda each: each.verifiers())
    with _told(reading, folder), told_as_unloadable(folder.path):
        settled = settled_dtype(dtype, folder.path)
        return load(
            folder,
            dtype=settled,
            available_bytes=available_bytes,
            weights=weights,
            device=device,
        )


def folder_on_paper(
    folder: ModelFolder, *, backend: str = AUTO, dtype: str = "float32"
) -> ModelOnPaper:
    """What a verifier of the model in `folder` would keep; no tensor is read.

    Of a folder without weights its config alone is looked at. `backend`, `dtype` and errors
    as for `load_verifier`.
    """
    read = _imported(_chosen(backend), lambda each: each.papers())
    return read(folder, dtype=settled_dtype(dtype, folder.path))


def import_backend(backend: str = AUTO, device: str = devices.AUTO) -> None:
    """Imports what `load_verifier` and its like need: seconds that hold up other threads.

    Raises as `load_verifier` does when the back end is not there.
    """
    _imported(_chosen(backend, device), lambda each: each.verifiers())


def prepare(backend: str = AUTO, device: str = devices.AUTO) -> None:
    """Makes what the first load of a verifier makes on this machine, such as compiled code.

    So that it can be made while other work is done, such as a conversion: a load waits for it.
    Raises as `load_verifier` does when the back end is not there.
    """
    make = _imported(_chosen(backend, device), lambda each: each.preparation())
    if make is not None:
        make(device)


def import_dflash(backend: str = AUTO, device: str = devices.AUTO) -> None:
    """Imports what `load_dflash` needs, as `import_backend` does."""
    _imported(_chosen(backend, device), lambda each: each.drafters())


def import_masked_diffusion() -> None:
    """Imports what `load_masked_diffusion` needs, as `import_backend` does."""
    _provided(lambda each: each.masked_diffusion())


def import_archives() -> None:
    """Imports what `archive_stores` needs, as `import_backend` does."""
    _provided(lambda each: each.archive_stores())


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
    load = _imported(_chosen(backend), lambda each: each.shards())
    return load(folder, dtype=settled_dtype(dtype, folder.path), rank=rank, size=size)


def load_dflash(
    folder: ModelFolder,
    target: ModelFolder,
    *,
    backend: str = AUTO,
    dtype: str = "float32",
    device: str = devices.AUTO,
    reading: Progress | None = None,
) -> Proposer:
    """The DFlash drafter in `folder` for the verifier in `target`.

    `backend`, `device` and `reading` as for `load_verifier`. Raises a `ModelUnusable`, also
    when the back end is not installed, or `BadParameters`.
    """
    load = _imported(_chosen(backend, device), lambda each: each.drafters())
    with _told(reading, folder, target):
        return load(folder, target, dtype=settled_dtype(dtype, folder.path), device=device)


def load_masked_diffusion(
    folder: ModelFolder,
    *,
    backend: str = AUTO,
    dtype: str = "float32",
    reading: Progress | None = None,
) -> Proposer:
    """The masked-diffusion model in `folder`, on the back end that serves such.

    Raises as `load_dflash`, and `ModelUnusable` for one asked for by name that does not.
    """
    if backend == AUTO:
        load = _provided(lambda each: each.masked_diffusion())
    else:
        asked = _imported(_chosen(backend), lambda each: each.masked_diffusion())
        if asked is None:
            raise ModelUnusable(
                f"{folder.model_id} is a masked-diffusion model, which the back end {backend} does"
                " not serve: leave out the back end, or choose another",
                model_id=folder.model_id,
                backend=backend,
            )
        load = asked
    with _told(reading, folder):
        return load(folder, dtype=settled_dtype(dtype, folder.path))


def load_encoder(folder: Path, *, backend: str = AUTO) -> ContextEncoder:
    """The context encoder of the DFlash drafter in `folder`, as a back end makes it.

    What it makes depends on the back end in its last bits alone; where a verifier's queries see
    what is made of it, its own is to be named, whose `arithmetic_of` tells of it. Raises a
    `ModelUnusable`, also when none is installed.
    """
    named = BACKENDS.get(backend) or BACKENDS[suited_backend()]
    return _imported(named, lambda each: each.encoders())(folder)


def load_map_encoder(found: LearnedMap, *, backend: str = AUTO) -> FeatureEncoder:
    """What makes the vectors that a learned map takes, as `load_encoder` makes its drafter's.

    Raises a `ModelUnusable`, also when no back end is installed.
    """
    encoder = load_encoder(found.folder, backend=backend)
    if not found.narrows:
        return encoder
    named = BACKENDS.get(backend) or BACKENDS[suited_backend()]
    products = _imported(named, lambda each: each.narrowings())(found, encoder.spec.width)
    return NarrowedEncoder(encoder, products, found.width)


def make_encoder(weights: EncoderWeights) -> ContextEncoder:
    """The encoder of these weights, as `load_encoder` makes it. Imports the suited back end.

    Raises a `ModelUnusable` when none is installed.
    """
    return _imported(BACKENDS[suited_backend()], lambda each: each.encoder_maker())(weights)


def archive_stores(budget_bytes: int) -> EvictedStores:
    """Evicted stores that share a budget. Imports a back end.

    Raises a `ModelUnusable` when none that has such is installed.
    """
    return _provided(lambda each: each.archive_stores())(budget_bytes)


def threads_of(verifier: Verifier) -> Threads | None:
    """The threads that forwards of `verifier` take; None where its back end has no say in them."""
    backend = BACKENDS.get(verifier.info.backend)
    return None if backend is None else _imported(backend, lambda each: each.threads())


def arithmetic_of(verifier: Verifier) -> str:
    """What rounds its forwards besides their shapes and threads.

    Empty for one that no back end made by itself: a group's ranks are other machines too.
    """
    backend = BACKENDS.get(verifier.info.backend)
    if backend is None or not _is_own(verifier):
        return ""
    return _imported(backend, lambda each: each.arithmetic())(verifier)


def device_facts(device: str = devices.AUTO, *, backend: str = AUTO) -> DeviceFacts:
    """What computes where `load_verifier` is given these, with the memory that is free there now.

    Imports the back end. Raises as `load_verifier` does for a device that is not here.
    """
    return _imported(_chosen(backend, device), lambda each: each.device_facts())(device)


def device_use(device: str, *, backend: str = AUTO) -> Callable[[], float | None]:
    """What reads how busy the device is that `device_facts` tells of, 0 to 1, in any thread.

    It reads None where the driver does not tell. Imports the back end, and raises as
    `device_facts` does.
    """
    reads = _imported(_chosen(backend, device), lambda each: each.device_use())
    return reads(device) if reads is not None else lambda: None


def stores_beside(verifier: Verifier) -> EvictedStores | None:
    """Evicted stores in the verifier's own process, whose bytes count in its pool.

    Their arithmetic is that of archives with the same library on the same kind of
    processor. None for a verifier whose back end has none.
    """
    backend = BACKENDS.get(verifier.info.backend)
    make = None if backend is None else _imported(backend, lambda each: each.stores_beside())
    return None if make is None else make(verifier)


def for_drafts(verifier: Verifier, folder: ModelFolder) -> Verifier:
    """A verifier of the same weights that drafts better, or in less time; or `verifier` itself.

    It rounds otherwise, and its logits of ids that are unlikely may be -inf: what it says is good
    for a draft alone. Of the two one computes at a time. Raises a `ModelUnusable`, one of them
    where what it has besides the weights in `folder` does not fit into the memory that is left.
    """
    backend = BACKENDS.get(verifier.info.backend)
    make = None if backend is None else _imported(backend, lambda each: each.drafting())
    return verifier if make is None else make(verifier, folder)


def _told(reading: Progress | None, *folders: ModelFolder) -> AbstractContextManager[None]:
    """While it lasts `reading` hears of the weights in `folders`."""
    if reading is None:
        return nullcontext()
    return told_of_weights(sum(weight_bytes(folder.path) for folder in folders), reading)


def _chosen(backend: str, device: str = devices.AUTO) -> Backend:
    """The back end behind `backend`, or the one that knows `device`.

    Raises `BadParameters` for one that is unknown, `DeviceUnavailable` for a back end that
    cannot be told to compute with `device`.
    """
    if device not in devices.DEVICES:
        raise BadParameters(f"no device {device!r}; there are: {', '.join(devices.DEVICES)}")
    name = backend
    if backend == AUTO:
        # A device by name is torch's, also where another back end suits the machine.
        name = suited_backend() if device == devices.AUTO else TORCH
    if name not in BACKENDS:
        raise BadParameters(f"no back end {name!r}; there are: {AUTO}, {', '.join(BACKENDS)}")
    if device not in BACKENDS[name].devices:
        raise DeviceUnavailable(
            f"the back end {name} chooses what it computes with by itself: leave --device at"
            f" {devices.AUTO}, or take --backend {TORCH}",
            device=device,
            backend=name,
        )
    return BACKENDS[name]


def _is_own(verifier: Verifier) -> bool:
    """Whether a back end of this process made it by itself: a group's ranks are elsewhere too."""
    return type(verifier).__module__.startswith(f"{__name__}.")


def _provided(capability: Callable[[Backend], Capability | None]) -> Capability:
    """`capability` of the first back end that has it, of those installed before others.

    Raises `ModelUnusable` if its libraries are not there.
    """
    for backend in sorted(BACKENDS.values(), key=lambda each: bool(_missing(each))):
        found = _imported(backend, capability)
        if found is not None:
            return found
    raise ModelUnusable("no back end can do this", backend=AUTO)


def _imported(backend: Backend, capability: Callable[[Backend], Capability]) -> Capability:
    """`capability` of `backend`. Raises `ModelUnusable` if its libraries are not there."""
    try:
        with _no_collection():
            found = capability(backend)
    except ImportError as error:
        raise _incomplete(backend, f"is not installed whole ({error})") from error
    if found is not None and _missing(backend):
        raise _incomplete(backend, "")
    return found


def _incomplete(backend: Backend, problem: str) -> ModelUnusable:
    missing = _missing(backend)
    needs = f"needs {', '.join(missing)}" if missing else ""
    return ModelUnusable(
        f"the back end {backend.name} {needs or problem}:"
        f" pip install 'kakeya-fleet[{backend.name}]'",
        backend=backend.name,
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the collector of cycles: looking for garbage is a fifth of a large import's time.

    A process that has set aside what it was made of (`gc.freeze`) has this set aside, too: all
    of it would be looked through at the next chance, 0.3 s in which no other thread runs. Few
    modules are no such matter.
    """
    if not gc.isenabled():
        yield
        return
    imported = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        # To count what is set aside takes a look at each: 0.1 s, where little was imported too.
        if len(sys.modules) - imported >= MANY_MODULES and gc.get_freeze_count():
            gc.freeze()
        gc.enable()


def _missing(backend: Backend) -> list[str]:
    """The libraries of `backend` that are not installed."""
    return [lib for lib in backend.libraries if importlib.util.find_spec(lib) is None]
