"""The cases of sdks/vectors.json, which the TypeScript client runs too."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kakeya
from kakeya import AsyncClient, Speculation, Timeouts
from kakeya.text import from_openai_messages
from tests.support.vector_node import Json

ROOT = Path(__file__).parents[2]
CASES = json.loads((ROOT / "sdks" / "vectors.json").read_text())["cases"]
# Kinds of a watch's items; those with a name of a field hold their value there.
TAGS = {
    "FleetSnapshot": ("snapshot", ""),
    "NodeChanged": ("changed", ""),
    "NodeRemoved": ("removed", ""),
    "NodeHistory": ("history", ""),
    "NodeSample": ("sample", "sample"),
    "NodeEvent": ("event", "event"),
    "Transfer": ("transfer", "transfer"),
    "Node": ("node", "node"),
    "SessionsSnapshot": ("snapshot", ""),
    "SessionActivity": ("changed", "activity"),
    "EndedSession": ("ended", ""),
}


class NodeProcess:
    """A `vector_node.py` that is told what to do."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.vector_node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "sdks" / "python")},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands, self._answers = self._process.stdin, self._process.stdout
        self.address = self._answer()["address"]

    def tell(self, **command: object) -> Json:
        self._commands.write(json.dumps(command) + "\n")
        self._commands.flush()
        answer = self._answer()
        assert "error" not in answer, answer
        return answer

    def _answer(self) -> Json:
        answer: Json = json.loads(self._answers.readline())
        return answer

    def end(self) -> None:
        self._commands.close()
        assert self._process.wait(20) == 0
        self._answers.close()


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[str, NodeProcess]]:
    nodes = {name: NodeProcess() for name in ("node", "other")}
    yield nodes
    for node in nodes.values():
        node.end()


def matches(expected: object, seen: object) -> bool:
    """Whether a value is as expected, by the rules of sdks/README.md."""
    if expected == "$any":
        return True
    if expected == "$absent":
        return seen is None
    if isinstance(expected, dict):
        return isinstance(seen, dict) and all(
            matches(value, seen.get(key)) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(seen, list)
            and len(seen) == len(expected)
            and all(map(matches, expected, seen))
        )
    if isinstance(seen, str) and type(expected) in (int, float):
        return seen == str(expected)
    return type(expected) is not bool or type(seen) is bool if expected == seen else False


def plain(value: object) -> object:
    """A value of the client as JSON has it."""
    if dataclasses.is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value


def item(value: object) -> object:
    """An item of an iteration as JSON has it."""
    tag, field = TAGS.get(type(value).__name__, ("", ""))
    if not tag:
        return plain(value)
    fields = {field: plain(value)} if field else plain(value)
    assert isinstance(fields, dict)
    return {"type": tag, **fields}


