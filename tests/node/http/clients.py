"""The official clients that other people wrote, imported when a test first uses one.

Importing them takes seconds, which whoever runs another room's tests need not wait for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class LateModule:
    """A module that is imported when something of it is asked for.

    Not so by `node.config.deferred_import`: that loads for names with underscores too, which pytest
    asks of all that a test module has.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        # Whoever collects tests asks everything whether it is a class, or a mock.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


if TYPE_CHECKING:
    import anthropic as anthropic
    import ollama as ollama
    import openai as openai
else:
    anthropic, ollama, openai = map(LateModule, ("anthropic", "ollama", "openai"))
