"""Training of drafter and f_theta end to end at toy size; what is trained is what serves."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import scripts.eval.drafter_taps as drafter_taps
import scripts.eval.drafter_versions as drafter_versions
import scripts.train.cut_restorer as cut_restorer
import scripts.train.fit_restorer as fit_restorer
import scripts.train.guess_loss as guess_loss
import scripts.train.pair as train_pair
import scripts.train.pair_step as pair_step
import scripts.train.python_corpus as python_corpus
import scripts.train.rows as train_rows
import scripts.train.text_rows as text_rows
from kakeya_fleet.engine.backends import load_map_encoder, load_verifier
from kakeya_fleet.engine.backends.torch_backend.dflash import load_dflash
from kakeya_fleet.engine.backends.torch_backend.projecting import projecting_store
from kakeya_fleet.engine.backends.torch_backend.projection import load_projection
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.models.digests import weights_digest
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.restoration.learned_map import read_map
from scripts.eval.restorers import trained_by
from scripts.train.checkpoint import CHECKPOINT_NAME
from scripts.train.drafter_model import Drafter
from scripts.train.pair_export import load_drafter
from scripts.train.pair_losses import draft_loss
from scripts.train.pair_run import prepare
from scripts.train.prompt_sources import Package, is_held_out
from scripts.train.prompts import write_prompts
from scripts.train.regression import Regression
from scripts.train.restored_forward import restore, run_restored, run_verifier
from tests.support.forwards import logits_of

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "engine" / "shipped" / "tiny"

SOURCE = python_corpus.standard_library() / "json"
LENGTH = 96


@pytest.fixture(autouse=True)
def torch_settings() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "toy"
    torch.manual_seed(3)
    config = Qwen3Config(
        vocab_size=4096,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        eos_token_id=0,
        pad_token_id=0,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(SHIPPED).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def rows(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    write_rows(target, folder)
    return folder


@pytest.fixture(scope="module")
def exported(target: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("work")
    train(target, rows, work)
    train(target, rows, work, "--export", str(work / "toy-dflash"))
    return work / "toy-dflash"


def write_rows(target: Path, folder: Path) -> None:
    size = f"--batches 2 --rows 40 --length {LENGTH} --held-out 8"
    train_rows.main(f"--target {target} --out {folder} --corpus {SOURCE} {size}".split())


def train(target: Path, rows: Path, work: Path, *more: str) -> dict[str, torch.Tensor]:
    size = "--layers 2 --intermediate 48 --block-size 8 --blocks 4 --draft-rows 2"
    restored = "--restore-rows 2 --restore-every 2"
    run = f"--target {target} --rows {rows} --work {work} --corpus {SOURCE} --steps 6"
    train_pair.main([*f"{run} --save-every 3 {size} {restored}".split(), *more])
    weights: dict[str, torch.Tensor] = torch.load(work / CHECKPOINT_NAME, weights_only=True)[
        "model"
    ]
    return weights


def test_rows_begin_with_their_prompts_and_go_on_as_the_verifier_does(
    target: Path, rows: Path, tmp_path: Path
) -> None:
    made = train_rows.read_rows(rows)
    assert made.tokens.shape == (80, LENGTH)
    assert set(made.prompts) <= set(train_rows.PROMPT_LENGTHS)
    model = AutoModelForCausalLM.from_pretrained(target)
    logits = model(torch.from_numpy(made.tokens.astype(np.int64))).logits
    likeliest = logits.argmax(-1)[:, :-1].numpy() == made.tokens[:, 1:]
    greedy = sum(
        bool(likeliest[row, made.prompts[row] - 1 :].all())
        for row in range(80)
        if made.prompts[row] < LENGTH
    )
    assert greedy >= 10  # half of the rows that have room behind their prompts
    write_rows(target, tmp_path)
    again = train_rows.read_rows(tmp_path)
    assert (again.tokens == made.tokens).all()


def test_a_run_that_was_interrupted_ends_with_the_same_weights(
    target: Path, rows: Path, exported: Path, tmp_path: Path
) -> None:
    whole = torch.load(exported.parent / CHECKPOINT_NAME, weights_only=True)["model"]
    paused = train(target, rows, tmp_path / "parts", "--stop-at", "3")
    resumed = train(target, rows, tmp_path / "parts")
    assert not torch.equal(paused["drafter.norm.weight"], resumed["drafter.norm.weight"])
    assert whole.keys() == resumed.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name


def test_layers_are_chosen_by_what_they_tell_of_the_next_tokens(
    target: Path, rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report.json"
    words = f"--target {target} --rows {rows} --layers 0 1 --places 2 --out {out}"
    assert drafter_taps.main([*words.split(), "--sets", "0", "0,1"]) == 0
    found = json.loads(out.read_bytes())
    assert [each["layers"] for each in found["sets"]] == [[0], [0, 1]]
    chosen = [each["layers"] for each in found["chosen"]]
    assert [len(each) for each in chosen] == [1, 2]
    assert chosen[0][0] in chosen[1]
    for each in (*found["sets"], *found["chosen"]):
        assert len(each["right"]) == 2
        assert 1.0 <= each["tokens_a_forward"] <= 3.0
    # More inputs never miss more of what they are fitted on.
    assert found["sets"][1]["missed"] <= found["sets"][0]["missed"] < 1.0
    assert str(tmp_path) not in json.dumps(found["command"])


def test_the_regression_is_a_better_start_than_chance(target: Path, rows: Path) -> None:
    options = train_pair.parse_options(
        f"--target {target} --rows {rows} --work {rows} --corpus {SOURCE} --block-size 8".split()
    )
    run = prepare(options)
    assert run.projection is not None
    tokens = pair_step.row_tokens(run, [5])
    full = run_verifier(run.target, tokens, run.drafter.shape.taps)
    made = restore(run.projection, run.drafter.encode(full.taps), run.drafter)
    for (keys, values), (its_keys, its_values) in zip(made, full.keys_values, strict=True):
        assert (keys - its_keys).square().sum() < 0.5 * its_keys.square().sum()
        assert (values - its_values).square().sum() < 0.5 * its_values.square().sum()


@pytest.mark.parametrize(("source", "rank"), [("features", "16"), ("keys_values", "0")])
def test_f_theta_trains_alone_beside_a_frozen_drafter(
    target: Path, rows: Path, exported: Path, tmp_path: Path, source: str, rank: str
) -> None:
    frozen = load_drafter(exported).state_dict()
    more = ["--train", "restorer", "--drafter", str(exported), "--source", source, "--rank", rank]
    trained = train(target, rows, tmp_path / "work", *more)
    for name, tensor in frozen.items():
        assert torch.equal(tensor, trained[f"drafter.{name}"]), name
    folder = tmp_path / "pair"
    train(target, rows, tmp_path / "work", *more, "--export", str(folder))
    made = load_projection(folder / "restorer")
    assert made.config.rank == int(rank)
    assert str(made.config.source) == source
    assert trained_by(folder) == {"steps": 6, "longest_row": 512}
    assert trained_by(exported) == trained_by(target) == {}


def test_a_map_is_trained_on_from_another_of_its_size(
    target: Path, rows: Path, exported: Path, tmp_path: Path
) -> None:
    begun = load_projection(exported / "restorer")
    alone = ["--train", "restorer", "--drafter", str(exported), "--restore-every", "1"]
    longer = "--restore-lengths 96 --windows 16 32 --recall-facts 1 --repeat-share 0.3"
    from_it = [*alone, *longer.split(), "--restorer", str(exported / "restorer")]
    trained = train(target, rows, tmp_path / "work", *from_it)
    moved = (trained["projection.up.weight"] - begun.up.weight).norm() / begun.up.weight.norm()
    assert 0 < moved < 0.05
    resumed = tmp_path / "resumed"
    train(target, rows, resumed, *from_it, "--stop-at", "3")
    again = train(target, rows, resumed, *from_it)
    assert torch.equal(again["projection.up.weight"], trained["projection.up.weight"])
    with pytest.raises(ValueError, match="has the rank 0, this run's has 8"):
        train(target, rows, tmp_path / "other", *from_it, "--rank", "8")


def test_rows_of_texts_are_whole_and_held_out_by_package(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out = next(f"p{at}" for at in range(100) if is_held_out(f"p{at}"))
    kept = next(f"p{at}" for at in range(100) if not is_held_out(f"p{at}"))
    found = []
    for name, lines in ((held_out, 90), (kept, 400), ("short", 1)):
        file = tmp_path / f"{name}.py"
        file.write_text("\n".join(f"{name}_{at} = {at}" for at in range(lines)))
        found.append(Package(name, "MIT", (file,), f"About {name}."))
    monkeypatch.setattr(text_rows, "packages", lambda: found)
    words = f"--target {target} --out {tmp_path / 'rows'} --length 64 --most 5"
    text_rows.main(words.split())
    made = train_rows.read_rows(tmp_path / "rows")
    tokenizer = AutoTokenizer.from_pretrained(target)
    said = [tokenizer.decode(row) for row in made.tokens]
    of_kept = [kept in text for text in said]
    assert made.tokens.shape[1] == 64
    assert (~made.held_out == of_kept).all()
    assert sum(of_kept) == 5
    assert set(made.lengths) == {64}
    whole = "".join(text for text, mine in zip(said, of_kept, strict=True) if mine)
    assert f"About {kept}.\n{found[1].files[0].read_text()}".startswith(whole)
    monkeypatch.setattr(text_rows, "packages", lambda: found[2:])
    with pytest.raises(ValueError, match="no package has 64 tokens"):
        text_rows.main(words.split())


def test_a_map_is_cut_to_the_nearest_one_of_fewer_numbers(
    target: Path, rows: Path, exported: Path, tmp_path: Path
) -> None:
    full = load_projection(exported / "restorer")
    vectors = torch.randn(50, full.config.inputs, generator=torch.Generator().manual_seed(1))
    made = full.up(vectors)
    seen = Regression(vectors.shape[1], made.shape[1])
    seen.add(vectors, made)
    errors = []
    for rank in (4, 16, full.config.inputs - 1):
        words = f"--target {target} --drafter {exported} --rows {rows} --rank {rank}"
        folder = tmp_path / str(rank)
        cut_restorer.main(
            [*words.split(), "--restorer", str(exported / "restorer"), "--out", str(folder)]
        )
        smaller = load_projection(folder)
        assert smaller.config == replace(full.config, rank=rank)
        assert smaller.down is not None
        errors.append(float((smaller.up(smaller.down(vectors)) - made).norm() / made.norm()))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.25
    with pytest.raises(ValueError, match="has rank 4 already"):
        cut_restorer.cut_map(load_projection(tmp_path / "4"), seen, 2)
    with pytest.raises(ValueError, match="not between 0 and the map's"):
        cut_restorer.cut_map(full, seen, full.config.inputs)


def test_the_manifest_names_the_pair_and_every_file(exported: Path, target: Path) -> None:
    manifest = json.loads((exported / "training.json").read_text())
    assert manifest["target"]["weights_digest"] == weights_digest(target)
    assert set(manifest["files"]) == {
        "config.json",
        "model.safetensors",
        "restorer/config.json",
        "restorer/model.safetensors",
    }
    assert len(manifest["training"]["row_files"]) == 2
    proposer = load_dflash(ModelFolder(exported, "toy-dflash"), ModelFolder(target, "toy"))
    assert load_projection(exported / "restorer").config.encoder_digest == (
        proposer.encoder.spec.digest
    )


def trained_block(
    trained: Drafter, model: PreTrainedModel, tokens: list[int], context: np.ndarray
) -> torch.Tensor:
    """What the head takes of the 7 places behind `tokens`, [7, hidden], as it is trained."""
    vectors = trained.encode(torch.from_numpy(context[:-1]).flatten(1))[None]
    fed = torch.full((1, 1, 8), trained.shape.mask_token)
    fed[0, 0, 0] = tokens[-1]
    anchors, starts = torch.tensor([[len(tokens) - 1]]), torch.tensor([0])
    hidden: torch.Tensor = trained(model.model.embed_tokens(fed), vectors, anchors, starts)
    return hidden[0, 0, 1:]


def features(verifier: Verifier, tokens: list[int], taps: tuple[int, ...]) -> np.ndarray:
    """[n, taps, hidden] of all of `tokens`."""
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=256))
    outputs = []
    for first in range(0, len(tokens), 16):
        feed = Feed(cache, tokens[first : first + 16], want_logits=False, taps=taps)
        (output,) = verifier.forward_batch([feed])
        assert output.features is not None
        outputs.append(output.features)
    return np.concatenate(outputs)


@pytest.fixture(scope="module")
def exported_2(target: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("work-2")
    words = (
        f"--target {target} --rows {rows} --work {work} --corpus {SOURCE} --steps 12"
        " --train drafter --version 2 --conv-taps 3 --conv-group 8 --selector-rank 4"
        " --layers 2 --intermediate 48 --block-size 8 --blocks 4 --draft-rows 4 --save-every 6"
    ).split()
    train_pair.main(words)
    train_pair.main([*words, "--export", str(work / "toy-dflash-2")])
    return work / "toy-dflash-2"


def test_the_served_drafter_of_version_2_walks_where_the_trained_one_leads(
    target: Path, exported_2: Path
) -> None:
    proposer = load_dflash(ModelFolder(exported_2, "toy-dflash-2"), ModelFolder(target, "toy"))
    assert proposer.info.architecture == "DFlash2DraftModel v2"
    trained = load_drafter(exported_2)
    selector = trained.candidate_selector
    assert selector is not None
    assert selector.successor_codebook.abs().max() > 0
    deltas = [each for name, each in trained.named_parameters() if "kernel_projection" in name]
    assert len(deltas) == 4
    assert all(each.abs().max() > 0 for each in deltas)
    model = AutoModelForCausalLM.from_pretrained(target)
    verifier = load_verifier(ModelFolder(target, "toy"), backend="torch")
    for seed in range(8):
        tokens = np.random.default_rng(seed).integers(0, 4096, 40).tolist()
        context = features(verifier, tokens, trained.shape.taps)
        state = proposer.open(tokens)
        state.take_features(0, proposer.encoder.encode(context[:-1]))
        served = state.propose((), 7, 0).token_ids
        with torch.no_grad():
            hidden = trained_block(trained, model, tokens, context)
            before, walked = tokens[-1], []
            for row in hidden:
                logits = model.lm_head(row)
                edges = selector.gates(row[None], torch.tensor([before]))
                values = logits + (edges @ selector.successor_codebook.T)[0]
                candidates = logits.topk(16).indices
                before = int(candidates[values[candidates].argmax()])
                walked.append(before)
        assert list(served) == walked


def test_drafters_of_both_versions_are_measured_at_the_same_places(
    target: Path, rows: Path, exported_2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = f"--target {target} --rows {rows} --work {tmp_path} --corpus {SOURCE}".split()
    own = ["--train", "drafter", "--drafter", str(exported_2), "--as-version-1", "--steps", "0"]
    first, out = tmp_path / "as-1", tmp_path / "versions.json"
    train_pair.main([*alone, *own, "--export", str(first)])
    smaller, larger = load_drafter(first), load_drafter(exported_2)
    assert smaller.shape == replace(larger.shape, version_2=None)
    for name, tensor in smaller.state_dict().items():
        assert torch.equal(tensor, larger.state_dict()[name]), name
    words = f"--rounds 2 --most 3 --dtype float32 --out {out} --of"
    folders = [str(each) for each in (target, rows, exported_2, first, exported_2)]
    versions, places = list[bool](), list[torch.Tensor]()

    def measured(*seen: Any, **size: Any) -> Any:
        versions.append(seen[1].shape.version_2 is not None)
        places.append(seen[4].anchors)
        return draft_loss(*seen, **size)

    monkeypatch.setattr(drafter_versions, "draft_loss", measured)
    assert drafter_versions.main([*words.split(), *folders]) == 0
    report = json.loads(out.read_bytes())
    assert [each["version"] for each in report["drafters"]] == [2, 1, 2]
    assert [each["target"] for each in report["drafters"]] == ["toy"] * 3
    assert versions == [True, False, True] * 6
    assert all(torch.equal(places[at], places[at - at % 3]) for at in range(len(places)))
    assert not torch.equal(places[0], places[3])
    for each in report["drafters"]:
        together = (each["block_milliseconds"] + each["verify_milliseconds"]) / 1e3
        for side, speed in each["tokens_per_second"].items():
            assert 1.0 <= each["accepted"][side]["tokens_a_forward"] <= 8.0
            assert speed == pytest.approx(each["accepted"][side]["tokens_a_forward"] / together)
    assert str(tmp_path) not in report["command"]
    with pytest.raises(SystemExit, match="2"):
        drafter_versions.main(["--of", *folders[:2]])


def test_the_loss_and_its_gradient_are_those_of_their_formulae(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In slices as in one; bfloat16's rounding aside."""
    torch.manual_seed(8)
    hidden, gates = torch.randn(70, 24), torch.randn(70, 4)
    head, table = torch.randn(300, 24) / 5, torch.randn(300, 4) / 2
    wanted, labels = torch.randn(70, 24), torch.randint(300, (70,))
    guesses = guess_loss.Guesses(labels, wanted, torch.rand(70))

    def by_formula(own: list[torch.Tensor]) -> torch.Tensor:
        alone = own[0] @ head.T
        goal = (wanted @ head.T).softmax(-1) / 2 + functional.one_hot(labels, 300) / 2
        whole = -(goal * (alone + own[1] @ own[2].T).log_softmax(-1)).sum(-1)
        parts = -(goal * alone.log_softmax(-1)).sum(-1)
        return ((whole + guess_loss.UNARY_SHARE * parts) * guesses.weights).sum()

    def gradients(make: Callable[[list[torch.Tensor]], torch.Tensor]) -> list[torch.Tensor]:
        own = [each.clone().requires_grad_() for each in (hidden, gates, table)]
        loss = make(own)
        return [loss.detach(), *torch.autograd.grad(loss, own)]

    def made(own: list[torch.Tensor]) -> torch.Tensor:
        return guess_loss.guess_loss(own[0], head, guesses, guess_loss.Edges(own[1], own[2]))[0]

    for size in (16, 2048):
        monkeypatch.setattr(guess_loss, "SLICE", size)
        for mine, its in zip(gradients(made), gradients(by_formula), strict=True):
            assert (mine - its).norm() < 0.01 * its.norm()


