"""Faults of who is trusted, and of who may call what."""

from __future__ import annotations

from scripts.mutants.mutant import Mutant

_LEDGER = ("tests/fleet/trust/test_ledger.py",)
_CERTIFICATES = ("tests/node/trust/test_certificates.py",)
_NODES = ("tests/node/app/test_authority.py",)
_RENEWED = ("tests/node/trust/test_renewed_certificates.py",)
_OWNERSHIP = ("tests/node/roles/verifier/test_session_ownership.py",)

MUTANTS = (
    Mutant(
        "certificates are replaced at each handshake",
        "node/trust/tls.py",
        "            if now == self._told:\n                return None\n",
        "",
        _RENEWED,
    ),
    Mutant(
        "a certificate that is renewed while it is read taken for a broken one",
        "node/trust/tls.py",
        "(now.st_ino, now.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)",
        "now",
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
        "what was replaced counts on",
        "fleet/trust/judgement.py",
        "if (says.node_id, digest) in replaced:",
        "if (says.node_id, digest) in ():",
        _LEDGER,
    ),
    Mutant(
        "a role that keepers withhold is offered",
        "node/membership/known_fleet.py",
        "return view_of(card, liveness, self._served_here(node_id))",
        "return view_of(card, liveness, None)",
        _NODES,
    ),
    Mutant(
        "a role that keepers withhold is drafted in",
        "node/membership/known_fleet.py",
        "if serving is not None and allowed is not None and serving not in allowed:",
        "if serving is None and allowed is not None and serving not in allowed:",
        _NODES,
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
        "if not found.callers & permitted(method):",
        "if not found.callers:",
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
    Mutant(
        "a session that whoever knows its id may use",
        "engine/sessions/session_registry.py",
        "if record is not None and owner not in (None, record.owner):",
        "if record is not None and owner in ():",
        _OWNERSHIP,
    ),
    Mutant(
        "an end that strangers are told",
        "engine/sessions/ended.py",
        "if reason and owner in (None, whose):",
        "if reason and whose is not None:",
        _OWNERSHIP,
    ),
    Mutant(
        "a request id that finds another's session",
        "engine/sessions/creation_requests.py",
        "request = self._requests.get((verifier, owner, request_id))\n        return request",
        "request = next((each for key, each in self._requests.items() "
        "if key[2] == request_id), None)\n        return request",
        _OWNERSHIP,
    ),
    Mutant(
        "a watch of everybody's sessions",
        "node/watch/watchers.py",
        "if watcher.owner is not None and watcher.owner != owner:",
        "if watcher.owner is not None and not watcher.owner:",
        _OWNERSHIP,
    ),
    Mutant(
        "a revoked key that is good on",
        "node/trust/application_keys.py",
        "return key.key_id in self._trust.ledger.revoked_keys",
        "return key.key_id in self._trust.ledger.revoked",
        _NODES,
    ),
    Mutant(
        "a revoked key whose calls go on",
        "node/rpc/authorisation.py",
        "over = {*ledger.revoked, *map(caller_of_key, ledger.revoked_keys)}",
        "over = {*ledger.revoked}",
        ("tests/node/app/test_applications.py",),
    ),
    Mutant(
        "a key of any scope generates",
        "node/rpc/recognition.py",
        "callers = frozenset(_CALLERS[scope] for scope in key.scopes)",
        "callers = frozenset(_CALLERS.values())",
        _NODES,
    ),
    Mutant(
        "applications without a key",
        "node/rpc/recognition.py",
        "if is_encrypted(connection) and not member:",
        "if bearer and is_encrypted(connection) and not member:",
        _NODES,
    ),
    Mutant(
        "any name certified",
        "fleet/trust/host_names.py",
        "if _NAME.fullmatch(name))",
        "if name)",
        ("tests/fleet/trust/test_host_names.py",),
    ),
    Mutant(
        "a program in plain text that follows to a member",
        "sdks/python/kakeya/ways.py",
        '        if not self._has_tls:\n            return ""\n',
        "",
        ("tests/node/app/test_applications.py",),
    ),
    Mutant(
        "a key that owes for ever",
        "fleet/trust/token_rate.py",
        "return self.left(now) <= -self.per_minute",
        "return self.left(now) <= -1e9",
        ("tests/fleet/trust/test_token_rate.py",),
    ),
)
