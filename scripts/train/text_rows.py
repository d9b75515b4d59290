"""Source files and descriptions of packages as rows of one length, which a restorer learns on.

    python -m scripts.train.text_rows --target MODEL --out ROWS

What has left a window tells most where a text goes on with what it began, so a row is a stretch of
one file, and of the next of its package where that is short. Packages under permissive licences
alone (`prompt_sources`), so many rows of each at most; some packages are held out whole.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.progress import track
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from scripts.train.prompt_sources import Package, is_held_out, packages, texts
from scripts.train.rows import RowBatch, write_batch

LETTERS_A_TOKEN = 8
"""At most, of what is read of a package: no more is encoded than rows are taken from."""


def package_rows(
    package: Package,
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    most: int,
    rng: np.random.Generator,
) -> Iterator[np.ndarray]:
    """At most `most` rows of `length` ids: its description, then its files in random order."""
    files = [text for _, text in texts(package)]
    parts = [package.description, *(files[at] for at in rng.permutation(len(files)))]
    joined = "\n".join(part for part in parts if part)[: LETTERS_A_TOKEN * length * most]
    ids = np.asarray(tokenizer.encode(joined, add_special_tokens=False, verbose=False), np.int32)
    for row in range(min(most, len(ids) // length)):
        yield ids[row * length : (row + 1) * length]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one file of rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--target", type=Path, required=True, help="folder with the tokenizer")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--length", type=int, default=1536, help="tokens of a row")
    parser.add_argument("--most", type=int, default=24, help="rows of a package")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    tokenizer = AutoTokenizer.from_pretrained(options.target)
    rng = np.random.Generator(np.random.Philox(key=options.seed))
    rows, held_out = [], []
    for package in track(packages(), description="packages"):
        for row in package_rows(package, tokenizer, options.length, options.most, rng):
            rows.append(row)
            held_out.append(is_held_out(package.name))
    if not rows:
        raise ValueError(f"no package has {options.length} tokens")
    ones, zeros = np.ones(len(rows), np.int32), np.zeros(len(rows))
    batch = RowBatch.of_one_length(np.stack(rows), ones, zeros)
    options.out.mkdir(parents=True, exist_ok=True)
    write_batch(options.out / "rows-0.npz", replace(batch, held_out=np.asarray(held_out)))
    print(f"{len(rows)} rows, {sum(held_out)} of them held out")


if __name__ == "__main__":
    main()
