"""HTTPS with a key: what other machines reach of HTTP, in a fleet with an authority."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from kakeya.v1 import trust_pb2
from kakeya_fleet.node.trust.tls import authorities_pem
from tests.node.conftest import Eventually, RunningAgent
from tests.node.http.clients import openai
from tests.support.calls import until
from tests.support.homes import Home, keys_of, local
from tests.support.members import first_keeper

ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
# Without an end of its own: a sampled answer may be a short one.
ENDLESS = {"max_tokens": 1500, "stream": True, "logit_bias": {"0": -100}}


class Asking:
    """Requests of a client that knows the fleet's certificate."""

    def __init__(self, home: Home, agent: RunningAgent, scheme: str = "https") -> None:
        self.bundle = home.folder / "fleet.pem"
        self.bundle.write_bytes(authorities_pem(home.keeper))
        self.base = f"{scheme}://{agent.ready[f'{scheme}_address']}"
        self.context = ssl.create_default_context(cafile=self.bundle)

    async def __call__(
        self,
        path: str,
        key: str = "",
        body: object = None,
        headers: Mapping[str, str] | None = None,
        host: str = "",
    ) -> tuple[int, str, Mapping[str, str]]:
        """Status, reason of an error or the text, and headers of the answer."""
        shown = {"Authorization": f"Bearer {key}"} if key else {}
        base = self.base.replace("127.0.0.1", host) if host else self.base
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                "GET" if body is None else "POST",
                base + path,
                json=body,
                headers={**shown, **(headers or {})},
                ssl=self.context,
            ) as answer,
        ):
            text = await answer.text()
            if answer.status != 200 and text.startswith('{"error"'):
                said = json.loads(text)
                text = said["code"] if "code" in said else said["error"]["code"]
            return answer.status, text, answer.headers


@pytest.fixture
async def serving(home: Home) -> RunningAgent:
    """A member that serves the model, to clients of HTTPS too, once its certificate says where."""
    home.let_in("b")
    agent = await home.start("b", serve=["verifier=tiny"])
    await named(home, agent)
    return agent


async def named(home: Home, agent: RunningAgent) -> None:
    """Until a keeper has certified the addresses that clients call."""
    asking = Asking(home, agent)
    async with asyncio.timeout(30):
        while True:
            try:
                await asking("/health")
            except aiohttp.ClientConnectorCertificateError:
                await asyncio.sleep(0.05)
            else:
                return


async def known(agent: RunningAgent, count: int) -> None:
    await until(lambda: len(keys_of(agent)) >= count, 30)


async def test_each_path_is_for_keys_of_its_scope_and_for_nobody_without(
    home: Home, serving: RunningAgent
) -> None:
    generates = await home.key("g")
    observes = await home.key("o", scopes=[trust_pb2.KEY_SCOPE_OBSERVE])
    revoked = await home.key("r")
    await home.revoke_key("r")
    foreign = "kky_" + "A" * 43
    await known(serving, 3)
    asking = Asking(home, serving)
    for path in ("/", "/health", "/v1/models", "/metrics", "/sd/prometheus"):
        for key, reason in (
            ("", "KEY_MISSING"),
            ("nonsense", "KEY_UNKNOWN"),
            (foreign, "KEY_UNKNOWN"),
            (revoked, "KEY_REVOKED"),
        ):
            status, found, headers = await asking(path, key)
            assert (status, found) == (401, reason), path
            assert headers["WWW-Authenticate"] == "Bearer"
    for path, allowed in (
        ("/", {generates, observes}),
        ("/health", {generates, observes}),
        ("/v1/models", {generates}),
        ("/metrics", {observes}),
        ("/sd/prometheus", {observes}),
    ):
        for key in (generates, observes):
            status, found, _ = await asking(path, key)
            expected = 200 if key in allowed else 403
            assert status == expected, (path, found)
    assert (await asking("/v1/chat/completions", observes, ASKED))[1] == "NOT_PERMITTED"
    status, text, _ = await asking("/v1/chat/completions", generates, ASKED)
    assert status == 200, text
    assert (await asking("/v1/models", generates, host="localhost"))[0] == 200


async def test_hosts_and_origins_of_elsewhere_are_refused_with_a_key_too(
    home: Home, serving: RunningAgent
) -> None:
    key = await home.key("app")
    await known(serving, 1)
    asking = Asking(home, serving)
    status, reason, _ = await asking("/v1/models", key, headers={"Host": "evil.example"})
    assert (status, reason) == (403, "FOREIGN_HOST")
    status, reason, _ = await asking("/v1/models", key, headers={"Origin": "https://evil.example"})
    assert (status, reason) == (403, "FOREIGN_ORIGIN")


