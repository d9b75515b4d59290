"""Right requests of every call, with ids that are live on the node: what mutations begin with."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

import google_crc32c
import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from kakeya.v1 import (
    archive_pb2,
    capability_pb2,
    capability_pb2_grpc,
    model_pb2,
    model_service_pb2,
    placement_pb2,
    proposer_pb2,
    runtime_pb2,
    tensor_pb2,
    trust_pb2,
)
from kakeya_fleet.fleet.cards.signed_message import card_message, node_id_of
from kakeya_fleet.node.trust.certificates import new_key, new_request
from scripts.attack.subject import MODEL, PROPOSERS

NGRAM, DFLASH = PROPOSERS
TOKENS = [300 + index % 40 for index in range(48)]
STREAM_MESSAGES = 24
"""Of a stream, behind the first."""
FEATURE_ROWS, FEATURE_WIDTH = 4, 4
STRANGERS = 4
"""Identities that cards of a run of fuzzing are of: it is of parsing, not of full registries."""

KV_STRATEGIES = (
    placement_pb2.KV_STRATEGY_FULL,
    *(placement_pb2.KV_STRATEGY_SINK_WINDOW,) * 3,
    placement_pb2.KV_STRATEGY_RESTORED,
)
MODES = runtime_pb2.SpeculationMode.values()[1:]
LIVENESS = capability_pb2.Liveness.values()[1:]
STEPS = tensor_pb2.RoadStep.values()[1:]
ROADS = (placement_pb2.TRANSPORT_LOCAL, placement_pb2.TRANSPORT_RING)
FLOAT32 = tensor_pb2.TENSOR_DTYPE_FLOAT32

Make = Callable[[], Sequence[Message]]


def _as_it_is(message: Message) -> Message:
    return message


class Strangers:
    """Cards of nodes that nobody knows, signed by their own keys."""

    def __init__(
        self, rng: random.Random, own: capability_pb2.CapabilityCard, count: int = STRANGERS
    ) -> None:
        """`own` is the node's card, which theirs are like; `count` cards are of as many nodes."""
        self._own = own
        self._keys = cycle(
            [Ed25519PrivateKey.from_private_bytes(rng.randbytes(32)) for _ in range(count)]
        )
        self._rng = rng

    def card(self, change: Callable[[Message], Message]) -> capability_pb2.SignedCard:
        """A card with `change` made to it before it is signed; its addresses are of loopback."""
        key = next(self._keys)
        public = key.public_key().public_bytes_raw()
        card = capability_pb2.CapabilityCard()
        card.CopyFrom(self._own)
        card.node_id, card.public_key = node_id_of(public), public
        card.sequence = self._rng.randrange(1 << 20)
        del card.addresses[:]
        card.addresses.append(f"127.0.0.1:{self._rng.randint(1, 9)}")
        whole = (
            change(card).SerializeToString()
            if self._rng.random() < 0.7
            else card.SerializeToString()
        )
        return capability_pb2.SignedCard(card=whole, signature=key.sign(card_message(whole)))


