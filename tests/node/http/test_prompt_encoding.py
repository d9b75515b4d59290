"""A prompt is bounded by the model's context, and encoded beside what else the node does."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya.text import TextCodec
from kakeya_fleet.node.http.prompt_encoding import LONG_CHARACTERS, PromptBound, PromptThreads
from kakeya_fleet.node.http.refusal import HttpRefusal

CONTEXT = 64


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    return TextCodec.from_folder(Path(__file__).parents[3] / "engine" / "shipped" / "tiny")


def test_a_prompt_that_fits_is_encoded_as_ever(codec: TextCodec) -> None:
    text = "def words(line):\n    return line.split()  # \N{SNOWMAN}\n"
    bound = PromptBound("tiny", CONTEXT, "prompt")
    assert list(bound.ids(codec, text, add_special_tokens=False)) == codec.encode(text)
    assert codec.decode(bound.ids(codec, text, add_special_tokens=False)) == text


def test_no_token_stands_for_more_characters_than_the_longest(codec: TextCodec) -> None:
    ids = range(4096)
    assert max(len(codec.decode([each])) for each in ids) <= codec.longest_token_characters


@pytest.mark.parametrize(
    ("characters", "problem"),
    [(100_000_000, "100,000,000 characters of the prompt"), (2000, "of the prompt do not fit")],
)
def test_one_that_is_too_long_is_refused_at_its_bound(
    codec: TextCodec, characters: int, problem: str
) -> None:
    """The longer one by its characters: to encode it would take minutes."""
    with pytest.raises(HttpRefusal) as refused:
        PromptBound("tiny", CONTEXT, "prompt").ids(
            codec, "ab" * (characters // 2), add_special_tokens=True
        )
    assert (refused.value.reason, refused.value.parameter) == ("CONTEXT_EXCEEDED", "prompt")
    assert problem in str(refused.value)
    assert f"a context of {CONTEXT} tokens" in str(refused.value)


def test_the_interpreter_goes_on_while_a_text_is_encoded(codec: TextCodec) -> None:
    """A second of the tokenizer's time, of which this thread counts many slices."""
    text = "def words(line):\n    return line.split()\n" * 10_000
    begun, done = threading.Event(), threading.Event()

    def encode() -> None:
        begun.set()
        codec.encoding(text)
        done.set()

    thread = threading.Thread(target=encode)
    thread.start()
    begun.wait()
    slices = 0
    while not done.wait(0.001):
        slices += 1
    thread.join()
    assert slices > 10


class Work:
    """Work in threads that ends when it is told to."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.may_end = threading.Event()
        self._begins = threading.Condition()

    async def until_begun(self, number: int) -> None:
        def wait() -> None:
            with self._begins:
                self._begins.wait_for(lambda: number in self.begun)

        await asyncio.to_thread(wait)

    def of(self, number: int) -> Callable[[], int]:
        def work() -> int:
            with self._begins:
                self.begun.append(number)
                self._begins.notify_all()
            self.may_end.wait()
            return number

        return work


async def test_long_texts_have_turns_and_who_left_has_none() -> None:
    threads, work = PromptThreads(), Work()
    first = asyncio.create_task(threads.run(LONG_CHARACTERS + 1, work.of(1)))
    await work.until_begun(1)
    second, third = (
        asyncio.create_task(threads.run(LONG_CHARACTERS + 1, work.of(each))) for each in (2, 3)
    )
    short = asyncio.create_task(threads.run(LONG_CHARACTERS, work.of(4)))
    await work.until_begun(4)
    # The caller of the first leaves too; its thread works on, and the turn is still its.
    second.cancel()
    first.cancel()
    await asyncio.wait((first, second))
    assert work.begun == [1, 4]
    work.may_end.set()
    assert (await third, await short) == (3, 4)
    assert work.begun == [1, 4, 3]
