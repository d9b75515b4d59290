"""How the numbers within sentences come of their reports, as they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.write.figures_register import Report
from scripts.write.figures_tables import KV

FAST = "restored, archive over 10 Gbit/s + 0.1 ms"
RESTORED_GOAL = 0.6
AT_ARCHIVE, READ_BACK = "at the archive", "at the verifier, over plain TCP"
OVER_A_WIRE = (FAST, "restored, archive over 1 Gbit/s + 0.3 ms")


def cell(found: Report, kind: str, sampling: str = "greedy") -> Mapping[str, Any]:
    """One kind of prompts of the pair's report."""
    named = {(one["kind"], one["sampling"]): one for one in found["cells"]}
    wanted: Mapping[str, Any] = named[kind, sampling]
    return wanted


def over(found: Report, kind: str, side: str = f"remote {KV}") -> list[str]:
    """A ratio to the fastest plain decoding, greedy, and its interval."""
    ratio = cell(found, kind)["ratios"][side]["over_fastest_plain"]
    return [f"{value:.2f}" for value in (ratio["median"], *ratio["interval_95"])]


def verdict(value: float, goal: float) -> str:
    """Whether a goal is met."""
    return "met" if value >= goal else "missed"


def pair_goals(found: Report) -> list[str]:
    """Each goal of the pair with its figures."""
    code, random = cell(found, "code"), cell(found, "random", "sampled")
    speed = code["ratios"][f"remote {KV}"]["over_fastest_plain"]["median"]
    length = code["sides"][f"remote {KV}"]["tokens_per_forward"]
    worst = random["ratios"][f"remote {KV}"]["over_fastest_plain"]["median"]
    return [
        verdict(speed, 2.0),
        f"{speed:.2f}",
        over(found, "package")[0],
        verdict(length, 4.0),
        f"{length:.2f}",
        verdict(worst, 0.95),
        f"{worst:.2f}",
    ]


def pair_projected(found: Report) -> list[str]:
    """Drafts for a session that restores by projection, on code."""
    code = cell(found, "code")
    name = "restored:projection"
    ratio = code["ratios"][f"remote {name}"]["over_alone_with_the_same_kv"]["median"]
    speeds = (
        code["sides"][f"{side} {name}"]["tokens_per_second_median"] for side in ("remote", "alone")
    )
    return [f"{ratio:.1f}", *(f"{speed:,.0f}" for speed in speeds)]


def kept_by_pair(found: Report) -> list[str]:
    """What the loop keeps with the shipped pair on another node: least and most of the kinds."""
    shares = [
        one["sides"][f"remote {KV}"]["loop_efficiency"]["median"]
        for one in found["cells"]
        if one["sampling"] == "greedy"
    ]
    return [f"{min(shares):.2f}", f"{max(shares):.2f}"]


def loop(found: Report) -> dict[str, list[float]]:
    """Efficiencies by place."""
    places: dict[str, list[float]] = {}
    for one in found["cells"]:
        places.setdefault(one["place"], []).append(one["efficiency"]["median"])
    return places


def loop_prose(found: Report) -> list[str]:
    """The oracle's step, and what the loop keeps of it."""
    places = loop(found)
    step = found["verify_step_seconds"]["8"]["median"]
    return [
        f"{1e3 * step:.0f}",
        f"{places['in_process'][0]:.2f}",
        f"{min(places['remote']):.2f}",
        f"{max(places['remote']):.2f}",
        f"{found['rounds']}",
    ]


def needle_recall(found: Report) -> list[str]:
    """At the longest context, by way of keeping."""
    strategies = found["rungs"][-1]["strategies"]
    names = ("full", "sink_window", "restored archive", "restored projection")
    return [f"{100 * strategies[name]['recall']:g}" for name in names]


def needle_controls(found: Report) -> list[str]:
    """Full attention at the controls' longest context: copies, of how many, and of four facts."""
    last = {one["control"]: one for one in found["controls"]}
    absent, four = (last[name]["strategies"]["full"] for name in ("absent key", "4 facts"))
    context = last["absent key"]["context_tokens"]
    return [f"{context:,}", f"{absent['hits']}", f"{absent['cases']}", f"{four['hits']}"]


