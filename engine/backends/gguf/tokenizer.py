"""The tokenizer of a GGUF file's metadata, as the files of a folder in the hub's format."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from transformers.integrations.gguf import gguf_tokenizer_mapping as library

from kakeya_fleet.engine.errors import GgufInvalid, ModelUnusable, WeightFormatUnsupported
from kakeya_fleet.engine.models.gguf.entries import Entries

BYTE_LEVEL = "gpt2"
"""What llama.cpp calls vocabularies of bytes with merges; others are of sentencepiece."""
KINDS = (BYTE_LEVEL, "llama", "gemma4")

DIGITS_APART = ("smollm", "starcoder", "refact", "command-r", "exaone")
AS_GPT2 = ("gpt-2", "phi-2", "jina-es", "jina-de", "mpt", "olmo", "jais")
WHOLE_WORDS_FIRST = ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral")
"""A word that the vocabulary has is one token, whatever merges would make of it; they begin
with a first token besides."""
COMPOSED = ("qwen2", "qwen35", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez")
"""Text is put into composed characters first, as their own tokenizers do."""
SPACE = "\u2581"
"""How vocabularies of pieces write it."""
CONTROL, USER_DEFINED = 3, 4
"""Types of tokens: never made of a text's parts, and matched whole where they stand."""
ENDS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<turn|>",
    "</s>",
)
"""Control tokens that end an answer, as llama.cpp knows them by their texts."""


def write_tokenizer(entries: Entries, folder: Path) -> None:
    """Writes `tokenizer.json`, its config, the chat template and what ends an answer.

    Raises `GgufInvalid` for a vocabulary that is none, `WeightFormatUnsupported` for a way to
    split text that is not known here: other ids would be another model.
    """
    kind = entries.text("tokenizer.ggml.model")
    if kind not in KINDS:
        raise _unsupported(entries, f"a tokenizer of kind {kind[:64]!r}", KINDS)
    tokens = entries.texts("tokenizer.ggml.tokens")
    if not tokens or len(set(tokens)) != len(tokens):
        path = entries.header.path
        raise GgufInvalid(f"{path} has no vocabulary, or a token twice", path=str(path))
    tokenizer = _built(entries, kind, tokens)
    first = _first_token(entries, kind, tokens)
    if first is not None:
        tokenizer.post_processor = processors.Sequence(
            [
                *([tokenizer.post_processor] if tokenizer.post_processor is not None else []),
                processors.TemplateProcessing(
                    single=f"{first[0]} $A",
                    pair=f"{first[0]} $A {first[0]} $B",
                    special_tokens=[first],
                ),
            ]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(folder / "tokenizer_config.json", _config(entries, tokens, adds_first=first is not None))
    template = entries.text("tokenizer.chat_template", "")
    if template:
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    _write(folder / "generation_config.json", {"eos_token_id": _ends(entries, tokens)})


def _built(entries: Entries, kind: str, tokens: list[str]) -> Tokenizer:
    """The tokenizer, without what it adds to a text."""
    types = [int(each) for each in entries.numbers("tokenizer.ggml.token_type")]
    try:
        if kind == BYTE_LEVEL:
            return _of_bytes(entries, tokens, types)
        return _of_pieces(entries, kind, tokens, types)
    except ModelUnusable:
        raise
    # The libraries raise bare Exception for merges that the vocabulary does not have.
    except Exception as error:
        path = entries.header.path
        raise GgufInvalid(
            f"{path} has a vocabulary that makes no tokenizer ({error})", path=str(path)
        ) from error


def _of_bytes(entries: Entries, tokens: list[str], types: list[int]) -> Tokenizer:
    """A vocabulary of bytes with merges. Special tokens are in it by their own texts."""
    name = entries.text("tokenizer.ggml.pre", "")
    splits = _splits(entries, name)
    pairs = (merge.partition(" ") for merge in entries.texts("tokenizer.ggml.merges"))
    merges = [(first, second) for first, _, second in pairs]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(tokens)},
            merges=merges,
            ignore_merges=name in WHOLE_WORDS_FIRST,
        )
    )
    if name in COMPOSED:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = splits
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [
            AddedToken(token, normalized=False, special=kind == CONTROL)
            for token, kind in zip(tokens, types, strict=False)
            if kind in (CONTROL, USER_DEFINED)
        ]
    )
    return tokenizer


