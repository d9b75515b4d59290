"""Vectors of texts by the official clients of OpenAI and Ollama."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kakeya import Client
from kakeya.text import TextCodec
from kakeya_fleet.node.http.embedding_request import MAX_TEXTS
from tests.node.http.clients import ollama, openai
from tests.node.http.conftest import Ask, HttpFleet, OpenAiOf, http_of


def single(values: Sequence[float]) -> list[float]:
    """As float32, which base64 has exactly."""
    told: list[float] = np.asarray(values, np.float32).tolist()
    return told


TEXTS = ["The lake was quiet.", "x", "Some text that is longer than a forward has rows. " * 4]


@pytest.fixture
def client(fleet: HttpFleet, openai_of: OpenAiOf) -> openai.OpenAI:
    """By the node that does not serve the model."""
    return openai_of(fleet.gate)


@pytest.fixture(scope="module")
def codec(toy: Path) -> TextCodec:
    return TextCodec.from_folder(str(toy))


@pytest.fixture(scope="module")
def expected(toy: Path, codec: TextCodec) -> Callable[[str], Sequence[float]]:
    """transformers' own: its last hidden states, their mean at length 1."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModel.from_pretrained(toy, dtype=torch.float32).eval()

    @cache
    def vector(text: str) -> Sequence[float]:
        with torch.inference_mode():
            states = model(torch.tensor([codec.encode(text)])).last_hidden_state[0]
        mean = states.double().mean(dim=0)
        values: list[float] = (mean / mean.norm()).tolist()
        return values

    return vector


def test_vectors_are_means_of_hidden_states_whatever_asks(
    client: openai.OpenAI,
    fleet: HttpFleet,
    codec: TextCodec,
    expected: Callable[[str], Sequence[float]],
) -> None:
    # The client asks for base64 unless it is told otherwise.
    told = client.embeddings.create(model="toy", input=TEXTS)
    vectors = [each.embedding for each in told.data]
    assert [each.index for each in told.data] == [0, 1, 2]
    for vector, text in zip(vectors, TEXTS, strict=True):
        assert vector == pytest.approx(expected(text), abs=1e-5)
    count = sum(len(codec.encode(text)) for text in TEXTS)
    assert (told.usage.prompt_tokens, told.usage.total_tokens) == (count, count)
    ids = [codec.encode(text) for text in TEXTS]
    width = len(vectors[0])
    as_numbers: dict[str, Any] = {"model": "toy", "encoding_format": "float"}
    for asked, among in ((ids, vectors), (ids[2], vectors[2:]), (TEXTS[1], vectors[1:2])):
        numbers = client.embeddings.create(input=asked, dimensions=width, **as_numbers)
        got = [single(each.embedding) for each in numbers.data]
        assert got == among
    with Client(fleet.gate.address) as own:
        assert list(own.embed("toy", ids[0]).values) == vectors[0]


def test_ollamas_client_has_the_same(
    client: openai.OpenAI, fleet: HttpFleet, codec: TextCodec
) -> None:
    told = [each.embedding for each in client.embeddings.create(model="toy", input=TEXTS).data]
    other = ollama.Client(host=f"http://{http_of(fleet.one)}", timeout=60)
    answer = other.embed(model="toy:latest", input=TEXTS, truncate=True, keep_alive="5m")
    assert [single(each) for each in answer.embeddings] == told
    assert answer.prompt_eval_count == sum(len(codec.encode(text)) for text in TEXTS)
    older = other.embeddings(model="toy", prompt=TEXTS[0], options={"num_ctx": 64})
    assert single(older.embedding) == told[0]
    other._client.close()


REFUSED: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("/v1/embeddings", {"input": "x"}, "BAD_REQUEST", "model"),
    ("/v1/embeddings", {"model": "toy"}, "BAD_REQUEST", "input"),
    ("/v1/embeddings", {"model": "toy", "input": []}, "BAD_REQUEST", "input"),
    ("/v1/embeddings", {"model": "toy", "input": [""]}, "BAD_REQUEST", "input"),
    ("/v1/embeddings", {"model": "toy", "input": ["x", 1]}, "BAD_REQUEST", "input"),
    ("/v1/embeddings", {"model": "toy", "input": [[1], []]}, "BAD_REQUEST", "input"),
    ("/v1/embeddings", {"model": "toy", "input": ["x"] * (MAX_TEXTS + 1)}, "BAD_REQUEST", "input"),
    ("/v1/embeddings", {"model": "toy", "input": "x" * 2049}, "CONTEXT_EXCEEDED", "input"),
    ("/v1/embeddings", {"model": "toy", "input": [1] * 2049}, "CONTEXT_EXCEEDED", "input"),
    ("/v1/embeddings", {"model": "toy", "input": [300]}, "TOKEN_OUT_OF_VOCABULARY", None),
    ("/v1/embeddings", {"model": "no", "input": "x"}, "MODEL_NOT_FOUND", "model"),
    ("/v1/embeddings", {"model": "ngram", "input": "x"}, "MODEL_NOT_FOUND", "model"),
    (
        "/v1/embeddings",
        {"model": "toy", "input": "x", "dimensions": 7},
        "UNSUPPORTED",
        "dimensions",
    ),
    (
        "/v1/embeddings",
        {"model": "toy", "input": "x", "encoding_format": "int8"},
        "BAD_REQUEST",
        "encoding_format",
    ),
    ("/v1/embeddings", {"model": "toy", "input": "x", "n": 1}, "UNKNOWN_FIELD", "n"),
]


@pytest.mark.parametrize(("path", "body", "code", "parameter"), REFUSED)
def test_what_has_no_vector_is_refused_by_name(
    fleet: HttpFleet, ask: Ask, path: str, body: dict[str, Any], code: str, parameter: str | None
) -> None:
    answer = ask(fleet.gate, path, body)
    assert answer.code == code, answer.body
    assert answer.json["error"]["param"] == parameter


def test_ollamas_refusals_have_its_shape_and_what_was_read_past_is_told(
    fleet: HttpFleet, ask: Ask
) -> None:
    for path, body in (
        ("/api/embed", {"model": "toy", "input": "x" * 2049, "truncate": True}),
        ("/api/embed", {"model": "toy", "input": "x", "options": {"mine": 1}}),
        ("/api/embeddings", {"model": "toy"}),
        ("/api/embeddings", {"model": "toy", "prompt": ["x"]}),
    ):
        refused = ask(fleet.one, path, body)
        assert refused.status == 400
        assert refused.json["code"] in ("CONTEXT_EXCEEDED", "UNKNOWN_FIELD", "BAD_REQUEST")
    body = {"model": "toy", "input": "x", "user": "me", "encoding_format": "base64"}
    answer = ask(fleet.one, "/v1/embeddings", body)
    assert answer.headers["X-Ignored-Fields"] == "user"
    told = answer.json["data"][0]["embedding"]
    values = np.frombuffer(base64.b64decode(told), "<f4")
    assert np.linalg.norm(values) == pytest.approx(1.0, abs=1e-6)
