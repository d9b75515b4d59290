"""Which token stands for "not yet known"."""

from __future__ import annotations

from pathlib import Path

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.blueprint import Entries
from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.json_object import read_json_object

NAMING_FILES = ("tokenizer_config.json", "special_tokens_map.json")
USUAL_NAMES = ("[MASK]", "<mask>", "<|mask|>", "<|MASK|>", "<|mdm_mask|>")
"""How mask tokens are spelled; asked for where no file names one."""


def mask_token_id(folder: Path, entries: Entries) -> int:
    """The mask's id: `mask_token_id` of the config, else the tokenizer's mask token.

    Raises `ModelUnusable` when neither names one.
    """
    declared = entries.get("mask_token_id")
    if isinstance(declared, int) and not isinstance(declared, bool) and declared >= 0:
        return declared
    known = _token_ids(folder)
    for name in (*_named(folder), *USUAL_NAMES):
        if name in known:
            return known[name]
    raise ModelUnusable(
        f"{folder} names no mask token: set mask_token_id in config.json to the id that the model "
        "was trained with",
        path=str(folder),
    )


def _named(folder: Path) -> list[str]:
    """The mask token by the tokenizer's settings."""
    names: list[str] = []
    for file in NAMING_FILES:
        if (folder / file).is_file():
            token = read_json_object(folder / file).get("mask_token")
            content = token.get("content") if isinstance(token, dict) else token
            if isinstance(content, str):
                names.append(content)
    return names


def _token_ids(folder: Path) -> dict[str, int]:
    """Ids by their text: the vocabulary, and the tokens that the tokenizer keeps whole."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return {}
    whole = read_json_object(path)
    found: dict[str, int] = {}
    match whole.get("model"):
        case {"vocab": dict(vocabulary)}:
            found.update(vocabulary)
    tokens = whole.get("added_tokens")
    for token in tokens if isinstance(tokens, list) else []:
        match token:
            case {"content": str(content), "id": int(number)}:
                found[content] = number
    return found
