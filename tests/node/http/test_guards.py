"""What browsers of elsewhere, careless clients and hostile ones meet."""

import asyncio
import json
import socket
import struct
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest

from kakeya_fleet.node.config.config import split_address
from tests.node.http.conftest import Ask, HttpFleet, ServeHttp, http_of
from tests.support.patience import PATIENCE_SECONDS

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}


def test_deprecation_and_sunset_point_to_the_sdk(fleet: HttpFleet, ask: Ask) -> None:
    for answer in (
        ask(fleet.one, "/v1/chat/completions", CHAT),
        ask(fleet.one, "/v1/chat/completions", {**CHAT, "stream": True}),
        ask(fleet.one, "/v1/completions", {"model": "none", "prompt": "x"}),
    ):
        deprecated = answer.headers["Deprecation"]
        assert deprecated.startswith("@")
        since = datetime.fromtimestamp(int(deprecated[1:]), UTC)
        # RFC 9745: a resource does not end before it is deprecated.
        assert parsedate_to_datetime(answer.headers["Sunset"]) > since
        assert 'rel="deprecation"' in answer.headers["Link"]
        assert answer.headers["x-request-id"]
    path = answer.headers["Link"].partition("<")[2].partition(">")[0]
    page = ask(fleet.one, path)
    assert page.status == 200
    assert fleet.one.address in page.body.decode()
    assert "Deprecation" not in page.headers
    for other in ("/v1/models", "/v1/nothing", "/v1/embeddings"):
        # They have no better way.
        assert "Deprecation" not in ask(fleet.one, other).headers


