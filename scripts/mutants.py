"""Faults that the tests must find, one a promise or more: see docs/promises.md.

Each is the smallest change that a slip of the hand would make, in the file that keeps
the promise. Where that file is rewritten, its mutants are rewritten with it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: `old` is in `file` exactly once, and `new` in its place breaks a promise.

    `tests` are the arguments of pytest that select the fewest tests that find it.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    # ---- The proposer never changes the output
    Mutant(
        "a draft accepted that differs",
        "engine/sessions/acceptance.py",
        "if offset < len(draft) and draft[offset] != token:",
        "if offset < len(draft) and abs(draft[offset] - token) > 1:",
        ("tests/engine/sessions/test_acceptance.py",),
    ),
    Mutant(
        "a seed not used",
        "engine/sampling/choice.py",
        "uniform(parameters.seed, position)",
        "uniform(0, position)",
        ("tests/engine/sampling/test_sampling.py",),
    ),
    Mutant(
        "a position not used",
        "engine/sampling/choice.py",
        "uniform(parameters.seed, position)",
        "uniform(parameters.seed, 0)",
        ("tests/engine/sampling/test_sampling.py",),
    ),
    Mutant(
        "rejected tokens that count as seen",
        "engine/sessions/acceptance.py",
        "seen = history.seen(logits.shape[1]).copy()",
        "seen = history.seen(logits.shape[1])\n        seen.flags.writeable = True",
        ("tests/engine/sessions/test_sampling_blocks.py",),
    ),
    Mutant(
        "a draft made ahead that does not fit",
        "engine/speculation/ahead.py",
        "if len(predicted) <= count or list(predicted[:count]) != list(committed_since):",
        "if len(predicted) <= count:",
        ("tests/engine/speculation/test_speculation_rules.py",),
    ),
    Mutant(
        "a stale block taken",
        "node/roles/proposer/draft_stream.py",
        "if not self._waiting or self._waiting[0].block_id != response.block_id:",
        "if not self._waiting:",
        ("tests/node/roles/proposer/test_lying_proposers.py",),
    ),
    Mutant(
        "a drafted id outside the vocabulary taken",
        "engine/speculation/checks.py",
        "not 0 <= token_id < vocabulary_size",
        "not 0 <= token_id <= vocabulary_size",
        ("tests/engine/speculation/test_speculation_rules.py",),
    ),
    Mutant(
        "a token behind a stop id",
        "engine/sessions/step.py",
        "return tuple(choices[: index + 1]), True",
        "return tuple(choices[: index + 2]), True",
        ("tests/engine/sessions/test_session.py",),
    ),
    # ---- The history alone decides the bits
    Mutant(
        "a mask off by one",
        "engine/kv/slot_views.py",
        "(held > query - window)",
        "(held >= query - window)",
        (
            "tests/engine/contracts/test_positions.py",
            "tests/engine/backends/torch_backend/test_family_reference.py",
        ),
    ),
    Mutant(
        "a query that sees a later key",
        "engine/kv/slot_views.py",
        "seen &= held <= query",
        "seen &= held <= query + 1",
        (
            "tests/engine/contracts/test_positions.py",
            "tests/engine/backends/torch_backend/test_family_reference.py",
        ),
    ),
    Mutant(
        "a sink position evicted",
        "engine/kv/slot_views.py",
        "seen[:, :sink] = True",
        "seen[:, 1:sink] = True",
        (
            "tests/engine/contracts/test_positions.py",
            "tests/engine/backends/torch_backend/test_family_reference.py",
        ),
    ),
    Mutant(
        "a ring one slot too short",
        "engine/contracts/positions.py",
        "kept_sink + kept_window + width - 1, multiple",
        "kept_sink + kept_window + width - 2, multiple",
        ("tests/engine/contracts/test_positions.py",),
    ),
    Mutant(
        "a ring that writes over its sink",
        "engine/contracts/positions.py",
        "return self.sink + (position - self.sink) % self.ring",
        "return position % self.slots",
        ("tests/engine/contracts/test_positions.py",),
    ),
    Mutant(
        "a roll-back that keeps a rejected token",
        "engine/sessions/session.py",
        "forward.cache.truncate(self._computed)\n        self._check",
        "self._check",
        ("tests/engine/sessions/test_session.py",),
    ),
    Mutant(
        "an exactness check that passes over the last rows",
        "engine/verifiers/exactness.py",
        "same = same and _every_row_agrees(verifier, case, count)",
        "same = same and _every_row_agrees(verifier, case, count - 1)",
        ("tests/engine/verifiers/test_exactness.py",),
    ),
    Mutant(
        "a prefill that leaves out a token",
        "engine/sessions/session.py",
        "self._history[self._computed : self._computed + count], want_logits=False",
        "self._history[self._computed + 1 : self._computed + count + 1], want_logits=False",
        ("tests/engine/sessions/test_session.py",),
    ),
    # ---- Sessions are isolated
    Mutant(
        "a leak of another session's keys and values",
        "engine/memory/slab_pool.py",
        "self._clean(spare.payload)",
        "pass",
        ("tests/engine/memory/test_slab_pool.py",),
    ),
    Mutant(
        "a fork that writes into its source",
        "engine/memory/slab_pool.py",
        "if slab.holders == 1:\n                return slab",
        "if slab.holders >= 1:\n                return slab",
        ("tests/engine/memory/test_slab_pool.py",),
    ),
    Mutant(
        "a session twice in one forward",
        "engine/sessions/turn_queue.py",
        "and id(turn.session) not in served",
        "",
        ("tests/engine/sessions/test_turns_queue.py",),
    ),
    Mutant(
        "an archive for whoever asks",
        "node/roles/archive/archives.py",
        "if archive is None or archive.attached:\n                raise _not_found(archive_id)\n"
        "            archive.attached",
        "if archive is None:\n                raise _not_found(archive_id)\n"
        "            archive.attached",
        ("tests/node/roles/archive/test_archives.py",),
    ),
    # ---- Memory is measured
    Mutant(
        "a session admitted beyond the budget",
        "engine/sessions/session_registry.py",
        "if missing <= 0:\n            return True",
        "if missing <= needed:\n            return True",
        ("tests/engine/sessions/test_session_registry.py",),
    ),
    Mutant(
        "a session evicted in the middle of an operation",
        "engine/sessions/session_registry.py",
        "elif not record.held and record.idle_seconds(now) >= record.ttl_seconds:",
        "elif now - record.last_used_at >= record.ttl_seconds:",
        ("tests/engine/sessions/test_session_registry.py",),
    ),
    Mutant(
        "shared memory that counts as free",
        "engine/memory/slab_pool.py",
        "self._reserve(slab, slab.copies_reserved + 1)",
        "self._reserve(slab, slab.copies_reserved)",
        ("tests/engine/memory/test_slab_pool.py",),
    ),
    # ---- Nothing is lost
    Mutant(
        "a retry that doubles tokens",
        "engine/sessions/history_checks.py",
        "expected_length != history_length:",
        "expected_length > history_length:",
        ("tests/engine/sessions/test_session.py",),
    ),
    Mutant(
        "a creation that is sent again and opens a second session",
        "engine/sessions/session_registry.py",
        "if earlier is not None:\n                    return earlier",
        "",
        ("tests/engine/sessions/test_session_registry.py",),
    ),
    Mutant(
        "a digest not compared when a session goes on elsewhere",
        "sdks/python/kakeya/successor.py",
        "and there.weights_digest == offer.weights_digest",
        "",
        ("tests/sdk/test_resume.py",),
    ),
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
    # ---- No silent substitution
    Mutant(
        "a bound not checked",
        "engine/sessions/history_checks.py",
        "if history_length + count > history_limit:",
        "if count > history_limit:",
        ("tests/engine/sessions/test_session.py",),
    ),
    Mutant(
        "a token outside the vocabulary taken",
        "engine/sessions/history_checks.py",
        "max(token_ids) < size",
        "max(token_ids) <= size",
        ("tests/engine/sessions/test_session.py",),
    ),
    Mutant(
        "logits that are no numbers sampled from",
        "engine/sampling/choice.py",
        "if not math.isfinite(row[best]):",
        "if math.isinf(row[best]):",
        ("tests/engine/sampling/test_sampling.py",),
    ),
    Mutant(
        "a proposer of another tokenizer paired",
        "fleet/placement/pairing_rules.py",
        "not offer.tokenizer_digest or offer.tokenizer_digest != verifier_offer.tokenizer_digest",
        "not offer.tokenizer_digest",
        ("tests/fleet/test_placement.py",),
    ),
    Mutant(
        "a drafter made for other weights paired",
        "fleet/placement/pairing_rules.py",
        'if offer.target_weights_digest not in ("", verifier_offer.weights_digest):',
        "if False:",
        ("tests/fleet/test_placement.py",),
    ),
    Mutant(
        "a digest that leaves out the weights' names",
        "engine/models/digests.py",
        'digest.update(path.name.encode() + b"\\0" + path.stat().st_size.to_bytes(8, "big"))',
        'digest.update(path.stat().st_size.to_bytes(8, "big"))',
        ("tests/engine/models/test_model_folder.py",),
    ),
    # ---- What is evicted is restored
    Mutant(
        "a merge that depends on the order",
        "engine/backends/torch_backend/segment_products.py",
        "highest = torch.maximum(maximum, more_maximum)",
        "highest = maximum.clone()",
        ("tests/contract/test_kernels_contract.py",),
    ),
    Mutant(
        "an evicted position seen twice",
        "engine/restoration/evicted_slots.py",
        "(slots <= queries[:, None] - window)",
        "(slots <= queries[:, None] - window + 1)",
        ("tests/engine/restoration/test_evicted_slots.py",),
    ),
    Mutant(
        "a position that leaves the window undeposited",
        "engine/kv/handover.py",
        "end = length + count - self._spec.window",
        "end = length + count - self._spec.window - 1",
        ("tests/engine/restoration/test_restored_cache.py",),
    ),
    # ---- Who is in the fleet
    Mutant(
        "a dead node that cannot refute",
        "fleet/membership/membership.py",
        "needed = own.card.incarnation + 1 if told.accused else -1",
        "needed = own.card.incarnation if told.accused else -1",
        ("tests/fleet/test_membership.py",),
    ),
    Mutant(
        "a signature not verified",
        "fleet/membership/registry.py",
        "if not self._verify(card.public_key, card_message(signed.card_bytes), signed.signature):",
        "if not signed.signature:",
        ("tests/fleet/test_registry.py",),
    ),
    Mutant(
        "a node sent away by another",
        "fleet/membership/registry.py",
        "if not self._verify(record.signed.card.public_key, message, rumour.signature):",
        "if not message:",
        ("tests/fleet/test_registry.py",),
    ),
    Mutant(
        "the last card heard wins",
        "fleet/membership/registry.py",
        "if held is None or version > held.version:",
        "if held is None or version != held.version:",
        ("tests/fleet/test_registry.py",),
    ),
    Mutant(
        "a registry without a bound",
        "fleet/membership/registry.py",
        "if node_id in self._records or len(self._records) < self._limit:",
        "if node_id in self._records or len(self._records) <= self._limit:",
        ("tests/fleet/test_registry.py",),
    ),
    Mutant(
        "a suspect buried before its time",
        "fleet/membership/detection.py",
        "if suspicion.is_own and now - suspicion.since >= seconds:",
        "if suspicion.is_own and now - suspicion.since >= seconds / 4:",
        ("tests/fleet/test_membership.py",),
    ),
    Mutant(
        "a node buried because others say so",
        "fleet/membership/registry.py",
        "return Liveness.SUSPECT if liveness is Liveness.DEAD else liveness",
        "return liveness",
        ("tests/fleet/test_registry.py",),
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
        "a liar that alternates forgiven",
        "engine/speculation/breaker.py",
        "debt = self.debt - PAID_BY_A_GOOD_BLOCK",
        "debt = 0.0",
        ("tests/engine/speculation/test_breaker.py",),
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
)
