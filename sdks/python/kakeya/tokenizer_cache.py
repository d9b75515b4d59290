"""Tokenizers that nodes sent, kept on the disk by their content."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kakeya.errors import TokenizerMismatch
from kakeya.tokenizer_folder import TOKENIZER_FILES, TOKENIZER_JSON

MAX_TOKENIZER_BYTES = 64 * 1024 * 1024
"""All files of a tokenizer together."""

_SHA256 = re.compile("[0-9a-f]{64}")
_log = logging.getLogger("kakeya")


@dataclass(frozen=True, slots=True)
class AnnouncedFile:
    """A file of a tokenizer, as a node announces it; `sha256` is hexadecimal."""

    name: str
    byte_count: int
    sha256: str


@dataclass(frozen=True, slots=True)
class AnnouncedTokenizer:
    """What a node says that it will send, in the order of the bytes."""

    files: tuple[AnnouncedFile, ...]

    @classmethod
    def checked(cls, tokenizer_digest: str, files: Sequence[AnnouncedFile]) -> AnnouncedTokenizer:
        """Refuses what no tokenizer is: names from the network become names of files.

        Raises TokenizerMismatch.
        """
        names = [file.name for file in files]
        strange = set(names) - set(TOKENIZER_FILES)
        if strange or len(set(names)) < len(names) or names[:1] != [TOKENIZER_JSON]:
            raise _mismatch("files that are no tokenizer's", f"{sorted(names)}")
        if sum(file.byte_count for file in files) > MAX_TOKENIZER_BYTES:
            raise _mismatch("more than 64 MiB", f"{[file.byte_count for file in files]}")
        if not all(_SHA256.fullmatch(file.sha256) for file in files):
            raise _mismatch("digests that are none", f"{[file.sha256 for file in files]}")
        if tokenizer_digest != files[0].sha256:
            raise _mismatch(f"another {TOKENIZER_JSON} than its digest", tokenizer_digest)
        return cls(tuple(files))

    @property
    def byte_count(self) -> int:
        """Bytes of all files."""
        return sum(file.byte_count for file in self.files)

    @property
    def key(self) -> str:
        """Names the content of all files: SHA-256 of their lines "NAME SHA256", hexadecimal."""
        lines = "".join(f"{file.name} {file.sha256}\n" for file in self.files)
        return hashlib.sha256(lines.encode()).hexdigest()

    def split(self, content: bytes) -> dict[str, bytes]:
        """The files of the bytes that came. Raises TokenizerMismatch when they differ."""
        if len(content) != self.byte_count:
            raise _mismatch("another number of bytes", f"{len(content)} of {self.byte_count}")
        files: dict[str, bytes] = {}
        start = 0
        for file in self.files:
            files[file.name] = content[start : start + file.byte_count]
            start += file.byte_count
        if not self._is(files):
            raise _mismatch("other bytes than announced", "the digests differ")
        return files

    def _is(self, files: Mapping[str, bytes]) -> bool:
        return all(
            hashlib.sha256(files[file.name]).hexdigest() == file.sha256 for file in self.files
        )

    def read(self, cache: Path) -> dict[str, bytes] | None:
        """The files as `cache` keeps them; None when it has not all of them, or others."""
        try:
            files = {file.name: (cache / self.key / file.name).read_bytes() for file in self.files}
        except OSError:
            return None
        return files if self._is(files) else None

    def write(self, cache: Path, files: Mapping[str, bytes]) -> None:
        """Keeps the files. Other processes see all of them or none.

        A disk that takes none costs the next client a download, and is logged.
        """
        try:
            cache.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=".", dir=cache))
            try:
                for name, content in files.items():
                    (made / name).write_bytes(content)
                self._place(made, cache / self.key)
            finally:
                shutil.rmtree(made, ignore_errors=True)
        except OSError as error:
            _log.warning("the tokenizer is not kept for the next time: %s", error)

    def _place(self, made: Path, target: Path) -> None:
        """Gives a whole folder its name; of several processes the last one wins."""
        with suppress(OSError):
            made.rename(target)
            return
        # Another process was first, or what was there is damaged: both make room.
        aside = Path(tempfile.mkdtemp(prefix=".", dir=target.parent))
        try:
            with suppress(FileNotFoundError):
                target.rename(aside / target.name)
            with suppress(FileExistsError):
                made.rename(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _mismatch(what: str, detail: str) -> TokenizerMismatch:
    return TokenizerMismatch(
        f"the node sent {what}: try another node, or give the model's folder",
        metadata={"detail": detail},
    )


def cache_folder() -> Path:
    """Where tokenizers are kept: `$XDG_CACHE_HOME/kakeya/tokenizers`, by default in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification ignores a path that is not absolute.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "kakeya" / "tokenizers"
