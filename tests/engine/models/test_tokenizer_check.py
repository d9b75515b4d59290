"""A tokenizer that is none of the model's is found out before its weights are read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from kakeya_fleet.engine.backends import BACKENDS, installed_backends, load_verifier
from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.model_folder import SHIPPED, ModelFolder, vocabulary_size
from kakeya_fleet.engine.models.tokenizer_check import check_tokenizer


def words(count: int, added: tuple[str, ...] = ()) -> bytes:
    """A tokenizer of `count` words, with `added` tokens behind them."""
    tokenizer = Tokenizer(WordLevel({f"t{index}": index for index in range(count)}, unk_token="t0"))
    tokenizer.add_special_tokens(list(added))
    return str(tokenizer.to_str()).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "cannot be loaded"),
        (b"", "cannot be loaded"),
        (b"not even JSON", "cannot be loaded"),
        (json.dumps({"model": {"type": "Unheard"}}).encode(), "cannot be loaded"),
        (words(0), "no vocabulary"),
        (words(97), "ids up to 96"),
    ],
    ids=["empty object", "empty", "no JSON", "unknown kind", "no words", "another model's"],
)
def test_what_is_none_of_the_models_is_refused_with_the_mend(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelUnusable, match=rf"{said}.*fetch the model's own") as caught:
        check_tokenizer(tmp_path, 96)
    assert caught.value.metadata == {"path": str(tmp_path / "tokenizer.json")}


@pytest.mark.parametrize("content", [words(96), words(3), words(96, ("<image>",))])
def test_fewer_tokens_and_added_ones_behind_the_vocabulary_are_fine(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    check_tokenizer(tmp_path, 96)


def test_without_the_file_there_is_nothing_to_check(tmp_path: Path) -> None:
    check_tokenizer(tmp_path, 96)


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_the_shipped_models_are_fine(name: str) -> None:
    check_tokenizer(SHIPPED[name], vocabulary_size(SHIPPED[name]))


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_verifier_is_not_loaded_with_it(
    random_checkpoint: Callable[..., Path], tmp_path: Path, backend: str
) -> None:
    if backend not in installed_backends():
        pytest.skip(f"the libraries of the back end {backend} are not installed")
    folder = tmp_path / "model"
    shutil.copytree(random_checkpoint(), folder)
    (folder / "tokenizer.json").write_bytes(b"{}")
    # Before the weights: there are none that could be read.
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelUnusable, match="cannot be loaded as a tokenizer"):
        load_verifier(ModelFolder(folder, "random"), backend=backend)
