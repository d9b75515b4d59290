"""Faults of `node/`: what comes over sockets, and what is sent."""

from scripts.mutants.mutant import Mutant

MUTANTS = (
    # ---- The proposer never changes the output
    Mutant(
        "a stale block taken",
        "node/roles/proposer/draft_stream.py",
        "if not self._waiting or self._waiting[0].block_id != response.block_id:",
        "if not self._waiting:",
        ("tests/node/roles/proposer/test_lying_proposers.py",),
    ),
    # ---- Sessions are isolated
    Mutant(
        "an archive for whoever asks",
        "node/roles/archive/archives.py",
        "if archive is None or archive.attached:\n                raise _not_found(archive_id)\n"
        "            archive.attached",
        "if archive is None:\n                raise _not_found(archive_id)\n"
        "            archive.attached",
        ("tests/node/roles/archive/test_archives.py",),
    ),
    # ---- Nothing is lost
    Mutant(
        "an acknowledged tensor lost",
        "node/links/protocol/delivery.py",
        "ready.append(following)",
        "ready = [following]",
        ("tests/node/links/test_link_delivery.py",),
    ),
    Mutant(
        "a tensor forgotten before it arrived",
        "node/links/protocol/delivery.py",
        "for each in range(self._taken + 1, through + 1)]",
        "for each in range(self._taken + 1, through + 2) if each in self._kept]",
        ("tests/node/links/test_link_delivery.py",),
    ),
    Mutant(
        "a tensor handed on twice",
        "node/links/protocol/delivery.py",
        "if self.has(tensor_id):\n            return []",
        "if self.has(tensor_id):\n            return [tensor]",
        ("tests/node/links/test_link_delivery.py",),
    ),
    Mutant(
        "a road that broke kept",
        "node/links/protocol/promotion.py",
        "state.agreement = state.road = None",
        "state.agreement = None",
        ("tests/node/links/test_link_promotion.py",),
    ),
    Mutant(
        "a road used that only one end has",
        "node/links/protocol/promotion.py",
        "agreement.phase is not Phase.BUILT or not agreement.other_is_ready",
        "agreement.phase is not Phase.BUILT",
        ("tests/node/links/test_link_promotion.py",),
    ),
    Mutant(
        "a road kept that is not faster",
        "node/links/protocol/trial.py",
        "is_faster = self.road_pace <= WORTH * self.chunk_pace",
        "is_faster = True",
        ("tests/node/links/test_link_promotion.py",),
    ),
    Mutant(
        "a checksum not compared",
        "node/links/protocol/chunks.py",
        "self._is_corrupt |= crc32c(piece.data) != piece.crc32c",
        "self._is_corrupt |= not piece.crc32c",
        ("tests/node/links/test_tensor_chunks.py",),
    ),
    # ---- Nobody stops a node
    Mutant(
        "a page of elsewhere served",
        "node/http/own_hosts.py",
        "return is_loopback(_plain(reached_at))",
        "return True",
        ("tests/node/http/test_own_hosts.py",),
    ),
    Mutant(
        "a tensor of any size taken",
        "node/links/protocol/chunks.py",
        "if total > most_bytes:",
        "if most_bytes < 0:",
        ("tests/node/links/test_tensor_chunks.py",),
    ),
    Mutant(
        "a frame of other bytes taken",
        "node/roles/archive/data_frames.py",
        "if extended_crc(extended_crc(0, head[: _HEAD.size]), body.data) != _crc_in(head):",
        "if size < 0:",
        ("tests/node/roles/archive/test_archive_fuzz.py",),
    ),
    Mutant(
        "a false answer passed",
        "node/roles/archive/answer_audit.py",
        "if distance(self._sum, found) > MOST_DISTANCE[self.shape.dtype]:",
        "if distance(self._sum, found) > 1e9:",
        ("tests/node/roles/archive/test_answer_audit.py",),
    ),
    Mutant(
        "a prompt of any length encoded",
        "node/http/prompt_encoding.py",
        "if self.context_length and len(text) > longest:",
        "if longest < 0:",
        ("tests/node/http/test_prompt_encoding.py",),
    ),
    Mutant(
        "a change told before its part of a snapshot",
        "node/watch/backlog.py",
        "if key in self._untold:",
        "if ends and key in self._untold:",
        ("tests/node/watch/test_snapshot_parts.py",),
    ),
    Mutant(
        "an end lost behind a snapshot",
        "node/watch/backlog.py",
        "elif key in self._told:",
        "elif key in self._later:",
        ("tests/node/watch/test_snapshot_parts.py",),
    ),
    Mutant(
        "an archive left to its lease",
        "node/roles/verifier/session_factory.py",
        "if not taken and evicted is not None:",
        "if taken and evicted is None:",
        ("tests/node/roles/archive/test_failed_openings.py",),
    ),
    Mutant(
        "a stall of the machine told as the node's",
        "node/watch/loop_stall.py",
        "if self.ready is not None and self.seconds - self.ready <= least_seconds:",
        "if self.ready is not None and self.seconds < 0:",
        ("tests/node/watch/test_loop_turns.py",),
    ),
    Mutant(
        "a neighbour ended by another's crash",
        "engine/sessions/turns.py",
        "        return [ended for one in running for ended in run_turns([one])]",
        "        return failed",
        ("tests/node/roles/verifier/test_crashes.py",),
    ),
    Mutant(
        "a page of targets built at once",
        "node/http/target_page.py",
        "            await asyncio.sleep(0)",
        "            parts[:] = parts",
        ("tests/node/http/test_target_page.py",),
    ),
    Mutant(
        "what would give back refused",
        "node/rpc/call_admission.py",
        "is_control = is_control or method in CLOSING_METHODS",
        "is_control = bool(is_control)",
        ("tests/node/rpc/test_call_admission.py",),
    ),
    Mutant(
        "values of JSON uncounted",
        "node/http/json_size.py",
        '(b",", b":", b"[", b"{")',
        '(b",", b":", b"{")',
        ("tests/node/http/test_json_size.py",),
    ),
    Mutant(
        "an archive in use ended for another",
        "node/roles/archive/archives.py",
        "if archive.used_at <= latest_use and not archive.expired",
        "if not archive.expired",
        ("tests/node/roles/archive/test_archives.py",),
    ),
    # ---- Who joins has the code
    Mutant(
        "an issuer believed unconfirmed",
        "node/joining/join_exchange.py",
        "if not is_confirmed(keys.issuer_confirms,",
        "if answer.confirmation and not is_confirmed(keys.issuer_confirms,",
        ("tests/node/joining/test_join_exchange.py",),
    ),
    Mutant(
        "both directions sealed with one key",
        "node/joining/join_exchange.py",
        "SealedDirection(self._keys.issuer_seals, self.transcript_hash)",
        "SealedDirection(self._keys.joiner_seals, self.transcript_hash)",
        ("tests/node/joining/test_join_exchange.py",),
    ),
    Mutant(
        "an exchange not bound to its invitation",
        "node/joining/join_keys.py",
        '        joiner.nameplate.encode("utf-8"),\n',
        "",
        ("tests/node/joining/test_join_exchange.py",),
    ),
    Mutant(
        "a signature good for any exchange",
        "node/joining/application.py",
        "return LABEL + transcript_hash + certificate_request",
        "return LABEL + certificate_request",
        ("tests/node/joining/test_application.py",),
    ),
    Mutant(
        "guesses for whoever announces",
        "node/joining/join_client.py",
        "while len(faults) < MOST_ISSUERS:",
        "while True:",
        ("tests/node/joining/test_short_codes.py",),
    ),
)
