"""`fleet generate`, `verify` and `bench` against two real agents."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kakeya import Client
from tests.support.commands import Agents, Ask, Terminal
from tests.support.patience import PATIENCE_SECONDS

PROMPT = "abcabcabcabc"


def test_an_unknown_model_is_said_by_every_command(ask: Ask, toy: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    prompts.write_text("x\n")
    for name, words in {
        "plan": [],
        "generate": ["x", "--tokenizer", str(toy)],
        "verify": ["--prompts", str(prompts), "--tokenizer", str(toy)],
        "bench": ["--tokenizer", str(toy)],
    }.items():
        done = ask(name, "--verifier", "gpt-17", *words)
        assert done.code == 3, name
        assert "gpt-17" in done.err, name
        assert "served: toy" in done.err, name


def test_a_model_whose_tokenizer_is_not_here_is_asked_for_it(ask: Ask, toy: Path) -> None:
    fetched = ask("generate", "--verifier", "toy", PROMPT, "--max-tokens", "20")
    assert fetched.code == 0, fetched.err
    named = ["--tokenizer", str(toy), PROMPT, "--max-tokens", "20"]
    assert fetched.out == ask("generate", "--verifier", "toy", *named).out


def test_another_tokenizer_is_refused_before_anything_is_generated(
    ask: Ask, toy: Path, tmp_path: Path
) -> None:
    other = tmp_path / "tokenizer.json"
    other.write_text(json.dumps(json.loads((toy / "tokenizer.json").read_text()), indent=3))
    done = ask("generate", "--verifier", "toy", "--tokenizer", str(other), "x")
    assert done.code == 3
    assert done.out == ""
    assert "is not that of toy" in done.err


def test_the_text_alone_is_on_stdout_and_statistics_are_on_stderr(ask: Ask, toy: Path) -> None:
    done = ask("generate", "--verifier", str(toy), PROMPT, "--max-tokens", "40", "--timeline")
    events = ask("generate", "--verifier", str(toy), PROMPT, "--max-tokens", "40", "--json").lines
    assert done.code == 0
    assert events[-1]["event"] == "done"
    assert done.out == events[-1]["text"]
    for words in ("toy on mini-1", "40 tokens in", "tok/s", "acceptance length", "one column is"):
        assert words in done.err


def test_json_events_hold_the_whole_stream_once(ask: Ask, toy: Path) -> None:
    done = ask("generate", "--verifier", str(toy), PROMPT, "--max-tokens", "50", "--json")
    plan, *blocks, end = done.lines
    assert plan["event"] == "plan"
    assert plan["verifier"]["model_id"] == "toy"
    assert {block["event"] for block in blocks} == {"tokens"}
    token_ids = [token_id for block in blocks for token_id in block["token_ids"]]
    assert len(token_ids) == end["generated_token_count"] == 50
    starts = [block["first_index"] for block in blocks]
    ends = [block["first_index"] + len(block["token_ids"]) for block in blocks]
    assert starts == [len(PROMPT), *ends[:-1]]
    ids = b"".join(token_id.to_bytes(4, "little") for token_id in token_ids)
    assert end["sha256"] == hashlib.sha256(ids).hexdigest()


def test_log_probabilities_are_in_every_event_and_in_a_table_for_people(
    ask: Ask, toy: Path
) -> None:
    words = ["--verifier", str(toy), PROMPT, "--max-tokens", "20", "--log-probabilities", "2"]
    for block in ask("generate", *words, "--json").lines[1:-1]:
        assert {len(ranked) for ranked in block["alternatives"]} == {2}
        values = zip(block["token_ids"], block["log_probabilities"], strict=True)
        assert [*values] == [tuple(ranked[0].values()) for ranked in block["alternatives"]]
    table = r"^ *id +token +log p +likeliest\n(.*\n){20}mean log-probability -\d.*, perplexity \d"
    assert re.search(table, ask("generate", *words).err, re.M)


def once_it_can_be_had(ask: Ask, *words: str) -> Mapping[str, Any]:
    """What the command says at its end; a busy machine's proposer may be suspect for a while."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while True:
        done = ask(*words)
        if "NO_PLACEMENT" not in done.out or time.monotonic() > ends:
            assert done.code == 0, done.out
            last: Mapping[str, Any] = done.lines[-1]
            return last


def test_the_same_stream_with_a_named_proposer_and_with_none(ask: Ask, toy: Path) -> None:
    base = ["--verifier", str(toy), PROMPT, "--max-tokens", "48", "--json"]
    shaped = "--temperature 0.9 --min-p 0.05 --repetition-penalty 1.05 --logit-bias 7=-inf"
    for words in ("", "--temperature 0.9 --top-p 0.95 --seed 11", f"{shaped} --seed 12"):
        ends = {
            who: once_it_can_be_had(ask, "generate", *base, *words.split(), "--speculation", who)
            for who in ("off", "ngram@mini-2")
        }
        assert len({end["sha256"] for end in ends.values()}) == 1
        assert ends["off"]["speculation"]["drafted_count"] == 0
        assert ends["ngram@mini-2"]["speculation"]["drafted_count"] > 0


def test_a_seed_makes_a_stream_and_a_drawn_one_is_told(ask: Ask, toy: Path) -> None:
    base = ["--verifier", str(toy), PROMPT, "--max-tokens", "30", "--temperature", "1"]
    drawn = ask("generate", *base)
    told = re.search(r"^seed (\d+)$", drawn.err, re.M)
    assert told is not None
    assert ask("generate", *base, "--seed", told[1]).out == drawn.out
    assert ask("generate", *base, "--seed", f"{int(told[1]) ^ 1}").out != drawn.out


