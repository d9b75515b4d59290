"""The example of each family of chat models, with templates in the families' formats.

sdks/chat-families.json has them; the TypeScript client runs the same cases.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kakeya.text import TextCodec, from_openai_messages
from kakeya.tokenizer_folder import read_files
from tests.support.scripted_node import ScriptedNode

ROOT = Path(__file__).parents[2]
FAMILIES = json.loads((ROOT / "sdks" / "chat-families.json").read_text())["families"]
TOKENIZER = (ROOT / "engine" / "shipped" / "tiny" / "tokenizer.json").read_bytes()
EXAMPLE = ROOT / "sdks" / "python" / "examples" / "chat_families.py"
CASES = [
    pytest.param(name, case, id=f"{name}-{place}")
    for name, family in FAMILIES.items()
    for place, case in enumerate(family["cases"])
]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chat_families", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def files_of(family: dict[str, Any]) -> dict[str, bytes]:
    """A model's folder: the shipped tokenizer with the family's marks and template."""
    config = {"extra_special_tokens": family["marks"], "eos_token": family["eos_token"]}
    if family["bos_token"]:
        config["bos_token"] = family["bos_token"]
    return {
        "tokenizer.json": TOKENIZER,
        "tokenizer_config.json": json.dumps(config).encode(),
        "chat_template.jinja": "\n".join(family["template"]).encode(),
    }


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_chat_of_the_family(example: ModuleType, name: str, case: dict[str, Any]) -> None:
    family = FAMILIES[name]
    codec = TextCodec(read_files(files_of(family), name))
    messages = from_openai_messages(case["messages"])
    if "thinking" in case:
        ids = example.THINKING[name](codec, messages, thinking=case["thinking"])
    else:
        ids = example.PLAIN[name](codec, messages)
    assert codec.decode(ids) == case["text"]
    # Marks are one id each, and the text's beginning is there once.
    for mark in filter(None, (*family["marks"], family["bos_token"], family["eos_token"])):
        (mark_id,) = codec.encode(mark)
        assert ids.count(mark_id) == case["text"].count(mark), mark


def test_every_family_has_an_example(example: ModuleType) -> None:
    assert {*example.THINKING, *example.PLAIN} == set(FAMILIES)
    switched = {name for name in FAMILIES if "thinking" in FAMILIES[name]["cases"][0]}
    assert switched == set(example.THINKING)


@pytest.mark.parametrize("arguments", [["qwen3", "--no-thinking"], ["llama3"]], ids=" ".join)
def test_the_example_asks_a_node(
    example: ModuleType,
    threaded_node: ScriptedNode,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    family = FAMILIES[arguments[0]]
    threaded_node.tokenizer_files = files_of(family)
    threaded_node.vocabulary_size = 100_000
    example.main([threaded_node.address, "tiny", *arguments])
    (request,) = threaded_node.requests["CreateSession"]
    codec = TextCodec(read_files(threaded_node.tokenizer_files, "node"))
    text = next(
        case["text"]
        for case in family["cases"]
        if case.get("thinking") in (False, None) and len(case["messages"]) == 2
    )
    assert codec.decode(request.initial_token_ids) == text
    assert list(request.stop_token_ids) == codec.encode(family["eos_token"])
    assert capsys.readouterr().out.strip()
    assert not threaded_node.sessions
