"""A tokenizer as the files of a model's folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kakeya.errors import TextExtraMissing, TokenizerNotFound

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

TOKENIZER_JSON = "tokenizer.json"

TOKENIZER_FILES = (
    TOKENIZER_JSON,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
    "config.json",
)
"""All files that matter to text; only the first must be there."""

NAMED_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""Special tokens that chat templates know by name."""


@dataclass(frozen=True, slots=True)
class TokenizerFolder:
    """What the files say.

    `digest` is the SHA-256 of tokenizer.json in hexadecimal, what cards call the
    tokenizer; `named_tokens` are the special tokens by name; `stop_token_ids` end an
    answer; `templates` are chat templates by name, "default" for the only one.
    """

    tokenizer: Tokenizer
    digest: str
    named_tokens: Mapping[str, str]
    stop_token_ids: tuple[int, ...]
    templates: Mapping[str, str]


def read_folder(folder: Path) -> TokenizerFolder:
    """Reads a folder in the hub's format. Raises TextExtraMissing, TokenizerNotFound."""
    files: dict[str, bytes] = {}
    for name in TOKENIZER_FILES:
        try:
            files[name] = (folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise _unreadable(f"{folder / name}", str(error)) from None
    return read_files(files, str(folder))


def read_files(files: Mapping[str, bytes], source: str) -> TokenizerFolder:
    """Reads the files of a folder, by name; `source` names the folder in errors.

    Raises TextExtraMissing, TokenizerNotFound.
    """
    if TOKENIZER_JSON not in files:
        raise TokenizerNotFound(
            f"no tokenizer at {source}: a folder in the hub's format with a {TOKENIZER_JSON} "
            "is needed",
            metadata={"source": source},
        )
    tokenizer = _load(files[TOKENIZER_JSON], f"{source}/{TOKENIZER_JSON}")
    configs = {
        name: _object(files[name], f"{source}/{name}") if name in files else {}
        for name in TOKENIZER_FILES
        if name.endswith("config.json") or name == "special_tokens_map.json"
    }
    config = configs["tokenizer_config.json"]
    if "added_tokens_decoder" not in config:
        # Folders of an earlier format keep their special tokens in a file of their own.
        config |= configs["special_tokens_map.json"]
    if tokenizer.padding is not None:
        config.setdefault("pad_token", tokenizer.padding["pad_token"])
    # Ids of a text never depend on a length that was set for training.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    named = _add_special_tokens(tokenizer, config)
    eos = named.get("eos_token")
    eos_id = tokenizer.token_to_id(eos) if eos is not None else None
    stops = _stop_token_ids(configs["generation_config.json"], configs["config.json"])
    return TokenizerFolder(
        tokenizer=tokenizer,
        digest=hashlib.sha256(files[TOKENIZER_JSON]).hexdigest(),
        named_tokens=named,
        stop_token_ids=stops or (() if eos_id is None else (eos_id,)),
        templates=_templates(files, source, config),
    )


def _load(content: bytes, path: str) -> Tokenizer:
    try:
        # Imported with the first tokenizer: an extra, which takes a while.
        from tokenizers import Tokenizer  # noqa: PLC0415
    except ImportError as error:
        raise TextExtraMissing(
            f"text needs the extra kakeya[text] ({error}): pip install 'kakeya[text]'"
        ) from None
    try:
        tokenizer = Tokenizer.from_str(content.decode())
    # The library raises bare Exception for a file that it cannot read.
    except Exception as error:  # noqa: BLE001
        raise TokenizerNotFound(
            f"{path} cannot be read as a tokenizer ({error}): copy it again from the model",
            metadata={"source": path, "detail": str(error)},
        ) from None
    return tokenizer


def _object(content: bytes, path: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError as error:
        raise _unreadable(path, str(error)) from None
    if not isinstance(found, dict):
        raise _unreadable(path, "it holds no object")
    return found


def _unreadable(path: str, detail: str) -> TokenizerNotFound:
    return TokenizerNotFound(
        f"{path} cannot be read ({detail}): copy it again from the model",
        metadata={"source": path, "detail": detail},
    )


def _add_special_tokens(tokenizer: Tokenizer, config: Mapping[str, Any]) -> dict[str, str]:
    """Makes what the config declares special tokens; returns the named ones."""
    declared = config.get("added_tokens_decoder") or {}
    if declared:
        in_order = sorted(declared.items(), key=lambda entry: int(entry[0]))
        tokenizer.add_tokens([_added_token(token) for _id, token in in_order])
    named = {name: config[name] for name in NAMED_TOKENS if config.get(name)}
    others = [
        token
        for name, token in config.items()
        if name.endswith("_token") and name not in NAMED_TOKENS and isinstance(token, str | dict)
    ]
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    others += extra.values() if isinstance(extra, dict) else extra
    # Those that are there already keep their flags.
    there = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    for token in (*named.values(), *others):
        if _content(token) not in there:
            tokenizer.add_special_tokens([_added_token(token)])
            there.add(_content(token))
    return {name: _content(token) for name, token in named.items()}


def _content(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _added_token(token: str | Mapping[str, Any]) -> AddedToken:
    from tokenizers import AddedToken  # noqa: PLC0415 - as in _load

    if isinstance(token, str):
        return AddedToken(token, special=True, normalized=False)
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(_content(token), **{name: token[name] for name in flags if name in token})


def _stop_token_ids(*configs: Mapping[str, Any]) -> tuple[int, ...]:
    """`eos_token_id` of the first config that has it; one id, several or none."""
    for config in configs:
        # Models of several kinds of input keep their text's config apart.
        found = config.get("eos_token_id", (config.get("text_config") or {}).get("eos_token_id"))
        ids = found if isinstance(found, list) else [found]
        if ids and all(type(each) is int for each in ids):
            return tuple(ids)
    return ()


def _templates(
    files: Mapping[str, bytes], source: str, config: Mapping[str, Any]
) -> dict[str, str]:
    name = "chat_template.jinja"
    if name in files:
        try:
            return {"default": files[name].decode()}
        except ValueError as error:
            raise _unreadable(f"{source}/{name}", str(error)) from None
    found = config.get("chat_template")
    if isinstance(found, str):
        return {"default": found}
    return {str(each["name"]): str(each["template"]) for each in found or []}
