"""Mutated requests over HTTP/1.1: heads, bodies, values of JSON, several on one connection."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from scripts.attack.mutations import TEXTS, Mutator
from scripts.attack.streams import Refused, exchanged
from scripts.attack.subject import MODEL
from scripts.attack.tally import Tally

SERVICE = "http"
STATUS_LINE = re.compile(rb"(?:^|[\r\n}>])HTTP/1\.[01] (\d{3}) ")
AT_ONCE = 6
"""Requests of a connection, one behind the other."""
COMPLETION: dict[str, Any] = {
    "model": MODEL,
    "prompt": "def f(x):",
    "max_tokens": 2,
    "temperature": 0.5,
    "top_p": 0.9,
    "stop": ["\n\n"],
    "seed": 3,
    "logit_bias": {"300": 1},
    "stream": False,
    "n": 1,
}
CHAT: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "hello"}],
    "max_tokens": 2,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "response_format": {"type": "text"},
}
SEEDS: Sequence[tuple[str, str, object]] = (
    ("GET", "/health", None),
    ("GET", "/metrics", None),
    ("GET", "/", None),
    ("GET", "/sd/prometheus", None),
    ("GET", "/v1/models", None),
    ("GET", f"/v1/models/{MODEL}", None),
    ("POST", "/v1/completions", COMPLETION),
    ("POST", "/v1/chat/completions", CHAT),
)
PATHS = (
    *(
        "//",
        "/..",
        "/%2e%2e/etc/passwd",
        "/%00",
        "/v1/models/%ff",
        "*",
        "http://x/",
        "/?" + "a" * 9000,
    ),
    *("/v1/models/" + "x" * 300, "/\xff", "", "//evil.example/", "/v1/../v1/models", "/#", "/;x=1"),
)
METHODS = ("GET", "POST", "PUT", "OPTIONS", "HEAD", "TRACE", "CONNECT", "get", "\x01", "X" * 100)
HEADERS = (
    *("Host: evil.example", "Host:", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"),
    *(
        "Content-Length: -1",
        "Content-Length: 99999999999",
        "Content-Length: 3, 4",
        "Expect: 100-continue",
    ),
    *(
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
        "Content-Encoding: gzip",
    ),
    *(
        "Content-Type: text/plain",
        "Content-Type: ",
        "Authorization: Bearer \x80",
        "X: " + "y" * 9000,
    ),
    *(
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Accept-Encoding: br;q=nan",
        "No colon",
        ": empty",
    ),
    *("Range: bytes=9-1", "Cookie: a=b;" * 50, "Content-Type: application/json; charset=\xff"),
)
VALUES: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 1e308, -1e308, 0.5, "", [], {}),
    *([[]], {"a": {"b": {}}}, ["x"] * 200, "NaN", *TEXTS),
)


class HttpFuzzer:
    """Sends requests to one address; `seeds` are what is right there."""

    def __init__(
        self,
        address: str,
        tally: Tally,
        rng: random.Random,
        seeds: Sequence[tuple[str, str, object]] = SEEDS,
        service: str = SERVICE,
    ) -> None:
        """`service` is the port's name in the report."""
        self._address = address
        self._rng = rng
        self._tally = tally
        self._mutator = Mutator(rng)
        self._seeds = seeds
        self._service = service

    async def once(self) -> None:
        """One connection."""
        count = self._rng.randint(1, AT_ONCE)
        sent = b"".join(self._request() for _ in range(count))
        if self._rng.random() < 0.1:
            sent = self._mutator.damaged(sent)
        self._tally.sent(self._service, count)
        half_closes = self._rng.random() < 0.3
        try:
            answer = await exchanged(
                self._address, sent, half_closes=half_closes, silence_seconds=0.3
            )
        except Refused:
            self._tally.ended(self._service, "no connection")
            return
        statuses = [found.decode() for found in STATUS_LINE.findall(answer)]
        for status in statuses:
            self._tally.ended(self._service, status)
        if not statuses:
            self._tally.ended(self._service, "closed")
        if "500" in statuses:
            self._tally.without_name(self._service, "500", repr(answer[-300:]), sent)

    def _request(self) -> bytes:
        rng = self._rng
        method, path, content = rng.choice(self._seeds)
        body = b"" if content is None else self._json(content)
        if rng.random() < 0.1:
            method = rng.choice(METHODS)
        if rng.random() < 0.1:
            path = rng.choice(PATHS)
        if rng.random() < 0.2:
            body = self._mutator.damaged(body or b"{}")
        headers = [f"Host: {self._address}", f"Content-Length: {len(body)}"]
        if content is not None:
            headers.append("Content-Type: application/json")
        for _ in range(rng.choice((*(0,) * 8, 1, 1, 1, 2, 2, 100))):
            headers.insert(rng.randrange(len(headers) + 1), rng.choice(HEADERS))
        if rng.random() < 0.05:
            rng.shuffle(headers)
            del headers[rng.randrange(len(headers)) :]
        end = rng.choice(("\r\n",) * 12 + ("\n", "\r"))
        version = rng.choice(("HTTP/1.1",) * 16 + ("HTTP/1.0", "HTTP/9.9", "HTTP/2.0", ""))
        head = end.join([f"{method} {path} {version}", *headers, "", ""])
        return head.encode("latin-1", "replace") + body

    def _json(self, content: object) -> bytes:
        changed = json.loads(json.dumps(content))
        for _ in range(self._rng.choice((0, 1, 1, 2))):
            self._change(changed)
        if self._rng.random() < 0.03:
            depth = self._rng.choice((10, 1000, 100_000))
            return b"[" * depth + b"]" * depth
        return json.dumps(changed).encode()

    def _change(self, value: Any) -> None:
        """One value of an object or a list, at any depth, is another one, more, or gone."""
        rng = self._rng
        keys = list(value) if isinstance(value, Mapping) else range(len(value))
        if not keys:
            return
        key = rng.choice(list(keys))
        if isinstance(value[key], (dict, list)) and rng.random() < 0.6:
            self._change(value[key])
        elif rng.random() < 0.1:
            del value[key]
        elif isinstance(value, dict) and rng.random() < 0.1:
            value[rng.choice(TEXTS)] = deepcopy(rng.choice(VALUES))
        else:
            value[key] = deepcopy(rng.choice(VALUES))
