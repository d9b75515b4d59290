"""Grammars that were written to cost: refused by name, or harmless, in bounded time and memory.

In a process of their own: one that recurses too deep would end the test run with its node.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from kakeya_fleet.node.grammars.grammar import MAX_GRAMMAR_BYTES, GrammarKind
from tests.support.breadth import wide

SECONDS = 40
"""Of one grammar with its first steps, on a machine that does much else; alone they take 3."""
MEGABYTES = 400
"""That one may add to its process: the most that is seen is 60, and a stack in use."""


def nested_schema(depth: int) -> str:
    return '{"properties":{"a":' * depth + "{}" + "}}" * depth


def referring(count: int, one: Callable[[int], object]) -> str:
    """A chain of definitions."""
    definitions = {f"a{place}": one(place + 1) for place in range(count)}
    return json.dumps(
        {"$defs": {**definitions, f"a{count}": {"type": "string"}}, "$ref": "#/$defs/a0"}
    )


def reference(place: int) -> dict[str, str]:
    return {"$ref": f"#/$defs/a{place}"}


def chain(count: int, one: Callable[[int], str]) -> str:
    """A chain of definitions in Lark."""
    lines = [f"A{place}: {one(place + 1)}" for place in range(count)]
    return "\n".join(["start: A0", *lines, f'A{count}: "x"'])


def rules(count: int, one: Callable[[int], str]) -> str:
    return chain(count, one).replace("A", "a")


HOSTILE = {
    "parentheses": ("regex", "(" * 30_000 + "a" + ")" * 30_000),
    "repeated repeats": (
        "regex",
        "((((((((a{1,50}){1,50}){1,50}){1,50}){1,50}){1,50}){1,50}){1,50})",
    ),
    "a million": ("regex", "(a|b|c){1,1000000}"),
    "words": ("regex", r"(\w{1,200}\s){1,200}"),
    "exponential": ("regex", "(a|b)*a" + "(a|b)" * 24),
    "searches": ("regex", "(.*a.{20}b.*|.*b.{22}a.*){3}"),
    "many words": ("regex", "|".join(f"w{each}.*x{each}" for each in range(4000))),
    "deep lark": ("lark", "start: " + "(" * 30_000 + '"a"' + ")" * 30_000),
    "ambiguous": ("lark", 'start: s\ns: s s s s | "a" | "aa" | ""'),
    "doubling terminals": ("lark", chain(250, lambda n: f"A{n} A{n}")),
    "repeating terminals": ("lark", chain(240, lambda n: f"A{n}{{1,50}}")),
    "doubling rules": ("lark", rules(250, lambda n: f"a{n} a{n}")),
    "empty rules": ("lark", rules(220, lambda n: f"a{n}? " * 40)),
    "rules in rules": ("lark", rules(250, lambda n: f'a{n} "b"')),
    "many alternatives": ("lark", "start: " + " | ".join(f'"{each}"' for each in range(6000))),
    "deep schema": ("json_schema", nested_schema(2000)),
    "a chain": ("json_schema", referring(700, reference)),
    "two ways each": (
        "json_schema",
        referring(200, lambda n: {"properties": {"x": reference(n), "y": reference(n)}}),
    ),
    "any of all of": (
        "json_schema",
        referring(
            24,
            lambda n: {"anyOf": [{"allOf": [reference(n), {"minProperties": k}]} for k in (1, 2)]},
        ),
    ),
    "all of any of": (
        "json_schema",
        json.dumps(
            {
                "allOf": [
                    {"anyOf": [{"properties": {f"p{i}{j}": {}}} for j in range(4)]}
                    for i in range(16)
                ]
            }
        ),
    ),
    "itself": (
        "json_schema",
        '{"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}}]}',
    ),
    "many keys": (
        "json_schema",
        json.dumps({"properties": {f"p{each}": {} for each in range(4500)}}),
    ),
    "many values": ("json_schema", json.dumps({"enum": [f"v{each}" for each in range(6000)]})),
    "long arrays": (
        "json_schema",
        '{"type": "array", "minItems": 1000000, "items": {"type": "array", "minItems": 1000000}}',
    ),
    "patterns": (
        "json_schema",
        json.dumps(
            {
                "allOf": [
                    {"type": "string", "pattern": p}
                    for p in ("a.{20}b.{3}c", "c.{21}a", "^[abc]{90}$")
                ]
            }
        ),
    ),
    "multiples": ("json_schema", '{"type": "integer", "multipleOf": 999999937, "minimum": 0}'),
    "elsewhere": ("json_schema", '{"$ref": "file:///etc/passwd"}'),
}

SLOW = ("empty rules",)
"""Seconds, and then refused for what "doubling rules" are refused for at once."""

TRY = """
import asyncio, json, random, resource, sys, time
import numpy as np
from kakeya_fleet.engine.errors import GrammarRefused
from kakeya_fleet.node.grammars.grammar import Grammar, GrammarKind
from kakeya_fleet.node.grammars.grammars import Grammars
from kakeya_fleet.node.grammars.vocabulary import ModelTokenizer

def megabytes():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6

async def asked(grammars, tokenizer, kind, text):
    guide = await grammars.guide(Grammar(GrammarKind(kind), text), tokenizer)
    for _ in range(30):
        allowed = np.flatnonzero(guide.allowed()).tolist()
        if not allowed:
            break
        guide.take([random.Random(1).choice(allowed)])

async def main():
    digest, hostile = json.load(sys.stdin)
    tokenizer = ModelTokenizer("tiny", "tiny", digest, 4096)
    grammars = Grammars(compile_seconds=600)
    await asked(grammars, tokenizer, "regex", "a")
    for name, (kind, text) in hostile.items():
        print(json.dumps(name), flush=True)
        said, began, before = "ok", time.monotonic(), megabytes()
        try:
            await asked(grammars, tokenizer, kind, text)
        except GrammarRefused as refused:
            said = str(refused)
        seconds = time.monotonic() - began
        print(json.dumps([said, seconds, megabytes() - before]), flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("kind", "is_slow"),
    [*((kind, False) for kind in GrammarKind), wide(GrammarKind.LARK, True)],
)
def test_what_each_costs_is_bounded(
    kind: GrammarKind, is_slow: bool, tokenizer_digest: str
) -> None:
    hostile = {
        name: each
        for name, each in HOSTILE.items()
        if each[0] == kind and (name in SLOW) == is_slow
    }
    assert all(len(text.encode()) <= MAX_GRAMMAR_BYTES for _, text in hostile.values())
    done = subprocess.run(
        [sys.executable, "-c", TRY],
        input=json.dumps([tokenizer_digest, hostile]),
        capture_output=True,
        text=True,
        check=False,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (told[-1:], done.stderr[-2000:])
    assert told[::2] == list(hostile)
    for name, (said, seconds, megabytes) in zip(hostile, told[1::2], strict=True):
        assert seconds < SECONDS, (name, said, seconds)
        assert megabytes < MEGABYTES, (name, said, megabytes)
        assert said.isprintable(), name
        assert len(said) < 400, name
