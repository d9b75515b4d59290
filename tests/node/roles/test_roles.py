"""What a node serves: specs, offers, and what must not be loaded for them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kakeya_fleet.engine.errors import ModelNotFound
from kakeya_fleet.fleet.cards.card import ModelKind, Role
from kakeya_fleet.node.config.role_spec import (
    BadRoleSpec,
    RoleSpec,
    parse_role_spec,
)
from kakeya_fleet.node.roles.expected_roles import ExpectedRoles
from kakeya_fleet.node.roles.settings import RoleSettings
from tests.support import neighbourhood as nodes


def test_specs_name_role_and_model() -> None:
    assert parse_role_spec("verifier=tiny") == RoleSpec(Role.VERIFIER, "tiny")
    assert parse_role_spec("proposer=ngram") == RoleSpec(Role.PROPOSER, "ngram")
    assert parse_role_spec("verifier=/models/a=b") == RoleSpec(Role.VERIFIER, "/models/a=b")


@pytest.mark.parametrize("text", ["", "tiny", "verifier", "verifier=", "=tiny", "archive=x", "V=x"])
def test_a_bad_spec_says_how_to_write_it(text: str) -> None:
    with pytest.raises(BadRoleSpec, match=r"write (verifier=MODEL, proposer=ngram|archive=AMOUNT)"):
        parse_role_spec(text)


def test_the_same_spec_twice_is_refused() -> None:
    with pytest.raises(BadRoleSpec, match="twice"):
        ExpectedRoles(["proposer=ngram", "verifier=tiny", "proposer=ngram"])


def test_an_archive_larger_than_the_machine_is_refused() -> None:
    with pytest.raises(BadRoleSpec, match=r"8\.0 TiB is more than the .* of this machine"):
        ExpectedRoles(["archive=8TiB"])


def test_what_is_told_is_awaited_until_it_came_or_is_forgotten() -> None:
    expected = ExpectedRoles(["verifier=tiny", "proposer=ngram"])
    lookup, archive = RoleSpec(Role.PROPOSER, "ngram"), RoleSpec(Role.ARCHIVE, "1MiB")
    expected.arrived(lookup)
    assert expected.awaited == {Role.VERIFIER}
    assert expected.is_loading("tiny")
    with pytest.raises(BadRoleSpec, match="twice"):
        expected.add(lookup)
    expected.add(archive)
    with pytest.raises(BadRoleSpec, match="2 archives"):
        expected.add(RoleSpec(Role.ARCHIVE, "2MiB"))
    assert expected.awaited == {Role.VERIFIER, Role.ARCHIVE}
    expected.forget(archive)
    expected.forget(lookup)
    assert expected.specs == (RoleSpec(Role.VERIFIER, "tiny"),)
    expected.add(lookup)
    assert expected.awaited == {Role.VERIFIER, Role.PROPOSER}


async def test_unknown_models_are_named() -> None:
    for spec in ("proposer=nobody", "verifier=/nowhere/at/all"):
        roles = nodes.roles_of(spec)
        with pytest.raises(ModelNotFound, match=r"nobody|nowhere"):
            await roles.load()
        assert roles.offers() == ()
        await roles.close()


async def test_offers_carry_what_was_measured(checkpoint: Path) -> None:
    settings = RoleSettings(kv_budget_bytes=1 << 20)
    roles = nodes.roles_of(f"verifier={checkpoint}", "proposer=ngram", settings=settings)
    await roles.load()
    verifier, proposer = roles.offers()
    assert roles.served() == {Role.VERIFIER, Role.PROPOSER}
    assert (verifier.model_id, verifier.kind) == ("random", ModelKind.AUTOREGRESSIVE)
    assert verifier.exact
    assert len(verifier.tokenizer_digest) == len(verifier.weights_digest) == 64
    assert verifier.context_length == 4096
    assert proposer.tokenizer_digest == proposer.weights_digest == ""
    assert (proposer.kind, proposer.vocabulary_size) == (ModelKind.NGRAM, 0)
    for offer in (verifier, proposer):
        counts = [cost.token_count for cost in offer.step_costs]
        assert counts == sorted(set(counts))
        assert all(cost.seconds > 0 for cost in offer.step_costs)
    load = roles.load_numbers()
    assert (load.session_count, load.kv_budget_bytes) == (0, 1 << 20)
    await roles.close()


@pytest.mark.wide
def test_a_node_that_serves_ngram_alone_imports_no_tensor_library() -> None:
    program = """
import asyncio, sys, grpc
from types import SimpleNamespace
from kakeya_fleet.node.app.roles import Roles
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.expected_roles import ExpectedRoles
from kakeya_fleet.node.roles.settings import RoleSettings

async def main():
    fleet = SimpleNamespace(self_id="self", boot_id=lambda node_id: "")
    roles = Roles(ExpectedRoles(["proposer=ngram"]), RoleSettings(), fleet, NodeMetrics())
    await roles.load()
    roles.register(grpc.aio.server())
    await roles.close()

asyncio.run(main())
print(sorted(set(sys.modules) & {"torch", "transformers", "safetensors", "mlx"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr


async def test_two_verifiers_of_one_name_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    """Requests name a model: the second one would quietly take the first one's place."""
    twin = tmp_path / checkpoint.name
    shutil.copytree(checkpoint, twin)
    settings = RoleSettings(kv_budget_bytes=1 << 20)
    roles = nodes.roles_of(f"verifier={checkpoint}", f"verifier={twin}", settings=settings)
    before = workers()
    with pytest.raises(BadRoleSpec, match="rename"):
        await roles.load()
    assert len(roles.offers()) == 1
    assert workers() == before + 1
    await roles.close()
    assert workers() == before


def workers() -> int:
    return sum(thread.name == "verifier-random" for thread in threading.enumerate())


async def test_a_proposer_follows_the_nodes_back_end_and_drafts_in_its_own_thread() -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    served = {}
    for backend in ("torch", "mlx"):
        roles = nodes.roles_of("proposer=tiny-dflash", settings=RoleSettings(backend=backend))
        await roles.load()
        (offer,) = roles.offers()
        assert offer.backend == backend
        served[backend] = offer
        proposer = roles.proposer.by_model["tiny-dflash"]
        if backend == "mlx":
            for tokens in (1, 10_000):
                name = await proposer.runner(tokens)(lambda: threading.current_thread().name)
                assert name == "proposer-tiny-dflash"
        await roles.close()
    assert served["torch"].encoder_digest == served["mlx"].encoder_digest
    assert served["torch"].target_weights_digest == served["mlx"].target_weights_digest
