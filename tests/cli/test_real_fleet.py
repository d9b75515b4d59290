"""The commands against two real agents: a verifier with random weights, and an n-gram."""

import hashlib
import json
import os
import re
import signal
import time

import pytest

from kakeya import Client
from kakeya_fleet.fleet.hostfiles.hostfile import GroupBackend, Host, parse_hostfile
from tests.support.in_process import run_here

PROMPT = "abcabcabcabc"


@pytest.fixture
def ask(fleet, agents):
    """Runs a command on the verifier's node, in this process."""

    def run(name, *words, node=0, stdin="", **more):
        words = [name, "--node", agents[node].address, *words]
        return run_here(words, fleet.environment | more, stdin)

    return run


@pytest.fixture
def lone_agent(fleet, tmp_path):
    """Starts `fleet join --json` as people do; its process and its first line, read."""
    started = []

    def start(name="solo", *words, **environment):
        state = str(tmp_path / f"state-of-{name}")
        words = ("--json", "--name", name, "--no-mdns", "--state", state, *words)
        process = fleet.start("join", "--serve", "proposer=ngram", *words, **environment)
        started.append(process)
        return process, json.loads(process.stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_status_shows_both_nodes_aligned_and_marks_the_one_that_was_asked(fleet, agents) -> None:
    done = fleet.run("status", "--node", agents[0].address)
    assert done.code == 0
    assert done.err == ""
    title, head, first, second = done.out.splitlines()
    # Both run on this machine: its memory is there once.
    assert re.fullmatch(
        r'fleet "cli-tests": 2 nodes, 2 alive, \d.* / \d.* GiB in use on 1 machine', title
    )
    assert re.match(r"mini-1 \*  verifier=toy +\d.* GiB +alive, here ", first)
    assert re.match(
        r"mini-2    proposer=ngram +with mini-1 +alive, \d+\.\d s ago +(\d.* (ms|us)|-) ", second
    )
    assert first.index("verifier=toy") == second.index("proposer=ngram") == head.index("serves")
    assert first.endswith(f" {agents[0].address}")
    assert "\x1b" not in done.out


def test_a_node_elsewhere_in_the_fleet_is_asked_by_its_name(fleet, agents) -> None:
    here = {"KAKEYA_STATE": str(agents[0].options.state)}
    assert "mini-2 *" in fleet.run("status", "--node", "mini-2", **here).out
    done = fleet.run("status", "--node", "mini-3", **here)
    assert done.code == 3
    assert "'mini-3'; there are: mini-1, mini-2" in done.err


def test_status_as_json_has_every_fact_of_the_cards(ask, agents) -> None:
    told = ask("status", "--json").json
    nodes = {node["node_id"]: node for node in told["nodes"]}
    assert set(nodes) == {agent.node_id for agent in agents}
    (host,) = told["memory"]
    assert {node_id for node_id, _ in host["nodes"]} == set(nodes)
    assert 0 < host["free_bytes"] < host["total_bytes"]
    assert told["seed_faults"] == []
    card = nodes[agents[0].node_id]["card"]
    assert card["models"][0]["model_id"] == "toy"
    assert card["models"][0]["role"] == "verifier"


def test_watching_prints_at_once_and_ctrl_c_ends_it_at_once(fleet, agents, interrupt) -> None:
    process = fleet.start("status", "--watch", "--json", "--node", agents[0].address)
    assert json.loads(process.stdout.readline())["event"] == "snapshot"
    done, seconds = interrupt(process)
    assert done.code == 0
    assert done.err.strip() == ""
    assert seconds < 0.5


def test_a_node_that_joins_and_leaves_is_seen_by_a_watch(
    fleet, agents, lone_agent, interrupt
) -> None:
    watch = fleet.start("status", "--watch", "--json", "--node", agents[1].address)
    json.loads(watch.stdout.readline())
    process, ready = lone_agent("guest", "--fleet", "cli-tests", "--peer", agents[1].address)
    seen = set()
    while (ready["node_id"], "alive") not in seen:
        node = json.loads(watch.stdout.readline())["node"]
        seen.add((node["node_id"], node["liveness"]))
    left = fleet.run("leave", "--node", ready["address"])
    while (ready["node_id"], "left") not in seen:
        node = json.loads(watch.stdout.readline())["node"]
        seen.add((node["node_id"], node["liveness"]))
    assert left.code == 0
    assert "guest left the fleet after" in left.out
    assert process.wait(10) == 0
    interrupt(watch)


def test_a_plan_names_the_pair_its_reasons_and_every_rejection(ask, agents) -> None:
    done = ask("plan", "--verifier", "toy")
    assert done.code == 0
    assert f"verifier     toy on mini-1 ({agents[0].address})" in done.out
    assert "\nwhy\n  - " in done.out
    assert re.search(r"predicted +\d.* tok/s", done.out)
    as_json = ask("plan", "--json").json
    assert as_json["verifier"]["node_id"] == agents[0].node_id
    assert as_json["reasons"]
    assert as_json["exact"] is True


def test_a_plan_for_more_context_than_the_model_has_says_so(ask) -> None:
    done = ask("plan", "--verifier", "toy", "--context", "100000")
    assert done.code == 3
    assert "2048" in done.err
    assert done.err.count("\n") == 1


def test_an_unknown_model_is_said_by_every_command(ask, toy, tmp_path) -> None:
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


def test_a_model_whose_tokenizer_is_not_here_is_asked_for_it(ask, toy) -> None:
    fetched = ask("generate", "--verifier", "toy", PROMPT, "--max-tokens", "20")
    assert fetched.code == 0, fetched.err
    named = ["--tokenizer", str(toy), PROMPT, "--max-tokens", "20"]
    assert fetched.out == ask("generate", "--verifier", "toy", *named).out


def test_another_tokenizer_is_refused_before_anything_is_generated(ask, toy, tmp_path) -> None:
    other = tmp_path / "tokenizer.json"
    other.write_text(json.dumps(json.loads((toy / "tokenizer.json").read_text()), indent=3))
    done = ask("generate", "--verifier", "toy", "--tokenizer", str(other), "x")
    assert done.code == 3
    assert done.out == ""
    assert "is not that of toy" in done.err


def test_the_text_alone_is_on_stdout_and_statistics_are_on_stderr(ask, toy) -> None:
    done = ask("generate", "--verifier", str(toy), PROMPT, "--max-tokens", "40", "--timeline")
    events = ask("generate", "--verifier", str(toy), PROMPT, "--max-tokens", "40", "--json").lines
    assert done.code == 0
    assert events[-1]["event"] == "done"
    assert done.out == events[-1]["text"]
    for words in ("toy on mini-1", "40 tokens in", "tok/s", "acceptance length", "one column is"):
        assert words in done.err


def test_json_events_hold_the_whole_stream_once(ask, toy) -> None:
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


def test_log_probabilities_are_in_every_event_and_in_a_table_for_people(ask, toy) -> None:
    words = ["--verifier", str(toy), PROMPT, "--max-tokens", "20", "--log-probabilities", "2"]
    for block in ask("generate", *words, "--json").lines[1:-1]:
        assert {len(ranked) for ranked in block["alternatives"]} == {2}
        values = zip(block["token_ids"], block["log_probabilities"], strict=True)
        assert [*values] == [tuple(ranked[0].values()) for ranked in block["alternatives"]]
    table = r"^ *id +token +log p +likeliest\n(.*\n){20}mean log-probability -\d.*, perplexity \d"
    assert re.search(table, ask("generate", *words).err, re.M)


def test_the_same_stream_with_a_named_proposer_and_with_none(ask, toy) -> None:
    base = ["--verifier", str(toy), PROMPT, "--max-tokens", "48", "--json"]
    shaped = "--temperature 0.9 --min-p 0.05 --repetition-penalty 1.05 --logit-bias 7=-inf"
    for words in ("", "--temperature 0.9 --top-p 0.95 --seed 11", f"{shaped} --seed 12"):
        ends = {
            who: ask("generate", *base, *words.split(), "--speculation", who).lines[-1]
            for who in ("off", "ngram@mini-2")
        }
        assert len({end["sha256"] for end in ends.values()}) == 1
        assert ends["off"]["speculation"]["drafted_count"] == 0
        assert ends["ngram@mini-2"]["speculation"]["drafted_count"] > 0


def test_another_seed_gives_another_stream(ask, toy) -> None:
    base = ["--verifier", str(toy), PROMPT, "--max-tokens", "40", "--temperature", "1", "--json"]
    hashes = {seed: ask("generate", *base, "--seed", seed).lines[-1]["sha256"] for seed in "12"}
    assert len(set(hashes.values())) == 2


def test_a_drawn_seed_is_told_so_that_the_stream_can_be_had_again(ask, toy) -> None:
    base = ["--verifier", str(toy), PROMPT, "--max-tokens", "30", "--temperature", "1"]
    first = ask("generate", *base)
    seed = re.search(r"^seed (\d+)$", first.err, re.M).group(1)
    assert ask("generate", *base, "--seed", seed).out == first.out


def test_a_prompt_can_come_from_stdin_and_the_tokenizer_from_elsewhere(
    ask, fleet, agents, toy
) -> None:
    direct = ask("generate", "--verifier", str(toy), PROMPT, "--max-tokens", "20")
    words = ["--node", agents[0].address, "--tokenizer", str(toy), "-", "--max-tokens", "20"]
    piped = fleet.run("generate", *words, stdin=PROMPT)
    assert direct.code == piped.code == 0
    assert direct.out == piped.out


def test_an_empty_prompt_is_refused(ask, toy) -> None:
    done = ask("generate", "--verifier", str(toy), "-", stdin="")
    assert done.code == 2
    assert "the prompt is empty" in done.err


@pytest.mark.parametrize("proposer", ["dflash", "ngram@mini-7"])
def test_a_proposer_that_nobody_serves_is_said(ask, toy, proposer) -> None:
    done = ask("generate", "--verifier", str(toy), "--speculation", proposer, "x")
    assert done.code == 3
    assert "fleet status" in done.err
    assert done.out == ""


def test_a_node_that_does_not_serve_the_model_leads_to_the_one_that_does(ask, toy) -> None:
    words = ["--verifier", str(toy), PROMPT, "--max-tokens", "20"]
    assert ask("generate", *words, node=1).out == ask("generate", *words, node=0).out


def test_ctrl_c_in_mid_answer_is_at_once_and_stops_the_work_on_the_node(
    fleet, agents, toy, interrupt
) -> None:
    words = ["--verifier", str(toy), PROMPT, "--max-tokens", "1000000", "--json"]
    process = fleet.start("generate", "--node", agents[0].address, *words)
    for _ in range(5):
        process.stdout.readline()
    done, seconds = interrupt(process)
    assert done.code == 130
    assert "Traceback" not in done.err
    assert seconds < 0.5
    deadline = time.monotonic() + 10
    with Client(agents[0].address) as client:
        while client.fleet.node().load.generating_count:
            assert time.monotonic() < deadline, "the node still generates"


def test_verify_finds_both_streams_identical_and_shows_both_hashes(ask, toy, tmp_path) -> None:
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


def test_verify_of_json_prompts_with_sampling(ask, toy) -> None:
    prompts = json.dumps({"prompt": "a\nb\n" * 4}) + "\n"
    words = ["--prompts", "-", "--max-tokens", "40", "--tokenizer", str(toy), "--json"]
    done = ask("verify", *words, "--temperature", "0.8", stdin=prompts)
    prompt, verdict = done.lines
    assert done.code == 0
    assert prompt["identical"]
    assert prompt["with_proposer"]["sha256"] == prompt["alone"]["sha256"]
    assert verdict["proven"]
    assert verdict["drafted_count"] == prompt["drafted_count"] > 0


def test_verify_without_a_draft_has_proven_nothing(ask, toy) -> None:
    words = ["--prompts", "-", "--max-tokens", "1", "--tokenizer", str(toy)]
    done = ask("verify", *words, stdin="q\n")
    assert done.code == 1
    assert "nothing was proven" in done.out


def test_bench_measures_both_ways(ask, toy) -> None:
    words = ["--rounds", "1", "--max-tokens", "8", "--tokenizer", str(toy)]
    done = ask("bench", *words)
    assert done.code == 0
    assert "with proposer" in done.out
    assert "median of all" in done.out
    facts = ask("bench", *words, "--json").json
    assert len(facts["prompts"]) == 4
    assert facts["overall"]["identical"]
    assert facts["overall"]["tokens_per_second_alone"] > 0


def test_bench_of_a_restored_session(ask, toy) -> None:
    words = ["--rounds", "1", "--max-tokens", "4", "--tokenizer", str(toy), "--window", "8"]
    done = ask("bench", *words, "--kv", "restored", "--restorer", "identity", "--json")
    assert done.code == 0, done.err
    assert done.json["kv_strategy"] == "restored"
    refused = ask("bench", *words, "--restorer", "identity")
    assert refused.code == 2
    assert "needs --kv restored" in refused.err


def test_a_restored_plan_says_that_there_is_no_archive(ask) -> None:
    done = ask("plan", "--verifier", "toy", "--kv", "restored")
    assert done.code == 0
    assert "  - No live node has an archive for what is evicted" in done.out


def test_links_of_a_node_that_has_none(ask) -> None:
    done = ask("status", "--links")
    assert (done.code, done.out) == (0, "mini-1: no tensor links\n")
    assert ask("status", "--links", "--json").json == {"node": "mini-1", "tensor_links": []}
    assert ask("status", "--links", "--watch").code == 2


def test_a_hostfile_of_the_fleet_is_one_that_is_read_back(ask, agents, tmp_path) -> None:
    words = ["--backend", "gloo", "--nodes", f"mini-2,{agents[0].node_id[:8]}"]
    done = ask("hostfile", *words, "--ranks-per-node", "2", "--env", "A=1")
    assert done.code == 0, done.err
    made = parse_hostfile(done.out)
    assert made.backend is GroupBackend.GLOO
    assert made.hosts == (Host("127.0.0.1", ("127.0.0.1",)),) * 4
    assert made.envs == ("A=1",)
    assert done.err == "ranks 0 to 1 on mini-2, ranks 2 to 3 on mini-1\n"
    path = tmp_path / "hosts.json"
    written = ask("hostfile", *words, "--ranks-per-node", "2", "--env", "A=1", "-o", str(path))
    assert (written.code, written.out, path.read_text()) == (0, "", done.out)
    (one_line,) = ask("hostfile", *words, "--json").lines
    assert parse_hostfile(json.dumps(one_line)).rank_count == 2


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--nodes", "mini-1,mini-9"], 3, "mini-9: no node is called that"),
        (["--nodes", "mini-1", "--backend", "gloo"], 3, "mini-1: one rank is no group"),
        (["--nodes", "mini-1,mini-2", "--backend", "jaccl"], 3, "--rdma mini-1:mini-2=DEVICE"),
        (["--rdma", "mini-1=x"], 2, "is not A:B=DEVICE"),
        (["--nodes", "mini-1,mini-2", "--backend", "gloo", "-o", "/proc/nowhere"], 3, "nowhere"),
    ],
)
def test_a_hostfile_that_cannot_be_is_refused_in_one_sentence(ask, words, code, says) -> None:
    done = ask("hostfile", *words)
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert done.err.count("\n") == 1


