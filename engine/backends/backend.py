"""The contract of back ends: what each brings, and what some do.

A back end is one object that can be looked at without its libraries. Each method
imports what a capability needs, which takes seconds and holds up other threads, and
gives what computes it; None where the back end does not have it. Nothing else may
import a tensor library.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from kakeya_fleet.engine.contracts.device import AUTO, DeviceFacts
from kakeya_fleet.engine.contracts.draft import Proposer
from kakeya_fleet.engine.contracts.feature_encoder import (
    ContextEncoder,
    EncoderWeights,
    Products,
)
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.kv.kernels import Kernels
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.restoration.learned_map import LearnedMap
from kakeya_fleet.engine.restoration.stores import EvictedStores
from kakeya_fleet.engine.verifiers.thread_count import Threads

NewKernels = Callable[[str], Kernels[Any]]
"""Of a dtype by name. Raises `BadParameters` for an unknown one."""
LoadEncoder = Callable[[Path], ContextEncoder]
"""Of a DFlash drafter's folder. Raises a `ModelUnusable`."""
MakeEncoder = Callable[[EncoderWeights], ContextEncoder]
"""Of weights that came from another node."""
LoadNarrowing = Callable[[LearnedMap, int], Products]
"""The first part of a map that narrows, for context vectors of so many values. Raises
`WeightsMismatch`."""
NewStores = Callable[[int], EvictedStores]
"""Evicted stores that share a budget in bytes."""
Prepare = Callable[[str], None]
"""For a device by one of the back end's names; raises nothing, and may take a minute."""
ArithmeticOf = Callable[[Verifier], str]
"""What rounds a verifier's forwards besides their shapes and threads."""
FactsOfDevice = Callable[[str], DeviceFacts]
"""Of a device by one of the back end's names, its memory now. Raises `DeviceUnavailable`."""
UseOfDevice = Callable[[str], Callable[[], float | None]]
"""Of a device by one of the back end's names: what reads how busy it is, 0 to 1, at once; None
where nothing is told. Raises `DeviceUnavailable`."""
StoresBeside = Callable[[Verifier], EvictedStores | None]
"""Evicted stores in a verifier's own process; None for one whose pool takes no others."""
ForDrafts = Callable[[Verifier, ModelFolder], Verifier]
"""One of the same weights that drafts better or in less time; see `engine.backends.for_drafts`."""


class LoadVerifier(Protocol):
    """Loads a verifier."""

    def __call__(
        self,
        folder: ModelFolder,
        *,
        dtype: str,
        available_bytes: int | None,
        weights: str,
        device: str,
    ) -> Verifier:
        """See `engine.backends.load_verifier`."""
        ...


class LoadShard(Protocol):
    """Loads one rank's part of a verifier."""

    def __call__(self, folder: ModelFolder, *, dtype: str, rank: int, size: int) -> Verifier:
        """See `engine.backends.load_shard`."""
        ...


class LoadDFlash(Protocol):
    """Loads a DFlash drafter."""

    def __call__(
        self,
        folder: ModelFolder,
        target: ModelFolder,
        *,
        dtype: str = "float32",
        available_bytes: int | None = None,
        device: str = AUTO,
    ) -> Proposer:
        """See `engine.backends.load_dflash`."""
        ...


class LoadMaskedDiffusion(Protocol):
    """Loads a masked-diffusion proposer."""

    def __call__(self, folder: ModelFolder, *, dtype: str) -> Proposer:
        """See `engine.backends.load_masked_diffusion`."""
        ...


class ReadOnPaper(Protocol):
    """Says what a verifier of a model would keep, of its headers."""

    def __call__(self, folder: ModelFolder, *, dtype: str) -> ModelOnPaper:
        """See `engine.backends.on_paper.read_on_paper`."""
        ...


class Backend(Protocol):
    """One back end. All methods raise `ImportError` where its libraries are not whole."""

    @property
    def name(self) -> str:
        """What users call it; the extra of the same name installs `libraries`."""
        ...

    @property
    def libraries(self) -> tuple[str, ...]:
        """What it cannot do without."""
        ...

    @property
    def devices(self) -> tuple[str, ...]:
        """Those of `engine.contracts.device.DEVICES` that it can be told to compute with."""
        ...

    def kernels(self) -> NewKernels:
        """What caches and evicted stores compute with."""
        ...

    def verifiers(self) -> LoadVerifier:
        """Loads verifiers."""
        ...

    def preparation(self) -> Prepare | None:
        """Makes what the first load of a verifier makes on this machine; None for nothing."""
        ...

    def papers(self) -> ReadOnPaper:
        """Says what its verifiers would keep."""
        ...

    def shards(self) -> LoadShard:
        """Loads one rank's part of a verifier."""
        ...

    def drafters(self) -> LoadDFlash:
        """Loads DFlash drafters."""
        ...

    def encoders(self) -> LoadEncoder:
        """Loads the context encoder of a DFlash drafter alone."""
        ...

    def encoder_maker(self) -> MakeEncoder:
        """Makes such an encoder of its weights."""
        ...

    def narrowings(self) -> LoadNarrowing:
        """Loads what makes of context vectors the fewer numbers that a learned map takes."""
        ...

    def masked_diffusion(self) -> LoadMaskedDiffusion | None:
        """Loads masked-diffusion proposers."""
        ...

    def archive_stores(self) -> NewStores | None:
        """Makes the stores of an archive."""
        ...

    def stores_beside(self) -> StoresBeside | None:
        """Makes stores in the process of one of its verifiers."""
        ...

    def drafting(self) -> ForDrafts | None:
        """Has its verifiers draft better or in less time; None where they do as they are."""
        ...

    def arithmetic(self) -> ArithmeticOf:
        """Names what rounds the forwards of its verifiers: library, version, processor."""
        ...

    def device_facts(self) -> FactsOfDevice:
        """Tells what is known of a device."""
        ...

    def device_use(self) -> UseOfDevice | None:
        """Tells how busy a device is."""
        ...

    def threads(self) -> Threads | None:
        """The threads that forwards of the calling thread take, where it has a say in them."""
        ...
