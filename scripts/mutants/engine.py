"""Faults of `engine/`: models, caches, sessions and the speculative loop."""

from scripts.mutants.mutant import Mutant

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
    # ---- Memory is measured
    Mutant(
        "a session admitted beyond the budget",
        "engine/sessions/session_registry.py",
        "if missing <= 0:\n            return True",
        "if missing <= needed:\n            return True",
        ("tests/engine/sessions/test_session_eviction.py",),
    ),
    Mutant(
        "a session evicted in the middle of an operation",
        "engine/sessions/session_registry.py",
        "elif not record.held and record.idle_seconds(now) >= record.ttl_seconds:",
        "elif now - record.last_used_at >= record.ttl_seconds:",
        ("tests/engine/sessions/test_session_eviction.py",),
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
    # ---- Nobody stops a node
    Mutant(
        "a liar that alternates forgiven",
        "engine/speculation/breaker.py",
        "debt = self.debt - PAID_BY_A_GOOD_BLOCK",
        "debt = 0.0",
        ("tests/engine/speculation/test_breaker.py",),
    ),
    Mutant(
        "a newcomer left without memory by who has most of it",
        "engine/sessions/making_way.py",
        "most = equal",
        "most = None",
        ("tests/engine/sessions/test_making_way.py",),
    ),
)
