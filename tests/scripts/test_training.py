"""The training script end to end at toy size, and the shipped verifier that it made."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

import scripts.train.python_corpus as python_corpus
import scripts.train.verifier as train_verifier
from scripts.eval.recall import Rung
from scripts.eval.recall_measure import Budget, attention_mask, greedy_hits, wilson_interval
from scripts.eval.recall_task import (
    ANSWER,
    IGNORED,
    REPEATED,
    RecallFormat,
    absent_case,
    distant_repeat_row,
    recall_case,
    recall_format,
    repeated_row,
    training_row,
)
from scripts.train.checkpoint import CHECKPOINT_NAME
from scripts.train.export import file_sha256
from scripts.train.presets import PRESETS, TINY

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "engine" / "shipped" / "tiny"

NOT_COMPILED = ("--compile-up-to", "0")
SOURCE = python_corpus.standard_library() / "json"


@pytest.fixture(autouse=True)
def torch_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what training sets for the whole process; ask little of what was trained."""
    monkeypatch.setattr(train_verifier, "QUICK_LENGTHS", (128,))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(mode=False)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(SHIPPED)


@pytest.fixture(scope="module")
def form(tokenizer: PreTrainedTokenizerFast) -> RecallFormat:
    return recall_format(tokenizer)


@pytest.fixture(scope="module")
def code(tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    return python_corpus.encode(tokenizer, python_corpus.read_corpus(SOURCE))


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, 0]))


def run(work: Path, *more: str) -> dict[str, torch.Tensor]:
    """Train the test preset and return the weights that it ends with."""
    train_verifier.main(
        ["--preset", "test", "--work", str(work), "--corpus", str(SOURCE), *NOT_COMPILED, *more]
    )
    weights: dict[str, torch.Tensor] = torch.load(work / CHECKPOINT_NAME, weights_only=True)[
        "model"
    ]
    return weights


def test_an_interrupted_run_ends_with_the_weights_of_a_whole_one_and_says_so(
    tmp_path: Path,
) -> None:
    whole = run(tmp_path / "whole", "--finish-at", "6")
    paused = run(tmp_path / "parts", "--stop-at", "2")
    exported = tmp_path / "model"
    resumed = run(tmp_path / "parts", "--finish-at", "6")
    run(tmp_path / "parts", "--finish-at", "6", "--export", str(exported))
    assert not torch.equal(paused["model.norm.weight"], resumed["model.norm.weight"])
    assert whole.keys() == resumed.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name
    manifest = json.loads((exported / "training.json").read_text())
    assert manifest["run"]["step"] == manifest["run"]["planned_steps"] == 6
    resume = {"step": 2, "planned_steps": 6, "workers": 1, "threads": 2}
    assert manifest["run"]["resumes"] == [resume]
    assert manifest["model"]["weights_sha256"] == file_sha256(exported / "model.safetensors")
    assert AutoModelForCausalLM.from_pretrained(exported).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="seed"):
        run(tmp_path / "parts", "--seed", "2")


def test_rates_warm_up_hold_and_fall_to_zero() -> None:
    for name, preset in PRESETS.items():
        rates = [preset.rate_factor(step) for step in range(preset.steps + 1)]
        assert rates[preset.warmup_steps] == 1.0 == max(rates), name
        assert rates[-1] == 0.0, name
        decaying = sum(stage.steps for stage in preset.stages if stage.decays)
        assert rates.count(1.0) >= preset.steps - preset.warmup_steps - decaying, name


def test_a_shortened_preset_keeps_its_decay_whole() -> None:
    short = TINY.shortened(TINY.stages[0].steps + TINY.stages[-1].steps + 10)
    assert short.stages[0] == TINY.stages[0]
    assert short.stages[1].steps == 10
    assert short.stages[-1] == TINY.stages[-1]
    with pytest.raises(ValueError, match="last stage"):
        TINY.shortened(TINY.stages[-1].steps - 1)


def test_a_training_row_asks_only_for_facts_that_came_before(
    form: RecallFormat, code: np.ndarray
) -> None:
    generator = rng()
    for _ in range(20):
        row = training_row(generator, form, code, length=400, facts=6, questions=9)
        assert row.tokens.shape == row.targets.shape == (401,)
        answers = np.flatnonzero(row.targets == ANSWER)
        assert answers.size == 9
        for position in answers:
            key, equals, value = row.tokens[position - 2 : position + 1]
            assert equals == form.equals
            fact = form.fact(key, value)
            earlier = [
                start
                for start in range(position - fact.size)
                if np.array_equal(row.tokens[start : start + fact.size], fact)
            ]
            assert len(earlier) == 1
            assert (row.targets[earlier[0] : earlier[0] + fact.size] == IGNORED).all()
    with pytest.raises(ValueError, match="do not fit"):
        training_row(generator, form, code, length=20, facts=2, questions=2)


def test_the_second_copy_of_a_stretch_is_marked_wherever_it_stands(
    form: RecallFormat, code: np.ndarray
) -> None:
    generator = rng()
    row = repeated_row(generator, code, 63)
    assert (row.targets == REPEATED).sum() == 32
    assert np.array_equal(row.tokens[row.targets == REPEATED], row.tokens[:32])
    distances = set()
    for _ in range(20):
        row = distant_repeat_row(generator, form, code, 128)
        again = np.flatnonzero(row.targets == REPEATED)
        assert row.tokens.shape == row.targets.shape == (129,)
        assert np.array_equal(row.tokens[again], row.tokens[: again.size])
        distances.add(int(again[0]))
    assert len(distances) > 5


