"""What a model's weights take of memory: once they are loaded, and at the most while they are read.

From shapes and number formats alone, in the steps in which `CompiledDecoder` and
`checkpoint.laid_out` read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from kakeya_fleet.engine.backends.architectures import chosen_experts
from kakeya_fleet.engine.backends.torch_backend.checkpoint import (
    EMBEDDING,
    HEAD,
    LAYERS,
    Checkpoint,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.decoder import compilable, sizes_of
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import PANEL
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_linear import fits_groups
from kakeya_fleet.engine.backends.torch_backend.expert_groups import SIZES as GROUP_SIZES
from kakeya_fleet.engine.backends.torch_backend.experts import Expert, Experts
from kakeya_fleet.engine.backends.torch_backend.packed_linear import GATE_UP
from kakeya_fleet.engine.backends.torch_backend.plain_families import (
    JOINT,
    LibraryLayer,
    is_plain,
)
from kakeya_fleet.engine.backends.torch_backend.routers import is_router
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import ITEM_BYTES, stored_bytes
from kakeya_fleet.engine.contracts.positions import WIDE_BLOCK, round_up
from kakeya_fleet.engine.models.weight_choice import (
    AUTO,
    BF16,
    BITS,
    GROUP,
    head_weights,
    require_auto,
    whole_bytes,
)

WIDE_BYTES = torch.float32.itemsize
OBJECT_BYTES = 7 << 20
"""What a load takes besides its tensors: the model's objects, the heap between blocks, which large
pages round up, and pages of libraries that it is the first to use. Of models of 4 to 30 layers 2 to
7 MB, whatever their sizes."""
KERNEL_BYTES = 180 << 10
"""At most, of what oneDNN makes and keeps for a product of some shape with some number of rows.

Measured: 115 KiB each for layers of 256 to 576 inputs, 175 of 640 to 3,072. The check at load tries
every number of rows."""
KERNELS = 1024
"""As many a process keeps, the latest (ONEDNN_PRIMITIVE_CACHE_CAPACITY)."""


@dataclass(frozen=True, slots=True)
class StoredItems:
    """How the checkpoint's numbers are stored: bytes of one, and whether all are bfloat16's."""

    nbytes: Callable[[str, Tensor], int]
    """Those that are stored of a tensor, by its name."""
    are_narrow: Callable[[str], bool]
    """Whether a tensor's numbers are surely bfloat16 numbers."""


def stored_as(dtype: torch.dtype) -> StoredItems:
    """All tensors in `dtype`."""
    return StoredItems(
        lambda _, tensor: tensor.numel() * dtype.itemsize, lambda _: dtype == torch.bfloat16
    )


def stored_in(checkpoint: Checkpoint) -> StoredItems:
    """As the headers of its files say."""
    stored, quantized = checkpoint.stored, checkpoint.quantized
    # A tied head need not be stored.
    own = {HEAD: stored[EMBEDDING], **stored} if checkpoint.is_tied else stored

    def nbytes(name: str, tensor: Tensor) -> int:
        if name in quantized:
            return sum(stored_bytes(part) for part in quantized[name].parts)
        return tensor.numel() * ITEM_BYTES[own[name].dtype]

    return StoredItems(nbytes, lambda name: name not in quantized and own[name].dtype == "BF16")


@dataclass(frozen=True, slots=True)
class Loading:
    """Bytes of weights that stay, at most, and of those that are there at once while they are read.

    The latter have the pages of the file that are mapped at the time: the tensor's that is read.
    Forwards compute in `working_bytes`, and in time `kernel_bytes` are kept of what computed.
    """

    kept_bytes: int
    peak_bytes: int
    working_bytes: int
    kernel_bytes: int

    @property
    def needed_bytes(self) -> int:
        """Bytes without which the model cannot be loaded, or compute."""
        return max(self.peak_bytes + OBJECT_BYTES, self.kept_bytes + self.working_bytes)


class _Steps:
    """Adds up what stays, and finds the most that is there at once."""

    def __init__(self) -> None:
        self.kept = 0
        self.peak = 0

    def step(self, kept: int, besides: Iterable[int]) -> None:
        """`kept` bytes more stay; each of `besides` is what is there with what stayed before."""
        self.peak = max([self.peak, *(self.kept + each for each in besides)])
        self.kept += kept
        self.peak = max(self.peak, self.kept)


