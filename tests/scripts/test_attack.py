"""The fuzzer and the load in short, against a real agent; and what mutations are."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from kakeya.v1 import proposer_pb2, runtime_pb2
from scripts.attack import attacks, fuzz, load, wire_format
from scripts.attack.methods import Method, all_methods
from scripts.attack.mutations import BOUNDS, Mutator, disordered
from scripts.attack.tls_connections import ANSWERED_BEHIND_A_HANDSHAKE
from scripts.bench import soak_agent

SEED = 20_261_123
MESSAGES = 1500
"""Of the short run; each kind of caller sends some of them."""


@pytest.fixture
def rng() -> random.Random:
    return random.Random(SEED)


@pytest.fixture
def request_message() -> runtime_pb2.GenerateRequest:
    return runtime_pb2.GenerateRequest(
        session_id="s", max_tokens=2, logit_bias={1: 2.0}, stop_token_ids=[1, 2], seed=7
    )


def test_a_real_agent_survives_what_is_nearly_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak_agent, "PROBE_TOKENS", 4)
    path = tmp_path / "fuzz.json"
    fuzz.main(
        ["--messages", str(MESSAGES), "--seed", str(SEED), "--callers", "8", "--out", str(path)]
    )
    told = json.loads(path.read_text())
    assert (told["seed"], told["messages"] >= MESSAGES) == (SEED, True)
    assert told["internal_or_unknown"] == 0, told["internal_or_unknown_causes"]
    assert told["log"]["errors"] == {}
    assert told["log"]["raised"] == {}
    assert told["answers_that_differ"] == []
    sent, ends = told["messages_by_service"], told["ends_by_service_and_status"]
    services = {"kakeya.v1.JoinService", "kakeya.v1.TrustService"}
    assert {"archive data", "grpc port", "http", "member port"} | services <= set(sent)
    assert set(told["calls_by_caller"]) == {"a member", "a program of the machine"}
    # Who is no member hears nothing behind a handshake.
    strangers = [ends[name] for name in sent if name.startswith("ports of members")]
    assert len(strangers) == 3
    assert all(ANSWERED_BEHIND_A_HANDSHAKE not in each for each in strangers)
    assert "INTERNAL_ERROR" not in told["counted_by_the_agent"]
    if told["dashboard"] is not None:
        assert told["dashboard"]["running"]
        assert told["dashboard"]["complaints"] == []
        assert "500" not in ends["dashboard"]


def test_a_loaded_agent_serves_all_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak_agent, "PROBE_TOKENS", 4)
    path = tmp_path / "load.json"
    asked = {"seconds": 3, "sessions-per-second": 20, "generations": 4, "watches": 8, "archives": 2}
    words = [word for name, value in asked.items() for word in (f"--{name}", str(value))]
    load.main([*words, "--out", str(path)])
    told = json.loads(path.read_text())
    assert told["refused"] == {}
    assert told["sessions_opened_and_closed"] > 0
    assert told["least_over_median_tokens"] > 0
    assert told["messages_of_watches"] >= 8
    assert told["most_used"]["archives.at_once"] in {1, 2}
    assert told["used_after"] == told["used_before"]
    assert told["control_plane_ms"]["GetNode"]["count"] > 0
    assert told["log"]["errors"] == {}
    assert told["log"]["raised"] == {}
    assert told["answers_that_differ"] == []


def test_what_an_attack_costs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_agent, "PROBE_TOKENS", 4)
    path = tmp_path / "attacks.json"
    attacks.main(["--only", "malformed", "--out", str(path)])
    told = json.loads(path.read_text())["of"]["malformed"]
    assert told["answered"] == {"INVALID_ARGUMENT BAD_REQUEST": 100}
    assert told["counted_by_the_agent"] == {"BAD_REQUEST": 100.0}
    assert told["log_lines_of_200"] == 0
    assert told["running"]
    assert told["slowest_answer_ms"] > 0
    assert told["answers_that_differ"] == []


def test_the_same_seed_makes_the_same_bytes(request_message: runtime_pb2.GenerateRequest) -> None:
    first, second = (Mutator(random.Random(SEED)) for _ in range(2))
    made = [first.mutated(request_message) for _ in range(200)]
    assert made == [second.mutated(request_message) for _ in range(200)]
    assert len(set(made)) > 100


def test_values_reach_their_bounds(
    rng: random.Random, request_message: runtime_pb2.GenerateRequest
) -> None:
    mutator = Mutator(rng)
    seen = [mutator.changed(request_message) for _ in range(3000)]
    requests = [each for each in seen if isinstance(each, runtime_pb2.GenerateRequest)]
    tokens = {each.max_tokens for each in requests}
    assert set(BOUNDS[FieldDescriptor.CPPTYPE_UINT32]) <= tokens
    assert any(math.isnan(each.temperature) for each in requests)
    assert any(math.isinf(each.deadline_seconds) for each in requests)
    assert max(len(each.stop_token_ids) for each in requests) == 5000
    assert min(len(each.stop_token_ids) for each in requests) == 0
    assert request_message.max_tokens == 2


def test_the_other_member_of_a_oneof_is_set(rng: random.Random) -> None:
    proposal = proposer_pb2.DraftRequest(proposal=proposer_pb2.DraftProposal(block_id=1))
    mutator = Mutator(rng)
    kinds = {str(mutator.changed(proposal).WhichOneof("kind")) for _ in range(500)}
    assert {"open", "proposal", "cancel"} <= kinds


@pytest.mark.parametrize("method", list(all_methods()), ids=lambda method: str(method.path))
def test_what_must_not_parse_does_not(method: Method, rng: random.Random) -> None:
    """Leave is sent nothing else: what parses makes the node leave, rightly."""
    mutator = Mutator(rng)
    for _ in range(50):
        sent = mutator.unparsable(method.request)
        with pytest.raises(DecodeError):
            method.request.FromString(sent)


def test_fields_are_told_apart_as_they_are_written(
    request_message: runtime_pb2.GenerateRequest,
) -> None:
    whole = request_message.SerializeToString()
    fields = list(wire_format.fields_of(whole))
    assert b"".join(fields) == whole
    assert wire_format.tag(1, wire_format.WireType.BYTES) == b"\x0a"
    assert wire_format.varint(-1) == b"\xff" * 9 + b"\x01"
    with pytest.raises((ValueError, IndexError)):
        list(wire_format.fields_of(b"\x0b"))


def test_streams_come_in_another_order(rng: random.Random) -> None:
    orders = {tuple(disordered(rng, [b"a", b"b", b"c"])) for _ in range(200)}
    assert (b"b", b"a", b"c") in orders
    assert (b"a", b"a", b"b", b"c") in orders
    assert (b"a", b"c") in orders
    assert (b"a",) in orders