def needle_bytes(found: Report) -> list[str]:
    """KiB that the verifier keeps, and MiB of full attention."""
    first, last = (found["rungs"][index]["strategies"] for index in (0, -1))

    def kept(rung: Mapping[str, Any], name: str) -> int:
        return int(rung[name]["anatomy"]["sustained_kv_bytes"])

    for name in ("restored archive", "restored projection"):
        if kept(first, name) != kept(last, name):
            raise ValueError(f"{name} keeps more at a longer context")
    return [
        f"{kept(last, 'restored archive') / 1024:.0f}",
        f"{kept(last, 'restored projection') / 1024:.0f}",
        f"{kept(first, 'full') / 2**20:.0f}",
        f"{kept(last, 'full') / 2**20:.0f}",
    ]


def needle_kept(found: Report) -> list[str]:
    """Bytes that the archive keeps at the longest context, the same of both restorers."""
    strategies = found["rungs"][-1]["strategies"]
    kept = {
        strategies[name]["anatomy"]["restorer_bytes"]
        for name in ("restored archive", "restored projection")
    }
    return [f"{count:,}" for count in kept]


def needle_gaps(found: Report) -> list[str]:
    """How far projection is from full attention, at the shortest and the longest context."""
    first, last = (found["rungs"][i]["strategies"]["restored projection"] for i in (0, -1))
    return [
        f"{first['kl_nats_mean']:.3f}",
        f"{last['kl_nats_mean']:.3f}",
        f"{100 * first['argmax_agreement']:.0f}",
        f"{100 * last['argmax_agreement']:.0f}",
    ]


def constant(found: Report) -> list[str]:
    """Lengths between which the verifier's bytes are constant, and a step's peak."""
    memory = found["memory"]
    cells = memory["strategies"]["restored archive"]["cells"]
    peaks = {one["peak_step_bytes"] for one in cells}
    if not memory["verifier_bytes_constant"] or len(peaks) > 1:
        raise ValueError("bytes grow with the length")
    ends = (memory["lengths"][0], memory["lengths"][-1])
    return [*(f"{end:,}" for end in ends), "0", f"{peaks.pop() / 1e3:.0f}"]


def restored_goal(found: Report) -> list[str]:
    """Cells of the table of restored steps that meet the goal, and all of them."""
    ratios = [
        one["strategies"][name]["over_full"]["median"]
        for one in found["shipped"]["cells"]
        for name in ("restored archive", "restored projection")
    ]
    return [f"{sum(ratio >= RESTORED_GOAL for ratio in ratios)}", f"{len(ratios)}"]


def archive_bytes(found: Report) -> list[str]:
    """The verifier's K/V, what the processes take, and what travels in a step."""
    memories = [
        context["sides"][side]["memory"]
        for context in found["contexts"]
        for side in ("restored, archive over loopback", *OVER_A_WIRE)
    ]
    kv = {memory["verifier_kv_bytes"] for memory in memories}
    grown = [memory["verifier_resident_bytes"] / 1e6 for memory in memories]
    payload = found["verdict"]["payload_bytes_a_token"][FAST]["1"]
    return [
        *(f"{count / 1e6:.1f}" for count in kv),
        f"{found['verdict']['verifier_kv_bytes_slope'][FAST]:g}",
        f"{min(grown):.0f}",
        f"{max(grown):.0f}",
        f"{max(memory['archive_resident_bytes'] for memory in memories) / 1e9:.1f}",
        *(f"{count:,.0f}" for count in set(payload)),
    ]


def archive_over_full(found: Report) -> str:
    """Over the faster network at 8,192 tokens."""
    return f"{found['verdict']['over_full']['8192'][FAST]['1']['median']:.2f}"


def attending(found: Report) -> list[str]:
    """What reading keys and values back would send and cost, over the wires and over loopback."""
    told = found["verdict"]
    first = [cell for cell in found["cells"] if cell["network"] != "loopback"]
    token, prompt = (next(cell for cell in first if cell["rows"] == rows) for rows in (1, 64))
    wires = [told[f"{rows} over networks"] for rows in (1, 64)]
    hosts = [told[f"{rows} over loopback"] for rows in (1, 64)]
    return [
        _wire_megabytes(token, READ_BACK),
        _wire_megabytes(token, AT_ARCHIVE),
        _wire_megabytes(prompt, AT_ARCHIVE),
        *(f"{ratios[end]:.2f}" for ratios in wires for end in ("least", "most")),
        *(
            f"{sum(ratios[count] for ratios in where)}"
            for where in (wires, hosts)
            for count in ("ahead", "cells")
        ),
        f"{found['rounds']}",
    ]