def loading_of(
    model: PreTrainedModel,
    weights: str,
    dtype: torch.dtype,
    stored: StoredItems,
    *,
    is_tied: bool,
    has_library: bool,
) -> Loading:
    """Of the weights of `model`, computed in `dtype`, products' as `weights`.

    `model` is the library's, on any device. Of a plain family they are those of the compiled
    forward if this machine `has_library`, of others those of torch's operators. Raises
    `WeightFormatUnsupported` where groups of 32 do not divide a product's inputs, and for whole
    numbers without a library.
    """
    if weights in BITS:
        _check_groups(model, weights)
        if not has_library:
            require_auto(weights, "a C++ compiler at the first load, which is not here")
    steps = _Steps()
    is_compiled = has_library and compilable(model)
    if is_compiled:
        _Compiled(model, weights, dtype, stored, steps).walk(is_tied=is_tied)
    else:
        _Operators(model, weights, dtype, stored, steps).walk(is_tied=is_tied)
    working = _working_bytes(model, dtype, is_compiled=is_compiled)
    return Loading(steps.kept, steps.peak, working, 0 if is_compiled else _kernel_bytes(model))


def _check_groups(model: PreTrainedModel, weights: str) -> None:
    for name, module in model.named_modules():
        if type(module) is nn.Linear and not is_router(name) and not fits_groups(module):
            require_auto(
                weights,
                f"layers with inputs in multiples of {GROUP}: {name} has {module.in_features}",
            )


class _Walk:
    """A model's tensors by name, and what one of them takes while it is read."""

    def __init__(
        self,
        model: PreTrainedModel,
        weights: str,
        dtype: torch.dtype,
        stored: StoredItems,
        steps: _Steps,
    ) -> None:
        self._model = model
        self._weights, self._dtype = weights, dtype
        self._stored, self._steps = stored, steps
        self._tensors: dict[str, Tensor] = model.state_dict()

    def _own(self, name: str) -> int:
        """Bytes of a tensor in the model's number format."""
        return self._tensors[name].numel() * self._dtype.itemsize

    def _mapped(self, name: str) -> int:
        """Bytes of what is mapped of the file while it is read."""
        return self._stored.nbytes(name, self._tensors[name])

    def _read(self, name: str) -> None:
        """Reads a tensor, which stays."""
        own = self._own(name)
        self._steps.step(own, [own + self._mapped(name)])


class _Compiled(_Walk):
    """As `CompiledDecoder` reads them: panels, and all else but the embedding in float32."""

    def walk(self, *, is_tied: bool) -> None:
        model, sizes = self._model, sizes_of(self._model)
        head = "model.embed_tokens" if is_tied else "lm_head"
        self._product([head], model.lm_head, head_weights(self._weights))
        if not is_tied:
            self._read("model.embed_tokens.weight")
        for index, each in enumerate(model.model.layers):
            layer = cast(LibraryLayer, each)
            attention, mlp = layer.self_attn, layer.mlp
            joint, gates = JOINT
            for parent, path, names in (
                (attention, "self_attn", joint),
                (attention, "self_attn", ("o_proj",)),
                (mlp, "mlp", gates),
                (mlp, "mlp", ("down_proj",)),
            ):
                full = [f"{LAYERS}{index}.{path}.{name}" for name in names]
                self._product(full, getattr(parent, names[0]), self._weights)
            norms = 2 * sizes.hidden
            if hasattr(attention, "q_norm"):
                norms += 2 * sizes.head_size
            self._steps.step(norms * WIDE_BYTES, [])
        self._steps.step(sizes.hidden * WIDE_BYTES, [])

    def _product(self, names: list[str], first: nn.Linear, weights: str) -> None:
        """Layers of one input as one product, padded to whole panels, each read by itself."""
        inputs = first.in_features
        tensors = [f"{name}.weight" for name in names]
        outputs = round_up(sum(self._tensors[name].shape[0] for name in tensors), PANEL)
        narrow = all(map(self._stored.are_narrow, tensors))
        kept = _panel_bytes(outputs, inputs, weights, self._dtype, narrow=narrow)
        bias = outputs * WIDE_BYTES if first.bias is not None else 0
        done, besides = 0, []
        for name in tensors:
            own = self._own(name)
            besides.append(done + own + self._mapped(name))
            done += kept * self._tensors[name].shape[0] // outputs
            besides.append(done + own)
        self._steps.step(kept + bias, besides)


def _panel_bytes(
    outputs: int, inputs: int, weights: str, dtype: torch.dtype, *, narrow: bool
) -> int:
    """Of a product of `outputs` in whole panels, without its bias."""
    if weights in BITS:
        return whole_bytes(weights, outputs, inputs)
    narrow = narrow or weights == BF16
    return outputs * inputs * (torch.bfloat16.itemsize if narrow else dtype.itemsize)