def test_the_served_drafter_guesses_what_the_trained_one_does(target: Path, exported: Path) -> None:
    proposer = load_dflash(ModelFolder(exported, "toy-dflash"), ModelFolder(target, "toy"))
    trained = load_drafter(exported)
    model = AutoModelForCausalLM.from_pretrained(target)
    verifier = load_verifier(ModelFolder(target, "toy"), backend="torch")
    tokens = np.random.default_rng(4).integers(0, 4096, 70).tolist()
    context = features(verifier, tokens, trained.shape.taps)
    state = proposer.open(tokens)
    state.take_features(0, proposer.encoder.encode(context[:-1]))
    served = state.propose((), 7, 0).token_ids
    with torch.no_grad():
        guesses = model.lm_head(trained_block(trained, model, tokens, context)).argmax(-1).tolist()
    assert list(served) == guesses


def trained_logits(target: Path, folder: Path, tokens: list[int]) -> np.ndarray:
    """The same of the training's own forward."""
    model = AutoModelForCausalLM.from_pretrained(target)
    drafter = load_drafter(folder)
    projection = load_projection(folder / "restorer")
    rows = torch.tensor([tokens])
    with torch.no_grad():
        seen = run_restored(
            model,
            rows,
            drafter.shape.taps,
            lambda taps, first: restore(projection, drafter.encode(taps), drafter, first),
            sink=4,
            window=16,
        )
        found: np.ndarray = model.lm_head(seen.hidden)[0, -8:].numpy()
    return found


