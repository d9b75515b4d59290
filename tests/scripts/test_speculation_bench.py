"""The benchmark of the shipped pair: its prompts, its ratios, and a quick run of two agents."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import scripts.bench.speculation as bench_speculation
from scripts.bench.fleet_answers import Measured
from scripts.bench.package_code import package_files, package_versions
from scripts.bench.prompt_kinds import KINDS, prompts
from scripts.bench.speculation_sides import Cell, Side, fastest_plain, repeated_share, sides
from scripts.plot.looks import begin
from scripts.plot.speculation import draw
from scripts.train.python_corpus import SourceFile

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "engine" / "shipped" / "tiny"

WORDS = " ".join(f"word{index}" for index in range(60))
FILES = [
    SourceFile(f"{name}.py", f'"""Says {name}. {WORDS}"""\nimport os\n' + f"{name} = os.sep\n" * 40)
    for name in ("alpha", "beta", "gamma")
]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(SHIPPED)


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_of_one_length_and_the_same_every_time(
    tokenizer: PreTrainedTokenizerFast, kind: str
) -> None:
    got = prompts(kind, tokenizer, FILES, count=3, tokens=24, seed=5)
    assert [len(prompt) for prompt in got] == [24] * 3
    assert len({tuple(prompt) for prompt in got}) == 3
    assert got == prompts(kind, tokenizer, FILES, count=3, tokens=24, seed=5)
    assert all(0 <= token < len(tokenizer) for prompt in got for token in prompt)


def test_prose_is_docstrings_and_too_little_of_it_is_told(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    for prompt in prompts("prose", tokenizer, FILES, count=3, tokens=24, seed=1):
        text = tokenizer.decode(prompt)
        assert text.startswith("Says ")
        assert "import" not in text
    with pytest.raises(ValueError, match="3 of 4 prose"):
        prompts("prose", tokenizer, FILES, count=4, tokens=24, seed=1)


def measured(*speeds: float) -> Measured:
    found = Measured()
    for speed in speeds:
        found.add(100, 100 / speed, None)
    return found


def test_ratios_are_to_the_fastest_plain_side_answer_by_answer() -> None:
    kv = "sink_window"
    figures = {
        Side("remote", kv): measured(200.0, 300.0, 400.0),
        Side("in_process", kv): measured(400.0, 400.0, 400.0),
        Side("alone", kv): measured(100.0, 100.0, 400.0),
        Side("alone", "full"): measured(90.0, 90.0, 90.0),
        Side("transformers", "full"): measured(100.0, 190.0, 200.0),
        Side("transformers_static", "full"): measured(100.0, 200.0, 200.0),
    }
    assert set(figures) == set(sides([kv]))
    assert fastest_plain(figures) == Side("transformers_static", "full")
    got = Cell(figures, prompts=[0, 1, 2]).summary()
    assert got["fastest_plain"] == "transformers_static"
    remote = got["ratios"]["remote sink_window"]
    assert remote["over_fastest_plain"]["median"] == 2.0
    assert remote["over_alone_with_the_same_kv"]["median"] == 2.0
    assert remote["over_fastest_plain"]["count"] == 3


def test_answers_to_one_prompt_are_one_case() -> None:
    alone, remote = measured(100.0, 100.0, 100.0, 100.0), measured(100.0, 400.0, 300.0, 400.0)
    figures = {Side("alone", "full"): alone, Side("remote", "full"): remote}
    got = Cell(figures, prompts=[0, 1, 0, 1]).summary()["ratios"]["remote full"]
    assert got["over_fastest_plain"] == {"median": 3.0, "interval_95": [2.0, 4.0], "count": 2}


def test_another_proposer_drafts_beside_the_pairs_own() -> None:
    found = sides(["sink_window", "restored:archive"], ["ngram"])
    names = [side.name for side in found if side.proposer]
    assert names == ["remote sink_window ngram", "in_process sink_window ngram"]
    assert len({side.name for side in found}) == len(found)


def test_what_repeats_ends_as_many_tokens_as_were_there() -> None:
    once = list(range(8))
    assert repeated_share(once, [100, *once]) == pytest.approx(1 / 9)
    assert repeated_share(once, [*once, *once]) == pytest.approx(9 / 16)
    assert repeated_share([], list(range(40))) == 0.0
    # A loop of one token repeats but for its beginning.
    assert repeated_share([5], [5] * 40) == pytest.approx(33 / 40)
    with pytest.raises(ValueError, match="empty"):
        repeated_share(once, [])


def test_packages_are_pinned_and_no_part_of_the_training_corpus(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    assert {name: pins.get(name) for name in package_versions()} == package_versions()
    files = package_files(["jinja2"])
    assert files == package_files(["jinja2"])
    assert all(file.name.startswith("jinja2/") for file in files)
    got = prompts("package", tokenizer, files, count=3, tokens=24, seed=1)
    assert [len(prompt) for prompt in got] == [24] * 3
    with pytest.raises(LookupError, match="no-such-package"):
        package_files(["no-such-package"])


def test_a_side_asks_for_its_own_way_of_keeping_keys_and_values() -> None:
    assert Side("alone", "full").session_options(4, 64) == {"kv_strategy": "full"}
    assert Side("remote", "restored:archive").session_options(4, 64) == {
        "kv_strategy": "restored",
        "sink_tokens": 4,
        "window_tokens": 64,
        "restorer": "archive",
    }


def test_a_quick_run_of_two_agents(
    random_checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A ring that is tried takes two processes.
    monkeypatch.setenv("KAKEYA_LINKS", "grpc")
    folder = tmp_path / "verifier"
    shutil.copytree(random_checkpoint(vocab_size=4096, max_position_embeddings=512), folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / name, folder / name)
    target = tmp_path / "speculation.json"
    words = ["--quick", "--verifier", str(folder), "--proposer", "ngram", "--kinds", "random"]
    kv = ["--kv", "sink_window", "restored:archive", "--window", "32"]
    bench_speculation.main([*words, *kv, "--out", str(target)])
    report = json.loads(target.read_text())
    assert [(cell["kind"], cell["sampling"]) for cell in report["cells"]] == [
        ("random", "greedy"),
        ("random", "sampled"),
    ]
    for cell in report["cells"]:
        assert len(cell["sides"]) == 9
        assert 0.0 <= cell["repeated_share"]["sink_window"]["median"] <= 1.0
        assert 0.0 < cell["sides"]["remote sink_window"]["loop_efficiency"]["median"] <= 1.0
        assert all(side["tokens_per_second_median"] > 0 for side in cell["sides"].values())
        assert cell["sides"]["alone full"]["tokens_per_forward"] == 1.0
    assert set(report["verdict"]) == {"sink_window", "restored:archive"}
    assert "random_over_plain_greedy" in report["verdict"]["sink_window"]
    assert "| random | sampled | restored:archive |" in target.with_suffix(".md").read_text()
    begin()
    for copy in "ab":
        draw(report, tmp_path / f"{copy}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
