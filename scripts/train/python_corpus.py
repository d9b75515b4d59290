"""The training text: the Python standard library's own source, and a tokenizer trained on it.

Files are read from the running interpreter's library folder. Third-party packages, tests and
their fixtures, and modules that are mostly tables (codecs, help topics) are left out, because they
are not ordinary Python. A file is held out by the hash of its path, so the split is the same on
every machine.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from scripts.eval.recall_words import WORDS

END_OF_TEXT = "<|endoftext|>"
HELD_OUT_PERCENT = 4
SKIPPED_FOLDERS = frozenset(
    {"site-packages", "test", "tests", "idle_test", "__pycache__", "pydoc_data", "encodings"}
)
SKIPPED_PREFIXES = ("config-", "_sysconfigdata")
# Enough repetitions that byte-pair merging completes each word ahead of rarer merges.
WORD_REPETITIONS = 600


@dataclass(frozen=True)
class SourceFile:
    """One source file: its path below the library folder, with `/`, and its text."""

    name: str
    text: str


def standard_library() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def read_corpus(root: Path) -> list[SourceFile]:
    """Every accepted `.py` file below `root` that is valid UTF-8, sorted by name.

    Raises:
        FileNotFoundError: `root` holds no accepted file.
    """
    files = []
    for path in sorted(root.rglob("*.py"), key=lambda found: found.relative_to(root).as_posix()):
        name = path.relative_to(root).as_posix()
        if is_accepted(name):
            text = decode(path.read_bytes())
            if text:
                files.append(SourceFile(name, text))
    if not files:
        message = f"no Python source below {root}"
        raise FileNotFoundError(message)
    return files


def decode(data: bytes) -> str:
    """The text of `data` with Unix line ends, or an empty string where it is not UTF-8."""
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return ""


def is_accepted(name: str) -> bool:
    """Whether the file at this relative path belongs to the corpus."""
    parts = PurePosixPath(name).parts
    return not any(part in SKIPPED_FOLDERS or part.startswith(SKIPPED_PREFIXES) for part in parts)


def is_held_out(name: str) -> bool:
    """Whether the file is kept for evaluation: SHA-256 of the path, modulo 100."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100 < HELD_OUT_PERCENT


def split(files: Iterable[SourceFile]) -> tuple[list[SourceFile], list[SourceFile]]:
    """`files` as (training, held out)."""
    training: list[SourceFile] = []
    held_out: list[SourceFile] = []
    for file in files:
        (held_out if is_held_out(file.name) else training).append(file)
    return training, held_out


def digest(files: Iterable[SourceFile]) -> str:
    """SHA-256 over names and texts, in order, each ended by a zero byte."""
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode() + b"\0" + file.text.encode() + b"\0")
    return total.hexdigest()


def train_tokenizer(files: Iterable[SourceFile], vocabulary_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with single digits, trained on `files` and the recall words.

    Nothing is normalised and every byte has a token, so decoding gives back the exact text.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_tokenizer_text(files), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
    )


def _tokenizer_text(files: Iterable[SourceFile]) -> Iterator[str]:
    for file in files:
        yield file.text
    yield f" {' '.join((*WORDS, 'fact', 'recall'))}\n" * WORD_REPETITIONS


def encode(tokenizer: PreTrainedTokenizerBase, files: Iterable[SourceFile]) -> np.ndarray:
    """All files' tokens in order, int32 of shape (tokens,), end-of-text after each file."""
    pieces: list[int] = []
    for file in files:
        pieces.extend(tokenizer.encode(file.text, add_special_tokens=False, verbose=False))
        pieces.append(tokenizer.eos_token_id)
    return np.asarray(pieces, dtype=np.int32)
