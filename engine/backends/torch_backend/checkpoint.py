"""Strict loading of a checkpoint in the hub's format: all of it, exactly, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from kakeya_fleet.engine.backends.architectures import Architecture
from kakeya_fleet.engine.backends.stored_tensors import FLOAT_TYPES
from kakeya_fleet.engine.backends.torch_backend.activation import fix_activations
from kakeya_fleet.engine.backends.torch_backend.architectures import TorchArchitecture
from kakeya_fleet.engine.backends.torch_backend.attention import ATTENTION_NAME
from kakeya_fleet.engine.backends.torch_backend.device import HOST, Device
from kakeya_fleet.engine.backends.torch_backend.expert_groups import Known
from kakeya_fleet.engine.backends.torch_backend.experts import Experts, lay_out_experts, take_apart
from kakeya_fleet.engine.backends.torch_backend.fused_experts import unfused
from kakeya_fleet.engine.backends.torch_backend.packed_linear import (
    LinearChoice,
    Made,
    packed_linears,
    replace_linears,
)
from kakeya_fleet.engine.backends.torch_backend.plain_decoder import simplified
from kakeya_fleet.engine.backends.torch_backend.plain_families import is_plain
from kakeya_fleet.engine.backends.torch_backend.quantized_weights import QuantizedWeight
from kakeya_fleet.engine.backends.torch_backend.recurrent_mixing import fix_recurrent
from kakeya_fleet.engine.backends.torch_backend.routers import lay_out_routers
from kakeya_fleet.engine.backends.torch_backend.sharding_plan import ModelShard
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import (
    Part,
    StoredTensor,
    check_tensors,
    listed,
    read_tensors,
    stored_tensors,
)
from kakeya_fleet.engine.errors import (
    ArchitectureUnsupported,
    ModelUnusable,
    WeightsMismatch,
)
from kakeya_fleet.engine.models.weight_memory import check_weights_fit

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
LAYERS = "model.layers."
DERIVED_SUFFIX = ".rotary_emb.inv_freq"
"""Buffers that older checkpoints store and that the config determines."""


Wanted = Callable[[str], bool]
"""Whether a tensor of this name is to be read."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A text model as the library builds it, on no device, and its weights in files.

    All of them are there, of the right shapes; none is read yet.
    """

    folder: Path
    model: PreTrainedModel
    dtype: torch.dtype
    is_tied: bool
    """Whether the head is the embedding."""
    is_plain: bool
    stored: Mapping[str, StoredTensor]
    quantized: Mapping[str, QuantizedWeight]
    parts: Mapping[str, Part]
    device: Device

    def read_into(self, module: nn.Module, name: str = "", *, wanted: Wanted = bool) -> None:
        """Gives `module`, which `model` has as `name`, what it has not yet of its weights.

        On `device`, in `dtype`, and of those the ones whose names in `model` are `wanted`: all,
        unless given. Raises `WeightsMismatch` for tensors that are not finite or cannot be read,
        and where a head is stored that should be the embedding and is not.
        """
        prefix = f"{name}." if name else ""
        state = module.state_dict()
        names = [f"{prefix}{own}" for own, tensor in state.items() if tensor.is_meta]
        names = [each for each in names if wanted(each)]
        is_head = self.is_tied and HEAD in names
        if is_head and HEAD not in self.stored:
            names.remove(HEAD)
        weights = read_tensors(
            self.stored, names, self.dtype, self.parts, self.quantized, self.device
        )
        if is_head:
            _tie(self.folder, weights)
        own = {each.removeprefix(prefix): tensor for each, tensor in weights.items()}
        # Their names are its own: it has the others already, or is to have them later.
        module.load_state_dict(own, strict=False, assign=True)
        module.requires_grad_(requires_grad=False)


def load_model(
    folder: Path,
    architecture: TorchArchitecture,
    *,
    dtype: torch.dtype,
    rows: int,
    available_bytes: int,
    shard: ModelShard | None = None,
) -> PreTrainedModel:
    """The text model in `folder` with all weights in `dtype`, for forwards of `rows` tokens.

    With `shard` the part of one rank: no other slices are read. Raises `OutOfMemory` when
    `available_bytes` do not hold it, and what `open_checkpoint` and `Checkpoint.read_into` raise.
    """
    checkpoint = open_checkpoint(folder, architecture, dtype=dtype, shard=shard)
    needed = _part_bytes(checkpoint.model, dtype)
    check_weights_fit(folder, needed, available_bytes)
    return laid_out(checkpoint, rows, shard)


def laid_out(
    checkpoint: Checkpoint,
    rows: int,
    shard: ModelShard | None = None,
    choice: LinearChoice | None = None,
) -> PreTrainedModel:
    """Its model with all weights, for torch's own operators and forwards of `rows` tokens.

    `choice` is what becomes of its linear layers: packed ones, unless given. They are read one
    after the other: no more is there twice than one, or those of one input, which become one.
    Of a shard all is read first.
    """
    model, dtype = checkpoint.model, checkpoint.dtype
    choice = choice or packed_linears(dtype, rows, checkpoint.device)
    if shard is None:
        checkpoint.read_into(model, wanted=lambda name: not name.startswith(LAYERS))
    else:
        checkpoint.read_into(model)
        shard.add_sums(model)
    fix_activations(model)
    if type(model.lm_head) is nn.Linear:
        model.lm_head = choice.head(model.lm_head)
    known: Known = {}
    layers = model.model.layers
    for index in range(len(layers)):
        layers[index] = _laid_out(checkpoint, layers[index], f"{LAYERS}{index}", choice, known)
    replace_linears(model, choice.layer)
    fix_recurrent(model, dtype)
    return model.eval()


def _laid_out(
    checkpoint: Checkpoint, layer: nn.Module, name: str, choice: LinearChoice, known: Known
) -> nn.Module:
    """What takes the place of a layer, which the model has as `name`; what is not there is read.

    `known` is what is known of groups of experts' rows.
    """
    names = {
        linear: f"{name}.{own}"
        for own, linear in layer.named_modules()
        if type(linear) is nn.Linear
    }
    within = tuple(f"{each}." for each in names.values())
    checkpoint.read_into(layer, name, wanted=lambda each: not each.startswith(within))

    def read(linear: nn.Linear) -> None:
        # By whom it was named it is held no longer: it goes when it has been laid out. Nobody
        # has named what is made of a tensor that was read already.
        own = names.pop(linear, None)
        if own is not None:
            checkpoint.read_into(linear, own)

    if checkpoint.is_plain:
        return simplified(layer, read, choice.layer)

    def laid_out_by(made: Made) -> Made:
        def laid_out(linear: nn.Linear) -> nn.Module:
            read(linear)
            return made(linear)

        return laid_out

    lay_out_routers(layer, laid_out_by(choice.router))
    lay_out_experts(layer, choice.layer, known, read)
    replace_linears(layer, laid_out_by(choice.layer))
    return layer


def open_checkpoint(
    folder: Path,
    architecture: TorchArchitecture,
    *,
    dtype: torch.dtype,
    shard: ModelShard | None = None,
    device: Device = HOST,
) -> Checkpoint:
    """The model in `folder`, checked before a weight is read, which will be on `device`.

    Raises `WeightsMismatch` naming missing, unexpected and mis-shaped tensors.
    """
    stored = stored_tensors(folder, partial(_text_name, architecture))
    quantized: dict[str, QuantizedWeight] = {}
    if architecture.quantization is not None:
        stored, quantized = architecture.quantization.unpacked(folder, stored)
    config = architecture.config
    model = empty_model(folder, architecture, dtype)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    tied = bool(config.tie_word_embeddings)
    needed = expected
    if tied and HEAD not in stored:
        needed = {name: shape for name, shape in expected.items() if name != HEAD}
    stored, parts = unfused(stored, turned=architecture.family.has_turned_experts)
    check_tensors(folder, needed, stored)
    plain = shard is None and is_plain(model)
    if shard is not None:
        # Of mixtures of experts, which alone have parts already, there are no shards.
        parts = {name: Part(place) for name, place in shard.cut(model).items()}
    _compute_buffers(model, device)
    _check_complete(architecture.name, model, needed)
    return Checkpoint(folder, model, dtype, tied, plain, stored, quantized, parts, device)


def check_shapes(
    folder: Path, architecture: Architecture, stored: Mapping[str, tuple[int, ...]]
) -> None:
    """Raises what loading raises of weights with these stored names and shapes.

    `WeightsMismatch` for missing, unexpected and mis-shaped ones, `ModelUnusable` for a config
    of which there can be no model.
    """
    found: dict[str, StoredTensor] = {}
    for stored_name, shape in stored.items():
        name = _text_name(architecture, stored_name)
        if name is not None:
            found[name] = StoredTensor(folder, stored_name, shape, FLOAT_TYPES[0])
    found, _ = unfused(found, turned=architecture.family.has_turned_experts)
    model = empty_model(folder, architecture, torch.float32)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if architecture.config.tie_word_embeddings and HEAD not in found:
        del expected[HEAD]
    check_tensors(folder, expected, found)


def empty_model(folder: Path, architecture: Architecture, dtype: torch.dtype) -> PreTrainedModel:
    """The library's text model on no device, its weights of `dtype`.

    Raises `ModelUnusable` when there is none of the config.
    """
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                architecture.config, attn_implementation=ATTENTION_NAME, dtype=dtype
            )
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise ModelUnusable(
            f"{folder}/config.json asks for a model that cannot be: {error!r}", path=str(folder)
        ) from error
    if type(model).__name__ != architecture.family.text_model:
        raise ArchitectureUnsupported(
            f"this transformers version makes a {type(model).__name__} of {architecture.name}",
            architecture=architecture.name,
        )
    take_apart(model)
    if architecture.has_experts and not any(isinstance(each, Experts) for each in model.modules()):
        raise ArchitectureUnsupported(
            f"this transformers version has experts in {architecture.name} that are not known here",
            architecture=architecture.name,
        )
    return model


def _text_name(architecture: Architecture, stored_name: str) -> str | None:
    """The text model's name of a stored tensor; None for what it does not take."""
    name = architecture.text_name(stored_name)
    return None if name is None or name.endswith(DERIVED_SUFFIX) else name


