from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import kakeya
from kakeya.text import Detokenizer, TextCodec
from tests.support.breadth import again

CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CORPUS = ["def parse(line): return line.split()", "naïve café ☕ 👩‍👩‍👧 日本語 Привет"] * 3


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def word_pieces() -> Tokenizer:
    """Words with a leading mark, whose first space vanishes, and bytes for the rest."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁def", "▁a", "b", "▁", "x"]
    tokenizer = Tokenizer(
        models.BPE({piece: index for index, piece in enumerate(pieces)}, [], byte_fallback=True)
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


TOKENIZERS = {"byte-level": byte_level(), "word-pieces": word_pieces()}


def decode_with(name: str) -> Callable[[Sequence[int]], str]:
    tokenizer = TOKENIZERS[name]
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False)


def word_piece_id(piece: str) -> int:
    token_id = TOKENIZERS["word-pieces"].token_to_id(piece)
    assert token_id is not None
    return token_id


def word_piece_ids(text: str) -> list[int]:
    """Ids of the pieces tokenizer: a character is its bytes, "def" and spaces are pieces."""
    ids = []
    for character in text:
        piece = {" ": "▁", "d": "▁def", "b": "b"}.get(character)
        names = [piece] if piece else [f"<0x{byte:02X}>" for byte in character.encode()]
        ids += [word_piece_id(name) for name in names]
    return ids


@st.composite
def chunked_ids(draw: st.DrawFn) -> tuple[str, list[list[int]]]:
    """A tokenizer and ids in chunks: any ids of bytes, ids of whole characters of pieces."""
    name = draw(st.sampled_from(sorted(TOKENIZERS)))
    if name == "byte-level":
        ids = draw(st.lists(st.integers(0, 299), max_size=40))
    else:
        ids = word_piece_ids(draw(st.text(max_size=20)))
    chunks = []
    while ids:
        size = draw(st.integers(1, 4))
        chunks.append(ids[:size])
        ids = ids[size:]
    return name, chunks


@again(3)
@settings(deadline=None, max_examples=100)
@given(chunked_ids())
def test_the_pieces_are_the_whole_text(case: tuple[str, list[list[int]]]) -> None:
    name, chunks = case
    decode = decode_with(name)
    detokenizer = Detokenizer(decode)
    pieces = [detokenizer.push(chunk) for chunk in chunks]
    assert not any(piece.endswith("\ufffd") for piece in pieces)
    token_ids = [token_id for chunk in chunks for token_id in chunk]
    assert "".join(pieces) + detokenizer.flush() == decode(token_ids)


def test_a_byte_that_is_no_character_spoils_nothing_that_was_returned() -> None:
    tokenizer = TOKENIZERS["word-pieces"]
    euro, bad = word_piece_ids("€"), [word_piece_id("<0xFF>")]
    assert tokenizer.decode(euro + bad) == "\ufffd" * 4
    detokenizer = Detokenizer(decode_with("word-pieces"))
    assert detokenizer.push(euro) == "€"
    assert detokenizer.push(bad) == ""
    assert detokenizer.push(word_piece_ids("b")) == "\ufffdb"


@again(2)
@settings(deadline=None, max_examples=100)
@given(st.text(min_size=1))
def test_text_comes_out_by_whole_characters(text: str) -> None:
    decode = decode_with("byte-level")
    detokenizer = Detokenizer(decode)
    seen = ""
    for token_id in TOKENIZERS["byte-level"].encode(text).ids:
        seen += detokenizer.push([token_id])
        assert text.startswith(seen)
    assert seen + detokenizer.flush() == text


def test_text_comes_as_soon_as_it_is_whole() -> None:
    tokenizer = TOKENIZERS["byte-level"]
    detokenizer = Detokenizer(decode_with("byte-level"))
    pieces = [detokenizer.push([token_id]) for token_id in tokenizer.encode("a🦊b").ids]
    assert pieces[0] == "a"
    assert pieces[-2:] == ["🦊", "b"]
    assert detokenizer.flush() == ""


def test_half_a_character_comes_out_at_the_end() -> None:
    tokenizer = TOKENIZERS["byte-level"]
    detokenizer = Detokenizer(decode_with("byte-level"))
    assert detokenizer.push(tokenizer.encode("🦊").ids[:-1]) == ""
    assert set(detokenizer.flush()) == {"\ufffd"}
    assert detokenizer.flush() == ""


def test_the_cost_of_an_id_does_not_grow() -> None:
    longest = 0

    def decode(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return "".join(chr(97 + token_id) for token_id in ids)

    detokenizer = Detokenizer(decode)
    text = "".join(detokenizer.push([index % 26]) for index in range(1000))
    assert len(text) == 1000
    assert longest <= 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers = pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("tokenizer")
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=TOKENIZERS["byte-level"], eos_token="<|end|>"
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(path)
    return path


def test_a_codec_of_a_folder(folder: Path) -> None:
    codec = TextCodec.from_folder(folder)
    text = "def naïve(line): return '☕ . , !'"
    token_ids = codec.encode(text)
    assert codec.decode(token_ids) == text
    detokenizer = codec.detokenizer()
    assert "".join(detokenizer.push([item]) for item in token_ids) == text
    end = codec.eos_token_id
    assert end is not None
    assert codec.decode([*token_ids, end]) == text + "<|end|>"
    assert codec.decode([*token_ids, end], skip_special_tokens=True) == text
    assert codec.detokenizer(skip_special_tokens=True).push([*token_ids, end]) == text


def test_chats_are_rendered_by_the_models_own_template(folder: Path) -> None:
    codec = TextCodec.from_folder(folder)
    messages = [{"role": "user", "content": "hello"}]
    assert codec.render_chat(messages) == "<user>hello<assistant>"
    assert codec.render_chat(messages, add_generation_prompt=False) == "<user>hello"


def test_a_model_without_a_template_says_so(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        if file.suffix == ".json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    codec = TextCodec.from_folder(tmp_path)
    assert not codec.has_chat_template
    with pytest.raises(kakeya.ChatTemplateNotFound, match="no chat template"):
        codec.render_chat([{"role": "user", "content": "hello"}])


def test_no_tokenizer_there(tmp_path: Path) -> None:
    with pytest.raises(kakeya.TokenizerNotFound, match="no tokenizer at"):
        TextCodec.from_folder(tmp_path)
    with pytest.raises(kakeya.TokenizerNotFound):
        TextCodec.from_folder(tmp_path / "missing")


@pytest.mark.parametrize("library", ["tokenizers", "jinja2"])
def test_without_the_extra_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, folder: Path, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "kakeya.chat_template", raising=False)
    monkeypatch.delattr(kakeya, "chat_template", raising=False)
    with pytest.raises(kakeya.TextExtraMissing, match=r"pip install 'kakeya\[text\]'"):
        TextCodec.from_folder(folder).render_chat([{"role": "user", "content": "hello"}])


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_a_file_that_cannot_be_read_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).write_bytes(b"[1, ")
    with pytest.raises(kakeya.TokenizerNotFound, match=f"{name} cannot be read"):
        TextCodec.from_folder(tmp_path)


def test_importing_the_module_loads_no_library() -> None:
    code = "import sys, kakeya.text;print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "kakeya" in loaded
    assert not {"tokenizers", "jinja2", "transformers", "huggingface_hub"} & set(loaded)
