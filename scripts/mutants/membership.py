"""Faults of `fleet/membership` that whole fleets show, in virtual time."""

from scripts.mutants.mutant import Mutant

FLEETS = "tests/fleet/test_simulated_fleet.py"
SIMULATOR = "tests/scripts/test_simulator.py"
STORMS = f"{SIMULATOR}::test_storms_are_weathered"

MUTANTS = (
    Mutant(
        "a merge that goes by who speaks last",
        "fleet/membership/record.py",
        "return (incarnation, liveness) > (self.version.incarnation, self.liveness)",
        "return liveness > self.liveness",
        (f"{FLEETS}::test_a_node_frozen_until_dead_rejoins_and_accuses_nobody", STORMS),
    ),
    Mutant(
        "a suspicion that never ends",
        "fleet/membership/detection.py",
        "        if now - suspicion.since >= seconds:",
        "        if now - suspicion.since >= 600 * seconds:",
        (f"{FLEETS}::test_a_death_among_ten_is_found_by_all_and_by_nobody_twice",),
    ),
    Mutant(
        "a node that refutes once in its life",
        "fleet/membership/membership.py",
        "if state.needed <= state.rising_to or state.is_leaving:",
        "if state.needed < 0 or state.rising_to > 0 or state.is_leaving:",
        (STORMS,),
    ),
    Mutant(
        "news that is not passed on",
        "fleet/membership/membership.py",
        "state.hot_cards.heat(node_id)\n        _welcome",
        "_welcome",
        (f"{SIMULATOR}::test_news_rides_on_messages_without_digests",),
    ),
    Mutant(
        "accusations that are not passed on",
        "fleet/membership/exchange.py",
        "if node_id != peer_id and record.liveness is not Liveness.ALIVE:",
        "if node_id == peer_id:",
        (f"{SIMULATOR}::test_farewells_ride_on_messages_without_digests",),
    ),
    Mutant(
        "nobody asked to help with a probe",
        "fleet/membership/detection.py",
        "if not helpers:\n",
        "if helpers or not helpers:\n",
        (f"{FLEETS}::test_a_one_way_cut_kills_nobody_in_ten_minutes", STORMS),
    ),
    Mutant(
        "the dead forgotten within a minute",
        "fleet/membership/registry.py",
        "else settings.tombstone_seconds\n",
        "else settings.tombstone_seconds / 8640\n",
        (f"{SIMULATOR}::test_the_dead_are_remembered_by_all_who_knew_them",),
    ),
    Mutant(
        "hearsay taken for own evidence",
        "fleet/membership/detection.py",
        "Suspicion(record.version.incarnation, since, doubt)",
        "Suspicion(record.version.incarnation, since - 60.0, doubt or Doubt(now, 9))",
        ("tests/fleet/test_forged_rumours.py", STORMS),
    ),
    Mutant(
        "a suspicion told after one round",
        "fleet/membership/detection.py",
        "doubt.round_count < rounds_to_suspicion(state.registry.live_count())",
        "doubt.round_count < 1",
        ("tests/fleet/test_membership.py",),
    ),
    Mutant(
        "a death found in too few rounds",
        "fleet/membership/suspicion.py",
        "return ALPHA if node_count >= ALPHA else 0",
        "return 0",
        ("tests/fleet/test_membership.py",),
    ),
    Mutant(
        "a newcomer that nobody calls",
        "fleet/membership/membership.py",
        "(state.newcomers if is_new else state.peers).add(node_id, rng)",
        "is_new or state.peers.add(node_id, rng)",
        (STORMS,),
    ),
    Mutant(
        "the dead never called again",
        "fleet/membership/seeking.py",
        "if record.liveness is Liveness.DEAD\n",
        "if record.liveness is Liveness.LEFT\n",
        (f"{FLEETS}::test_a_partition_of_a_minute_heals_in_thirty_seconds",),
    ),
    Mutant(
        "no digest told",
        "fleet/membership/exchange.py",
        "digest = None if root_hash == message.root_hash else _next_part(state)",
        "digest = None",
        (STORMS, f"{SIMULATOR}::test_whatever_the_network_did_all_agree_after_it"),
    ),
    Mutant(
        "a card ordered by its stamp",
        "fleet/membership/record.py",
        "        signed.card.sequence,\n        hashlib",
        "        int(signed.card.announced_at_unix) % 2**32,\n        hashlib",
        (STORMS,),
    ),
    Mutant(
        "the first one yields to its copy",
        "fleet/membership/clone_watch.py",
        "or lead_seconds > SURE_PERIODS * period_seconds",
        "or lead_seconds < -SURE_PERIODS * period_seconds",
        ("tests/fleet/test_clone_watch.py",),
    ),
    Mutant(
        "an address that is kept when the machine has it no more",
        "node/membership/own_addresses.py",
        "        self._hosts = found\n        return True",
        "        self._hosts = (*self._hosts, *found)\n        return True",
        ("tests/node/membership/test_own_addresses.py",),
    ),
    Mutant(
        "a channel that is kept when its way begins elsewhere",
        "node/membership/peers.py",
        "if source_towards(key[0]) != source",
        "if not source_towards(key[0])",
        ("tests/node/membership/test_peers.py",),
    ),
    Mutant(
        "a card judged once by the networks of then",
        "fleet/membership/registry.py",
        "if card is not None and card != record.card:",
        "if card is None and card != record.card:",
        ("tests/fleet/test_registry.py",),
    ),
)
