import json
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kakeya
from kakeya.text import TextCodec
from kakeya_fleet.engine.models.digests import tokenizer_digest
from kakeya_fleet.node.cli.asking.tokenizer import (
    TextTokenizer,
    check_same,
    model_id_of,
    open_tokenizer,
    tokenizer_of,
)
from kakeya_fleet.node.cli.shell.failure import CommandFailed


@pytest.fixture(scope="session")
def words(toy: Path) -> TextTokenizer:
    return open_tokenizer(str(toy), None)


@settings(max_examples=40)
@given(text=st.text(max_size=40), cuts=st.lists(st.integers(1, 5), max_size=40))
def test_the_pieces_of_a_stream_are_the_text_whatever_the_blocks(
    words: TextTokenizer, text: str, cuts: list[int]
) -> None:
    token_ids = words.encode(text)
    stream = words.stream()
    pieces = []
    for cut in [*cuts, len(token_ids)]:
        pieces.append(stream.push(token_ids[:cut]))
        token_ids = token_ids[cut:]
    pieces.append(stream.flush())
    assert "".join(pieces) == text


def test_a_character_is_given_out_once_all_of_its_bytes_are_there(words: TextTokenizer) -> None:
    token_ids = words.encode("aé€")
    stream = words.stream()
    assert [stream.push([token_id]) for token_id in token_ids] == ["a", "", "é", "", "", "€"]


def test_a_character_that_never_completes_is_replaced_at_the_end(words: TextTokenizer) -> None:
    stream = words.stream()
    assert stream.push(words.encode("€")[:2]) == ""
    assert set(stream.flush()) == {"\N{REPLACEMENT CHARACTER}"}
    assert stream.flush() == ""


def test_the_name_on_cards_is_the_folders_name_a_hub_id_or_the_word(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert model_id_of(str(toy)) == "toy"
    assert model_id_of("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    assert model_id_of("tiny") == "tiny"
    assert model_id_of(".") == tmp_path.name


def test_the_digest_is_the_one_on_cards(words: TextTokenizer, toy: Path) -> None:
    assert words.digest == tokenizer_digest(toy)
    check_same(words, words.digest, "toy")
    check_same(words, "", "toy")
    with pytest.raises(CommandFailed, match="leave --tokenizer out") as failure:
        check_same(words, "0" * 64, "toy")
    assert failure.value.reason == "TOKENIZER_MISMATCH"


def test_a_tokenizer_can_be_named_by_folder_or_by_file(toy: Path, words: TextTokenizer) -> None:
    for path in (toy, toy / "tokenizer.json"):
        assert open_tokenizer("nowhere", str(path)).digest == words.digest


def test_a_tokenizer_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CommandFailed, match="cannot be read as a tokenizer"):
        open_tokenizer("x", str(tmp_path))


@pytest.mark.parametrize("override", ["/nowhere", "EMPTY"])
def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path, override: str) -> None:
    path = str(tmp_path) if override == "EMPTY" else override
    with pytest.raises(CommandFailed, match="--tokenizer") as failure:
        open_tokenizer("x", path)
    assert failure.value.reason == "TOKENIZER_NOT_FOUND"


@pytest.mark.parametrize(
    ("generation", "config", "ids"),
    [
        ({"eos_token_id": 5}, {"eos_token_id": 6}, (5,)),
        ({"eos_token_id": [5, 7]}, {}, (5, 7)),
        ({}, {"eos_token_id": 6}, (6,)),
        (None, {"eos_token_id": 0}, (0,)),
        (None, {"eos_token_id": None}, ()),
        (None, None, ()),
    ],
)
def test_what_ends_an_answer_is_read_from_the_models_own_files(
    toy: Path,
    tmp_path: Path,
    generation: dict[str, object] | None,
    config: dict[str, object] | None,
    ids: tuple[int, ...],
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((toy / "tokenizer.json").read_bytes())
    for name, content in {"generation_config.json": generation, "config.json": config}.items():
        if content is not None:
            (tmp_path / name).write_text(json.dumps(content))
    assert open_tokenizer("x", str(tmp_path)).stop_token_ids == ids


@pytest.fixture
def no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


class Served:
    """A client whose node serves a tokenizer, or refuses to."""

    def __init__(self, answer: TextCodec | Exception) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def client(self) -> kakeya.AsyncClient:
        """As what asks it for a text alone takes it."""
        return cast("kakeya.AsyncClient", self)

    async def text(self, model: str) -> TextCodec:
        self.asked.append(model)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_the_nodes_own_tokenizer_needs_no_folder_here(
    words: TextTokenizer, no_models: None
) -> None:
    client = Served(words.codec)
    assert (
        await tokenizer_of(client.client(), "org/far-away", "org/far-away", None)
    ).codec is words.codec
    assert client.asked == ["org/far-away"]


@pytest.mark.parametrize("error", [kakeya.TokenizerNotFound("none"), kakeya.Unimplemented("old")])
async def test_a_node_that_sends_none_leaves_the_folder_here(
    toy: Path, words: TextTokenizer, error: kakeya.TokenizerNotFound | kakeya.Unimplemented
) -> None:
    assert (
        await tokenizer_of(Served(error).client(), "toy", str(toy), None)
    ).digest == words.digest
    with pytest.raises(CommandFailed, match="--tokenizer PATH"):
        await tokenizer_of(Served(error).client(), "nowhere", "nowhere", None)


async def test_a_named_tokenizer_is_not_asked_for(toy: Path, words: TextTokenizer) -> None:
    client = Served(AssertionError())
    assert (await tokenizer_of(client.client(), "toy", "toy", str(toy))).digest == words.digest
    assert client.asked == []
