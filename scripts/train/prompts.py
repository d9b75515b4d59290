"""Prompts of six kinds, whose answers a drafter of a chat model is distilled on.

    python -m scripts.train.prompts --target MODEL --out PROMPTS.npz

Templates over functions and paragraphs of this environment's own packages (`prompt_sources`), and
over subjects that no text provides (`topics`). A part is plain text, without a chat: what a model
goes on with. What is held out shares no subject, document or package with the rest. A prompt is
a function of (seed, its number); beside the ids lies a record of the licences of what was read.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from scripts.train.prompt_sources import (
    MOST_OF_A_PACKAGE,
    Function,
    Paragraph,
    functions,
    interpreter,
    is_held_out,
    packages,
    paragraphs,
)
from scripts.train.topics import SETTINGS, TASKS, THINGS, TOPICS, split

KINDS = ("chat", "code", "lists", "rewriting", "summaries", "prose")
ASKED = len(KINDS)
"""The kind of prompts that the model asked itself; see `scripts.train.asked`."""
KIND_NAMES = (*KINDS, "asked")
KIND_WEIGHTS = (0.24, 0.2, 0.18, 0.14, 0.1, 0.14)
LONGEST = 320
"""Tokens of a prompt."""
PLAIN_SHARE = 0.4
"""Of code and prose: without a chat template, text and code as they stand."""
SYSTEMS = (
    "You are a helpful assistant.",
    "You are a patient teacher.",
    "You answer briefly.",
    "You are an experienced programmer.",
)
SYSTEM_SHARE = 0.15

CHAT = (
    "What is the most important thing to know about {topic}?",
    "Explain {topic} to a ten-year-old.",
    "Why does {topic} matter?",
    "What are the advantages and disadvantages of {topic}?",
    "I am new to {topic}. Where should I begin?",
    "Tell me something surprising about {topic}.",
    "How did {topic} change over the last hundred years?",
    "What do people often get wrong about {topic}?",
    "What is the difference between {topic} and {other}?",
    "Can you recommend how to learn more about {topic}?",
    "Describe {topic} in detail.",
    "What questions should I ask an expert on {topic}?",
    "How do I {task}?",
    "I want to {task}, but I have little time. What do you suggest?",
    "What does the Python function `{name}({signature})` do, if its documentation says: {purpose}?",
    "I read this:\n\n{text}\n\nWhat does it mean in simple words?",
)
CODE = (
    "Write a Python function `{name}({signature})`. {purpose}.",
    "Write a Python function with a docstring: {purpose}.",
    "Explain what this code does:\n\n```python\n{source}\n```",
    "Add comments to this code:\n\n```python\n{source}\n```",
    "Write a unit test for this function:\n\n```python\n{source}\n```",
    "Rewrite this function with type hints:\n\n```python\n{source}\n```",
    "Is there a mistake in this code?\n\n```python\n{source}\n```",
    "Write a short program in Python about {topic}.",
    "Write a Python class that represents {topic}, with three methods.",
    "Show how to write this in JavaScript:\n\n```python\n{source}\n```",
)
LISTS = (
    "List ten {things}.",
    "Give me a numbered list of fifteen {things}.",
    "Name {count} {things} and say a sentence about each.",
    "Make a table of five {things} with two columns.",
    "Give me {count} facts about {topic}.",
    "Write step by step instructions: how to {task}.",
    "What are the main parts of {topic}? Answer as a list.",
    "Give me {count} ideas for a talk about {topic}.",
    "Make a checklist for someone who wants to {task}.",
    "List the pros and cons of {topic} as bullet points.",
)
REWRITING = (
    "Rewrite this text in a formal tone:\n\n{text}",
    "Rewrite this text so that a child understands it:\n\n{text}",
    "Correct the grammar and spelling of this text, and repeat it whole:\n\n{text}",
    "Make this text shorter:\n\n{text}",
    "Turn this text into bullet points:\n\n{text}",
    "Write this text again in the past tense:\n\n{text}",
    "Rewrite this as a friendly email:\n\n{text}",
    "Repeat this text, but replace long words by short ones:\n\n{text}",
)
SUMMARIES = (
    "Summarize this text in two sentences:\n\n{text}\n\n{more}",
    "What are the main points of this text?\n\n{text}\n\n{more}",
    "Give this text a title and a summary:\n\n{text}\n\n{more}",
    "Summarize in one sentence:\n\n{text}",
    "What is this text about?\n\n{text}\n\n{more}",
)
PROSE = (
    "Write a short story about {setting}.",
    "Write the first page of a novel about {setting}.",
    "Write a poem about {topic}.",
    "Write an essay about {topic}.",
    "Write a letter to a friend about {topic}.",
    "Write a newspaper article about {topic}.",
    "Write a dialogue between {setting} and {other_setting}.",
    "Describe {setting} in three paragraphs.",
)
TEMPLATES = dict(zip(KINDS, (CHAT, CODE, LISTS, REWRITING, SUMMARIES, PROSE), strict=True))
Piece = TypeVar("Piece")
COUNTS = ("five", "seven", "ten", "twelve")


@dataclass(frozen=True)
class Material:
    """What templates are filled with, all of one side of the split."""

    functions: Sequence[Function]
    paragraphs: Sequence[Paragraph]
    topics: Sequence[str]
    things: Sequence[str]
    tasks: Sequence[str]
    settings: Sequence[str]


def gather() -> tuple[Material, Material, dict[str, str]]:
    """Material to train on, material held out, and the licence of each package that gave any."""
    found_functions: list[Function] = []
    found_paragraphs: list[Paragraph] = []
    licences = {}
    for package in packages():
        own = _spread(list(functions(package)))
        prose = _spread(list(paragraphs(package)))
        if own or prose:
            licences[package.name] = package.licence
        found_functions += own
        found_paragraphs += prose

    def side(*, held_out: bool) -> Material:
        def kept(text: str) -> tuple[str, ...]:
            return tuple(each for each in split(text) if is_held_out(each) is held_out)

        return Material(
            [each for each in found_functions if is_held_out(each.package) is held_out],
            [each for each in found_paragraphs if is_held_out(each.document) is held_out],
            *(kept(text) for text in (TOPICS, THINGS, TASKS, SETTINGS)),
        )

    return side(held_out=False), side(held_out=True), licences


def _spread(pieces: list[Piece]) -> list[Piece]:
    """At most `MOST_OF_A_PACKAGE` of them, evenly."""
    step = max(1, -(-len(pieces) // MOST_OF_A_PACKAGE))
    return pieces[::step]


def fill(rng: np.random.Generator, kind: str, material: Material) -> tuple[str, bool]:
    """The words of a prompt, and whether they are a person's turn in a chat."""

    def one(choices: Sequence[Piece]) -> Piece:
        return choices[int(rng.integers(len(choices)))]

    function, text = one(material.functions), one(material.paragraphs).text
    if kind == "code" and rng.random() < PLAIN_SHARE:
        lines = function.source.splitlines()
        return "\n".join(lines[: max(2, int(len(lines) * rng.random()))]) + "\n", False
    if kind == "prose" and rng.random() < PLAIN_SHARE:
        words = text.split()
        return " ".join(words[: max(12, int(len(words) * rng.random()))]), False
    template = one(TEMPLATES[kind])
    filled = template.format(
        topic=one(material.topics),
        other=one(material.topics),
        things=one(material.things),
        task=one(material.tasks),
        setting=one(material.settings),
        other_setting=one(material.settings),
        count=one(COUNTS),
        name=function.name,
        signature=function.signature,
        purpose=function.purpose,
        source=function.source,
        text=text,
        more=one(material.paragraphs).text,
    )
    return filled, True


