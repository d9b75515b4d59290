"""Faults of who is trusted, and of who may call what."""

from __future__ import annotations

from scripts.mutants.mutant import Mutant

_LEDGER = ("tests/fleet/trust/test_ledger.py",)
_CERTIFICATES = ("tests/node/trust/test_certificates.py",)
_NODES = ("tests/node/app/test_authority.py",)
_RENEWED = ("tests/node/trust/test_renewed_certificates.py",)

MUTANTS = (
    Mutant(
        "certificates are replaced at each handshake",
        "node/trust/tls.py",
        "            if now == self._told:\n                return None\n",
        "",
        _RENEWED,
    ),
    Mutant(
        "a statement that nobody signed",
        "fleet/trust/ledger.py",
        "return signer is not None and self._verify(",
        "return signer is not None or self._verify(",
        _LEDGER,
    ),
    Mutant(
        "a keeper that is out speaks on",
        "fleet/trust/judgement.py",
        "if allowed is not None and statement.digest not in allowed:",
        "if allowed is None and statement.digest in ():",
        _LEDGER,
    ),
    Mutant(
        "a revoked member is one",
        "node/trust/trust.py",
        "        if self.is_out(node_id):\n            raise BadCertificate(\n"
        '                f"node {node_id[:12]} was put out of the fleet {self.fleet.name}",\n'
        '                "join as',
        "        if not node_id:\n            raise BadCertificate(\n"
        '                f"node {node_id[:12]} was put out of the fleet {self.fleet.name}",\n'
        '                "join as',
        _CERTIFICATES,
    ),
    Mutant(
        "any certificate of a stolen authority is upheld",
        "node/trust/trust.py",
        "for each, upheld in self._ledger.former.items() if digest in upheld]",
        "for each, upheld in self._ledger.former.items() if upheld and digest]",
        _CERTIFICATES,
    ),
    Mutant(
        "a member that certifies others",
        "node/trust/certificates.py",
        ".add_extension(_usage(signs_certificates=False), critical=True)",
        ".add_extension(_usage(signs_certificates=True), critical=True)",
        _CERTIFICATES,
    ),
    Mutant(
        "a card with somebody else's certificate",
        "node/membership/members.py",
        "if member != card.node_id:",
        "if not member:",
        _NODES,
    ),
    Mutant(
        "a table that nobody asks",
        "node/rpc/authorisation.py",
        "if not callers & permitted(method):",
        "if not callers:",
        _NODES,
    ),
    Mutant(
        "calls that go on when their member is out",
        "node/rpc/authorisation.py",
        "                end.reschedule(now)\n",
        "                end.when()\n",
        _NODES,
    ),
    Mutant(
        "any member stands in for the one that was meant",
        "node/trust/tls.py",
        "name = name_of_node(node_id) if node_id else MEMBER_NAME",
        "name = MEMBER_NAME",
        _NODES,
    ),
    Mutant(
        "a certificate that nobody renews and nobody tells of",
        "node/cli/asking/certificate_ends.py",
        "first[1] - now_unix > LATE_DAYS * DAY",
        "first[1] - now_unix < LATE_DAYS * DAY",
        ("tests/node/cli/fleet/test_certificate_notes.py",),
    ),
)