def test_an_agent_says_ready_first_needs_no_tensors_and_drains_at_ctrl_c(
    lone_agent, interrupt
) -> None:
    process, ready = lone_agent()
    assert ready["event"] == "ready"
    assert re.fullmatch(r"[0-9a-f]{64}", ready["node_id"])
    assert re.fullmatch(r"127\.0\.0\.1:\d+", ready["address"])
    maps = f"/proc/{process.pid}/maps"
    if os.path.exists(maps):
        with open(maps) as libraries:
            assert "libtorch" not in libraries.read()
    done, _ = interrupt(process)
    assert done.code == 0
    assert [event["event"] for event in done.lines][-2:] == ["draining", "left"]
    assert "Traceback" not in done.err


def test_a_port_in_use_is_said_with_its_mend(fleet, agents, tmp_path) -> None:
    address = agents[1].address
    state = str(tmp_path / "other")
    done = fleet.run("join", "--state", state, "--bind", address, "--no-mdns")
    assert done.code == 3
    assert address.rpartition(":")[2] in done.err
    assert done.err.count("\n") == 1


def test_two_agents_cannot_share_a_state(fleet, agents) -> None:
    done = fleet.run("join", "--state", str(agents[1].options.state), "--no-mdns")
    assert done.code == 3
    assert "--state" in done.err