def encode(
    rng: np.random.Generator, tokenizer: PreTrainedTokenizerBase, words: str, *, is_chat: bool
) -> np.ndarray:
    """Ids of a prompt, int64 [n]."""
    if not is_chat:
        return np.asarray(tokenizer.encode(words, add_special_tokens=False), np.int64)
    system = None
    if rng.random() < SYSTEM_SHARE:
        system = SYSTEMS[int(rng.integers(len(SYSTEMS)))]
    text = rendered(tokenizer, words, system)
    return np.asarray(tokenizer.encode(text, add_special_tokens=False), np.int64)


def rendered(tokenizer: PreTrainedTokenizerBase, words: str, system: str | None = None) -> str:
    """A chat in which a person has said `words`, up to where it is answered."""
    messages = [{"role": "user", "content": words}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def write_prompts(
    path: Path, prompts: Sequence[np.ndarray], kinds: Sequence[int], held_out: int
) -> None:
    """Write `prompts` and their kinds; the last `held_out` are not to be trained on."""
    np.savez_compressed(
        path,
        tokens=np.concatenate(prompts).astype(np.int32),
        lengths=np.asarray([len(each) for each in prompts], np.int32),
        kinds=np.asarray(kinds, np.int8),
        held_out=held_out,
    )


def make(
    tokenizer: PreTrainedTokenizerBase,
    material: Material,
    count: int,
    seed: Sequence[int],
    say: Callable[[str], None],
) -> tuple[list[np.ndarray], list[int]]:
    """`count` different prompts of at most `LONGEST` tokens, and the kind of each."""
    prompts: list[np.ndarray] = []
    kinds: list[int] = []
    known: set[bytes] = set()
    number = 0
    while len(prompts) < count:
        rng = np.random.Generator(np.random.Philox(key=[seed[0], (seed[1] << 40) + number]))
        number += 1
        kind = int(rng.choice(len(KINDS), p=KIND_WEIGHTS))
        words, is_chat = fill(rng, KINDS[kind], material)
        ids = encode(rng, tokenizer, words, is_chat=is_chat)
        if not 0 < len(ids) <= LONGEST or ids.tobytes() in known:
            continue
        known.add(ids.tobytes())
        prompts.append(ids)
        kinds.append(kind)
    say(f"{count} prompts of {number} drawn: {Counter(KINDS[kind] for kind in kinds)}")
    return prompts, kinds


def main(arguments: list[str] | None = None) -> None:
    """Write the prompts, those held out last."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--target", type=Path, required=True, help="folder with the tokenizer")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=24_000)
    parser.add_argument("--held-out", type=int, default=768)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    tokenizer = AutoTokenizer.from_pretrained(options.target)
    training, held_out, licences = gather()
    prompts, kinds = make(tokenizer, training, options.count, (options.seed, 0), print)
    last, last_kinds = make(tokenizer, held_out, options.held_out, (options.seed, 1), print)
    prompts += last
    write_prompts(options.out, prompts, kinds + last_kinds, options.held_out)
    sources = {"standard_library": interpreter(), "licences": licences, "seed": options.seed}
    record = json.dumps(sources, indent=2) + "\n"
    options.out.with_suffix(".sources.json").write_text(record, encoding="utf-8")


if __name__ == "__main__":
    main()
