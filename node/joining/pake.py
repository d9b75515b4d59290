"""SPAKE2 (Abdalla and Pointcheval, CT-RSA 2005): a strong common key from a weak common password.

The library is `spake2` 0.9 (MIT, by the author of magic-wormhole), in the group of Ed25519. Who
listens learns nothing of the password; who takes part learns whether one guess was right, once an
exchange. Its limits:

- It is older than RFC 9382 and speaks with no implementation of that: other constants, another
  transcript. Both ends of a join are of this project.
- It is Python integers, not constant in time. Who can measure the processor of a machine that
  joins or invites, to the microsecond, might learn bits of a password that lives for ten minutes
  and three tries. What is measured over a network is one exchange a try.
- One exchange takes 5 to 10 ms of a core on either side, on the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum

from spake2 import SPAKE2_A, SPAKE2_B, SPAKEError
from spake2.ed25519_basic import NotOnCurve

from kakeya_fleet.node.rpc.refusals import MalformedMessage

LABEL = b"kakeya.v1.join"
PAKE_MESSAGE_BYTES = 33
"""A byte for the side, then a point of the curve in 32."""

_FIELD = 2**255 - 19
_SIGN_BIT = 1 << 255

Entropy = Callable[[int], bytes]


class Side(StrEnum):
    """Who is who: the joiner is A, the issuer B."""

    JOINER = "joiner"
    ISSUER = "issuer"


def identity_of(side: Side, node_id: str) -> bytes:
    """What the exchange is bound to, of a node on its side; `node_id` is hexadecimal."""
    return b" ".join((LABEL, side.value.encode("ascii"), node_id.encode("ascii")))


class Pake:
    """One side of one exchange; `message` is for the other side.

    The other side's id is needed at the end alone, since a joiner learns it with the answer.
    """

    def __init__(
        self, side: Side, password: bytes, node_id: str, entropy: Entropy = os.urandom
    ) -> None:
        self._side = side
        own = identity_of(side, node_id)
        if side is Side.JOINER:
            self._exchange = SPAKE2_A(password, idA=own, entropy_f=entropy)
        else:
            self._exchange = SPAKE2_B(password, idB=own, entropy_f=entropy)
        self.message: bytes = self._exchange.start()

    def finish(self, other_node_id: str, message: bytes) -> bytes:
        """The key, 32 bytes: that of the other side if password, ids and messages are the same.

        Raises `MalformedMessage` for what no honest side sends: of another length, of this side
        (reflected), no point of the curve or one of a small group. May be called once.
        """
        # The library reads the first 32 bytes of any message, and takes numbers above the field's
        # for those below: one point would have several messages.
        if len(message) != PAKE_MESSAGE_BYTES:
            raise MalformedMessage(f"a message of the key exchange has {PAKE_MESSAGE_BYTES} bytes")
        if int.from_bytes(message[1:], "little") % _SIGN_BIT >= _FIELD:
            raise MalformedMessage("the message of the key exchange is not canonical")
        if self._side is Side.JOINER:
            self._exchange.idB = identity_of(Side.ISSUER, other_node_id)
        else:
            self._exchange.idA = identity_of(Side.JOINER, other_node_id)
        try:
            return bytes(self._exchange.finish(message))
        except (SPAKEError, NotOnCurve, ValueError) as error:
            raise MalformedMessage(
                "the message of the key exchange is none of the other side"
            ) from error
