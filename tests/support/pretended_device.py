"""A device that computes with the processor, and refuses what a real one would refuse.

Its tensors say that they are on `PRETENDED` and keep their numbers in a tensor of the host. An
operation with tensors of both places raises, as CUDA's and Metal's do, unless the host's is a
single number; so does giving its numbers to NumPy. What an operation makes of them is there
again. So a tensor that was made without its device is found wherever it meets another, and
what comes out can be compared with the processor's own, bit for bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kakeya_fleet.engine.contracts.device import CUDA

PRETENDED = CUDA
"""Its name: torch builds without it make no tensor of their own there."""
PLACE = torch.device(PRETENDED, 0)


class TwoDevices(RuntimeError):
    """An operation met tensors of the host and of the device."""


class PretendedTensor(Tensor):
    """A tensor on `PRETENDED`; `held` has its numbers."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> PretendedTensor:
        # Views of what was made outside of inference can be of no other kind.
        with torch.inference_mode(mode=False):
            made: PretendedTensor = Tensor._make_wrapper_subclass(
                cls,
                held.shape,
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=PLACE,
                dispatch_sizes_strides_policy="sizes",
            )
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"PretendedTensor({self.held!r})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return computed(func, args, dict(kwargs or {}))


class PretendedDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered tensors can be made on `PRETENDED`; `moves` counts what crossed.

    By (from, to), in tensors: host and device.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.moves: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if func.overloadpacket is torch.ops.aten.to:
            # In inference what is made of other operations comes here whole.
            with self:
                return func.decompose(*args, **options)
        if func is torch.ops.aten._to_copy.default and _names(args, options):
            return self.moved(func, args, options)
        return computed(func, args, options)

    def copied(self, target: Tensor, source: Tensor) -> Tensor:
        """`Tensor.copy_`."""
        self.count(source.device, target.device)
        _held(target).copy_(_held(source))
        return target

    def moved(self, func: Any, args: Sequence[Any], options: dict[str, Any]) -> Tensor:
        """A copy of the first argument, where it is told to be."""
        place = options.pop("device", None) or args[0].device
        self.count(args[0].device, place)
        with torch._C._DisableTorchDispatch():
            found: Tensor = func(_held(args[0]), *args[1:], **options)
        return PretendedTensor(found) if place.type == PRETENDED else found

    def count(self, source: torch.device, target: torch.device) -> None:
        """One more that went from one to the other."""
        if source.type != target.type:
            self.moves[source.type, target.type] += 1


class Calls(TorchFunctionMode):
    """While it is entered some of torch's functions know `PRETENDED`.

    They ask for the device's driver above, or reach it below, all that a mode of dispatch sees.
    """

    def __init__(self, device: PretendedDevice) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if func is torch.tensor and "device" in options:
            place = options.pop("device")
            return func(*args, **options).to(place)
        if func is Tensor.copy_:
            return self._device.copied(*args, **options)
        if func is Tensor.contiguous and isinstance(args[0], PretendedTensor):
            return PretendedTensor(args[0].held.contiguous())
        if func is Tensor.tolist and isinstance(args[0], PretendedTensor):
            self._device.count(PLACE, args[0].held.device)
            return args[0].held.tolist()
        if func is Tensor.__getitem__ and isinstance(args[0], PretendedTensor):
            _check_places(func, _tensors(args[1:]))
            return PretendedTensor(args[0].held[_mapped(_held, args[1])])
        if func is Tensor.__setitem__ and isinstance(args[0], PretendedTensor):
            target, index, given = args
            if isinstance(given, Tensor):
                self._device.count(given.device, target.device)
            target.held[_mapped(_held, index)] = _held(given)
            return None
        return func(*args, **options)


def computed(func: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """What `func` makes, where its tensors are or where it is told to make one."""
    tensors = _tensors((args, options))
    there = [each for each in tensors if isinstance(each, PretendedTensor)]
    asked = options.get("device")
    if there:
        _check_places(func, tensors)
    on_device = asked.type == PRETENDED if asked is not None else bool(there)
    if asked is not None:
        options["device"] = torch.device("cpu") if on_device else asked
    wrappers = {id(each.held): each for each in there}
    with torch._C._DisableTorchDispatch():
        found = func(*_mapped(_held, tuple(args)), **_mapped(_held, options))
    return _mapped(lambda each: _wrapped(each, wrappers), found) if on_device else found


def _names(args: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Whether the pretended device is one of two places, or both."""
    asked = options.get("device")
    return isinstance(args[0], PretendedTensor) or (asked is not None and asked.type == PRETENDED)


def _held(each: Any) -> Any:
    return each.held if isinstance(each, PretendedTensor) else each


def _wrapped(each: Any, wrappers: Mapping[int, PretendedTensor]) -> Any:
    """In place operations give what they were given."""
    if not isinstance(each, Tensor):
        return each
    known = wrappers.get(id(each))
    return PretendedTensor(each) if known is None else known


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """`value` with every leaf changed.

    Torch's own trees know every kind of container, and take most of a forward's time for it.
    """
    if isinstance(value, tuple | list):
        made = [_mapped(change, each) for each in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return {key: _mapped(change, each) for key, each in value.items()}
    return change(value)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, tuple | list):
        return []
    return [tensor for each in value for tensor in _tensors(each)]


def _check_places(func: Any, tensors: Sequence[Tensor]) -> None:
    """Raises `TwoDevices` for tensors of the host beside those of the device."""
    strangers = [each for each in tensors if not isinstance(each, PretendedTensor) and each.dim()]
    if strangers:
        shapes = ", ".join(str(tuple(each.shape)) for each in strangers)
        raise TwoDevices(f"{func} with {shapes} of the host")


@contextmanager
def pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendedDevice]:
    """While it lasts `--device cuda` is a pretended one, of 8 GiB."""
    # What torch itself does where it only reckons with shapes of tensors of CUDA.
    torch._C._ensureCUDADeviceGuardSet()
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "pretended")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (7 << 30, 8 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 2 << 20)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 1 << 20)
    device = PretendedDevice()
    with Calls(device), device:
        yield device
