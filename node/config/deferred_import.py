"""Libraries that are loaded when they are first used, and not when they are imported."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def defer(name: str) -> None:
    """Has `import name` load nothing until an attribute of it is looked up.

    For what a process may never use: numpy costs an agent without models 11 MB, and a tenth of
    its start. Nothing happens where it is loaded already, or not installed.
    """
    if name not in sys.modules and find_spec(name) is not None:
        sys.modules[name] = _Deferred(name)


class _Deferred(ModuleType):
    """Stands in for a module. `importlib.util.LazyLoader` does not outlast a second `import`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._loading = threading.RLock()
        self._loaded: ModuleType | None = None

    def __getattr__(self, attribute: str) -> object:
        """Of what has been looked up nothing is asked here again."""
        found: object = getattr(self._load(), attribute)
        if not attribute.startswith("__"):
            setattr(self, attribute, found)
        return found

    def _load(self) -> ModuleType:
        with self._loading:
            if self._loaded is None:
                # Who imports it meanwhile waits for the import, and who has this one for the lock.
                if sys.modules.get(self.__name__) is self:
                    del sys.modules[self.__name__]
                self._loaded = import_module(self.__name__)
            return self._loaded


@contextmanager
def without(name: str) -> Iterator[None]:
    """Imports of that library fail in the block, for others that would load it to no use."""
    if name in sys.modules:
        yield
        return
    # The import system's own way to say so, which typing does not know.
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]
