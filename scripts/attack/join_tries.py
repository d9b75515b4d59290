"""Mutated joins at the port that an invitation opens, by who has its code and who has not."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Sequence
from contextlib import suppress

import grpc.aio
from google.protobuf.message import Message

from kakeya.v1 import join_pb2, join_pb2_grpc, trust_pb2, trust_pb2_grpc
from kakeya_fleet.fleet.errors import FleetError
from kakeya_fleet.fleet.trust.join_code import JoinCode, parse_join_code
from kakeya_fleet.node.joining.application import signed_application
from kakeya_fleet.node.joining.join_exchange import JoinerExchange
from kakeya_fleet.node.joining.join_wire import (
    application_to_bytes,
    issuer_hello_from_wire,
    joiner_hello_to_wire,
    proof_to_wire,
)
from kakeya_fleet.node.membership.identity import Identity
from kakeya_fleet.node.rpc.refusals import MalformedMessage
from kakeya_fleet.node.trust.certificates import new_key, new_request
from scripts.attack.calls import OVER_WHILE_WRITING, reason_of
from scripts.attack.http2_frames import FrameFuzzer
from scripts.attack.mutations import Mutator
from scripts.attack.tally import UNNAMED, Tally

SERVICE = "kakeya.v1.JoinService"
PORT = "join port"
METHOD = f"/{SERVICE}/Join"
CALL_SECONDS = 12.0
"""More than an issuer gives a join."""


class JoinFuzzer:
    """Invites as the node's owner while nothing is open, and joins wrongly."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        owner_key: str,
        identity: Identity,
        tally: Tally,
        rng: random.Random,
    ) -> None:
        """`channel` leads to the node as a program of its machine, `identity` is the joiner's."""
        self._trust = trust_pb2_grpc.TrustServiceStub(channel)
        self._owner = (("authorization", f"Bearer {owner_key}"),)
        self._identity = identity
        self._tally = tally
        self._rng = rng
        self._mutator = Mutator(rng)
        self._request = new_request(new_key(), identity.node_id)
        self._codes: list[JoinCode] = []

    async def once(self) -> None:
        """One join, or bytes at its port; every third time with a new invitation."""
        if not self._codes:
            await self._invite()
        if not self._codes:
            return
        code = self._rng.choice(self._codes)
        if self._rng.random() < 0.3:
            await FrameFuzzer(code.address, self._tally, self._rng, service=PORT).once()
            return
        await self._join(code)

    async def _invite(self) -> None:
        try:
            answer = await self._trust.Invite(
                trust_pb2.InviteRequest(), metadata=self._owner, timeout=20
            )
        except grpc.aio.AioRpcError as error:
            self._tally.ended("right requests", error.code().name, reason_of(error))
            return
        self._codes = [parse_join_code(code) for code in answer.long_codes]

    async def _join(self, code: JoinCode) -> None:
        if self._rng.random() < 0.3:
            code = dataclasses.replace(code, secret=self._rng.randbytes(16))
        async with grpc.aio.insecure_channel(code.address) as channel:
            call = join_pb2_grpc.JoinServiceStub(channel).Join(timeout=CALL_SECONDS)
            try:
                # What a call that is over has to say is read next.
                with suppress(asyncio.InvalidStateError, grpc.aio.InternalError):
                    await self._exchange(call, code)
                while isinstance(await call.read(), Message):
                    pass
                self._tally.ended(SERVICE, "OK")
            except grpc.aio.AioRpcError as error:
                self._ended(error)
            finally:
                call.cancel()

    async def _exchange(
        self,
        call: grpc.aio.StreamStreamCall[join_pb2.JoinRequest, join_pb2.JoinResponse],
        code: JoinCode,
    ) -> None:
        exchange = JoinerExchange(code, self._identity.node_id)
        hello = joiner_hello_to_wire(exchange.hello)
        if self._rng.random() < 0.4:
            await self._say(call, [self._changed(hello), *self._some_proofs()])
            return
        await call.write(hello)
        answer = await call.read()
        if not isinstance(answer, join_pb2.JoinResponse):
            return
        try:
            exchange.receive(issuer_hello_from_wire(answer))
        except (FleetError, MalformedMessage):
            await self._say(call, self._some_proofs())
            return
        application = signed_application(
            self._identity, "attacker", self._request, exchange.transcript_hash
        )
        sealed = self._mutator.damaged(application_to_bytes(application))
        proof = proof_to_wire(exchange.prove(sealed))
        await self._say(call, [proof if self._rng.random() < 0.7 else self._changed(proof)])

    def _some_proofs(self) -> Sequence[join_pb2.JoinRequest]:
        proof = join_pb2.JoinerProof(
            confirmation=self._rng.randbytes(32), sealed_application=self._rng.randbytes(200)
        )
        request = join_pb2.JoinRequest(proof=proof)
        return [self._changed(request) for _ in range(self._rng.randint(0, 2))]

    def _changed(self, message: join_pb2.JoinRequest) -> join_pb2.JoinRequest:
        changed = self._mutator.changed(message)
        assert isinstance(changed, join_pb2.JoinRequest)
        return changed

    async def _say(
        self,
        call: grpc.aio.StreamStreamCall[join_pb2.JoinRequest, join_pb2.JoinResponse],
        messages: Sequence[join_pb2.JoinRequest],
    ) -> None:
        for message in messages:
            self._tally.sent(SERVICE)
            await call.write(message)
        await call.done_writing()

    def _ended(self, error: grpc.aio.AioRpcError) -> None:
        is_over = error.details() == OVER_WHILE_WRITING
        status, reason = "over while writing" if is_over else error.code().name, reason_of(error)
        self._tally.ended(SERVICE, status, reason)
        if status in UNNAMED:
            self._tally.without_name(METHOD, status, f"{reason} {error.details()}", b"")
        # Locked, or nobody listens any more: another invitation is made.
        if status == "UNAVAILABLE" or reason in {"INVITATION_CLOSED", "NO_INVITATION_FOUND"}:
            self._codes = []