def _part_bytes(model: PreTrainedModel, dtype: torch.dtype) -> int:
    """Bytes that must be free to load all weights of `model`, and then lay out one after the other.

    A tied head counts: packed for products it is a copy of the embedding.
    """
    tensors: list[Tensor] = list(model.state_dict().values())
    sizes = [tensor.numel() * dtype.itemsize for tensor in tensors]
    return sum(sizes) + max(sizes, default=0)


def _tie(folder: Path, weights: dict[str, Tensor]) -> None:
    """Makes the head the embedding. Raises `WeightsMismatch` if a stored head differs."""
    if HEAD in weights and not torch.equal(weights[HEAD], weights[EMBEDDING]):
        raise WeightsMismatch(
            f"config.json of {folder} ties {HEAD} to {EMBEDDING}, but the stored ones differ",
            path=str(folder),
            unexpected=HEAD,
        )
    weights[HEAD] = weights[EMBEDDING]


def _compute_buffers(model: PreTrainedModel, device: Device) -> None:
    """Makes the buffers that the config determines; on no device they were made without values."""
    # Computed by the host: every device has the same frequencies.
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config).to(device.place)
    for module in model.modules():
        scale = getattr(module, "scalar_embed_scale", None)
        if scale is not None:
            module.embed_scale = torch.tensor(scale, device=device.place)


def _check_complete(name: str, model: PreTrainedModel, stored: Collection[str]) -> None:
    """Raises `ArchitectureUnsupported` if a buffer would have no value: nothing runs half loaded.

    Those among `stored` are read with the weights.
    """
    empty = [key for key, tensor in model.named_buffers() if tensor.is_meta and key not in stored]
    if empty:
        raise ArchitectureUnsupported(
            f"{name} of this transformers version has buffers not known here: {listed(empty)}",
            architecture=name,
        )