class Seeds:
    """Requests of one caller, who has a session of his own."""

    def __init__(
        self,
        rng: random.Random,
        node: capability_pb2.GetNodeResponse,
        change: Callable[[Message], Message],
        sender_node_id: str = "",
    ) -> None:
        """`change` is made to what is signed, before it is.

        `sender_node_id` is who calls as a node, the called one itself unless given.
        """
        self._sender_node_id = sender_node_id or node.card.node_id
        self.session_id = ""
        self.link_id = ""
        self.archive_id = ""
        self._rng = rng
        self._fleet_name, self._node_id = node.card.fleet_name, node.card.node_id
        self._strangers = Strangers(rng, node.card)
        self._change = change
        self._request = new_request(new_key(), self._node_id)
        self._make: Mapping[str, Make] = {
            **self._of_sessions(),
            **self._of_the_fleet(),
            **self._of_models(),
            **self._of_proposers_and_links(),
            **self._of_archives(),
            **self._of_the_authority(),
            "Check": lambda: [health_pb2.HealthCheckRequest(service="kakeya.v1.RuntimeService")],
            "Watch": lambda: [health_pb2.HealthCheckRequest(service="")],
            "ServerReflectionInfo": lambda: [
                reflection_pb2.ServerReflectionRequest(list_services=""),
                reflection_pb2.ServerReflectionRequest(
                    file_containing_symbol="kakeya.v1.RuntimeService"
                ),
                reflection_pb2.ServerReflectionRequest(file_by_filename="kakeya/v1/runtime.proto"),
            ],
        }

    def of(self, name: str) -> Sequence[Message]:
        """The messages of a call named `name`: one, or those of its stream in order."""
        return self._make[name]()

    def _of_sessions(self) -> Mapping[str, Make]:
        wire = runtime_pb2
        return {
            "CreateSession": lambda: [
                wire.CreateSessionRequest(
                    model_id=MODEL,
                    kv_strategy=self._rng.choice(KV_STRATEGIES),
                    sink_tokens=4,
                    window_tokens=64,
                    stop_token_ids=[1, 2],
                    speculation=wire.Speculation(
                        mode=self._rng.choice(MODES), proposer_model_id=NGRAM
                    ),
                    client_label="attack",
                    request_id=secrets.token_hex(8),
                    initial_token_ids=TOKENS[: self._rng.choice((0, 4))],
                )
            ],
            "AppendTokens": lambda: [
                wire.AppendTokensRequest(session_id=self.session_id, token_ids=TOKENS[:2])
            ],
            "Generate": lambda: [
                wire.GenerateRequest(
                    session_id=self.session_id,
                    max_tokens=2,
                    temperature=self._rng.choice((0.0, 0.7)),
                    top_p=0.9,
                    top_k=5,
                    seed=7,
                    min_p=0.01,
                    repetition_penalty=1.1,
                    frequency_penalty=0.5,
                    presence_penalty=-0.5,
                    grammar=wire.Grammar(regex="[a-z ]+"),
                    logit_bias={300: 1.0, 301: -1.0},
                    top_log_probabilities=2,
                    stop_token_ids=[1],
                )
            ],
            "GetSessionInfo": lambda: [wire.GetSessionInfoRequest(session_id=self.session_id)],
            "ListSessions": lambda: [wire.ListSessionsRequest(page_size=10)],
            "CloseSession": lambda: [wire.CloseSessionRequest(session_id=self.session_id)],
            "ForkSession": lambda: [
                wire.ForkSessionRequest(session_id=self.session_id, history_length=4)
            ],
            "WatchSessions": lambda: [wire.WatchSessionsRequest()],
            "GetTokenizer": lambda: [wire.GetTokenizerRequest(model_id=MODEL)],
            "Embed": lambda: [wire.EmbedRequest(model_id=MODEL, token_ids=TOKENS)],
        }

    def _of_the_fleet(self) -> Mapping[str, Make]:
        wire = capability_pb2
        return {
            "ExchangeCapabilities": lambda: [
                wire.ExchangeCapabilitiesRequest(
                    sender_node_id=self._sender_node_id,
                    fleet_name=self._fleet_name,
                    protocol_min=1,
                    protocol_max=1,
                    root_hash=self._rng.randbytes(32),
                    cards=[self._strangers.card(self._change) for _ in range(2)],
                    rumours=[
                        wire.Rumour(
                            node_id=self._node_id,
                            incarnation=1,
                            liveness=self._rng.choice(LIVENESS),
                        )
                    ],
                    wanted_node_keys=[self._rng.getrandbits(64), int(self._node_id[:16], 16)],
                )
            ],
            "ProbePeer": lambda: [
                wire.ProbePeerRequest(node_id=self._node_id, timeout_seconds=0.05)
            ],
            "GetNode": lambda: [wire.GetNodeRequest()],
            "ListLimits": lambda: [wire.ListLimitsRequest()],
            "ListCodecs": lambda: [wire.ListCodecsRequest()],
            "ResetCodecs": lambda: [wire.ResetCodecsRequest()],
            "GetSpans": lambda: [wire.GetSpansRequest(request="fuzz")],
            "WatchFleet": lambda: [wire.WatchFleetRequest()],
            "WatchNode": lambda: [wire.WatchNodeRequest()],
            "Leave": lambda: [wire.LeaveRequest()],
            "Plan": lambda: [
                placement_pb2.PlanRequest(
                    verifier_model=MODEL,
                    proposer_model=NGRAM,
                    verifier_node_id=self._node_id,
                    context_tokens=100,
                    kv_strategy=placement_pb2.KV_STRATEGY_SINK_WINDOW,
                    window_tokens=64,
                    restorer=placement_pb2.Restorer(node_id=self._node_id),
                )
            ],
        }

    def _of_models(self) -> Mapping[str, Make]:
        """What is served already, and what never was: the node serves on what others attack."""
        wire = model_service_pb2
        return {
            "LoadModel": lambda: [
                wire.LoadModelRequest(model=NGRAM, role=model_pb2.ROLE_PROPOSER, weights="auto")
            ],
            "UnloadModel": lambda: [
                wire.UnloadModelRequest(
                    model_id="absent", role=model_pb2.ROLE_PROPOSER, drain_seconds=0.1
                )
            ],
            "PullModel": lambda: [
                wire.PullModelRequest(model="absent", source_node_ids=[secrets.token_hex(32)])
            ],
            "RemoveModel": lambda: [wire.RemoveModelRequest(model_id="absent")],
            "ListModels": lambda: [wire.ListModelsRequest()],
            "GetModelFiles": lambda: [wire.GetModelFilesRequest(model_id=MODEL)],
            "ReadPiece": lambda: [
                wire.ReadPieceRequest(model_id=MODEL, sha256=secrets.token_bytes(32))
            ],
        }

    def _of_proposers_and_links(self) -> Mapping[str, Make]:
        return {
            "ProposeBlock": lambda: [
                proposer_pb2.ProposeBlockRequest(
                    committed_token_ids=TOKENS, block_size=4, model_id=NGRAM
                )
            ],
            "Draft": self._draft,
            "OpenLink": lambda: [self.link()],
            "StreamTensors": self._tensors,
            "CloseLink": lambda: [tensor_pb2.CloseLinkRequest(link_id=self.link_id)],
        }

    def _of_archives(self) -> Mapping[str, Make]:
        return {
            "OpenArchive": lambda: [self.archive()],
            "CloseArchive": lambda: [archive_pb2.CloseArchiveRequest(archive_id=self.archive_id)],
        }

    def _of_the_authority(self) -> Mapping[str, Make]:
        """What changes who is a member is the owner's alone, and not mutated into another's."""
        wire = trust_pb2
        return {
            "ExchangeStatements": lambda: [
                wire.ExchangeStatementsRequest(
                    known=[self._rng.randbytes(32)],
                    statements=[self._statement() for _ in range(2)],
                )
            ],
            "RenewCertificate": lambda: [
                wire.RenewCertificateRequest(certificate_request=self._request)
            ],
            "MakeAuthority": lambda: [wire.MakeAuthorityRequest()],
            "GetTrust": lambda: [wire.GetTrustRequest()],
            "Invite": lambda: [wire.InviteRequest()],
            "Revoke": lambda: [wire.RevokeRequest(node_id=self._node_id)],
            "AddKeeper": lambda: [wire.AddKeeperRequest(node_id=self._node_id)],
            "AllowRoles": lambda: [
                wire.AllowRolesRequest(node_id=self._node_id, roles=[model_pb2.ROLE_VERIFIER])
            ],
            "CreateKey": lambda: [
                wire.CreateKeyRequest(name="fuzz", scopes=wire.KeyScope.values()[1:2])
            ],
            "ListKeys": lambda: [wire.ListKeysRequest()],
            "RevokeKey": lambda: [wire.RevokeKeyRequest(key="fuzz")],
        }

    def _statement(self) -> trust_pb2.Statement:
        """That this node is put out, signed by nobody."""
        wire = trust_pb2
        revocation = wire.RevocationStatement(
            node_id=self._node_id, upheld=[self._rng.randbytes(32)], revoked_at_unix=1.8e9
        )
        body = wire.StatementBody(fleet_id="f" * 64, revocation=revocation)
        changed = self._change(body) if self._rng.random() < 0.5 else body
        return wire.Statement(
            body=changed.SerializeToString(), signer="f" * 64, signature=self._rng.randbytes(70)
        )

    def plain_session(self) -> runtime_pb2.CreateSessionRequest:
        """A small one, with a history."""
        return runtime_pb2.CreateSessionRequest(
            model_id=MODEL,
            kv_strategy=placement_pb2.KV_STRATEGY_SINK_WINDOW,
            sink_tokens=4,
            window_tokens=16,
            speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
            initial_token_ids=TOKENS[:8],
        )

    def link(self) -> tensor_pb2.OpenLinkRequest:
        """A link for context vectors, to a drafter that wants some."""
        return tensor_pb2.OpenLinkRequest(
            sender_node_id=self._sender_node_id,
            purpose=tensor_pb2.LINK_PURPOSE_FEATURES,
            transports=[placement_pb2.TRANSPORT_LOCAL, placement_pb2.TRANSPORT_GRPC],
            model_id=DFLASH,
        )

    def archive(self) -> archive_pb2.OpenArchiveRequest:
        """An archive of a small model: two layers, one head of eight numbers."""
        return archive_pb2.OpenArchiveRequest(
            kind=placement_pb2.RESTORER_KIND_ARCHIVE,
            verifier_digest="0" * 64,
            groups=[
                archive_pb2.EvictedLayers(layers=[0, 1], kv_heads=1, query_heads=2, head_dim=8)
            ],
            dtype=tensor_pb2.TENSOR_DTYPE_FLOAT32,
            sink_tokens=4,
            window_tokens=16,
            context_length=4096,
            lease_seconds=5.0,
        )

    def _draft(self) -> Sequence[Message]:
        opening = proposer_pb2.DraftOpen(
            model_id=NGRAM, prefix_token_ids=TOKENS, vocabulary_size=4096
        )
        messages = [proposer_pb2.DraftRequest(open=opening)]
        length = len(TOKENS)
        for block in range(1, STREAM_MESSAGES):
            if self._rng.random() < 0.1:
                cancel = proposer_pb2.DraftCancel(through_block_id=block)
                messages.append(proposer_pb2.DraftRequest(cancel=cancel))
                continue
            length += 1
            proposal = proposer_pb2.DraftProposal(
                block_id=block,
                committed_token_ids=TOKENS[:1],
                base_length=length,
                assumed_token_ids=TOKENS[:2],
                block_size=4,
            )
            messages.append(proposer_pb2.DraftRequest(proposal=proposal))
        return messages

    def _tensors(self) -> Sequence[Message]:
        wire = tensor_pb2
        opening = wire.StreamOpening(link_id=self.link_id, want_encoder=self._rng.random() < 0.1)
        behind = (self._of_a_stream(number) for number in range(1, STREAM_MESSAGES))
        return [wire.StreamTensorsRequest(opening=opening), *behind]

    def _of_a_stream(self, number: int) -> Message:
        """A piece of a tensor, or a word about one or about a road."""
        wire = tensor_pb2
        match self._rng.randrange(4):
            case 0:
                data = self._rng.randbytes(FEATURE_ROWS * FEATURE_WIDTH * 4)
                chunk = wire.TensorChunk(
                    link_id=self.link_id,
                    tensor_id=number,
                    name="features",
                    dtype=FLOAT32,
                    shape=[FEATURE_ROWS, FEATURE_WIDTH],
                    data=data,
                    crc32c=google_crc32c.value(data),
                )
                return wire.StreamTensorsRequest(chunk=chunk)
            case 1:
                announcement = wire.TensorAnnouncement(
                    tensor_id=number,
                    name="features",
                    dtype=FLOAT32,
                    shape=[FEATURE_ROWS, FEATURE_WIDTH],
                    generation=1,
                )
                return wire.StreamTensorsRequest(announcement=announcement)
            case 2:
                return wire.StreamTensorsRequest(taken=wire.TensorsTaken(through_tensor_id=0))
            case _:
                road = wire.RoadMessage(
                    generation=1,
                    step=self._rng.choice(STEPS),
                    transport=self._rng.choice(ROADS),
                    nonce=self._rng.randbytes(32),
                    terms={"socket": "attack", "host": "127.0.0.1:1"},
                    reason="because",
                )
                return wire.StreamTensorsRequest(road=road)


async def seeds_for(
    channel: grpc.aio.Channel,
    rng: random.Random,
    change: Callable[[Message], Message] = _as_it_is,
    sender_node_id: str = "",
) -> Seeds:
    """Those for the node that `channel` leads to. Raises `grpc.aio.AioRpcError`."""
    stub = capability_pb2_grpc.CapabilityServiceStub(channel)
    node = await stub.GetNode(capability_pb2.GetNodeRequest(), timeout=20)
    return Seeds(rng, node, change, sender_node_id)
