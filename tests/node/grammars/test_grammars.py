"""Grammars of a node: compiled once, off the event loop, few at a time, and not for ever."""

from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kakeya.text import TextCodec
from kakeya_fleet.engine.errors import GrammarRefused
from kakeya_fleet.node.grammars import grammars as room
from kakeya_fleet.node.grammars.compiling import compiled
from kakeya_fleet.node.grammars.grammar import Grammar, GrammarKind
from kakeya_fleet.node.grammars.grammars import (
    WAITING_AT_MOST,
    Grammars,
    go_on,
)
from kakeya_fleet.node.grammars.vocabulary import ModelTokenizer
from kakeya_fleet.node.rpc.refusals import TokenizerNotFound, TooBusy
from tests.node.grammars.conftest import TINY


def regex(text: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, text)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Grammar]:
    """What was compiled, in order."""
    seen: list[Grammar] = []

    def counted(grammar: Grammar, vocabulary: object) -> object:
        seen.append(grammar)
        return compiled(grammar, vocabulary)  # type: ignore[arg-type]

    monkeypatch.setattr(room, "compiled", counted)
    return seen


async def test_each_generation_has_its_own_place_in_the_grammar(
    tokenizer: ModelTokenizer, codec: TextCodec
) -> None:
    grammars = Grammars()
    one, two = await asyncio.gather(*(grammars.guide(regex("ab"), tokenizer) for _ in range(2)))
    one.take(codec.encode("a"))
    assert two.fitting(codec.encode("a")) == 1
    assert one.fitting(codec.encode("a")) == 0


async def test_what_one_makes_of_a_grammar_counts_against_no_other(
    tokenizer: ModelTokenizer,
) -> None:
    """Each walk below builds some thousands of an automaton's states, and all may have 16,000."""
    grammars = Grammars()
    for seed in range(12):
        rng = random.Random(seed)
        guide = await grammars.guide(regex(r"(\w{1,200}\s){1,200}"), tokenizer)
        for _ in range(100):
            guide.take([rng.choice(np.flatnonzero(guide.allowed()).tolist())])


async def test_a_refusal_is_kept_and_old_ones_are_let_go(
    tokenizer: ModelTokenizer, compilations: list[Grammar], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "KEPT_REFUSALS", 3)
    grammars = Grammars()

    async def refused(text: str) -> GrammarRefused:
        with pytest.raises(GrammarRefused, match="unclosed") as caught:
            await grammars.guide(regex(text), tokenizer)
        return caught.value

    first, second = await refused("(a"), await refused("(a")
    assert (str(first), first.metadata) == (str(second), second.metadata)
    assert compilations == [regex("(a")]
    for count in range(3):
        await refused("(b" + "c" * count)
    await refused("(a")
    assert compilations[-1] == regex("(a")


class Stuck:
    """Compilations that end when they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.running = self.most = 0
        self.lock = threading.Lock()
        monkeypatch.setattr(room, "compiled", self)

    def __call__(self, grammar: Grammar, vocabulary: object) -> object:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.go.wait(60)
        with self.lock:
            self.running -= 1
        return compiled(grammar, vocabulary)  # type: ignore[arg-type]


async def test_the_loop_goes_on_and_few_compile_at_a_time(
    tokenizer: ModelTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, grammars = Stuck(monkeypatch), Grammars()
    waiting = [
        asyncio.ensure_future(grammars.guide(regex(f"a{{{each + 1}}}"), tokenizer))
        for each in range(WAITING_AT_MOST)
    ]
    while stuck.running < room.COMPILED_AT_ONCE:  # noqa: ASYNC110 nothing tells of it
        await asyncio.sleep(0)
    with pytest.raises(TooBusy) as caught:
        await grammars.guide(regex("b"), tokenizer)
    assert caught.value.metadata["retry_after_seconds"]
    stuck.go.set()
    await asyncio.gather(*waiting)
    assert stuck.most == room.COMPILED_AT_ONCE
    # One that was refused for want of room is none that cannot be compiled.
    await grammars.guide(regex("b"), tokenizer)


async def test_one_that_takes_too_long_is_refused_and_keeps_its_place_till_it_is_done(
    tokenizer: ModelTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, grammars = Stuck(monkeypatch), Grammars(compile_seconds=0.2)
    # So that the vocabulary is there.
    with pytest.raises(GrammarRefused, match=r"within 0\.2 s"):
        await grammars.guide(regex("a"), tokenizer)
    for _ in range(3):
        with pytest.raises(GrammarRefused, match=r"within 0\.2 s"):
            await grammars.guide(regex("a"), tokenizer)
    assert stuck.most <= room.COMPILED_AT_ONCE
    stuck.go.set()
    while stuck.running:  # noqa: ASYNC110 nothing tells of it
        await asyncio.sleep(0)
    # What took long for want of a turn is none that cannot be compiled.
    guide = None
    while guide is None:
        try:
            guide = await grammars.guide(regex("a"), tokenizer)
        except GrammarRefused:
            continue


async def test_a_caller_that_leaves_takes_nobody_elses_grammar_along(
    tokenizer: ModelTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, grammars = Stuck(monkeypatch), Grammars()
    leaving, staying = (
        asyncio.ensure_future(grammars.guide(regex("a"), tokenizer)) for _ in range(2)
    )
    while not stuck.running:  # noqa: ASYNC110 nothing tells of it
        await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    stuck.go.set()
    assert (await staying).fitting([4000]) == 0


def removed(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def changed(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(b"{}")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (removed, "cannot be read"),
        (changed, "restart the node"),
        (shutil.rmtree, "is not to be had here"),
    ],
)
async def test_a_tokenizer_that_cannot_be_had_is_named_and_looked_for_again(
    tmp_path: Path, tokenizer: ModelTokenizer, spoil: Callable[[Path], object], words: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    elsewhere = replace(tokenizer, source=str(folder))
    grammars = Grammars()
    spoil(folder)
    with pytest.raises(TokenizerNotFound, match=words):
        await grammars.guide(regex("a"), elsewhere)
    shutil.copytree(TINY, folder, dirs_exist_ok=True)
    await grammars.guide(regex("a"), elsewhere)


async def test_an_unknown_kind_of_tokenizer_is_named(
    tmp_path: Path, tokenizer: ModelTokenizer
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    raw = b'{"version": "1.0", "model": {"type": "Unheard"}}'
    (folder / "tokenizer.json").write_bytes(raw)
    digest = hashlib.sha256(raw).hexdigest()
    strange = replace(tokenizer, source=str(folder), digest=digest)
    with pytest.raises(TokenizerNotFound, match="is unknown"):
        await Grammars().guide(regex("a"), strange)


async def test_what_was_said_elsewhere_is_taken_in_pieces(
    tokenizer: ModelTokenizer, codec: TextCodec
) -> None:
    guide = await Grammars().guide(regex("(ab)*c"), tokenizer)
    said = codec.encode("a") + codec.encode("b")
    await go_on(guide, said * 700)
    assert guide.fitting(codec.encode("c")) == 1
    with pytest.raises(GrammarRefused, match="said before"):
        await go_on(guide, [*said, *said, *codec.encode("x")])
