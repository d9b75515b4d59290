"""f_theta: a learned linear map from context vectors to the verifier's keys and values.

The source of a position is its context vector x alone, or what a DFlash drafter
makes of it, its context keys and values; either is a function of that position,
so that what is restored never goes stale. The verifier's own norm and rotary
embedding are applied to the keys after the map: a key is then the verifier's up
to the error of its direction.

    source s = x, or [k_norm(Wk_i x), Wv_i x] of the drafter's layers i
    [key_l, value_l for every layer l] = W s, or up (down s) with a rank
    key_l <- rotary(position, k_norm_l(key_l))
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelNotFound, WeightsMismatch
from kakeya_fleet.engine.models.digests import weights_digest
from kakeya_fleet.engine.restoration.learned_map import OF_VECTORS, narrows

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
KIND = "projection"
VERSION = 1


class Source(StrEnum):
    """What the map takes."""

    FEATURES = OF_VECTORS
    KEYS_VALUES = "keys_values"


@dataclass(frozen=True, slots=True)
class RestoredLayer:
    """A layer's keys and values. `key_norm` says whether keys are normed before rotation."""

    kv_heads: int
    head_dim: int
    key_norm: bool

    @property
    def size(self) -> int:
        """Numbers of one position's keys."""
        return self.kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class ProjectionConfig:
    """The shape of a map, and which pair it belongs to.

    `width` values a context vector; `rank` 0 is a full matrix. A map of a rank from `features`
    is in two parts: the verifier's side makes `rank` values of a vector, which travel, and the
    archive's keys and values of those. With the source
    `keys_values` the drafter has `drafter_layers` layers of `drafter_kv_heads`
    heads of `drafter_head_dim`. Digests are SHA-256 in hexadecimal: of the
    verifier's weights, and of the encoder that made the vectors.
    """

    source: Source
    width: int
    rank: int
    layers: tuple[RestoredLayer, ...]
    norm_eps: float
    rotary_scaling: float
    verifier_model_id: str
    verifier_digest: str
    encoder_digest: str
    drafter_layers: int = 0
    drafter_kv_heads: int = 0
    drafter_head_dim: int = 0

    @property
    def deposited(self) -> int:
        """Numbers of one position that travel to where they are restored."""
        return self.rank if narrows(self.source, self.rank) else self.width

    @property
    def inputs(self) -> int:
        """Numbers of the source of one position."""
        if self.source is Source.FEATURES:
            return self.width
        return 2 * self.drafter_layers * self.drafter_kv_heads * self.drafter_head_dim

    @property
    def outputs(self) -> int:
        """Numbers of one position's keys and values in all layers."""
        return sum(2 * layer.size for layer in self.layers)


