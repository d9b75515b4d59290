"""Real nodes of a fleet with an authority: who is in, who is out, and who may call what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import MethodDescriptor
from structlog.testing import capture_logs

from kakeya import (
    AsyncClient,
    Completion,
    ModelNotFound,
    ModelServedElsewhere,
    NoArchive,
    NodeHistory,
    NoPlacement,
    RejectionReason,
    Role,
    SessionOptions,
    Speculation,
    SpeculationChoice,
)
from kakeya.rpc_status import kakeya_error
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
    tensor_pb2_grpc,
    trust_pb2,
    trust_pb2_grpc,
)
from kakeya_fleet.fleet.trust.keys import ApplicationKey
from kakeya_fleet.fleet.trust.permissions import Caller, permitted
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.membership.card_wire import sign_card
from kakeya_fleet.node.membership.identity import load_or_create
from kakeya_fleet.node.trust.application_keys import ApplicationKeys
from kakeya_fleet.node.trust.certificates import MEMBER_LIFE, member_of
from scripts.support.placement import when_it_can_be_had
from tests.node.conftest import Eventually
from tests.support.homes import Home, Metadata, bearer, known, local, reason_of, refusal
from tests.support.members import channel_to, first_keeper
from tests.support.patience import PATIENCE_SECONDS

WEEK = MEMBER_LIFE.total_seconds()
HALF_A_DAY = 43_200.0
HERE = "127.0.0.1:0"


@pytest.mark.wide
async def test_members_find_each_other_and_draft_over_encrypted_connections(
    home: Home, eventually: Eventually
) -> None:
    home.let_in("b")
    home.let_in("c")
    b = await home.start("b", serve=["proposer=ngram"])
    c = await home.start("c", serve=["verifier=tiny"])
    everyone = {each.node_id for each in (home.a, b, c)}

    async def met() -> bool:
        return all([await known(each) == everyone for each in (home.a, b, c)])

    await eventually(met)
    async with local(c) as client:
        prompt = tuple(range(300, 340)) * 2

        async def answered(speculation: SpeculationChoice) -> Completion:
            opening = partial(client.create_session, "tiny", speculation=speculation)
            async with await when_it_can_be_had(opening) as session:
                await session.append(prompt)
                return await session.generate(40).collect()

        alone = await answered("off")

        async def drafted() -> bool:
            # A busy machine's first draft may be late, and then none is asked for during a while.
            found = await answered(Speculation("ngram", node_id=b.node_id, block_size=4))
            assert found.token_ids == alone.token_ids
            return found.done.speculation.drafted_count > 0

        await eventually(drafted)


async def test_tokens_go_to_no_member_in_a_role_that_keepers_do_not_let_it_serve(
    home: Home, eventually: Eventually
) -> None:
    home.let_in("b")
    home.let_in("c")
    b = await home.start("b", serve=["proposer=ngram", "archive=16MiB"])
    c = await home.start("c", serve=["verifier=tiny"])
    everyone = {each.node_id for each in (home.a, b, c)}

    async def met() -> bool:
        return all([await known(each) == everyone for each in (home.a, b, c)])

    await eventually(met)
    prompt = tuple(range(300, 340)) * 2
    drafted_by_b = Speculation("ngram", node_id=b.node_id, block_size=4)
    async with local(c) as client:
        alone = await client.create_session("tiny", speculation="off")
        await alone.append(prompt)
        expected = (await alone.generate(80).collect()).token_ids
        opening = partial(client.create_session, "tiny", speculation=drafted_by_b)
        while True:
            session = await when_it_can_be_had(opening)
            await session.append(prompt)
            first = await session.generate(40).collect()
            # On a busy machine all drafts of so short an answer may be late.
            if first.done.speculation.drafted_count:
                break
        # In mid-session: what is said holds for drafts that are under way, too.
        await allow(home, b.node_id, [model_pb2.ROLE_ARCHIVE])

        async def is_told() -> bool:
            status = {each.node_id: each for each in await client.fleet.nodes()}[b.node_id]
            return status.withheld_roles == (Role.PROPOSER,) and not status.models

        await eventually(is_told)
        second = await session.generate(40).collect()
        assert first.token_ids + second.token_ids == expected
        assert second.done.speculation.drafted_count == 0
        with pytest.raises(NoPlacement) as caught:
            await client.create_session("tiny", speculation=drafted_by_b)
        assert "do not let b serve as proposer" in str(caught.value)
        planned = await client.fleet.plan("tiny")
        (rejection,) = [each for each in planned.rejections if each.proposer is not None]
        assert rejection.reason is RejectionReason.ROLE_NOT_ALLOWED
        # Its archive is used on, until that is withheld.
        await (await client.create_session("tiny", kv_strategy="restored")).close()
        await allow(home, b.node_id, [])

        async def is_out() -> bool:
            status = {each.node_id: each for each in await client.fleet.nodes()}[b.node_id]
            card = status.card
            return Role.ARCHIVE in status.withheld_roles and card is not None and not card.archive

        await eventually(is_out)
        with pytest.raises(NoArchive):
            await client.create_session("tiny", kv_strategy="restored")
        await allow(home, b.node_id, any_role=True)
        await eventually(lambda: _offers_all(client, b.node_id))

        async def is_drafted_for() -> bool:
            return (await session.generate(20).collect()).done.speculation.drafted_count > 0

        await eventually(is_drafted_for)


async def _offers_all(client: AsyncClient, node_id: str) -> bool:
    status = {each.node_id: each for each in await client.fleet.nodes()}[node_id]
    return not status.withheld_roles and bool(status.models)


async def allow(
    home: Home,
    node_id: str,
    roles: Sequence[model_pb2.Role.ValueType] = (),
    *,
    any_role: bool = False,
) -> None:
    """Has the keeper say which roles a member may serve."""
    async with grpc.aio.insecure_channel(str(home.a.ready["local_address"])) as owners:
        trust = trust_pb2_grpc.TrustServiceStub(owners)
        request = trust_pb2.AllowRolesRequest(node_id=node_id, roles=roles, any=any_role)
        assert await refusal(trust.AllowRoles(request, timeout=PATIENCE_SECONDS)) == "NOT_PERMITTED"
        await trust.AllowRoles(request, metadata=home.own(), timeout=PATIENCE_SECONDS)


async def test_a_verifier_that_may_not_serve_others_is_nobodys_way_on(
    home: Home, eventually: Eventually
) -> None:
    home.let_in("b")
    home.let_in("c")
    b, c = await home.start("b", serve=["verifier=tiny"]), await home.start("c")
    everyone = {each.node_id for each in (home.a, b, c)}

    async def met() -> bool:
        return all([await known(each) == everyone for each in (home.a, b, c)])

    await eventually(met)
    async with local(c) as client:
        with pytest.raises(ModelServedElsewhere):
            await client.create_session("tiny")
        await allow(home, b.node_id, [model_pb2.ROLE_PROPOSER])

        async def is_out() -> bool:
            return not {each.node_id: each for each in await client.fleet.nodes()}[b.node_id].models

        await eventually(is_out)
        with pytest.raises(ModelNotFound):
            await client.create_session("tiny")
        with pytest.raises(NoPlacement, match="do not let b serve as verifier"):
            await client.fleet.plan("tiny")
    # Programs of its own machine use it as before.
    async with local(b) as client:
        await (await client.create_session("tiny")).close()
        watch = client.fleet.watch_node()
        history = await anext(aiter(watch))
        assert isinstance(history, NodeHistory)
        assert "ROLES_WITHHELD" in {each.kind for each in history.events}


async def test_strangers_foreigners_and_those_who_are_out_are_refused(
    home: Home, fleet_name: str
) -> None:
    foreign = first_keeper(home.folder / "foreign", fleet_name)
    expired = home.let_in("expired", age=2 * WEEK)
    b = home.let_in("b")
    request = capability_pb2.GetNodeRequest()

    async def asked(channel: grpc.aio.Channel) -> None:
        async with channel:
            stub = capability_pb2_grpc.CapabilityServiceStub(channel)
            await stub.GetNode(request, timeout=PATIENCE_SECONDS)

    await asked(channel_to(home.a.address, b))
    await asked(channel_to(home.a.address, b, home.a.node_id))
    strangers: list[grpc.aio.Channel] = [
        grpc.aio.insecure_channel(home.a.address),
        channel_to(home.a.address, foreign),
        channel_to(home.a.address, expired),
        # Who answers is not who was meant.
        channel_to(home.a.address, b, b.node_id),
        grpc.aio.secure_channel(home.a.address, grpc.ssl_channel_credentials()),
    ]
    for channel in strangers:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asked(channel)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_member_that_is_put_out_is_cut_off_in_mid_stream_and_stays_out(
    home: Home, eventually: Eventually
) -> None:
    b_trust = home.let_in("b")
    home.let_in("c")
    b, c = await home.start("b"), await home.start("c")

    async def met() -> bool:
        return all([len(await known(each)) == 3 for each in (home.a, b, c)])

    await eventually(met)
    async with channel_to(c.address, b_trust) as channel:
        stub = capability_pb2_grpc.CapabilityServiceStub(channel)
        watch = stub.WatchFleet(capability_pb2.WatchFleetRequest())
        assert (await anext(aiter(watch))).HasField("snapshot")
        async with grpc.aio.insecure_channel(str(home.a.ready["local_address"])) as owners:
            trust = trust_pb2_grpc.TrustServiceStub(owners)
            revoking = trust_pb2.RevokeRequest(node_id=b.node_id)
            assert (
                await refusal(trust.Revoke(revoking, timeout=PATIENCE_SECONDS)) == "NOT_PERMITTED"
            )
            answer = await trust.Revoke(revoking, metadata=home.own(), timeout=PATIENCE_SECONDS)
        assert answer.told_count >= 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    await anext(aiter(watch))
        assert kakeya_error(caught.value, "").reason == "BAD_CERTIFICATE"
        # On the connection that is open, too.
        found = await refusal(
            stub.GetNode(capability_pb2.GetNodeRequest(), timeout=PATIENCE_SECONDS)
        )
        assert found == "BAD_CERTIFICATE"
    # Nor does its card come back, by whatever way; the others answer each other on.

    async def is_settled() -> bool:
        found = [await known(home.a), await known(c)]
        assert not any(b.node_id in each for each in found)
        return found == [{home.a.node_id, c.node_id}] * 2

    await eventually(is_settled)
    for _ in range(3):
        await asyncio.sleep(0.3)
        assert b.node_id not in await known(c)
    # Whoever has its key ends it still, as `fleet leave` does, also once it knows.
    told, own = home.a.node.control.keeping, b.node.control.keeping
    assert told is not None
    assert own is not None
    own.trust.merge(told.trust.ledger.statements)
    async with channel_to(b.address, b_trust) as channel:
        stub = capability_pb2_grpc.CapabilityServiceStub(channel)
        leaving = capability_pb2.LeaveRequest()
        assert await refusal(stub.Leave(leaving, timeout=PATIENCE_SECONDS)) == "BAD_CERTIFICATE"
        await stub.Leave(leaving, metadata=home.own("b"), timeout=PATIENCE_SECONDS)


async def test_a_card_without_its_owners_certificate_is_nobodys(home: Home, tmp_path: Path) -> None:
    b_trust = home.let_in("b")
    b = await home.start("b")
    signed = b.node.control.card_maker.current
    await b.stop()
    identity = load_or_create(tmp_path / "stranger.key")
    stranger = replace(
        signed.card,
        node_id=identity.node_id,
        public_key=identity.public_key,
        certificate=b"",
    )
    # With another's certificate, which anybody has from its card, too.
    poser = replace(stranger, certificate=signed.card.certificate)
    async with channel_to(home.a.address, b_trust) as channel:
        stub = capability_pb2_grpc.CapabilityServiceStub(channel)
        request = capability_pb2.ExchangeCapabilitiesRequest(
            sender_node_id=b.node_id,
            fleet_name=home.keeper.fleet.name,
            protocol_min=1,
            protocol_max=1,
            root_hash=bytes(32),
            cards=[
                capability_pb2.SignedCard(card=each.card_bytes, signature=each.signature)
                for each in (signed, sign_card(stranger, identity), sign_card(poser, identity))
            ],
        )
        answer = await stub.ExchangeCapabilities(request, timeout=PATIENCE_SECONDS)
        assert [(each.index, each.reason) for each in answer.skipped] == [
            (1, "NOT_A_MEMBER"),
            (2, "NOT_A_MEMBER"),
        ]
        # Nobody speaks for another member.
        request.sender_node_id = home.a.node_id
        assert (
            await refusal(stub.ExchangeCapabilities(request, timeout=PATIENCE_SECONDS))
            == "BAD_CERTIFICATE"
        )


async def test_a_link_is_its_openers_alone(home: Home) -> None:
    b, c = home.let_in("b"), home.let_in("c")
    home.let_in("d")
    d = await home.start("d", serve=["proposer=tiny-dflash"])
    async with channel_to(d.address, b) as owners, channel_to(d.address, c) as others:
        own, other = (tensor_pb2_grpc.TensorServiceStub(channel) for channel in (owners, others))
        request = tensor_pb2.OpenLinkRequest(
            sender_node_id=b.node_id,
            purpose=tensor_pb2.LINK_PURPOSE_FEATURES,
            model_id="tiny-dflash",
        )
        assert await refusal(other.OpenLink(request, timeout=PATIENCE_SECONDS)) == "BAD_CERTIFICATE"
        link = (await own.OpenLink(request, timeout=PATIENCE_SECONDS)).link_id
        # Whoever else learned its id has nothing of it.
        await other.CloseLink(tensor_pb2.CloseLinkRequest(link_id=link), timeout=PATIENCE_SECONDS)
        opening = tensor_pb2.StreamTensorsRequest(opening=tensor_pb2.StreamOpening(link_id=link))
        stolen = other.StreamTensors(timeout=PATIENCE_SECONDS)
        await stolen.write(opening)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stolen.read()
        assert kakeya_error(caught.value, "").reason == "LINK_NOT_FOUND"
        stream = own.StreamTensors(timeout=PATIENCE_SECONDS)
        await stream.write(opening)
        await stream.initial_metadata()
        assert not stream.done()
        stream.cancel()


async def test_a_certificate_is_renewed_at_half_of_its_life_while_the_node_serves(
    home: Home, eventually: Eventually
) -> None:
    old = home.let_in("b", age=WEEK * 0.6)
    b = await home.start("b")

    async def renewed() -> bool:
        async with grpc.aio.insecure_channel(str(b.ready["local_address"])) as channel:
            stub = trust_pb2_grpc.TrustServiceStub(channel)
            told = await stub.GetTrust(trust_pb2.GetTrustRequest(), timeout=PATIENCE_SECONDS)
        return told.certificate_ends_unix > old.ends_unix + WEEK / 4

    await eventually(renewed)
    found = b.node.control.card_maker.current.card.certificate
    assert home.keeper.member_of(found) == b.node_id

    async def told() -> bool:
        nodes = home.a.node.control.known.nodes()
        return any(each.card.certificate == found for each in nodes)

    await eventually(told)
    assert b.node_id in await known(home.a)


async def test_any_keeper_renews_when_the_first_one_is_down(
    home: Home, eventually: Eventually
) -> None:
    home.let_in("b")
    b = await home.start("b")
    await home.a.events.wait_for("peer_joined", node_id=b.node_id)
    first, second = home.a.node.control.keeping, b.node.control.keeping
    assert first is not None
    assert second is not None
    first.trust.name_keeper(b.node_id, second.trust.make_authority())
    assert await first.spread() == 1
    await home.a.stop()
    old = home.let_in("c", age=WEEK * 0.6)
    c = await home.start("c", peers=[b.address])

    async def renewed() -> bool:
        keeping = c.node.control.keeping
        return keeping is not None and keeping.trust.ends_unix > old.ends_unix + WEEK / 4

    await eventually(renewed)
    found = c.node.control.card_maker.current.card.certificate
    assert member_of(found, [second.trust.make_authority()], datetime.now(UTC)) == c.node_id


async def test_a_certificate_that_nobody_renews_is_in_the_log_a_day_ahead(
    home: Home, eventually: Eventually
) -> None:
    home.let_in("b", age=WEEK - HALF_A_DAY)
    with capture_logs() as logged:
        # It knows nobody, and so no keeper.
        b = await home.start_agent("b", bind=HERE)

        async def is_told() -> bool:
            return any(each["event"] == "certificate_ends" for each in logged)

        await eventually(is_told)
    (told,) = [each for each in logged if each["event"] == "certificate_ends"]
    assert told["hours"] == pytest.approx(12.0, abs=0.5)
    assert told["log_level"] == "warning"
    assert await known(b) == {b.node_id}


@pytest.mark.parametrize(("age", "fault"), [(2 * WEEK, "expired"), (-2 * WEEK, "clock")])
async def test_a_node_without_a_good_certificate_does_not_start_and_says_why(
    home: Home, age: float, fault: str
) -> None:
    home.let_in("b", age=age)
    with pytest.raises(BadCertificate) as caught:
        await home.start("b")
    assert caught.value.metadata["fault"] == fault


METHODS: list[MethodDescriptor] = [
    method
    for file in (
        archive_pb2,
        capability_pb2,
        model_service_pb2,
        placement_pb2,
        proposer_pb2,
        runtime_pb2,
        tensor_pb2,
        trust_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def test_every_method_is_somebodys() -> None:
    for method in METHODS:
        assert permitted(path_of(method)), path_of(method)
    assert permitted("/kakeya.v1.NewService/Anything") == frozenset()


async def test_every_method_answers_those_whom_the_table_names_and_nobody_else(home: Home) -> None:
    b = home.let_in("b")
    generates = bearer(await home.key("g", scopes=[trust_pb2.KEY_SCOPE_GENERATE]))
    observes = bearer(await home.key("o", scopes=[trust_pb2.KEY_SCOPE_OBSERVE]))
    here, members, keys = home.channels(b)
    keepers = channel_to(home.a.address, home.keeper)
    # Who calls, by which port, showing what; and all that it proves.
    callers: list[tuple[set[Caller], grpc.aio.Channel, Metadata]] = [
        ({Caller.LOCAL}, here, ()),
        ({Caller.MEMBER}, members, ()),
        ({Caller.KEEPER, Caller.MEMBER}, keepers, ()),
        ({Caller.OWNER, Caller.LOCAL}, here, home.own()),
        *(({Caller.GENERATOR}, channel, generates) for channel in (here, members, keys)),
        *(({Caller.OBSERVER}, channel, observes) for channel in (here, members, keys)),
    ]
    # Archives have a port of their own.
    for method in (each for each in METHODS if each.containing_service.name != "ArchiveService"):
        path = path_of(method)
        for proves, channel, metadata in callers:
            may = bool(permitted(path) & proves)
            if path.endswith("/Leave") and may:
                continue
            reason = await reason_of(channel, path, metadata)
            assert (reason == "NOT_PERMITTED") == (not may), (path, proves, reason)
            assert not reason.startswith("KEY_") or reason == "KEY_NOT_FOUND"
    wrong = (("authorization", "Bearer nonsense"),)
    leave = "/kakeya.v1.CapabilityService/Leave"
    assert await reason_of(here, leave, wrong) == "NOT_PERMITTED"
    for channel in (here, members, keys, keepers):
        await channel.close()


async def test_no_method_answers_a_key_that_is_revoked_over_foreign_or_none(home: Home) -> None:
    b = home.let_in("b")
    both = [trust_pb2.KEY_SCOPE_GENERATE, trust_pb2.KEY_SCOPE_OBSERVE]
    revoked = await home.key("revoked", scopes=both)
    await home.revoke_key("revoked")
    expired = await home.key("expired", scopes=both, valid_seconds=1e-6)
    other = first_keeper(home.folder / "other", "other")
    foreign, _ = ApplicationKeys(other).make(ApplicationKey("foreign", b""))
    here, members, keys = home.channels(b)
    refused = {revoked: "KEY_REVOKED", expired: "KEY_EXPIRED", foreign: "KEY_UNKNOWN"}
    cases = [
        (channel, bearer(key), reason)
        for key, reason in refused.items()
        for channel in (here, members, keys)
    ]
    # Where applications call nobody is known by anything but a key.
    cases += [
        (keys, (), "KEY_MISSING"),
        (keys, bearer("nonsense"), "KEY_UNKNOWN"),
        (keys, home.own(), "KEY_UNKNOWN"),
    ]
    for method in (each for each in METHODS if each.containing_service.name != "ArchiveService"):
        for channel, metadata, reason in cases:
            found = await reason_of(channel, path_of(method), metadata)
            assert found == reason, (path_of(method), metadata, found)
    for channel in (here, members, keys):
        await channel.close()


@pytest.mark.wide
async def test_what_is_evicted_is_kept_by_a_member_and_the_stream_is_the_same(
    home: Home, eventually: Eventually
) -> None:
    home.let_in("b")
    home.let_in("c")
    b = await home.start("b", serve=["archive=64MiB"])
    c = await home.start("c", serve=["verifier=tiny"])
    prompt = tuple(300 + index % 200 for index in range(150))
    async with local(c) as client:

        async def is_there() -> bool:
            nodes = await client.fleet.nodes()
            return any(each.node_id == b.node_id and each.round_trip_seconds for each in nodes)

        await eventually(is_there)
        streams = []
        for kv_strategy in ("full", "restored"):
            options: SessionOptions = {
                "kv_strategy": kv_strategy,
                "sink_tokens": 4,
                "window_tokens": 64,
                "speculation": "off",
            }
            async with await client.create_session("tiny", **options) as session:
                await session.append(prompt)
                streams.append((await session.generate(20).collect()).token_ids)
                restorer = (await session.info()).restorer
        assert restorer is not None
        assert [each.archive.node_id for each in restorer.archives] == [b.node_id]
        assert streams[0] == streams[1]
