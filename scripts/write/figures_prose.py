"""The numbers within sentences of docs/figures.md, and the rows of the README's table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scripts.write.figures_register import FIGURES, README, Report, Said
from scripts.write.figures_tables import KV, TINY
from scripts.write.figures_values import (
    answers,
    archive_bytes,
    archive_over_full,
    attacked,
    attending,
    busy,
    commands,
    constant,
    dashboard_row,
    decode_goals,
    decode_row,
    described,
    encrypted_drafts,
    features,
    four_machines,
    fuzzed,
    fuzzed_dashboard,
    hours_of_loss,
    joins,
    kept_by_pair,
    large_transfers,
    last_turns,
    loading,
    loop_prose,
    needle_bytes,
    needle_controls,
    needle_gaps,
    needle_kept,
    needle_recall,
    one_session,
    over,
    pair_goals,
    pair_projected,
    promoted,
    prompts,
    published_decoding,
    published_settings,
    restored_goal,
    shipped_turns,
    soak,
    soak_row,
    storms,
    streaming,
    watchers,
    weights_quality,
)


def readme(words: str, name: str, values: Callable[[Report], Sequence[str]]) -> Said:
    """A row of the README's table."""
    return Said(README, words, name, values)


def prose(words: str, name: str, values: Callable[[Report], Sequence[str]]) -> Said:
    """A stretch of docs/figures.md."""
    return Said(FIGURES, words, name, values)


ROWS = (
    readme(
        "| {}, {}, {} ({}, {}, {}) | two threads, no drafter",
        "published_speed",
        published_decoding,
    ),
    prose(
        "Greedy decoding behind {} tokens, a prompt of {}, and {} sessions in one forward; all "
        "sides take turns in one run of {} rounds, with {} threads",
        "published_speed",
        published_settings,
    ),
    prose(
        "on {} tokens of this repository's docs, behind {} of them, and of facts in such text, "
        "prompts of {} tokens",
        "weights_quality",
        weights_quality,
    ),
    prose(
        "it is ready {} s after its start, {} s the first time, and has {} times its weights at "
        "the peak, over what the libraries take; random weights of Llama-3.2-1B's shape {}, {} s "
        "and {} times.",
        "model_loading",
        loading,
    ),
    prose(
        "Of an answer of {} tokens every one was that of the verifier alone, and the others had "
        "put the member out {} s after the order was given (goal: two periods of a second).",
        "four_machines",
        four_machines,
    ),
    readme(
        "| {} ({} to {}); {} ({} to {}) | `tiny`, 3.8 M parameters: held-out files",
        "speculation",
        lambda found: [*over(found, "code"), *over(found, "package")],
    ),
    readme(
        "packages that it never saw; {} prompts of each",
        "speculation",
        lambda found: [f"{found['prompts_a_kind']}"],
    ),
    readme(
        "| {} ({} to {}); {} ({} to {}) | the same prompts and run",
        "speculation",
        lambda found: [
            *over(found, "code", f"remote {KV} ngram"),
            *over(found, "package", f"remote {KV} ngram"),
        ],
    ),
    readme(
        "| {} to {} | an oracle with steps of {} ms",
        "loop",
        lambda found: [*loop_prose(found)[2:4], loop_prose(found)[0]],
    ),
    readme("; the shipped pair's loop: {} to {} |", "speculation", kept_by_pair),
    readme("| {}, {}, {}, {} % | `tiny`, 200 cases of one fact", "needle", needle_recall),
    readme(
        "with full attention at {} tokens it copies in {} of {} when asked for a key that is "
        "nowhere, and answers {} with 4 facts",
        "needle",
        needle_controls,
    ),
    readme(
        "| {} MB, constant | Qwen3-0.6B's shape", "archive", lambda found: archive_bytes(found)[:1]
    ),
    readme(
        "| {} | the same weights; two processes",
        "archive",
        lambda found: [archive_over_full(found)],
    ),
    readme("| {}, {}, {}, {} ms | medians; one host", "links", large_transfers),
    readme("| {} ({}) | random weights, bfloat16", "decode", decode_row),
    readme(
        "| {} turns of one session: a turn, first tenth and last tenth | {}, {} ms |",
        "sessions",
        one_session,
    ),
    readme(
        "sessions of the shipped one end at {} positions",
        "sessions",
        lambda found: [shipped_turns(found)[0]],
    ),
    readme(
        "| {} hours, sittings: {}; {} turns, {} failed; {} of {} probes differed |",
        "soak",
        soak_row,
    ),
    readme(
        "| {} s; {} ({}) ms; {} ({}); {} KB gzip for the first view |", "dashboard", dashboard_row
    ),
    readme(
        "| {}, {} ({}) tokens/s |",
        "typescript",
        lambda found: [
            f"{found['clients'][name]['block_1']['tokens_per_second_median']:,}"
            for name in ("typescript_node", "typescript_bun", "python_async")
        ],
    ),
    readme(
        "| an answer of {} tokens: SDK, HTTP, OpenAI's client; first token | {}, {}, {} tokens/s; "
        "{}, {}, {} ms |",
        "http",
        answers,
    ),
    readme(
        "| {}, {}, {} s |",
        "cli",
        lambda found: commands(found, "fleet --help", "fleet status", "fleet <tab>"),
    ),
)