class _Operators(_Walk):
    """As `laid_out` reads them: a head of the embedding's weights is a copy of them."""

    def walk(self, *, is_tied: bool) -> None:
        model = self._model
        for name in self._tensors:
            if not name.startswith(LAYERS) and not (is_tied and name == HEAD):
                self._read(name)
        if is_tied:
            self._steps.step(self._packed("lm_head", model.lm_head), [])
        elif type(model.lm_head) is nn.Linear:
            self._replaced("lm_head", model.lm_head)
        joint = JOINT if is_plain(model) else ()
        for index, layer in enumerate(model.model.layers):
            self._layer(f"{LAYERS}{index}", layer, joint)
        for name, module in model.named_modules():
            is_head = name == "lm_head"
            if type(module) is nn.Linear and not is_head and not name.startswith(LAYERS):
                self._replaced(name, module)

    def _layer(self, path: str, layer: nn.Module, joint: Sequence[Sequence[str]]) -> None:
        """Those of `joint` become one, and an expert's first two."""
        linears = {
            f"{path}.{name}": module
            for name, module in layer.named_modules()
            if type(module) is nn.Linear
        }
        experts = tuple(
            f"{path}.{name}."
            for name, module in layer.named_modules()
            if isinstance(module, Experts)
        )
        within = tuple(f"{name}." for name in linears)
        for name in self._tensors:
            if name.startswith(f"{path}.") and not name.startswith(within):
                self._read(name)
        while linears:
            name = next(iter(linears))
            own = (GATE_UP,) if name.startswith(experts) else joint
            together = next((each for each in own if name.endswith(tuple(each))), ())
            parent = name.rpartition(".")[0]
            names = [f"{parent}.{each}" for each in together] or [name]
            self._product({each: linears.pop(each) for each in names})

    def _product(self, linears: Mapping[str, nn.Linear]) -> None:
        """Layers that are read one after the other, and become one where there are several."""
        packed = sum(self._packed(name, linear) for name, linear in linears.items())
        reads = [self._own(f"{name}.weight") + self._mapped(f"{name}.weight") for name in linears]
        whole = sum(self._own(f"{name}.weight") for name in linears)
        joint = whole if len(linears) > 1 else 0
        self._steps.step(packed, [joint + max(reads), whole + packed])

    def _replaced(self, name: str, linear: nn.Linear) -> None:
        """What is read already becomes what computes."""
        own, packed = self._own(f"{name}.weight"), self._packed(name, linear)
        if linear.bias is not None:
            own += self._own(f"{name}.bias")
        self._steps.step(packed - own, [packed])

    def _packed(self, name: str, linear: nn.Linear) -> int:
        """Bytes of what computes in the place of a linear layer, its bias included."""
        weights = head_weights(self._weights) if name == "lm_head" else self._weights
        if is_router(name):
            weights = AUTO
        outputs, inputs = linear.out_features, linear.in_features
        bias = outputs if linear.bias is not None else 0
        if weights in BITS:
            padded = round_up(outputs, PANEL)
            return whole_bytes(weights, padded, inputs) + (padded * WIDE_BYTES if bias else 0)
        return (outputs * inputs + bias) * self._dtype.itemsize


def _row_numbers(layer: nn.Module, config: PretrainedConfig) -> int:
    """Outputs of all linear layers of a layer for a row of the widest forward.

    Of its experts those of the chosen ones, in groups that are filled up.
    """
    experts = [module for module in layer.modules() if isinstance(module, Experts)]
    inside = {each for module in experts for each in module.modules()}
    linears = [each for each in layer.modules() if type(each) is nn.Linear and each not in inside]
    numbers: int = sum(each.out_features for each in linears)
    for module in experts:
        choices = WIDE_BLOCK * chosen_experts(config)
        rows = choices + (GROUP_SIZES[0] - 1) * min(choices, len(module))
        expert = cast(Expert, module[0])
        outputs = 2 * expert.down_proj.in_features + expert.down_proj.out_features
        numbers += -(-rows * outputs // WIDE_BLOCK)
    return numbers


def _working_bytes(model: PreTrainedModel, dtype: torch.dtype, *, is_compiled: bool) -> int:
    """Bytes of a model's objects, and of what a forward of the most rows computes in.

    At most: all rows have logits, which torch's operators have in the model's number format too,
    and a layer's products do not give their outputs all at once.
    """
    widest = max(_row_numbers(layer, model.config) for layer in model.model.layers)
    logits = WIDE_BYTES + (0 if is_compiled else dtype.itemsize)
    head: nn.Linear = model.lm_head
    rows = widest + 2 * head.in_features
    numbers = WIDE_BLOCK * (rows * WIDE_BYTES + round_up(head.out_features, PANEL) * logits)
    return OBJECT_BYTES + numbers


def _kernel_bytes(model: PreTrainedModel) -> int:
    """Of the operators' kernels, one for each shape of a product and number of rows."""
    linears = (each for each in model.modules() if type(each) is nn.Linear)
    shapes = {(each.in_features, each.out_features) for each in linears}
    return min(len(shapes) * WIDE_BLOCK, KERNELS) * KERNEL_BYTES
