"""Whether a model's tokenizer can be used with it: looked at before its weights are read."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.digests import TOKENIZER_FILES

TOKENIZER_JSON = TOKENIZER_FILES[0]
MEND = "fetch the model's own tokenizer again, or point to the folder that has it"


def check_tokenizer(folder: Path, vocabulary_size: int) -> None:
    """Raises `ModelUnusable` for a `tokenizer.json` in `folder` that is none of the model's.

    One that cannot be loaded, that knows no token, or of whose vocabulary an id is not
    below `vocabulary_size`. Tokens added behind the vocabulary may lie beyond it, as
    those of images that a text model never sees do: an append refuses them by name.
    A folder without that file has nothing to check.
    """
    path = folder / TOKENIZER_JSON
    if not path.is_file():
        return
    try:
        tokenizer = Tokenizer.from_file(str(path))
    # The library raises no narrower class for any fault of a file.
    except Exception as error:
        raise _unusable(path, f"cannot be loaded as a tokenizer ({error})") from error
    ids = tokenizer.get_vocab(with_added_tokens=False).values()
    if not ids:
        raise _unusable(path, "has no vocabulary")
    if max(ids) >= vocabulary_size:
        raise _unusable(
            path,
            f"gives ids up to {max(ids)}, and the vocabulary of config.json has {vocabulary_size}",
        )


def _unusable(path: Path, words: str) -> ModelUnusable:
    return ModelUnusable(f"{path} {words}: {MEND}", path=str(path))
