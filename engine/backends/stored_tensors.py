"""Which tensors a folder in the hub's format has: exactly those expected, or none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from safetensors import SafetensorError, safe_open

from kakeya_fleet.engine.errors import WeightsMismatch
from kakeya_fleet.engine.models.digests import weight_files

FLOAT_TYPES = ("F32", "F16", "BF16")
PACKED_TYPES = ("U32",)
"""How quantized weights are stored."""
NAMED_KEYS = 8
"""Keys that an error message names before it only counts."""
Array = TypeVar("Array")
Dtype = TypeVar("Dtype", contravariant=True)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor is stored, under which name, its shape and safetensors' dtype."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: str


class ReadTensors(Protocol[Dtype, Array]):
    """A back end's reading of tensors, in one of its number formats."""

    def __call__(
        self, stored: Mapping[str, StoredTensor], names: Iterable[str], dtype: Dtype
    ) -> dict[str, Array]:
        """The tensors `names` of `stored`."""
        ...


def _as_stored(name: str) -> str | None:
    return name


def stored_tensors(
    folder: Path, renamed: Callable[[str], str | None] = _as_stored
) -> dict[str, StoredTensor]:
    """The tensors of all weight files of `folder`, from the headers alone.

    By what `renamed` makes of their stored names; those it gives None for are
    left out. Raises `WeightsMismatch` for files that are missing, truncated or
    no safetensors, and for a name that is there twice.
    """
    stored: dict[str, StoredTensor] = {}
    for path in weight_files(folder):
        try:
            with safe_open(path, framework="np") as file:
                for stored_name in file.keys():  # noqa: SIM118 - not a dict
                    name = renamed(stored_name)
                    if name is None:
                        continue
                    if name in stored:
                        raise WeightsMismatch(
                            f"{name} is in {stored[name].file.name} and in {path.name}",
                            path=str(folder),
                        )
                    part = file.get_slice(stored_name)
                    shape = tuple(part.get_shape())
                    stored[name] = StoredTensor(path, stored_name, shape, part.get_dtype())
        except (SafetensorError, OSError) as error:
            raise WeightsMismatch(
                f"{path.name} is truncated or not safetensors ({error}); fetch it again",
                path=str(path),
            ) from error
    return stored


def check_tensors(
    folder: Path,
    expected: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, StoredTensor],
    packed: Collection[str] = (),
) -> None:
    """Raises `WeightsMismatch` unless `stored` has exactly the `expected` names and shapes.

    All are floating-point numbers but those of `packed`, which are quantized.
    """
    missing = sorted(expected.keys() - stored.keys())
    unexpected = sorted(stored.keys() - expected.keys())
    shared = expected.keys() & stored.keys()
    shapes = sorted(name for name in shared if stored[name].shape != expected[name])
    types = sorted(
        name
        for name in shared
        if stored[name].dtype not in (PACKED_TYPES if name in packed else FLOAT_TYPES)
    )
    problems = {"missing": missing, "unexpected": unexpected, "wrong shape": shapes}
    refuse(folder, problems | {"not floating point": types})


def refuse(folder: Path, problems: Mapping[str, list[str]]) -> None:
    """Raises `WeightsMismatch` if there are any names in `problems`."""
    found = {problem: names for problem, names in problems.items() if names}
    if found:
        text = "; ".join(f"{problem}: {listed(names)}" for problem, names in found.items())
        raise WeightsMismatch(
            f"the weights in {folder} are not those of its config.json: {text}",
            path=str(folder),
            **{problem.replace(" ", "_"): ",".join(names) for problem, names in found.items()},
        )


def listed(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED_KEYS
    return ", ".join(names[:NAMED_KEYS]) + (f" and {more} more" if more > 0 else "")
