"""Back ends by name. Nothing above this package imports a tensor library."""

from __future__ import annotations

import importlib
import importlib.util
import platform
from typing import Protocol, cast

from engine.errors import BadParameters, ModelUnusable
from engine.model_folder import ModelFolder
from engine.verifier import Verifier

BACKENDS = {
    "mlx": "engine.backends.mlx_backend",
    "torch": "engine.backends.torch_backend",
}
"""Module of each back end; it has `load_verifier` with the signature of `_Backend`."""

LIBRARIES = {"mlx": ("mlx", "mlx_lm"), "torch": ("torch", "transformers")}
"""What each back end cannot do without; the extra of the same name installs it."""

AUTO = "auto"
"""Stands for the back end that suits this machine; see `suited_backend`."""


class _Backend(Protocol):
    def load_verifier(
        self, folder: ModelFolder, *, dtype: str, available_bytes: int | None
    ) -> Verifier: ...


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
) -> Verifier:
    """The model in `folder`, ready to verify. The first call imports the back end.

    `backend`: one of `BACKENDS`, or `AUTO`. `dtype`: `float32` or `bfloat16`, of
    weights and K/V. `available_bytes`: memory the weights may take; what the
    machine has available if None. Raises a `ModelUnusable`, also when the back
    end is not installed, or `BadParameters` for an unknown back end or dtype.
    """
    name = suited_backend() if backend == AUTO else backend
    if name not in BACKENDS:
        raise BadParameters(f"no back end {name!r}; there are: {AUTO}, {', '.join(BACKENDS)}")
    return _module(name).load_verifier(folder, dtype=dtype, available_bytes=available_bytes)


def _module(name: str) -> _Backend:
    """The back end `name`. Raises `ModelUnusable` unless its libraries are there and whole."""
    advice = f"pip install 'kakeya-fleet[{name}]'"
    missing = _missing(name)
    if missing:
        raise ModelUnusable(
            f"the back end {name} needs {', '.join(missing)}: {advice}", backend=name
        )
    try:
        return cast(_Backend, importlib.import_module(BACKENDS[name]))
    except ImportError as error:
        raise ModelUnusable(
            f"the back end {name} is not installed whole ({error}): {advice}", backend=name
        ) from error


def _missing(name: str) -> list[str]:
    """The libraries of the back end `name` that are not installed."""
    return [lib for lib in LIBRARIES[name] if importlib.util.find_spec(lib) is None]