class Projection(nn.Module):
    """The map with the verifier's key norms and rotary frequencies."""

    inverse_frequencies: Tensor
    key_norms: Tensor
    drafter_key_norms: Tensor

    def __init__(self, config: ProjectionConfig) -> None:
        super().__init__()
        self.config = config
        self.digest = ""
        head_dims = {layer.head_dim for layer in config.layers}
        if len(head_dims) != 1:
            raise ArchitectureUnsupported(
                f"a projection restores layers with one size of heads, not {sorted(head_dims)}"
            )
        head_dim = head_dims.pop()
        if config.rank:
            self.down: nn.Linear | None = nn.Linear(config.inputs, config.rank, bias=False)
            self.up = nn.Linear(config.rank, config.outputs, bias=False)
        else:
            self.down = None
            self.up = nn.Linear(config.inputs, config.outputs, bias=False)
        self.register_buffer("inverse_frequencies", torch.zeros(head_dim // 2))
        self.register_buffer("key_norms", torch.ones(len(config.layers), head_dim))
        if config.source is Source.KEYS_VALUES:
            half = config.inputs // 2
            self.drafter = nn.Linear(config.width, 2 * half, bias=False)
            self.register_buffer(
                "drafter_key_norms", torch.ones(config.drafter_layers, config.drafter_head_dim)
            )

    def forward(self, vectors: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """As `keys_values`."""
        return self.keys_values(vectors, positions)

    def keys_values(self, vectors: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys, rotated, and values of each layer, [kv_heads, n, head_dim] both.

        `vectors` [n, width], `positions` [n] int64. Rows are independent.
        """
        return self.restored(self.narrowed(vectors), positions)

    def narrowed(self, vectors: Tensor) -> Tensor:
        """What is deposited, [n, config.deposited], of vectors [n, width]."""
        if self.down is None or not narrows(self.config.source, self.config.rank):
            return vectors
        made: Tensor = self.down(vectors)
        return made

    def restored(self, deposited: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """As `keys_values`, of what `narrowed` gave."""
        flat = self.up(self._source(deposited))
        cos, sin = self._rotation(positions)
        found = []
        first = 0
        for index, layer in enumerate(self.config.layers):
            shape = (len(flat), layer.kv_heads, layer.head_dim)
            keys = flat[:, first : first + layer.size].view(shape)
            values = flat[:, first + layer.size : first + 2 * layer.size].view(shape)
            first += 2 * layer.size
            if layer.key_norm:
                # Trained in bfloat16 products, it is a norm of float32 all the same.
                keys = functional.rms_norm(
                    keys.float(), (layer.head_dim,), self.key_norms[index], self.config.norm_eps
                )
            keys = keys.transpose(0, 1)
            low, high = keys.chunk(2, dim=-1)
            keys = keys * cos + torch.cat((-high, low), dim=-1) * sin
            found.append((keys, values.transpose(0, 1)))
        return found

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [n, head_dim], as rotary position embeddings (Su et al., 2021)."""
        angles = positions.to(torch.float32)[:, None] * self.inverse_frequencies
        angles = torch.cat((angles, angles), dim=-1)
        scaling = self.config.rotary_scaling
        return angles.cos() * scaling, angles.sin() * scaling

    def _source(self, deposited: Tensor) -> Tensor:
        """What `up` takes."""
        config = self.config
        if config.source is Source.FEATURES:
            return deposited
        source = self._drafter_keys_values(deposited)
        return source if self.down is None else self.down(source)

    def _drafter_keys_values(self, vectors: Tensor) -> Tensor:
        """[n, inputs] of vectors [n, width]."""
        config = self.config
        made = self.drafter(vectors).view(
            len(vectors), config.drafter_layers, 2, config.drafter_kv_heads, config.drafter_head_dim
        )
        size = (config.drafter_head_dim,)
        norms = self.drafter_key_norms
        keys = [
            functional.rms_norm(made[:, index, 0].float(), size, norms[index], config.norm_eps)
            for index in range(config.drafter_layers)
        ]
        both = torch.stack((torch.stack(keys, dim=1), made[:, :, 1].float()), dim=2)
        return both.flatten(1)


def load_projection(folder: Path) -> Projection:
    """The map in `folder`, float32, every tensor accounted for; `digest` is that of its weights.

    Raises `ModelNotFound`, `ArchitectureUnsupported` for a config of another
    kind, `WeightsMismatch`.
    """
    projection = Projection(_read_config(folder))
    path = folder / WEIGHTS
    if not path.is_file():
        raise ModelNotFound(f"there is no {WEIGHTS} in {folder}", folder=str(folder))
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise WeightsMismatch(f"{path} cannot be read: {error}", file=WEIGHTS) from error
    expected = projection.state_dict()
    odd = sorted(expected.keys() ^ tensors.keys()) or sorted(
        name for name, tensor in tensors.items() if tensor.shape != expected[name].shape
    )
    if odd:
        raise WeightsMismatch(
            f"{path}: missing, unexpected or of another shape: {', '.join(odd[:8])}", file=WEIGHTS
        )
    projection.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    projection.digest = weights_digest(folder)
    return projection.requires_grad_(requires_grad=False).eval()


def save_projection(projection: Projection, folder: Path, dtype: torch.dtype) -> None:
    """Writes config and weights, the weights in `dtype`, as `load_projection` reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"restorer": KIND, "version": VERSION, **asdict(projection.config)}
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    state = projection.state_dict()
    tensors = {
        name: tensor.to(dtype if tensor.ndim == 2 and "norm" not in name else torch.float32)
        for name, tensor in state.items()
    }
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS)


def _read_config(folder: Path) -> ProjectionConfig:
    path = folder / CONFIG
    if not path.is_file():
        raise ModelNotFound(f"there is no {CONFIG} in {folder}", folder=str(folder))
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values.pop("restorer") != KIND or values.pop("version") != VERSION:
            raise ArchitectureUnsupported(f"{path} is no {KIND} of version {VERSION}")
        layers = tuple(RestoredLayer(**layer) for layer in values.pop("layers"))
        return ProjectionConfig(layers=layers, source=Source(values.pop("source")), **values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArchitectureUnsupported(f"{path} is not a {KIND}'s: {error!r}") from error
