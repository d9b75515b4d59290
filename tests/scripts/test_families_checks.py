"""The checks behind the table of families: each holds for an exact verifier and finds its fault."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.sampling.choice import GREEDY
from scripts.eval.families_checks import CHECKS, PROMPT_TOKENS, greedy_equals, history
from scripts.eval.families_table import COLUMNS, Row, check, markdown
from tests.support import hash_verifier as hashing

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def exact() -> hashing.HashVerifier:
    return hashing.HashVerifier()


@pytest.fixture
def blockwise() -> hashing.HashVerifier:
    """Its logits depend on how many tokens share a forward."""

    class Blockwise(hashing.HashVerifier):
        def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
            outputs = super().forward_batch(feeds)
            for feed, output in zip(feeds, outputs, strict=True):
                if output.logits is not None and len(feed.token_ids) > 1:
                    output.logits[:, 3] += 2.0
            return outputs

    return Blockwise()


@pytest.fixture
def leaving_traces() -> hashing.HashVerifier:
    """Behind a rollback that cut something off it computes something else."""

    class LeavingTraces(hashing.HashVerifier):
        def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
            caches = [feed.cache for feed in feeds if isinstance(feed.cache, hashing.HashCache)]
            cut = [cache.written > cache.length for cache in caches]
            outputs = super().forward_batch(feeds)
            for was_cut, output in zip(cut, outputs, strict=True):
                if was_cut and output.logits is not None:
                    output.logits[:, 3] += 2.0
            return outputs

    return LeavingTraces()


@pytest.fixture
def sharing_writes(monkeypatch: pytest.MonkeyPatch) -> hashing.HashVerifier:
    """Forks write into memory that they still share."""
    verifier = hashing.HashVerifier()
    monkeypatch.setattr(verifier.pool, "writable", lambda slab, _make, _copy: slab)
    return verifier


@pytest.mark.parametrize(
    ("name", "failing"),
    [
        ("exact", set()),
        ("blockwise", {"speculation", "chunking"}),
        # A fork of a prefix cuts off as well.
        ("leaving_traces", {"speculation", "rollback", "fork"}),
        ("sharing_writes", {"fork"}),
    ],
)
def test_each_check_finds_its_faults_and_no_others(
    name: str, failing: set[str], request: pytest.FixtureRequest
) -> None:
    verifier = request.getfixturevalue(name)
    assert {column for column, holds in CHECKS.items() if not holds(verifier)} == failing


def test_greedy_is_compared_token_by_token(exact: hashing.HashVerifier) -> None:
    prompt = history(PROMPT_TOKENS, exact.info.vocabulary_size)
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=100)
    stream = hashing.expected_stream(prompt, spec, 20, GREEDY)
    assert greedy_equals(exact, [*prompt, *stream])
    wrong = (stream[-1] + 1) % exact.info.vocabulary_size
    assert not greedy_equals(exact, [*prompt, *stream[:-1], wrong])


def test_a_row_says_in_which_dtypes_a_promise_holds() -> None:
    row = Row("Qwen3", "torch")
    row.add("chunking", "float32", True)
    row.add("chunking", "bfloat16", False)
    row.add("fork", "float32", True)
    row.add("rollback", "float32", False)
    assert row.cell("chunking") == "fp32 only"
    assert row.cell("fork") == "yes"
    assert row.cell("rollback") == "no"
    assert row.cell("speculation") == ""
    (*_, line) = markdown([row]).splitlines()
    assert line.split(" | ")[:2] == ["| Qwen3", "torch"]
    assert "fp32 only" in line


def test_a_refused_family_has_the_reason_in_its_row(tmp_path: Path) -> None:
    path = tmp_path / "refused"
    path.mkdir()
    (path / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    row = Row("GPT 2", "torch")
    check(row, path, "float32", [])
    assert row.found == {}
    assert "GPT2LMHeadModel" in markdown([row])
    assert len(markdown([row]).splitlines()[-1].split("|")) == len(COLUMNS) + 4