def _wire_megabytes(cell: Mapping[str, Any], way: str) -> str:
    return f"{cell['ways'][way]['wire_bytes_a_step']['median'] / 1e6:.1f}"


def promoted(found: Report) -> list[str]:
    """What links left to themselves chose, and what came of it."""
    host, ring = found["promotion"]["same host"], found["promotion"]["ring only"]
    return [
        f"{len(host['links'])}",
        f"{host['chosen']['local']}",
        f"{host['after_over_grpc_of_promoted']['median']:.2f}",
        f"{host['chosen']['grpc']}",
        f"{ring['chosen']['ring']}",
        f"{ring['after_over_grpc_of_promoted']['median']:.2f}",
        f"{ring['chosen']['grpc']}",
        f"{host['after_over_grpc']['median']:.2f}",
        f"{ring['after_over_grpc']['median']:.3f}",
        f"{host['most_after_over_grpc']:.2f}",
        f"{ring['most_after_over_grpc']:.2f}",
    ]


def large_transfers(found: Report) -> list[str]:
    """Milliseconds of 64 MiB."""
    ways = ("raw TCP", "link over gRPC", "link over shared memory", "link over the ring")
    seconds = {
        one["way"]: one["seconds"]["median"]
        for one in found["payloads"]["cells"]
        if one["payload_bytes"] == 64 << 20
    }
    return [f"{1e3 * seconds[way]:.0f}" for way in ways]


def features(found: Report) -> list[str]:
    """Bytes a token of the history, and tokens a second by kind of link."""
    sides = found["sides"]
    sizes = [side["bytes_a_token"] for side in sides.values() if side["bytes_a_token"]]
    kinds = ("in process", "grpc", "local", "ring", "auto")
    return [
        f"{min(sizes):.0f}",
        f"{max(sizes):.0f}",
        *(f"{sides[kind]['tokens_per_second']['median']:,.0f}" for kind in kinds),
    ]


def decode_cell(found: Report, context: int) -> Mapping[str, Any]:
    """One context of the shape that is measured."""
    named = {one["context"]: one for one in found["cells"]}
    wanted: Mapping[str, Any] = named[context]
    return wanted


def decode_goals(found: Report) -> list[str]:
    """Each goal with its figure."""
    short, long = decode_cell(found, 256), decode_cell(found, 8192)
    figures = (
        (short["ratios"]["torch_over_fastest_rival"], 1.3),
        (long["ratios"]["torch_over_fastest_rival"], 3.0),
        (short["sides"]["torch"]["share_of_bound"], 0.6),
    )
    return [words for value, goal in figures for words in (verdict(value, goal), f"{value:.2f}")]


def prompts(found: Report) -> list[str]:
    """Tokens, of a prompt and of a chunk, rounds, and the goal with its figure."""
    (own,) = found["by_model"].values()
    ratio = own["over_fastest_rival"]
    return [
        f"{found['prompt_tokens']:,}",
        f"{found['chunk_tokens']}",
        f"{found['rounds']}",
        f"{found['machine']['threads_a_process']}",
        verdict(ratio, 1.0),
        f"{ratio:.2f}",
    ]


def decode_row(found: Report) -> list[str]:
    """Over either cache at 8,192 tokens, float32."""
    ratios = decode_cell(found, 8192)["ratios"]
    names = ("torch_over_transformers_static", "torch_over_transformers")
    return [f"{ratios[name]:.2f}" for name in names]


def one_session(found: Report) -> list[str]:
    """Turns of one session of the edited checkpoint, and a turn at both ends."""
    run = next(
        one for one in found["runs"] if one["kind"] == "sink_window" and one["sessions"] == 1
    )
    return [
        f"{run['turns']:,}",
        f"{1e3 * run['first_tenth_p50']:.0f}",
        f"{1e3 * run['last_tenth_p50']:.0f}",
    ]


def shipped_turns(found: Report) -> list[str]:
    """Positions of the shipped checkpoint, and whole turns within them."""
    positions, turn = found["positions"]["shipped"], found["turn"]
    return [f"{positions:,}", f"{positions // (turn['appended'] + turn['generated'])}"]