SAID = (
    *ROWS,
    prose(
        "96 tokens of prompt and 200 of answer, {} prompts of a kind",
        "speculation",
        lambda found: [f"{found['prompts_a_kind']}"],
    ),
    prose(
        "greedy: **{}** ({}; {} on packages). An acceptance length of 4 there: **{}** ({}). 0.95 "
        "where drafting does not pay, random ids at temperature 0.7: **{}** ({}).",
        "speculation",
        pair_goals,
    ),
    prose(
        "make code {} times as fast as the same session alone ({} against {} tokens a second)",
        "speculation",
        pair_projected,
    ),
    prose(
        "bfloat16, steps of {} ms, and an oracle",
        "loop",
        lambda found: loop_prose(found)[:1],
    ),
    prose(
        "{} in process, {} to {} remote, with 0, 1, 5 and 20 ms added to the round trip (goal 0.9; "
        "rounds of each place: {})",
        "loop",
        lambda found: loop_prose(found)[1:],
    ),
    prose(
        "(`--parts controls`, {} cases each)",
        "needle",
        lambda found: [f"{found['controls'][0]['strategies']['full']['cases']}"],
    ),
    prose("learned linear map: {} bytes at 2,000 tokens, either way", "needle", needle_kept),
    prose(
        "Its logits are {} nats (128 tokens) to {} (2,000) from full attention's, its first choice "
        "is full attention's at {} % to {} % of positions",
        "needle",
        needle_gaps,
    ),
    prose(
        "The verifier keeps {} KiB ({} with vectors) at every context, full attention {} to {} MiB",
        "needle",
        needle_bytes,
    ),
    prose(
        "constant from {} to {} tokens of history (slope {}; a toy of random weights), and so is a "
        "step's peak when the archive is another process: {} KB at every length",
        "restored",
        constant,
    ),
    prose("Goal 0.6 of full attention's speed: met in {} of {} cells.", "restored", restored_goal),
    prose(
        "The verifier's own K/V is {} MB at every context (slope {}), and its process grows by {} "
        "to {} MB; the archive's is up to {} GB; a step sends and receives {} bytes",
        "archive",
        archive_bytes,
    ),
    prose("is met ({}); beyond a host's", "archive", lambda found: [archive_over_full(found)]),
    prose(
        "a step of one token would receive {} MB in place of the {} MB that cross, and one of 64 "
        "tokens of a prompt as much in place of {} MB. Even over plain TCP, with nothing around "
        "the bytes, and with the archive's core shared with three busy processes in half of the "
        "cells, the evicted positions' part of a step is {} to {} times as fast so for one token "
        "over the wires, and {} to {} times for 64: ahead in {} of {} cells. Over loopback, where "
        "an archive saves its verifier's host nothing, it is ahead in {} of {}. Interleaved, "
        "medians of {} rounds",
        "attend",
        attending,
    ),
    prose(
        "Of {} links left to themselves, with payloads of 64 KiB to 8 MiB, {} went to shared "
        "memory ({} times the time of gRPC beside them) and {} stayed; with the ring alone, {} "
        "took it ({}) and {} stayed. The median link is no slower than one that stays on gRPC "
        "({} and {}; the worst {} and {}).",
        "links",
        promoted,
    ),
    prose(
        "are {} to {} bytes a token of the history. Tokens a second with the proposer in process "
        "{}, on another node over gRPC {}, shared memory {}, the ring {}; left to itself the link "
        "stays on gRPC, for vectors this small, {}:",
        "features",
        features,
    ),
    prose(
        "threads: {}, rounds: {}; `python",
        "decode",
        lambda found: [f"{found['threads']['torch']}", f"{found['rounds']}"],
    ),
    prose(
        "1.3 times at 256 tokens **{}** ({}), 3 times at 8,192 **{}** ({}), 0.6 of the bound at "
        "256 **{}** ({}).",
        "decode",
        decode_goals,
    ),
    prose(
        "Prompts of {} tokens at that shape, in chunks of {}; all sides take turns in {} rounds, "
        "with {} threads each. The goal, at least as fast as the fastest rival, is **{}** ({}).",
        "prompts",
        prompts,
    ),
    prose("ends at its {} positions, after {} such turns", "sessions", shipped_turns),
    prose(
        "{} hours, sittings: {}: the goal of 4 hours is **{}**, though not at a stretch: the "
        "longest sitting took {} hours. {} turns, {} failed; {} answers were left, {} sessions "
        "forked, {} opened; {} probes, of which {} differed.",
        "soak",
        soak,
    ),
    prose(
        "{} minutes of {} sessions that generate, {} idle watches and {} restored sessions: {} "
        "sessions a second were opened and closed of the {} that were asked for; health and "
        "GetNode answered within {} and {} ms (p99); the session with the fewest tokens had {} of "
        "the median; descriptors {} and {}, threads {} and {}, resident memory {} and {} MB in the "
        "second and the last tenth; {} calls were refused.",
        "load",
        busy,
    ),
    prose(
        "{} mutated messages in {} minutes, {} calls by a member, {} by a program of the machine, "
        "{} messages by strangers at ports of members and {} of joins: {} INTERNAL or UNKNOWN, {} "
        "tracebacks, {} answers that differ; resident memory {} MB in the first tenth and at most "
        "{} % above it later.",
        "fuzz",
        fuzzed,
    ),
    prose(
        "Its dashboard had {} MB in the first tenth, at most {} % above it later, and said {} "
        "lines of complaint.",
        "fuzz",
        fuzzed_dashboard,
    ),
    prose(
        "{} requests, {} answers that the description does not name.",
        "http_schema",
        described,
    ),
    prose(
        "{} attacks: the slowest answer to health or GetNode took {} ms, memory rose by {} MB at "
        "most.",
        "attacks",
        attacked,
    ),
    prose(
        "A draft's round trip takes {} us by mutual TLS, {} us in plain text: {} times. Opening a "
        "connection and a stream takes {} ms, and {} in plain text.",
        "draft_tls",
        encrypted_drafts,
    ),
    prose(
        "{} kinds of storms, {} runs: {} were weathered, with {} false deaths.",
        "membership",
        storms,
    ),
    prose("{} were run, with {} false deaths.", "membership", hours_of_loss),
    prose(
        "{} times (goal 5): against this engine",
        "generation",
        lambda found: [f"{found['comparison']['cached_over_recomputed']:.1f}"],
    ),
    prose(
        "{} chat prompts, {} tokens decoded greedily; {} choices differ, {} weights differ in a "
        "bit, logits are at most {} apart, and the smallest lead of a chosen token was {}.",
        "published_model",
        lambda found: [
            f"{found['prompts']}",
            f"{found['tokens']:,}",
            f"{found['choices_that_differ']}",
            f"{len(found['weights_that_differ'])}",
            f"{found['largest_logit_distance']:.5f}",
            f"{found['smallest_lead']:.5f}",
        ],
    ),
    prose(
        "({} bits per byte on held-out files",
        TINY,
        lambda found: [f"{found['held_out']['full']['bits_per_byte']:.2f}"],
    ),
    prose(
        "name on the screen, median of {} | {} s | 2 s |",
        "dashboard",
        lambda found: [f"{len(found['first_page_seconds']['all'])}", dashboard_row(found)[0]],
    ),
    prose(
        "median and largest of {} | {}, {} ms | 500 ms |",
        "dashboard",
        lambda found: [
            f"{len(found['update_milliseconds']['all'])}",
            *dashboard_row(found)[1:3],
        ],
    ),
    prose(
        "| {} nodes streaming, three times {} s: frames a second, and of an empty page in turn; "
        "frame p50, p95; long tasks | {}, {}; {}, {} ms; {} | 60 |",
        "dashboard",
        streaming,
    ),
    prose(
        "JavaScript of the page's first view, gzip | {} KB | 100 KB |",
        "dashboard",
        lambda found: dashboard_row(found)[-1:],
    ),
    prose("| `fleet --help` | {} s | 0.3 s |", "cli", lambda f: commands(f, "fleet --help")),
    prose("| `fleet status` | {} s | 0.6 s |", "cli", lambda f: commands(f, "fleet status")),
    prose(
        "to its first token, median of {}, at a load average of {}: for the first time, when the "
        "file is converted and code compiled; again | {}, {} s | {} s, **{}** the first time |",
        "first_token",
        lambda f: [
            f"{f['rounds']}",
            f"{f['load_average_before']:.1f}",
            *(f"{f[side]['median_seconds']:.1f}" for side in ("first", "again")),
            f"{f['goal_seconds']:.0f}",
            "missed" if "first" in f["goal_missed"] else "met",
        ],
    ),
    prose(
        "| of the processor that takes, to its node's end | {}, {} s | - |",
        "first_token",
        lambda f: [f"{f[side]['median_processor_seconds']:.0f}" for side in ("first", "again")],
    ),
    prose(
        "a completion that asks the node | {}, {} s |",
        "cli",
        lambda found: commands(found, "fleet top --once", "fleet plan --verifier <tab>"),
    ),
    prose(
        "`tiny-dflash`, `tiny` | {}, {}, {}, {} s |",
        "cli",
        lambda found: joins(found, "median_ready_seconds"),
    ),
    prose(
        "until it has left, the same | {}, {}, {}, {} s |",
        "cli",
        lambda found: joins(found, "median_leave_seconds"),
    ),
    prose(
        "An answer of {} tokens of `tiny` at temperature 0: {} tokens a second through the SDK, {} "
        "over HTTP, {} with OpenAI's client; the first token after {}, {} and {} ms.",
        "http",
        answers,
    ),
    prose(
        "its first token comes after {} ms in a session of the SDK, after {} ms over HTTP, which "
        "goes on with the session of the turn before, and after {} ms where nothing is kept; round "
        "by round HTTP takes {} times the session's time (goal {}).",
        "stateless_chat",
        last_turns,
    ),
    prose(
        "they are {}, {} and {} ms: {} times.",
        "stateless_chat_tiny",
        lambda found: last_turns(found)[:4],
    ),
    prose(
        "in the same run, the SDK has {}.",
        "http",
        lambda found: [f"{found['sides']['sdk_all_threads']['tokens_per_second']:.0f}"],
    ),
    prose(
        "ten sessions write {} tokens a second unwatched, {} with one connection that follows a "
        "node and its sessions, {} with twenty (medians of {}, each between {} and {})",
        "watchers",
        watchers,
    ),
)