@pytest.mark.parametrize(("context", "facts"), [(64, 1), (1000, 4)])
def test_a_case_is_a_function_of_its_generator_and_its_fact_lies_where_it_says(
    form: RecallFormat, code: np.ndarray, context: int, facts: int
) -> None:
    depths = []
    first, second = rng(), rng()
    for _ in range(50):
        case = recall_case(first, form, code, context, facts)
        again = recall_case(second, form, code, context, facts)
        assert np.array_equal(case.prompt, again.prompt)
        assert case.fact_start == again.fact_start
        assert case.prompt.shape == (context,)
        key = case.prompt[-2]
        fact = form.fact(key, case.answer[0])
        end = case.fact_start + fact.size
        assert np.array_equal(case.prompt[case.fact_start : end], fact)
        assert (case.prompt == key).sum() == 2
        depths.append(case.depth)
    assert min(depths) < 0.2
    assert max(depths) > 0.7


def test_an_absent_key_is_nowhere_and_the_fact_there_is_what_a_copy_says(
    form: RecallFormat, code: np.ndarray
) -> None:
    for seed in range(20):
        case = absent_case(rng(seed), form, code, 200)
        assert case.prompt.shape == (200,)
        fact = case.prompt[case.fact_start : case.fact_start + form.line_tokens]
        assert fact[-1] == case.answer[0]
        key = case.prompt[-2]
        assert (case.prompt == key).sum() == 1
        assert key not in (fact[-3], case.answer[0])
        assert key in form.words


def test_inserted_lines_read_as_the_tokenizer_would_have_split_them(
    tokenizer: PreTrainedTokenizerFast, form: RecallFormat, code: np.ndarray
) -> None:
    case = recall_case(rng(), form, code, 300)
    text = tokenizer.decode(case.prompt)
    key, value = (tokenizer.decode([index]) for index in (case.prompt[-2], case.answer[0]))
    assert f"\n# fact:{key} ={value}\n" in text
    assert text.endswith(f"\n# recall:{key} =")
    question = form.question(case.prompt[-2])
    assert tokenizer.encode(text)[-question.size :] == question.tolist()


def test_the_mask_keeps_sink_and_window_by_absolute_position() -> None:
    seen = attention_mask(20, Budget(sink=2, window=5), torch.device("cpu"))[0, 0]
    for query in range(20):
        expected = [key <= query and (key < 2 or key > query - 5) for key in range(20)]
        assert seen[query].tolist() == expected


def test_the_interval_holds_the_share_and_stays_in_bounds() -> None:
    low, high = wilson_interval(90, 100)
    assert (round(low, 4), round(high, 4)) == (0.8256, 0.9448)
    assert wilson_interval(0, 100)[0] == 0.0
    assert wilson_interval(100, 100)[1] == 1.0


def test_the_held_out_files_are_a_small_share_and_decided_by_name() -> None:
    names = [f"package/module_{number}.py" for number in range(2000)]
    held_out = [name for name in names if python_corpus.is_held_out(name)]
    assert 0.02 < len(held_out) / len(names) < 0.06
    assert not python_corpus.is_accepted("site-packages/numpy/core.py")
    assert not python_corpus.is_accepted("unittest/test/test_case.py")
    assert python_corpus.is_accepted("json/decoder.py")


def test_the_shipped_manifest_describes_the_shipped_files() -> None:
    manifest = json.loads((SHIPPED / "training.json").read_text())
    evaluation = json.loads((SHIPPED / "evaluation.json").read_text())
    weights = file_sha256(SHIPPED / "model.safetensors")
    assert manifest["model"]["weights_sha256"] == weights == evaluation["weights_sha256"]
    assert manifest["model"]["tokenizer_sha256"] == file_sha256(SHIPPED / "tokenizer.json")
    assert manifest["run"]["step"] == manifest["run"]["planned_steps"]
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 10_000_000


def test_the_shipped_verifier_recalls_with_full_attention_and_not_with_sink_and_window(
    form: RecallFormat,
) -> None:
    evaluation = json.loads((SHIPPED / "evaluation.json").read_text())
    (claimed,) = [
        rung
        for rung in evaluation["recall"]
        if (rung["context_tokens"], rung["facts"]) == (1000, 1)
    ]
    assert claimed["full"]["cases"] >= 100
    assert claimed["full"]["hits"] >= 0.9 * claimed["full"]["cases"]
    assert claimed["sink_window"]["hits"] <= 0.15 * claimed["sink_window"]["cases"]
    evicted = claimed["sink_window"]["fact_evicted"]
    assert evicted["hits"] <= 0.05 * evicted["cases"]

    model = AutoModelForCausalLM.from_pretrained(SHIPPED, dtype=torch.float32).eval()
    held_out = [
        file
        for file in python_corpus.read_corpus(python_corpus.standard_library() / "asyncio")
        if python_corpus.is_held_out(f"asyncio/{file.name}")
    ]
    code = python_corpus.encode(AutoTokenizer.from_pretrained(SHIPPED), held_out)
    cases = Rung(1000, 1).cases(form, code, seed=11, count=8)
    assert greedy_hits(model, cases).sum() >= 6
    assert greedy_hits(model, cases, Budget(sink=4, window=64)).sum() <= 2