def test_a_prompt_can_come_from_stdin_and_the_tokenizer_from_elsewhere(ask: Ask, toy: Path) -> None:
    direct = ask("generate", "--verifier", str(toy), PROMPT, "--max-tokens", "20")
    words = ["--tokenizer", str(toy), "-", "--max-tokens", "20"]
    piped = ask("generate", *words, stdin=PROMPT)
    assert direct.code == piped.code == 0
    assert direct.out == piped.out
    empty = ask("generate", "--verifier", str(toy), "-", stdin="")
    assert empty.code == 2
    assert "the prompt is empty" in empty.err


def test_a_proposer_that_nobody_serves_is_said(ask: Ask, toy: Path) -> None:
    for proposer in ("dflash", "ngram@mini-7"):
        done = ask("generate", "--verifier", str(toy), "--speculation", proposer, "x")
        assert (done.code, done.out) == (3, ""), proposer
        assert "fleet status" in done.err, proposer


def test_a_node_that_does_not_serve_the_model_leads_to_the_one_that_does(
    ask: Ask, toy: Path
) -> None:
    words = ["--verifier", str(toy), PROMPT, "--max-tokens", "20"]
    assert ask("generate", *words, node=1).out == ask("generate", *words, node=0).out


def test_verify_finds_both_streams_identical_and_shows_both_hashes(
    ask: Ask, toy: Path, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(f"{PROMPT}\n\nxyxyxyxy\n")
    words = ["--prompts", str(prompts), "--max-tokens", "60", "--tokenizer", str(toy)]
    done = ask("verify", *words)
    assert done.code == 0, done.out + done.err
    assert done.out.count("identical  ") == 2
    hashes = re.findall(r"\b[0-9a-f]{64}\b", done.out)
    assert len(hashes) == 4
    assert hashes[0] == hashes[1] != hashes[2] == hashes[3]
    assert re.search(r"identical: 2 of 2 streams, \d+ drafted tokens verified", done.out)


def test_verify_of_json_prompts_with_sampling(ask: Ask, toy: Path) -> None:
    prompts = json.dumps({"prompt": "a\nb\n" * 4}) + "\n"
    words = ["--prompts", "-", "--max-tokens", "40", "--tokenizer", str(toy), "--json"]
    done = ask("verify", *words, "--temperature", "0.8", "--seed", "7", stdin=prompts)
    prompt, verdict = done.lines
    assert done.code == 0
    assert prompt["identical"]
    assert prompt["with_proposer"]["sha256"] == prompt["alone"]["sha256"]
    assert verdict["proven"]
    assert verdict["drafted_count"] == prompt["drafted_count"] > 0


def test_verify_without_a_draft_has_proven_nothing(ask: Ask, toy: Path) -> None:
    words = ["--prompts", "-", "--max-tokens", "1", "--tokenizer", str(toy)]
    done = ask("verify", *words, stdin="q\n")
    assert done.code == 1
    assert "nothing was proven" in done.out


def test_bench_measures_both_ways(ask: Ask, toy: Path) -> None:
    words = ["--rounds", "1", "--max-tokens", "8", "--tokenizer", str(toy)]
    done = ask("bench", *words)
    assert done.code == 0
    assert "with proposer" in done.out
    assert "median of all" in done.out
    facts = ask("bench", *words, "--json").json
    assert len(facts["prompts"]) == 4
    assert facts["overall"]["identical"]
    assert facts["overall"]["tokens_per_second_alone"] > 0


def test_bench_of_a_restored_session(ask: Ask, toy: Path) -> None:
    words = ["--rounds", "1", "--max-tokens", "4", "--tokenizer", str(toy), "--window", "8"]
    done = ask("bench", *words, "--kv", "restored", "--restorer", "identity", "--json")
    assert done.code == 0, done.err
    assert done.json["kv_strategy"] == "restored"
    refused = ask("bench", *words, "--restorer", "identity")
    assert refused.code == 2
    assert "needs --kv restored" in refused.err


def test_ctrl_c_in_mid_answer_is_at_once_and_stops_the_work_on_the_node(
    fleet: Terminal, agents: Agents, toy: Path
) -> None:
    words = ["--verifier", str(toy), PROMPT, "--max-tokens", "1000000", "--json"]
    process = fleet.start("generate", "--node", agents[0].address, *words)
    for _ in range(5):
        process.line()
    done = process.interrupt()
    assert done.code == 130
    assert "Traceback" not in done.err
    deadline = time.monotonic() + PATIENCE_SECONDS
    with Client(agents[0].address) as client:
        while client.fleet.node().load.generating_count:
            assert time.monotonic() < deadline, "the node still generates"


def test_an_answer_is_held_to_a_schema_of_a_file(ask: Ask, toy: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(
        '{"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "maxItems": 3}'
    )
    held = ["generate", "--verifier", str(toy), PROMPT, "--temperature", "1", "--seed", "3"]
    done = ask(*held, "--json-schema", str(schema))
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert 2 <= len(answer) <= 3
    assert set(answer) <= {"a", "b"}
    assert "the answer is whole" in done.err
    schema.write_text('{"type": "lsit"}')
    refused = ask(*held, "--json-schema", str(schema))
    assert refused.code == 3
    assert "lsit" in refused.err
