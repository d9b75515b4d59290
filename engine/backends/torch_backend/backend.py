"""What torch brings; see `engine.backends.backend.Backend`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kakeya_fleet.engine.contracts.device import AUTO, CPU, DEVICES

if TYPE_CHECKING:
    from kakeya_fleet.engine.backends.backend import (
        ArithmeticOf,
        FactsOfDevice,
        ForDrafts,
        LoadDFlash,
        LoadEncoder,
        LoadMaskedDiffusion,
        LoadNarrowing,
        LoadShard,
        LoadVerifier,
        MakeEncoder,
        NewKernels,
        NewStores,
        Prepare,
        ReadOnPaper,
        StoresBeside,
        UseOfDevice,
    )
    from kakeya_fleet.engine.verifiers.thread_count import Threads


@dataclass(frozen=True, slots=True)
class TorchBackend:
    """Hub-format checkpoints through transformers' modelling code, and the archives.

    What needs no model, such as an archive's stores, imports nothing of transformers.
    """

    name: str = "torch"
    libraries: tuple[str, ...] = ("torch", "transformers")
    devices: tuple[str, ...] = DEVICES

    def kernels(self) -> NewKernels:
        """`PackingKernels`."""
        from kakeya_fleet.engine.backends.torch_backend.compiled.packing import PackingKernels

        return PackingKernels

    def verifiers(self) -> LoadVerifier:
        """Verifiers on the processor, or on another device of torch's."""
        from kakeya_fleet.engine.backends.torch_backend.torch_verifier import load_verifier

        return load_verifier

    def preparation(self) -> Prepare:
        """The compiled decoder of the host."""
        from kakeya_fleet.engine.backends.torch_backend.compiled.library import library

        def prepare(device: str) -> None:
            if device in (AUTO, CPU):
                library()

        return prepare

    def papers(self) -> ReadOnPaper:
        """Verifiers on torch, on paper."""
        from kakeya_fleet.engine.backends.torch_backend.on_paper import folder_on_paper

        return folder_on_paper

    def shards(self) -> LoadShard:
        """Ranks over gloo."""
        from kakeya_fleet.engine.backends.torch_backend.sharding import load_shard

        return load_shard

    def drafters(self) -> LoadDFlash:
        """DFlash drafters."""
        from kakeya_fleet.engine.backends.torch_backend.dflash import load_dflash

        return load_dflash

    def encoders(self) -> LoadEncoder:
        """Their encoders."""
        from kakeya_fleet.engine.backends.torch_backend.dflash import load_encoder

        return load_encoder

    def encoder_maker(self) -> MakeEncoder:
        """Their products are the compiled library's, where it is there."""
        from kakeya_fleet.engine.backends.torch_backend.context_products import context_encoder

        return context_encoder

    def narrowings(self) -> LoadNarrowing:
        """Products as the encoder's."""
        from kakeya_fleet.engine.backends.torch_backend.context_products import load_narrowing

        return load_narrowing

    def masked_diffusion(self) -> LoadMaskedDiffusion:
        """Masked-diffusion proposers."""
        from kakeya_fleet.engine.backends.torch_backend.masked_diffusion import (
            load_masked_diffusion,
        )

        return load_masked_diffusion

    def archive_stores(self) -> NewStores:
        """`TorchArchiveStores`."""
        from kakeya_fleet.engine.backends.torch_backend.archive_stores import TorchArchiveStores

        return TorchArchiveStores

    def stores_beside(self) -> StoresBeside:
        """Stores whose bytes count in a verifier's pool."""
        from kakeya_fleet.engine.backends.torch_backend.stores_beside import stores_beside

        return stores_beside

    def drafting(self) -> ForDrafts:
        """Those whose forwards are compiled compute few rows finely, and of a head what matters."""
        from kakeya_fleet.engine.backends.torch_backend.drafting import for_drafts

        return for_drafts

    def arithmetic(self) -> ArithmeticOf:
        """Torch's, and the compiled decoder's."""
        from kakeya_fleet.engine.backends.torch_backend.verifier_arithmetic import (
            verifier_arithmetic,
        )

        return verifier_arithmetic

    def device_facts(self) -> FactsOfDevice:
        """Of torch's devices."""
        from kakeya_fleet.engine.backends.torch_backend.device_facts import device_facts

        return device_facts

    def device_use(self) -> UseOfDevice:
        """Of CUDA's devices, where pynvml is."""
        from kakeya_fleet.engine.backends.torch_backend.device_use import device_use

        return device_use

    def threads(self) -> Threads:
        """`TorchThreads`."""
        from kakeya_fleet.engine.backends.torch_backend.threads import TorchThreads

        return TorchThreads()
