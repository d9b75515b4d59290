"""mlx-lm's modelling code, imported alone, with this engine's caches and attention let in.

Importing the package itself would import its command line and servers with
torch and transformers (1.8 s and 240 MB, measured; the models alone take 0.1 s),
and would lower the process's limit of open files for good.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import mlx.core as mx

from kakeya_fleet.engine.backends.mlx_backend.attention import segment_attention
from kakeya_fleet.engine.backends.mlx_backend.recurrent import RecurrentFeed
from kakeya_fleet.engine.errors import ArchitectureUnsupported
from kakeya_fleet.engine.kv.feed import FeedSegments

PACKAGE = "mlx_lm"
ATTENTION = "scaled_dot_product_attention"
RECURRENCE = "gated_delta_update"

STATE_ARGUMENT = 7
GATED_ROWS = 5
"""Of the recurrence's arguments the first so many have a row a token."""

Argument = mx.array | RecurrentFeed | None
Attention = Callable[..., mx.array]
Recurrence = Callable[..., tuple[mx.array, Argument]]

_lock = threading.Lock()
_opened: set[str] = set()


def model_module(name: str) -> ModuleType:
    """mlx-lm's module of the models `name`. Raises `ImportError` when it has none."""
    with _lock:
        if PACKAGE in sys.modules:
            return importlib.import_module(f"{PACKAGE}.models.{name}")
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None:
            raise ModuleNotFoundError(f"no module named {PACKAGE!r}", name=PACKAGE)
        # A stand-in that is never executed; whoever imports the package gets the real one.
        sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
        try:
            return importlib.import_module(f"{PACKAGE}.models.{name}")
        finally:
            del sys.modules[PACKAGE]


def let_in_segments(name: str) -> None:
    """Makes the attention layers in the module `name` read this engine's segments.

    What they call with arrays goes to the library's own function.
    """
    module = model_module(name)
    if f"{name}.{ATTENTION}" in _opened:
        return
    original: Attention = _function(module, ATTENTION)

    def attention(
        queries: mx.array,
        keys: mx.array | FeedSegments[mx.array],
        values: mx.array | FeedSegments[mx.array],
        *arguments: object,
        **options: object,
    ) -> mx.array:
        if not isinstance(keys, FeedSegments):
            return original(queries, keys, values, *arguments, **options)
        scale = options["scale"]
        if not isinstance(scale, float) or options.get("sinks") is not None:
            raise TypeError("attention over segments takes a scale and no sinks")
        return segment_attention(queries, keys, scale)

    setattr(module, ATTENTION, attention)
    _opened.add(f"{name}.{ATTENTION}")


def let_in_states(name: str) -> None:
    """Makes the recurrent layers in the module `name` go through this engine's states.

    What they call with arrays goes to the library's own function.
    """
    module = model_module(name)
    if f"{name}.{RECURRENCE}" in _opened:
        return
    original: Recurrence = _function(module, RECURRENCE)

    def recurrence(*arguments: Argument, **options: object) -> tuple[mx.array, Argument]:
        # Queries, keys, values, two gates, the layer's two weights, state, mask.
        state = arguments[STATE_ARGUMENT]
        if not isinstance(state, RecurrentFeed):
            return original(*arguments, **options)
        rows = [part for part in arguments[:GATED_ROWS] if isinstance(part, mx.array)]
        return state.extend(*rows), state

    setattr(module, RECURRENCE, recurrence)
    _opened.add(f"{name}.{RECURRENCE}")


def _function(module: ModuleType, name: str) -> Callable[..., Any]:
    """The function `name` of the library's `module`."""
    found = getattr(module, name, None)
    if not callable(found):
        raise ArchitectureUnsupported(
            f"this version of mlx-lm has no {name} in {module.__name__}",
            architecture=module.__name__,
        )
    return cast(Callable[..., Any], found)
