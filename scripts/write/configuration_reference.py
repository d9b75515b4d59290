"""Writes docs/configuration.md, the reference of a node's keys, from `node/config/config.py`.

python -m scripts.write.configuration_reference
python -m scripts.write.configuration_reference --check    # exit status 1 when the page is another
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from kakeya_fleet.node.cli.join.command import command as join
from kakeya_fleet.node.config.config import ENVIRONMENT_PREFIX, described
from kakeya_fleet.node.config.keys import FOUND_OUT, Key, keys

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "configuration.md"
INTRODUCTION = """\
# Configuration

Every key of a node, made from `node/config/config.py` by
`python -m scripts.write.configuration_reference`.
A key is set in the TOML file, by a variable of the environment, or by a flag of `fleet join`; later
ones win: default, file, variable, flag. The file is `--config FILE`, else `KAKEYA_CONFIG`, else
`$XDG_CONFIG_HOME/kakeya/config.toml` where there is one. A key that is not known is an error that
names the nearest one, in the file and in the environment alike.

In a variable a list is parted by commas (`KAKEYA_SERVE=verifier=tiny,archive=512MiB`), and yes and
no are `true` and `false`, or 1 and 0. A list of flags, of variables or of the file replaces the
list before it. `--config` and `--json` alone are no keys: the one names the file, the other says
how the command prints.

```toml
name = "mini-1"
serve = ["verifier=tiny"]
bind = "192.168.1.21:7600"
insecure = true
peers = ["192.168.1.20:7600"]
http_bind = "127.0.0.1:7180"
```

`fleet init` writes such a file where there is none: every key with its default and its meaning,
each behind a #.

| key | type | default | flag of `fleet join` | variable | meaning |
|---|---|---|---|---|---|
"""
CLOSING = """
Commands that ask a node, such as `fleet status`, read none of these; they take `KAKEYA_NODE`, which
is `--node`.
"""
# Options that set no key.
WITHOUT_KEY = {"config_file", "as_json"}
# A flag that says no to a key.
DENIALS = {"no_mdns": "mdns"}


def page() -> str:
    """The page."""
    return INTRODUCTION + "".join(f"{row}\n" for row in _rows()) + CLOSING


def flags() -> dict[str, str]:
    """The flag of each key that has one. Raises KeyError for an option that sets no key."""
    known = {key.name for key in keys()}
    found = {}
    for option in join.params:
        if not isinstance(option, click.Option) or option.name in WITHOUT_KEY:
            continue
        key = DENIALS.get(str(option.name), str(option.name))
        if key not in known:
            raise KeyError(key)
        found[key] = option.opts[0]
    return found


def _rows() -> Iterator[str]:
    flag = flags()
    for key in keys():
        shown = f"`{flag[key.name]}`" if key.name in flag else ""
        yield (
            f"| `{key.name}` | {described(key.kind).removeprefix('a ')} | {_default(key)} "
            f"| {shown} | `{ENVIRONMENT_PREFIX}{key.name.upper()}` | {key.meaning} |"
        )


def _default(key: Key) -> str:
    if key.name in FOUND_OUT:
        return FOUND_OUT[key.name]
    value = key.default
    if value in ("", ()):
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else f"`{value}`"


def main() -> int:
    """Writes or checks the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare")
    text = page()
    if parser.parse_args().check:
        if PAGE.exists() and PAGE.read_text("utf-8") == text:
            return 0
        print(f"{PAGE} is not what node/config/config.py says: run this script without --check")
        return 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