def _of_pieces(entries: Entries, kind: str, tokens: list[str], types: list[int]) -> Tokenizer:
    """A vocabulary of sentencepiece: the library has its merges come of the scores."""
    said: dict[str, object] = {"tokenizer_type": kind, "tokens": tokens, "token_type": types}
    merges = entries.texts("tokenizer.ggml.merges")
    scores = entries.numbers("tokenizer.ggml.scores")
    if merges:
        said["merges"] = merges
    if scores:
        said["scores"] = scores
    tokenizer: Tokenizer = library.convert_gguf_tokenizer(entries.architecture, said)[0]
    if kind == "llama" and not entries.architecture.startswith("gemma"):
        # As sentencepiece: a space before each text, though it begins with one.
        starts = entries.flag("tokenizer.ggml.add_space_prefix") is not False
        tokenizer.pre_tokenizer = None
        tokenizer.normalizer = normalizers.Sequence(
            [
                *([normalizers.Prepend(SPACE)] if starts else []),
                normalizers.Replace(" ", SPACE),
            ]
        )
    return tokenizer


def _splits(entries: Entries, name: str) -> pre_tokenizers.PreTokenizer:
    """How a byte-level vocabulary named `name` splits text before it merges."""
    if name in DIGITS_APART:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    if name in AS_GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    pattern = library.GGUF_PRE_TOKENIZER_SPLITS.get(name)
    if pattern is None:
        known = (*DIGITS_APART, *AS_GPT2, *library.GGUF_PRE_TOKENIZER_SPLITS)
        raise _unsupported(entries, f"a tokenizer that splits text by {name[:64]!r}", known)
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _first_token(entries: Entries, kind: str, tokens: list[str]) -> tuple[str, int] | None:
    """What is put before each text, with its id; None if nothing is."""
    said = entries.flag("tokenizer.ggml.add_bos_token")
    if said is None:
        # As llama.cpp does where the file does not say.
        said = kind == "llama" or entries.text("tokenizer.ggml.pre", "") in WHOLE_WORDS_FIRST
    if kind == "gemma4":
        # Its chat template writes the token itself.
        said = False
    key = "tokenizer.ggml.bos_token_id"
    if not said or key not in entries:
        return None
    number = entries.whole(key, least=0, most=len(tokens) - 1)
    return tokens[number], number


def _config(entries: Entries, tokens: list[str], *, adds_first: bool) -> dict[str, object]:
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": adds_first,
        "model_max_length": entries.whole(".context_length"),
    }
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    for short, name in names.items():
        key = f"tokenizer.ggml.{name}_token_id"
        if key in entries:
            number = entries.whole(key, least=0, most=len(tokens) - 1)
            config[f"{short}_token"] = tokens[number]
    return config


def _ends(entries: Entries, tokens: list[str]) -> list[int]:
    """Ids that end an answer: those that the file names, then the control tokens of `ENDS`."""
    found: list[int] = []
    for name in ("eos", "eot", "eom"):
        key = f"tokenizer.ggml.{name}_token_id"
        if key in entries:
            found.append(entries.whole(key, least=0, most=len(tokens) - 1))
    types = entries.numbers("tokenizer.ggml.token_type")
    ids = {token: number for number, token in enumerate(tokens)}
    for token in ENDS:
        number = ids.get(token)
        if number is not None and number < len(types) and types[number] == CONTROL:
            found.append(number)
    return list(dict.fromkeys(found))


def _write(path: Path, entries: dict[str, object]) -> None:
    path.write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _unsupported(entries: Entries, what: str, known: tuple[str, ...]) -> ModelUnusable:
    return WeightFormatUnsupported(
        f"{entries.header.path} has {what}, and {', '.join(sorted(set(known)))} are read; convert"
        " the model anew with llama.cpp's convert_hf_to_gguf.py, or serve its folder in the"
        " hub's format",
        path=str(entries.header.path),
    )
