"""A scripted node as a process: for the cases of sdks/vectors.json, in any language.

Prints {"address": HOST:PORT}, then obeys JSON lines of standard input with one JSON
line each, and ends with its input. sdks/README.md describes the commands.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict

from kakeya.v1 import capability_pb2, model_service_pb2, runtime_pb2
from tests.support.patience import PATIENCE_SECONDS
from tests.support.refusal import Refusal
from tests.support.scripted_node import ScriptedNode, Stream

Json = dict[str, Any]

_PLAIN = ("block_size", "silent_after", "ends_after", "commits_on_cancel", "vocabulary_size")
_FLAGS = ("ends_without_done", "skips_position", "takes_first_tokens")
_MESSAGES = (
    "model",
    "opened",
    "appended",
    "done",
    "session_fields",
    "unloaded",
    "removed",
    "listed",
)
_EVENTS = {
    "fleet_events": capability_pb2.WatchFleetResponse,
    "node_events": capability_pb2.WatchNodeResponse,
    "session_events": runtime_pb2.WatchSessionsResponse,
    "load_events": model_service_pb2.LoadModelResponse,
    "pull_events": model_service_pb2.PullModelResponse,
}


class VectorNode:
    """One scripted node at a time, and what it is told to do."""

    def __init__(self) -> None:
        self._node = ScriptedNode()
        self._commands: dict[str, Callable[[Any], Awaitable[Json]]] = {
            "reset": self.reset,
            "set": self.set,
            "refuse": self.refuse,
            "append": self.append,
            "forget": self.forget,
            "stop": self.stop,
            "report": self.report,
            "await_cancelled": self.await_cancelled,
        }

    async def obey(self, line: str) -> Json:
        ((name, argument),) = json.loads(line).items()
        return await self._commands[name](argument)

    async def reset(self, _argument: Json) -> Json:
        """A fresh node at another address."""
        await self._node.stop()
        self._node = ScriptedNode()
        await self._node.start()
        return {"address": self._node.address}

    async def set(self, script: Json) -> Json:
        """Changes what the node does."""
        for name, value in script.items():
            if name in (*_PLAIN, *_FLAGS, "name", "node_id"):
                setattr(self._node, name, value)
            elif name in _MESSAGES:
                ParseDict(value, getattr(self._node, name))
            elif name in _EVENTS:
                events = [ParseDict(event, _EVENTS[name]()) for event in value]
                setattr(self._node, name, events)
            elif name == "tokenizer_files":
                files = {file: content.encode() for file, content in value.items()}
                self._node.tokenizer_files = files
            else:
                raise ValueError(f"a node has no {name}")
        return {}

    async def refuse(self, refusal: Json) -> Json:
        """Refuses a call to come."""
        fields = dict(refusal)
        method, code = fields.pop("method"), grpc.StatusCode[fields.pop("code")]
        self._node.refusals[method].append(Refusal(code, **fields))
        return {}

    async def append(self, append: Json) -> Json:
        """Another client's append."""
        self._node.sessions[append["session_id"]].extend(append["token_ids"])
        return {}

    async def forget(self, _argument: Json) -> Json:
        """Evicts all sessions."""
        self._node.sessions.clear()
        return {}

    async def stop(self, _argument: Json) -> Json:
        """Breaks all calls; nobody listens at the address any more."""
        await self._node.stop()
        return {}

    async def report(self, _argument: Json) -> Json:
        """What the node saw and holds."""
        requests = {
            method: [MessageToDict(seen, preserving_proto_field_name=True) for seen in requests]
            for method, requests in self._node.requests.items()
        }
        return {
            "requests": requests,
            "authorizations": self._node.authorizations,
            "sessions": self._node.sessions,
            "streams": [_seen(stream) for stream in self._node.streams],
        }

    async def await_cancelled(self, index: int) -> Json:
        """Waits until the node saw that a stream was left."""
        stream = self._node.streams[index]
        cancelled = await asyncio.to_thread(stream.cancelled.wait, PATIENCE_SECONDS)
        return {"cancelled": cancelled}


def _seen(stream: Stream) -> Json:
    return {"sent": stream.sent, "cancelled": stream.cancelled.is_set()}


def _answer(answer: Json) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def main() -> None:
    """Serves until standard input ends."""
    node = VectorNode()
    _answer(await node.reset({}))
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            answer = await node.obey(line)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        _answer(answer)
    await node.stop({})


if __name__ == "__main__":
    asyncio.run(main())