def soak(found: Report) -> list[str]:
    """How long, in how many sittings, and what failed."""
    told = found["totals"]
    return [
        f"{told['hours']:.1f}",
        f"{told['sittings']}",
        verdict(told["hours"], 4.0),
        f"{told['longest_sitting_hours']:.1f}",
        f"{told['turns']:,}",
        f"{sum(told['failures'].values())}",
        *(f"{told[name]:,}" for name in ("cancelled", "forked", "sessions_opened", "probes")),
        f"{told['probes_that_differed']}",
    ]


def soak_row(found: Report) -> list[str]:
    """The same in the README."""
    told = found["totals"]
    return [
        f"{told['hours']:.1f}",
        f"{told['sittings']}",
        f"{told['turns']:,}",
        f"{sum(told['failures'].values())}",
        f"{told['probes_that_differed']}",
        f"{told['probes']:,}",
    ]


def dashboard_row(found: Report) -> list[str]:
    """What a person waits for, of the page."""
    streaming = found["streaming"]
    return [
        f"{found['first_page_seconds']['median']:.2f}",
        f"{found['update_milliseconds']['median'] + 0.01:.0f}",
        f"{found['update_milliseconds']['largest']:.0f}",
        f"{streaming['frames_per_second']:.1f}",
        f"{streaming['empty_page_frames_per_second']:.1f}",
        f"{found['javascript']['gzip_bytes'] / 1e3:.0f}",
    ]


def streaming(found: Report) -> list[str]:
    """Frames while fifty nodes stream."""
    told = found["streaming"]
    return [
        f"{told['nodes']}",
        f"{told['seconds']}",
        f"{told['frames_per_second']:.1f}",
        f"{told['empty_page_frames_per_second']:.1f}",
        f"{told['frame_milliseconds_p50']:.1f}",
        f"{told['frame_milliseconds_p95']:.1f}",
        f"{told['long_task_count']}",
    ]


def answers(found: Report) -> list[str]:
    """An answer through the SDK, over HTTP and with OpenAI's client, and their first tokens."""
    sides = [found["sides"][name] for name in ("sdk", "http", "openai")]
    return [
        f"{found['tokens_an_answer']}",
        *(f"{side['tokens_per_second']:.0f}" for side in sides),
        *(f"{1e3 * side['first_token_seconds_median']:.0f}" for side in sides),
    ]


def last_turns(found: Report) -> list[str]:
    """Milliseconds to the first token of a chat's last turn, what HTTP's are to them, the goal."""
    turns = found["first_token_seconds_by_turn"]
    return [
        *(f"{1e3 * turns[side][-1]:.0f}" for side in ("session", "http", "http_fresh")),
        f"{found['last_turn']['http_to_session']:.2f}",
        f"{found['last_turn']['goal']:g}",
    ]


def commands(found: Report, *names: str) -> list[str]:
    """Median seconds of commands."""
    return [f"{found['commands'][name]['median_seconds']:.2f}" for name in names]


def joins(found: Report, key: str) -> list[str]:
    """Median seconds of joining or leaving."""
    return [f"{one[key]:.1f}" for one in found["joins"].values()]


def watchers(found: Report) -> list[str]:
    """Tokens a second by watchers, and the least and most of all rounds."""
    sides = [side["tokens_per_second"] for side in found["by_watchers"].values()]
    return [
        *(f"{side['median']:.0f}" for side in sides),
        f"{found['rounds']}",
        f"{min(side['least'] for side in sides):.0f}",
        f"{max(side['most'] for side in sides):.0f}",
    ]


def busy(found: Report) -> list[str]:
    """What ten minutes of load showed."""
    asked, answered = found["asked"], found["control_plane_ms"]
    tenths = found["held_by_tenth"]
    kept = (tenths[1], tenths[-1])
    return [
        f"{asked['seconds'] / 60:.0f}",
        f"{asked['generations']}",
        f"{asked['watches']:,}",
        f"{asked['archives']}",
        f"{found['sessions_per_second']:.0f}",
        f"{asked['sessions_per_second']:.0f}",
        f"{answered['Check']['p99']:.0f}",
        f"{answered['GetNode']['p99']:.0f}",
        f"{found['least_over_median_tokens']:.2f}",
        *(f"{each['descriptors']:.0f}" for each in kept),
        *(f"{each['threads']:.0f}" for each in kept),
        *(f"{each['resident_bytes'] / 1e6:.0f}" for each in kept),
        f"{sum(found['refused'].values()):,}",
    ]


