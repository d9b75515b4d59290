"""Source of installed packages: Python that no shipped model was trained on.

The shipped models' text is the standard library's (`python_corpus`), so that even its held-out
files are in the style of those trained on. These packages are pinned in `constraints.txt`, and
their files are taken in the order of their paths, so that prompts are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from scripts.train.python_corpus import SourceFile, decode, is_accepted

PACKAGES = ("aiohttp", "fonttools", "jinja2", "networkx", "rich", "sympy")


def package_files(packages: Sequence[str] = PACKAGES) -> list[SourceFile]:
    """Every accepted source file of `packages`, by package and path.

    Raises:
        LookupError: a package is not installed.
    """
    return [file for package in packages for file in _files_of(package)]


def package_versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """What was read, for the report. Raises as `package_files`."""
    return {package: _distribution(package).version for package in packages}


def _files_of(package: str) -> Iterator[SourceFile]:
    found = _distribution(package)
    paths = sorted(path.as_posix() for path in found.files or () if path.suffix == ".py")
    for path in paths:
        if is_accepted(path):
            text = decode(Path(str(found.locate_file(path))).read_bytes())
            if text:
                yield SourceFile(path, text)


def _distribution(package: str) -> Distribution:
    try:
        return distribution(package)
    except PackageNotFoundError as error:
        raise LookupError(f"{package} is not installed: pip install -c constraints.txt") from error