def test_pages_of_elsewhere_may_not(fleet: HttpFleet, ask: Ask) -> None:
    foreign = ask(fleet.one, "/v1/models", Host="evil.example:80")
    assert (foreign.status, foreign.code) == (403, "FOREIGN_HOST")
    page = ask(fleet.one, "/v1/chat/completions", CHAT, Origin="http://evil.example")
    assert (page.status, page.code) == (403, "FOREIGN_ORIGIN")
    for path in ("/health", "/metrics", "/", "/sd/prometheus"):
        assert ask(fleet.one, path, Host="evil.example").status == 403
        image = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}
        assert ask(fleet.one, path, **image).code == "FOREIGN_ORIGIN"
        opened = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
        assert ask(fleet.one, path, **opened).status in (200, 503)
        assert ask(fleet.one, path, Sec_Fetch_Site="same-origin").status in (200, 503)
    form = ask(fleet.one, "/v1/chat/completions", CHAT, Content_Type="text/plain")
    assert (form.status, form.code) == (415, "NOT_JSON")
    preflight = ask(
        fleet.one, "/v1/chat/completions", method="OPTIONS", Origin="http://evil.example"
    )
    assert preflight.status == 403
    assert not any(name.lower().startswith("access-control") for name in preflight.headers)
    own = http_of(fleet.one)
    assert ask(fleet.one, "/v1/models", Origin=f"http://{own}").status == 200
    port = own.rpartition(":")[2]
    assert ask(fleet.one, "/v1/models", Host=f"localhost:{port}").status == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "BAD_JSON"),
        (b"{", "BAD_JSON"),
        (b"[]", "BAD_JSON"),
        (b'"x"', "BAD_JSON"),
        (b"\xff\xfe\x00", "BAD_JSON"),
        (b'{"temperature": NaN}', "BAD_JSON"),
        (b"[" * 100_000, "BAD_JSON"),
        (b'{"n": ' + b"9" * 5000 + b"}", "BAD_JSON"),
        (b"{}", "BAD_REQUEST"),
        (b'{"model": "tiny", "messages": [{"role": "user", "content": "\\ud800"}]}', "BAD_JSON"),
        (b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}], "zz": 1}',
         "UNKNOWN_FIELD"),
    ],
)  # fmt: skip
def test_bodies_that_are_no_request(fleet: HttpFleet, ask: Ask, body: bytes, code: str) -> None:
    answer = ask(fleet.one, "/v1/chat/completions", body)
    assert (answer.status, answer.code) == (400, code)
    assert answer.json["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"{}", b"\x1f\x8b\x08\x00", json.dumps(CHAT).encode()])
def test_a_body_that_is_not_what_its_head_says(fleet: HttpFleet, ask: Ask, body: bytes) -> None:
    answer = ask(fleet.one, "/v1/chat/completions", body, Content_Encoding="gzip")
    assert (answer.status, answer.code) == (400, "BAD_JSON")
    assert "RequestPayloadError" not in fleet.one.log


def test_callers_that_leave_before_they_are_answered_are_no_fault_of_the_node(
    fleet: HttpFleet, ask: Ask
) -> None:
    host, port = split_address("http", http_of(fleet.one))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 2\r\n"
    for _ in range(10):
        with socket.create_connection((host, port)) as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            caller.sendall(f"{head}Expect: 100-continue\r\n\r\n{{}}".encode() * 6)
    assert ask(fleet.one, "/health").status == 200
    assert "Traceback" not in fleet.one.log


def test_paths_and_methods_that_are_not(fleet: HttpFleet, ask: Ask) -> None:
    assert ask(fleet.one, "/v1/images/generations", {}).code == "NO_SUCH_PATH"
    wrong = ask(fleet.one, "/v1/chat/completions")
    assert (wrong.status, wrong.code) == (405, "WRONG_METHOD")
    index = ask(fleet.one, "/").json
    assert index["paths"]["chat"] == "/v1/chat/completions"
    assert index["node"] == "one"


def test_a_key_is_taken_and_changes_nothing(fleet: HttpFleet, ask: Ask) -> None:
    answer = ask(fleet.one, "/v1/models", Authorization="Bearer sk-nobody-looks")
    assert answer.status == 200


def test_requests_are_counted_by_route(fleet: HttpFleet, ask: Ask) -> None:
    ask(fleet.one, "/v1/models")
    ask(fleet.one, "/v1/nowhere-to-be-found")
    text = ask(fleet.one, "/metrics").body.decode()
    assert 'kakeya_http_requests_total{route="/v1/models",status="200"}' in text
    assert "nowhere-to-be-found" not in text


async def test_too_many_requests_are_told_when_to_come_back(serve: ServeHttp, ask: Ask) -> None:
    address = await serve(requests=0)
    answer = await asyncio.to_thread(ask, address, "/v1/chat/completions", CHAT)
    assert (answer.status, answer.code) == (429, "TOO_MANY_REQUESTS")
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.json["error"]["type"] == "rate_limit_error"


async def test_a_body_has_a_size(serve: ServeHttp, ask: Ask) -> None:
    address = await serve(body_bytes=1000)
    body = {**CHAT, "user": "x" * 2000}
    answer = await asyncio.to_thread(ask, address, "/v1/chat/completions", body)
    assert (answer.status, answer.code) == (413, "BODY_TOO_LARGE")


def test_a_field_of_any_length_is_named_in_short(fleet: HttpFleet, ask: Ask) -> None:
    """To compare 8 MB with each field's name would take minutes."""
    body = json.dumps({**CHAT, "x" * (7 << 20): 1}).encode()
    answer = ask(fleet.one, "/v1/chat/completions", body)
    assert (answer.status, answer.code) == (400, "UNKNOWN_FIELD")
    assert len(answer.body) < 1000


def test_only_utf8_is_read(fleet: HttpFleet, ask: Ask) -> None:
    """What is counted in UTF-8 would be something else in another encoding."""
    for encoding in ("utf-16", "utf-16-le", "utf-32"):
        answer = ask(fleet.one, "/v1/chat/completions", json.dumps(CHAT).encode(encoding))
        assert (answer.status, answer.code) == (400, "BAD_JSON")
    marked = json.dumps({**CHAT, "zz": 1}).encode("utf-8-sig")
    assert ask(fleet.one, "/v1/chat/completions", marked).code == "UNKNOWN_FIELD"


async def test_a_body_has_so_many_values(serve: ServeHttp, ask: Ask) -> None:
    address = await serve(body_values=100)
    body = {**CHAT, "messages": [[]] * 100}
    answer = await asyncio.to_thread(ask, address, "/v1/chat/completions", body)
    assert (answer.status, answer.code) == (413, "BODY_TOO_LARGE")
    assert "100 values" in answer.body.decode()


async def test_bodies_have_a_size_together(serve: ServeHttp, ask: Ask) -> None:
    address = await serve(bodies_bytes=10_000)
    reader, writer = await asyncio.open_connection(*split_address("http", address))
    writer.write(
        f"POST /v1/completions HTTP/1.1\r\nHost: {address}\r\nContent-Length: 9000\r\n"
        "Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n".encode()
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert b"100" in await reader.readline()
    body = {**CHAT, "model": "none", "user": "x" * 500}

    async def asked() -> tuple[int, str]:
        answer = await asyncio.to_thread(ask, address, "/v1/chat/completions", body)
        return answer.status, answer.code

    assert (await asked())[0] == 404
    writer.write(b" " * 8000)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await asked() != (429, "TOO_MANY_REQUESTS"):
            pass
        writer.close()
        while (await asked())[0] != 404:
            pass


async def test_a_body_has_a_time(serve: ServeHttp) -> None:
    address = await serve(body_seconds=0.1)
    reader, writer = await asyncio.open_connection(*split_address("http", address))
    writer.write(
        f"POST /v1/completions HTTP/1.1\r\nHost: {address}\r\nContent-Length: 10\r\n"
        "Content-Type: application/json\r\n\r\n{".encode()
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    writer.close()


@pytest.mark.parametrize("begun", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_headers_have_a_time(serve: ServeHttp, begun: bytes) -> None:
    address = await serve(header_seconds=0.1)
    reader, writer = await asyncio.open_connection(*split_address("http", address))
    writer.write(begun)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(ConnectionResetError):
            assert await reader.read() == b""
            raise ConnectionResetError
    writer.close()


async def test_a_second_request_of_a_connection_has_a_time_too(serve: ServeHttp) -> None:
    address = await serve(header_seconds=1.0)
    reader, writer = await asyncio.open_connection(*split_address("http", address))
    whole = f"GET / HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(2):
            writer.write(whole)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            assert json.loads(await reader.readexactly(length))["node"] == "here"
        writer.write(whole[:10])
        with pytest.raises(ConnectionResetError):
            assert await reader.read() == b""
            raise ConnectionResetError
    writer.close()


async def test_connections_that_say_nothing_make_way_for_one_that_asks(
    serve: ServeHttp, ask: Ask
) -> None:
    address = await serve(connections=2)
    place = split_address("http", address)
    kept = [await asyncio.open_connection(*place) for _ in range(2)]
    answer = await asyncio.to_thread(ask, address, "/")
    assert answer.status == 200
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(ConnectionResetError):
            assert await kept[0][0].read() == b""
            raise ConnectionResetError
    for _, each in kept:
        each.close()