def restored_logits(target: Path, folder: Path, tokens: list[int]) -> np.ndarray:
    """The logits of the last 8 of `tokens` in a restored cache, sink 4 and window 16."""
    verifier = load_verifier(ModelFolder(target, "toy"), backend="torch")
    learned = read_map("toy-dflash", folder)
    spec = CacheSpec(CacheKind.RESTORED, sink=4, window=16, restorer=learned.spec)
    store = projecting_store(
        verifier.evicted_shape(spec),
        learned.spec,
        kv_pool(),
        load_projection(learned.path),
        load_map_encoder(learned),
    )
    cache = verifier.allocate(spec, store)
    for first in range(0, len(tokens) - 8, 4):
        verifier.forward(cache, tokens[first : min(first + 4, len(tokens) - 8)], want_logits=False)
    logits = logits_of(verifier, cache, tokens[-8:])
    cache.release()
    assert logits is not None
    return logits


def test_a_sink_that_is_larger_than_the_window_is_refused(target: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(target)
    with pytest.raises(ValueError, match="a sink of 5 positions is larger than the window of 4"):
        run_restored(model, torch.ones(1, 8).long(), (0,), lambda *_: [], sink=5, window=4)


def test_the_trained_path_is_the_one_that_serves(target: Path, exported: Path) -> None:
    """Logits of a restored session equal those of the training's forward, past the window."""
    tokens = np.random.default_rng(6).integers(0, 4096, 60).tolist()
    expected = trained_logits(target, exported, tokens)
    assert np.abs(expected - restored_logits(target, exported, tokens)).max() < 1e-4


def test_maps_are_fitted_in_several_sizes_and_serve_as_they_were_fitted(
    target: Path, exported: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(8)
    texts = [rng.integers(0, 4096, rng.integers(3, 60)) for _ in range(40)]
    write_prompts(tmp_path / "texts.npz", texts, [0] * len(texts), held_out=8)
    words = f"--target {target} --drafter {exported} --prompts {tmp_path / 'texts.npz'}"
    sizes = "--ranks 32 12 4 --length 48 --tokens 700 --held-out-tokens 150"
    fit_restorer.main([*words.split(), *sizes.split(), "--out", str(tmp_path / "fitted")])
    tokens = rng.integers(0, 4096, 60).tolist()
    missed, fit = [], {}
    for rank in (32, 12, 4):
        folder = tmp_path / "fitted" / f"fitted-{rank}"
        assert load_drafter(folder).shape == load_drafter(exported).shape
        found = read_map("toy-dflash", folder)
        assert (found.width, found.narrows) == (rank, rank < 32)
        found.check_verifier("toy", weights_digest(target))
        fit = json.loads((folder / "restorer" / "fit.json").read_text())
        missed.append(fit["missed"]["keys"] + fit["missed"]["values"])
        served = restored_logits(target, folder, tokens)
        assert np.abs(trained_logits(target, folder, tokens) - served).max() < 1e-3, rank
    assert missed == sorted(missed)
    assert 0 < missed[0] < 1 < missed[-1] + 1
    for ranks in (["33"], ["12", "0"]):
        with pytest.raises(ValueError, match="from 1 to the vectors' 32 numbers"):
            fit_restorer.main([*words.split(), "--ranks", *ranks, "--out", str(tmp_path / "none")])
    assert not (tmp_path / "none").exists()
    # Whole rows of the texts that there are: none of one that is held out.
    assert fit["tokens"] == min(700, sum(map(len, texts[:-8]))) // 48 * 48
    assert fit["held_out_tokens"] == min(150, sum(map(len, texts[-8:]))) // 48 * 48
