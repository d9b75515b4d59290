"""Faults of `fleet/`: who is there, and who serves whom."""

from scripts.mutants.mutant import Mutant

MUTANTS = (
    # ---- A quality is what was measured
    Mutant(
        "a codec of fewer bits taken by its mean alone",
        "fleet/placement/codec_choice.py",
        "if found.is_settled and found.most < tolerance / 2:",
        "if found.is_settled and found.mean < tolerance / 2:",
        ("tests/fleet/test_codec_choice.py",),
    ),
    Mutant(
        "a quality that gets fewer bits again",
        "fleet/placement/codec_choice.py",
        'return "" if standing.is_raised or place == len(LADDER) else LADDER[place]',
        'return "" if place == len(LADDER) else LADDER[place]',
        ("tests/fleet/test_codec_choice.py",),
    ),
    # ---- No silent substitution
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
        "fleet/membership/merge_rules.py",
        "if not self._verify(card.public_key, card_message(signed.card_bytes), signed.signature):",
        "if not signed.signature:",
        ("tests/fleet/test_registry.py",),
    ),
    Mutant(
        "a node sent away by another",
        "fleet/membership/merge_rules.py",
        "if not self._verify(held.signed.card.public_key, message, rumour.signature):",
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
        "a claim that is taken at its word",
        "fleet/placement/draft_costs.py",
        "max(possible, UNMEASURED_FACTOR * usual)",
        "possible",
        ("tests/fleet/test_draft_costs.py",),
    ),
    Mutant(
        "a suspect buried before its time",
        "fleet/membership/detection.py",
        "        if now - suspicion.since >= seconds:",
        "        if now - suspicion.since >= seconds / 4:",
        ("tests/fleet/test_membership.py",),
    ),
    Mutant(
        "a node buried because others say so",
        "fleet/membership/merge_rules.py",
        "return Liveness.SUSPECT if liveness is Liveness.DEAD else liveness",
        "return liveness",
        ("tests/fleet/test_registry.py",),
    ),
    Mutant(
        "a try at an invitation that is not counted while it lasts",
        "fleet/trust/invitation.py",
        "        record.tries += 1\n",
        "        record.tries += not record.pending\n",
        ("tests/fleet/trust/test_invitation.py",),
    ),
    Mutant(
        "an invitation that is good for two",
        "fleet/trust/invitation.py",
        "        if record is not None and not record.is_used:\n            return record",
        "        if record is not None:\n            return record",
        ("tests/fleet/trust/test_invitation.py",),
    ),
)
