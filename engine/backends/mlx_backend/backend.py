"""What MLX brings; see `engine.backends.backend.Backend`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kakeya_fleet.engine.contracts.device import AUTO

if TYPE_CHECKING:
    from kakeya_fleet.engine.backends.backend import (
        ArithmeticOf,
        FactsOfDevice,
        LoadDFlash,
        LoadEncoder,
        LoadNarrowing,
        LoadShard,
        LoadVerifier,
        MakeEncoder,
        NewKernels,
        ReadOnPaper,
    )


@dataclass(frozen=True, slots=True)
class MlxBackend:
    """Hub-format and quantized MLX checkpoints through mlx-lm's modelling code.

    Tested on Linux, where MLX computes on the CPU. What a Mac adds is untested
    here: Metal's kernels, the rounding of theirs for different numbers of rows
    (`engine.verifiers.exactness` finds out when a model is loaded), and speed.
    """

    name: str = "mlx"
    libraries: tuple[str, ...] = ("mlx", "mlx_lm")
    devices: tuple[str, ...] = (AUTO,)

    def kernels(self) -> NewKernels:
        """`MlxKernels`."""
        from kakeya_fleet.engine.backends.mlx_backend.kernels import MlxKernels

        return MlxKernels

    def verifiers(self) -> LoadVerifier:
        """Verifiers on MLX's default device."""
        from kakeya_fleet.engine.backends.mlx_backend.mlx_verifier import load_verifier

        return load_verifier

    def preparation(self) -> None:
        """Nothing: MLX brings its kernels."""
        return

    def papers(self) -> ReadOnPaper:
        """Verifiers on MLX, on paper."""
        from kakeya_fleet.engine.backends.mlx_backend.on_paper import folder_on_paper

        return folder_on_paper

    def shards(self) -> LoadShard:
        """Ranks over MLX's ring or jaccl."""
        from kakeya_fleet.engine.backends.mlx_backend.sharding import load_shard

        return load_shard

    def drafters(self) -> LoadDFlash:
        """DFlash drafters."""
        from kakeya_fleet.engine.backends.mlx_backend.dflash import load_dflash

        return load_dflash

    def encoders(self) -> LoadEncoder:
        """Their encoders."""
        from kakeya_fleet.engine.backends.mlx_backend.dflash import load_encoder

        return load_encoder

    def encoder_maker(self) -> MakeEncoder:
        """Their products are NumPy's."""
        from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder

        return ContextEncoder

    def narrowings(self) -> LoadNarrowing:
        """Products as the encoder's."""
        from kakeya_fleet.engine.backends.mlx_backend.dflash import load_narrowing

        return load_narrowing

    def masked_diffusion(self) -> None:
        """None."""

    def archive_stores(self) -> None:
        """None: archives compute with torch, whatever their verifiers do."""

    def stores_beside(self) -> None:
        """None."""

    def drafting(self) -> None:
        """None."""

    def arithmetic(self) -> ArithmeticOf:
        """MLX's."""
        from kakeya_fleet.engine.backends.mlx_backend.arithmetic import arithmetic

        return arithmetic

    def device_facts(self) -> FactsOfDevice:
        """Of MLX's default device."""
        from kakeya_fleet.engine.backends.mlx_backend.device_facts import device_facts

        return device_facts

    def device_use(self) -> None:
        """None: Metal tells no program how busy the GPU is."""

    def threads(self) -> None:
        """None: MLX lets nobody choose."""
