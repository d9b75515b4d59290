"""What to type next, once a node is ready: commands that work as they stand."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

Event = Mapping[str, object]

DEFAULT_FLEET = "default"
"""The fleet of a `fleet join` without --fleet, as `node.config.config` has it."""

_SERVED_NEXT = {
    "verifier": ("a verifier, which decides the tokens", "verifier=tiny"),
    "proposer": ("a proposer, which drafts for the verifier", "proposer=ngram"),
    "archive": ("an archive, which keeps what verifiers evict", "archive=512MiB"),
}


def advice_lines(event: Event) -> list[str]:
    """What to type next: a node for what the fleet lacks, and a first answer."""
    address, verifier = _text(event, "address"), shlex.quote(_text(event, "verifier"))
    local = _text(event, "local_address")
    lines = []
    if event["lacks"] and local:
        lacks, serve = _SERVED_NEXT[_text(event, "lacks")]
        lines += [
            "",
            f"next, {lacks}; on a keeper of the fleet, for a code:",
            "  fleet invite",
            "and with it on the other machine:",
            f"  fleet join CODE --serve {serve}",
        ]
    elif event["lacks"]:
        lacks, serve = _SERVED_NEXT[_text(event, "lacks")]
        where = "in another terminal" if _is_loopback(address) else "on the other machine"
        lines += ["", f"next, {where}, {lacks}:", f"  {_join_command(event, serve)}"]
    if event["verifier"]:
        prompt = "def parse_header(line):"
        address = local or address
        lines += [
            "",
            f"ask {_text(event, 'verifier')}, or talk with it:",
            f'  fleet generate --verifier {verifier} "{prompt}" --node {address}',
            f"  fleet chat --verifier {verifier} --node {address}",
        ]
    return [*lines, "", "Ctrl-C drains and leaves."]


def _join_command(event: Event, serve: str) -> str:
    """What starts the next node of the fleet, there: whole, so that it works as it stands."""
    address, fleet_name = _text(event, "address"), _text(event, "fleet_name")
    words = ["fleet", "join", "--name", _text(event, "free_name"), "--serve", serve]
    words += ["--peer", address]
    if not _is_loopback(address):
        # A node on loopback would ask this one, and never be reached by it.
        words += [
            "--bind",
            "[::]:auto" if address.startswith("[") else "0.0.0.0:auto",
            "--insecure",
        ]
    if fleet_name != DEFAULT_FLEET:
        words += ["--fleet", fleet_name]
    return shlex.join(words)


def _text(event: Event, key: str) -> str:
    return str(event.get(key, ""))


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "localhost:", "[::1]:"))
