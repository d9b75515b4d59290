"""Prompts, a chat model's own answers to them, and the rows that a drafter is trained on."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import scripts.train.answers as train_answers
import scripts.train.asked as asked
import scripts.train.pair as train_pair
import scripts.train.prompt_sources as sources
import scripts.train.prompts as train_prompts
from scripts.train import python_corpus
from scripts.train.answering import answer, attention_of_one
from scripts.train.pair_card import write_card
from scripts.train.rows import RowBatch, read_rows
from scripts.train.topics import TOPICS, split
from tests.support.small_verifiers import require_device

SHIPPED = Path(__file__).resolve().parents[2] / "engine" / "shipped" / "tiny"
SHAPE = {
    "vocab_size": 4098,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(autouse=True)
def torch_settings() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "toy"
    torch.manual_seed(5)
    LlamaForCausalLM(LlamaConfig(**SHAPE)).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(target: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(target)


@pytest.mark.parametrize(
    "model",
    [LlamaForCausalLM(LlamaConfig(**SHAPE)), Qwen3ForCausalLM(Qwen3Config(**SHAPE))],
    ids=["llama", "qwen3"],
)
def test_answers_of_a_batch_are_those_of_the_library_one_by_one(model: PreTrainedModel) -> None:
    model = model.eval()
    rng = np.random.default_rng(2)
    prompts = [rng.integers(1, 4000, size) for size in (3, 17, 1, 9)]
    alone = [
        model.generate(torch.from_numpy(prompt)[None], max_new_tokens=40, do_sample=False)[0]
        for prompt in prompts
    ]
    # One that is said half way through an answer ends it there, wherever others stand.
    stop = int(alone[1][17 + 20])
    found = answer(model, prompts, np.zeros(4), 40, [0, stop], seed=1)
    for row, prompt, whole in zip(found, prompts, alone, strict=True):
        assert row.tolist() == whole.tolist()[: len(row)]
        said = whole.tolist()[len(prompt) :]
        ends = [at + 1 for at, token in enumerate(said) if token in (0, stop)]
        assert len(row) - len(prompt) == (ends[0] if ends else 40)


def test_a_temperature_is_of_a_row_and_draws_come_from_the_seed(target: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(target)
    prompts = [np.arange(5, 15), np.arange(5, 15)]
    heat = np.asarray([0.0, 5.0])
    greedy, drawn = answer(model, prompts, heat, 24, [0], seed=3)
    assert greedy.tolist() == answer(model, prompts[:1], heat[:1], 24, [0], 4)[0].tolist()
    assert drawn.tolist() != greedy.tolist()
    again = answer(model, prompts, heat, 24, [0], seed=3)[1]
    assert again.tolist() == drawn.tolist()
    assert answer(model, prompts, heat, 24, [0], seed=4)[1].tolist() != drawn.tolist()


@pytest.fixture(scope="module")
def material() -> tuple[train_prompts.Material, train_prompts.Material]:
    """Of a corner of the standard library."""
    library = python_corpus.standard_library()
    files = [*sorted((library / "json").glob("*.py")), library / "argparse.py"]
    package = sources.Package("python", "PSF-2.0", tuple(files), "")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(train_prompts, "packages", lambda: [package])
        training, held_out, licences = train_prompts.gather()
    assert licences == {"python": "PSF-2.0"}
    # What is so small may lie on one side of the split.
    functions = [*training.functions, *held_out.functions]
    prose = [*training.paragraphs, *held_out.paragraphs]
    assert functions
    assert prose
    training = replace(training, functions=functions, paragraphs=prose)
    return training, replace(held_out, functions=functions, paragraphs=prose)


def test_held_out_subjects_are_in_no_prompt_that_is_trained_on(
    material: tuple[train_prompts.Material, train_prompts.Material],
) -> None:
    training, held_out = material
    for mine, theirs in (
        (training.topics, held_out.topics),
        (training.things, held_out.things),
        (training.tasks, held_out.tasks),
    ):
        assert set(mine).isdisjoint(theirs)
        assert theirs
    assert {*training.topics, *held_out.topics} == set(split(TOPICS))


def test_prompts_are_different_short_enough_and_a_function_of_the_seed(
    material: tuple[train_prompts.Material, train_prompts.Material],
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    told: list[str] = []

    def made(seed: int) -> list[list[int]]:
        prompts, kinds = train_prompts.make(tokenizer, material[0], 40, (seed, 0), told.append)
        assert len(set(kinds)) > 3
        return [each.tolist() for each in prompts]

    first = made(1)
    assert len(set(map(tuple, first))) == 40
    assert max(map(len, first)) <= train_prompts.LONGEST
    assert made(1) == first
    assert made(2) != first
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    in_chats = [each[0] == start for each in first]
    assert any(in_chats)
    assert not all(in_chats)


@pytest.mark.parametrize(
    ("licence", "is_read"),
    [
        ("MIT", True),
        ("Apache-2.0 OR BSD-3-Clause", True),
        ("GPL-3.0-or-later", False),
        ("MIT AND LGPL-2.1", False),
        ("Proprietary", False),
    ],
)
def test_packages_are_read_by_their_licences(licence: str, is_read: bool, tmp_path: Path) -> None:
    about = tmp_path / "strange-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: Strange\nVersion: 1.0\nLicense-Expression: {licence}\n\n"
    )
    found = sources.permissive(distributions(path=[str(tmp_path)]))
    assert [each.name for each in found] == (["strange"] if is_read else [])


@pytest.fixture(scope="module")
def rows(
    target: Path,
    tokenizer: PreTrainedTokenizerBase,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    write_answers(target, tokenizer, folder)
    return folder


def write_answers(
    target: Path, tokenizer: PreTrainedTokenizerBase, folder: Path, *more: str
) -> None:
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is this?"}], add_generation_prompt=True, tokenize=False
    )
    ids = tokenizer.encode(str(chat), add_special_tokens=False)
    prompts = [np.asarray([*ids, 100 + row][: len(ids) + row % 3]) for row in range(1, 25)]
    np.savez(
        folder / "prompts.npz",
        tokens=np.concatenate(prompts),
        lengths=[len(each) for each in prompts],
        kinds=np.arange(24) % 6,
        held_out=8,
    )
    words = f"--target {target} --prompts {folder / 'prompts.npz'} --out {folder}"
    train_answers.main([*f"{words} --rows 8 --most 30".split(), *more])


def test_answers_go_on_behind_their_prompts_and_some_chats_have_a_second_turn(
    target: Path,
    rows: Path,
    tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = read_rows(rows)
    assert (found.lengths > found.prompts).all()
    assert (found.lengths - found.prompts <= 30).all()
    assert set(found.temperatures) == {np.float32(0.0), np.float32(0.7)}
    first = found.held_out.sum()
    assert 8 <= first < len(found.tokens)
    # A model that ends its turns at once is asked again.
    monkeypatch.setattr(train_answers, "SECOND_TURNS", 1.0)
    monkeypatch.setattr(
        train_answers,
        "answer",
        lambda _model, prompts, *_: [np.append(each, 0) for each in prompts],
    )
    write_answers(target, tokenizer, tmp_path)
    asked_again = read_rows(tmp_path)
    assert len(asked_again.tokens) == 48
    assert asked_again.held_out.sum() == 16
    row = asked_again.tokens[24][: asked_again.prompts[24]].tolist()
    words = tokenizer.decode(row)
    assert words.count("<|im_start|>user") == 2
    assert words.endswith("<|im_start|>assistant\n")


def test_a_run_goes_on_behind_what_is_there(
    target: Path, rows: Path, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    write_answers(target, tokenizer, tmp_path)
    batches = sorted(tmp_path.glob("rows-[0-9]*.npz"))
    assert len(batches) == 3
    kept = batches[0].stat().st_mtime_ns
    batches[1].unlink()
    write_answers(target, tokenizer, tmp_path)
    assert batches[0].stat().st_mtime_ns == kept
    mine, theirs = read_rows(tmp_path), read_rows(rows)
    for name, column in vars(theirs).items():
        assert (getattr(mine, name) == column).all(), name


def test_an_answer_again_has_the_other_temperature_and_no_batch_begins_late(
    target: Path, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    both, late = tmp_path / "both", tmp_path / "late"
    for folder in (both, late):
        folder.mkdir()
    write_answers(target, tokenizer, both, "--times", "2", "--places", "400")
    batches = [dict(np.load(path)) for path in sorted(both.glob("rows-[0-9]*.npz"))]
    first, again = batches[: len(batches) // 2], batches[len(batches) // 2 :]
    for one, other in zip(first, again, strict=True):
        assert (one["prompts"] == other["prompts"]).all()
        assert one["temperatures"] + other["temperatures"] == pytest.approx(0.7)
        # Of the room for keys and values, answers and all, and of the held-out ones before others.
        assert len(one["tokens"]) * (one["prompts"].max() + 30) <= 400
        assert len(set(one["held_out"])) == 1
    assert first[0]["held_out"].all()
    with pytest.raises(FileNotFoundError, match="no rows"):
        write_answers(target, tokenizer, late, "--seconds", "1e-9")
        read_rows(late)


def test_a_model_asks_what_its_own_template_makes_a_prompt_of(
    target: Path,
    tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = [
        "What is a list in Python?<|im_end|>",
        "What is a list in Python?<|im_end|>",
        "No end of a turn",
        "Hm<|im_end|>",
        "A turn <|im_start|> within<|im_end|>",
        "Why do lists grow in steps?<|im_end|>",
    ]
    begun = asked.opening(tokenizer)
    assert tokenizer.decode(begun) == "<|im_start|>user\n"
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    monkeypatch.setattr(
        asked,
        "answer",
        lambda _model, rows, *_: [
            np.concatenate([row, tokenizer.encode(words, add_special_tokens=False)])
            for row, words in zip(rows, said, strict=True)
        ],
    )
    model = AutoModelForCausalLM.from_pretrained(target)
    model.config.eos_token_id = end
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_args, **_named: model)
    path = tmp_path / "asked.npz"
    words = f"--target {target} --out {path} --batches 2 --rows {len(said)} --held-out 1"
    with pytest.raises(SystemExit):
        asked.main(words.replace("--held-out 1", "--held-out 2").split())
    assert not path.exists()
    asked.main(words.split())
    prompts = train_answers.Prompts.read(path, path)
    assert [tokenizer.decode(row) for row in prompts.rows[:2]] == [
        f"<|im_start|>user\n{each}\n<|im_start|>assistant\n" for each in (said[0], said[5])
    ]
    assert set(prompts.kinds) == {train_prompts.ASKED}
    assert prompts.held_out.tolist() == [False, True] * 2


def test_a_card_says_what_its_drafter_was_made_of(tmp_path: Path) -> None:
    shipped = SHIPPED.parent / "smollm2-dflash"
    manifest = json.loads((shipped / "training.json").read_text(encoding="utf-8"))
    told: dict[str, object] = {"asked_share": 0.0, "begun_with": None}
    folder = tmp_path / "smollm2-dflash"
    folder.mkdir()
    write_card(folder, {**manifest, "training": {**manifest["training"], **told}})
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card == (shipped / "README.md").read_text(encoding="utf-8")
    told = {"asked_share": 0.4, "begun_with": "ab" * 32}
    write_card(folder, {**manifest, "training": {**manifest["training"], **told}})
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "scripts.train.asked --target TARGET --out ASKED.npz" in card
    assert "--prompts PROMPTS.npz ASKED.npz" in card
    assert "--drafter DRAFTER  # abababababab..." in card
    assert "40% of the answers" in card


@pytest.mark.device
def test_the_kernel_of_one_position_finds_what_a_product_does() -> None:
    require_device("cuda")
    kernel: Any = importlib.import_module("scripts.train.decode_attention")
    for seed, end in enumerate((70, 128, 391)):
        generator = torch.Generator("cuda").manual_seed(seed)
        drawn = partial(torch.randn, device="cuda", dtype=torch.bfloat16, generator=generator)
        cache = drawn((2, 50, 3, 400, 64))[:, 5:, :, :end]
        queries = drawn((45, 9, 1, 64))
        pads = torch.randint(0, 69, (45,), device="cuda", generator=generator)
        wanted = attention_of_one(queries.float(), cache.float(), pads, end)
        found = kernel.attend(queries, cache, pads, end).float()
        assert (found - wanted).norm() < 0.01 * wanted.norm(), seed


def test_rows_of_different_lengths_train_a_drafter_and_a_restorer_of_any_rank(
    target: Path, rows: Path, tmp_path: Path
) -> None:
    corpus = python_corpus.standard_library() / "json"
    words = (
        f"--target {target} --rows {rows} --work {tmp_path} --corpus {corpus} --steps 5"
        " --layers 1 --intermediate 48 --block-size 8 --blocks 4 --draft-rows 3 --taps 0 1"
        " --sizes 8 4 --rank 8 --restore-rows 2 --restore-every 2 --save-every 5 --log-every 5"
    )
    train_pair.main(words.split())
    assert '"held_out_accepted"' in (tmp_path / "log.jsonl").read_text()


def test_rows_of_one_length_are_whole() -> None:
    batch = RowBatch.of_one_length(np.ones((2, 5), np.int32), np.ones(2, np.int32), np.zeros(2))
    assert batch.lengths.tolist() == [5, 5]
    assert not batch.held_out.any()