@pytest.mark.parametrize(
    ("words", "says", "in_process"),
    [
        (["--serve", "verifier=no/such-model"], "no/such-model", False),
        (["--serve", "verifier=nowhere"], "'nowhere'", False),
        (["--serve", "poet=tiny"], "poet", False),
        (["--serve", "ngram"], "verifier=MODEL", False),
        # Refused before anything of a node is there.
        (["--bind", "0.0.0.0:0"], "--insecure", True),
        (["--config", "/nope.toml"], "--config", True),
        (["--name", "a/b"], "name", True),
    ],
)
def test_an_agent_that_cannot_start_says_why_in_one_sentence(
    fleet, tmp_path, words, says, in_process
) -> None:
    words = ["join", "--state", str(tmp_path / "s"), "--no-mdns", *words]
    done = run_here(words, fleet.environment) if in_process else fleet.run(*words)
    assert done.code in (2, 3)
    assert says in done.err
    assert "Traceback" not in done.err
    last = done.err.splitlines()[-1]
    assert last.startswith("fleet: ")


def test_the_ready_block_gives_the_exact_next_command(fleet, tmp_path) -> None:
    process = fleet.start(
        "join",
        "--name",
        "mini-1",
        "--state",
        str(tmp_path / "s"),
        "--no-mdns",
        "--serve",
        "proposer=ngram",
    )
    try:
        block = ""
        while "Ctrl-C" not in block:
            block += process.stdout.readline()
        address = re.search(r"address +(\S+)", block).group(1)
        assert f"fleet join --name mini-2 --serve verifier=tiny --peer {address}" in block
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
        assert "left the fleet" in out
        assert err == ""
        assert process.returncode == 0
    finally:
        process.kill()