class Run:
    """The steps of one case."""

    def __init__(self, case: Json, processes: dict[str, NodeProcess]) -> None:
        self.processes = processes
        self.addresses = {
            f"${name}": process.tell(reset={})["address"] for name, process in processes.items()
        }
        case = self._filled(case)
        self.steps = case["steps"]
        for name, script in case.get("set", {}).items():
            processes[name].tell(set=script)
        options = case.get("client", {})
        if "timeouts" in options:
            options = {**options, "timeouts": Timeouts(**options["timeouts"])}
        self.client = AsyncClient(self.addresses["$node"], **options)
        text = SimpleNamespace(codec=self.client.text, from_openai_messages=from_openai_messages)
        self.names: dict[str, object] = {"client": self.client, "text": text}
        self.open: dict[str, AsyncIterator[object]] = {}

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._filled(key): self._filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        if isinstance(value, str):
            for name, address in self.addresses.items():
                value = value.replace(name, address)
        return value

    def _find(self, path: str) -> Any:
        first, *rest = path.split(".")
        found = self.names[first]
        for name in rest:
            found = getattr(found, name)
        return found

    def _start(self, path: str, step: Json) -> Any:
        arguments = dict(step.get("arguments", {}))
        if isinstance(arguments.get("speculation"), dict):
            arguments["speculation"] = Speculation(**arguments["speculation"])
        if "logit_bias" in arguments:
            biases = arguments["logit_bias"].items()
            arguments["logit_bias"] = {int(key): float(value) for key, value in biases}
        variables = arguments.pop("variables", {})
        return self._find(path)(**arguments, **variables)

    async def run(self) -> None:
        async with self.client:
            for number, step in enumerate(self.steps):
                if "error" in step:
                    await self._fails(number, step)
                    continue
                seen = plain(await self._step(step))
                where = f"step {number}: {step}\n\nseen: {seen}"
                assert "expect" not in step or matches(step["expect"], seen), where

    async def _fails(self, number: int, step: Json) -> None:
        expected = dict(step["error"])
        kind = getattr(kakeya, expected.pop("class"))
        with pytest.raises(kakeya.KakeyaError) as caught:
            await self._step(step)
        assert type(caught.value) is kind, f"step {number}: {step}\n\n{caught.value!r}"
        seen = {name: getattr(caught.value, name) for name in expected}
        assert matches(expected, seen), f"step {number}: {step}\n\nseen: {seen}"

    async def _step(self, step: Json) -> object:
        match step:
            case {"call": path}:
                value = self._start(path, step)
                return self._keep(step, await value if inspect.isawaitable(value) else value)
            case {"iterate": path}:
                stream = self._keep(step, self._start(path, step))
                return await self._items(aiter(stream), step.get("leave_after"))
            case {"collect": path}:
                return await self._keep(step, self._start(path, step)).collect()
            case {"begin": path}:
                items = self.open[step["as"]] = aiter(self._keep(step, self._start(path, step)))
                return [item(await anext(items)) for _ in range(step.get("items", 1))]
            case {"go_on": name}:
                return await self._items(self.open.pop(name), step.get("leave_after"))
            case {"read": path}:
                return self._find(path)
            case {"tell": name, "command": command}:
                return await self._told(name, **command)
            case {"requests": method}:
                report = await self._told(step.get("of", "node"), report={})
                return report["requests"].get(method, [])
            case {"sessions": name} | {"authorizations": name}:
                report = await self._told(name, report={})
                return report["sessions" if "sessions" in step else "authorizations"]
        raise AssertionError(f"no such step: {step}")

    async def _told(self, name: str, **command: object) -> Json:
        # The client works on this loop while the node waits for it.
        return await asyncio.to_thread(self.processes[name].tell, **command)

    def _keep(self, step: Json, value: Any) -> Any:
        if "as" in step:
            self.names[step["as"]] = value
        return value

    async def _items(self, items: AsyncIterator[object], leave_after: int | None) -> list[object]:
        seen: list[object] = []
        async for each in items:
            seen.append(item(each))
            if len(seen) == leave_after:
                break
        return seen


@pytest.mark.parametrize("case", CASES, ids=[case["name"].replace(" ", "-") for case in CASES])
async def test_a_case_of_both_clients(
    case: Json, processes: dict[str, NodeProcess], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    await Run(case, processes).run()


def test_names_are_unique_and_steps_are_known() -> None:
    assert len({case["name"] for case in CASES}) == len(CASES) >= 35
    for case in CASES:
        assert set(case) <= {"name", "set", "client", "steps"}


@pytest.mark.parametrize(
    ("expected", "seen", "same"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": "$absent"}, {"b": 1}, True),
        ({"a": "$absent"}, {"a": 0}, False),
        ([1], [1, 2], False),
        ([], [], True),
        (None, 0, False),
        (True, 1, False),
        (5, "5", True),
        (5, "6", False),
        ("a", "b", False),
    ],
)
def test_the_rules_can_fail(
    expected: object, seen: dict[str, int] | int | str | list[int], same: bool
) -> None:
    assert matches(expected, seen) is same