def encrypted_drafts(found: Report) -> list[str]:
    """Medians with and without encryption, and their ratio."""
    draft, opening = found["draft"], found["opening"]
    return [
        f"{draft['tls_us']:.0f}",
        f"{draft['plain_us']:.0f}",
        f"{draft['ratio']:.2f}",
        f"{opening['tls_us'] / 1000:.1f}",
        f"{opening['plain_us'] / 1000:.1f}",
    ]


def hours_of_loss(found: Report) -> list[str]:
    """Simulated hours, and the living who were buried in them."""
    (row,) = found["hours_of_loss"]
    return [f"{row['hours']:g}", f"{row['false_deaths']}"]


def storms(found: Report) -> list[str]:
    """Kinds of storms, runs of them, those that were weathered, and false deaths in all."""
    rows = found["storms"]
    return [
        f"{len(rows)}",
        f"{sum(row['samples'] for row in rows)}",
        f"{sum(row['kept'] for row in rows)}",
        f"{sum(row['false_deaths'] for row in rows)}",
    ]


def attacked(found: Report) -> list[str]:
    """What the attacks cost at most."""
    each = found["of"].values()
    return [
        f"{len(found['of'])}",
        f"{max(one['slowest_answer_ms'] for one in each):.0f}",
        f"{max(one['peak_rise_bytes'] for one in each) / 1e6:.0f}",
    ]


def fuzzed(found: Report) -> list[str]:
    """What a million mutated messages did."""
    sent, calls = found["messages_by_service"], found["calls_by_caller"]
    strangers = sum(count for port, count in sent.items() if port.startswith("ports of members"))
    return [
        f"{found['messages']:,}",
        f"{found['seconds'] / 60:.0f}",
        f"{calls['a member']:,}",
        f"{calls['a program of the machine']:,}",
        f"{strangers:,}",
        f"{sent['kakeya.v1.JoinService']:,}",
        f"{found['internal_or_unknown']:,}",
        f"{sum(found['log']['raised'].values()) + sum(found['log']['errors'].values()):,}",
        f"{len(found['answers_that_differ'])}",
        *_risen(found),
    ]


def fuzzed_dashboard(found: Report) -> list[str]:
    """What became of the dashboard meanwhile."""
    return [*_risen(found["dashboard"]), f"{len(found['dashboard']['complaints'])}"]


def _risen(found: Report) -> tuple[str, str]:
    """Resident MB of the first tenth, and by how many per cent a later one was above it."""
    first = found["held_by_tenth"][0]["resident_bytes"]
    return f"{first / 1e6:.0f}", f"{100 * found['rise_after_the_first_tenth']:.1f}"


def described(found: Report) -> list[str]:
    """What schemathesis found."""
    cases = found["found"]["test_cases"]
    return [f"{cases['generated']:,}", f"{cases['unique_failures']:,}"]


def published_decoding(found: Report) -> list[str]:
    """Tokens a second here with each kind of weights, and llama.cpp's with its own."""
    tokens = found["tokens_per_second"]
    names = (
        *(f"kakeya {weights}" for weights in ("auto", "int8", "int4")),
        *(f"llama.cpp {kind}" for kind in ("BF16", "Q8_0", "Q4_0")),
    )
    return [f"{tokens[name]['decode']['median']:.0f}" for name in names]


def published_settings(found: Report) -> list[str]:
    """Behind how much, and how often."""
    rounds = len(found["tokens_per_second"]["kakeya auto"]["decode"]["rounds"])
    return [
        f"{found['context_tokens']:,}",
        f"{found['prompt_tokens']:,}",
        f"{found['sessions_together']}",
        f"{rounds}",
        f"{found['machine']['threads_a_process']}",
    ]


def loading(found: Report) -> list[str]:
    """Of each model: seconds of a later start and of the first, bytes at the peak by weights."""
    told = []
    for each in found["models"].values():
        told += [f"{each['later_median_seconds']:.1f}", f"{each['first_seconds']:.0f}"]
        told += [f"{each['peak_over_libraries_of_weights']:.2f}"]
    return told


def four_machines(found: Report) -> list[str]:
    """Tokens, and seconds from the order's beginning until the others knew no such member."""
    return [f"{found['tokens']:,}", f"{found['gone_after_begin_seconds']:.1f}"]


def weights_quality(found: Report) -> list[str]:
    """Tokens of text, places that were looked at, and tokens of a prompt with a fact."""
    return [f"{found['tokens']:,}", f"{found['places']:,}", f"{found['needle_tokens']:,}"]