def test_leave_of_a_local_agent_waits_until_its_process_is_gone(fleet) -> None:
    process = fleet.start(
        "join", "--json", "--name", "solo", "--no-mdns", "--serve", "proposer=ngram"
    )
    try:
        json.loads(process.stdout.readline())
        done = fleet.run("leave", "--json")
        assert done.code == 0
        assert done.json["name"] == "solo"
        assert process.wait(0.5) == 0
        assert fleet.run("status").code == 3
    finally:
        process.kill()
        process.communicate()


def test_until_a_node_answers_others_hear_that_it_starts(fleet, tmp_path) -> None:
    record = tmp_path / "state" / "kakeya" / "slow" / "agent.json"
    process = fleet.start(
        "join", "--json", "--name", "slow", "--no-mdns", "--serve", "proposer=ngram"
    )
    try:
        while not record.exists():
            time.sleep(0.005)
            assert process.poll() is None
        # As long as anyone wants to look: it imports what it needs.
        process.send_signal(signal.SIGSTOP)
        done = fleet.run("status", "--json")
        assert done.json["error"]["reason"] == "NODE_STARTING"
        assert done.json["error"]["metadata"] == {"node": "slow", "pid": str(process.pid)}
        process.send_signal(signal.SIGCONT)
        assert json.loads(process.stdout.readline())["event"] == "ready"
        assert fleet.run("status").code == 0
    finally:
        process.kill()
        process.communicate()
    assert fleet.run("status", "--json").json["error"]["reason"] == "NO_LOCAL_NODE"