async def test_a_session_of_http_is_its_callers_key_s(
    home: Home, serving: RunningAgent, eventually: Eventually
) -> None:
    """Also where the client of the node's own acts for it, and on loopback in plain text."""
    key, other = await home.key("one"), await home.key("other")
    await known(serving, 2)
    asking = Asking(home, serving)
    long = {**ASKED, **ENDLESS}
    async with (
        home.application(key, serving) as mine,
        home.application(other, serving) as theirs,
        local(serving) as program,
        aiohttp.ClientSession() as session,
    ):
        for base in (asking.base, f"http://{serving.ready['http_address']}"):
            async with session.post(
                f"{base}/v1/chat/completions",
                json=long,
                headers={"Authorization": f"Bearer {key}"},
                ssl=asking.context,
            ) as answer:
                assert answer.status == 200, await answer.text()
                await answer.content.readline()
                assert len([each async for each in mine.sessions()]) == 1
                for others in (theirs, program):
                    assert [each async for each in others.sessions()] == []

            async def is_closed() -> bool:
                return not [each async for each in mine.sessions()]

            await eventually(is_closed)


async def test_a_chat_that_is_kept_is_its_key_s_alone(home: Home, serving: RunningAgent) -> None:
    """Shown as Anthropic's clients show it, too; others compute the same conversation anew."""
    key, other = await home.key("one"), await home.key("other")
    await known(serving, 2)
    asking = Asking(home, serving)
    said = [{"role": "user", "content": "A conversation, " * 40}]
    whole = {**ASKED, "temperature": 0, "messages": said}

    async def cached(shown: Mapping[str, str]) -> int:
        status, text, _ = await asking("/v1/chat/completions", "", whole, shown)
        assert status == 200, text
        return int(json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert await cached({"x-api-key": key}) == 0
    assert await cached({"x-api-key": other}) == 0
    assert await cached({"Authorization": f"Bearer {key}"}) > 100
    async with home.application(key, serving) as mine:
        assert [each.client_label async for each in mine.sessions()] == ["http"] * 2
    refused = (await asking("/v1/messages", "", {}))[0], (await asking("/api/tags"))[0]
    assert refused == (401, 401)


async def test_a_stream_ends_when_its_key_is_revoked(home: Home, serving: RunningAgent) -> None:
    key = await home.key("app")
    await known(serving, 1)
    asking = Asking(home, serving)
    long = {**ASKED, **ENDLESS}
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{asking.base}/v1/chat/completions",
            json=long,
            headers={"Authorization": f"Bearer {key}"},
            ssl=asking.context,
        ) as answer,
    ):
        await answer.content.readline()
        await home.revoke_key("app")
        async with asyncio.timeout(30):
            rest = (await answer.content.read()).decode()
    assert '"code": "KEY_REVOKED"' in rest
    assert "[DONE]" not in rest


async def test_the_official_client_trusts_it_by_a_file(
    home: Home, serving: RunningAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whoever writes no line for it the file is told by SSL_CERT_FILE, else to the HTTP client.

    The client is made anew, and reads its variables then.
    """
    key = await home.key("app")
    await known(serving, 1)
    asking = Asking(home, serving)

    def told_by_variables() -> object:
        with openai.OpenAI() as client:
            answer = client.chat.completions.create(
                model="tiny", max_tokens=4, messages=[{"role": "user", "content": "Hi"}]
            )
        return answer.usage and answer.usage.completion_tokens

    with monkeypatch.context() as told:
        told.setenv("OPENAI_API_KEY", key)
        told.setenv("OPENAI_BASE_URL", f"{asking.base}/v1")
        with pytest.raises(openai.APIConnectionError):
            await asyncio.to_thread(told_by_variables)
        told.setenv("SSL_CERT_FILE", str(asking.bundle))
        assert await asyncio.to_thread(told_by_variables) == 4
    (other := tmp_path / "other.pem").write_bytes(
        authorities_pem(first_keeper(tmp_path / "other", "other"))
    )

    def client(bundle: Path, shown: str) -> openai.AsyncOpenAI:
        context = ssl.create_default_context(cafile=bundle)
        http = openai.DefaultAsyncHttpxClient(verify=context)
        return openai.AsyncOpenAI(
            api_key=shown, base_url=f"{asking.base}/v1", http_client=http, max_retries=0
        )

    async with client(asking.bundle, key) as good:
        assert [each.id async for each in good.models.list()] == ["tiny"]
    # Who answers for another fleet is not trusted, and is sent no key.
    async with client(other, key) as elsewhere:
        with pytest.raises(openai.APIConnectionError):
            await elsewhere.models.list()
    async with client(asking.bundle, "kky_wrong") as wrong:
        with pytest.raises(openai.AuthenticationError) as caught:
            await wrong.models.list()
    assert caught.value.code == "KEY_UNKNOWN"


async def test_what_is_too_much_for_a_key_comes_back_later(
    home: Home, serving: RunningAgent
) -> None:
    key = await home.key("app", tokens_per_minute=1)
    await known(serving, 1)
    asking = Asking(home, serving)
    await asking("/v1/chat/completions", key, ASKED)
    status, reason, headers = await asking("/v1/chat/completions", key, ASKED)
    assert (status, reason) == (429, "KEY_TOKENS_SPENT")
    assert int(headers["Retry-After"]) > 60
