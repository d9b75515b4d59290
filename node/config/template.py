"""The file of configuration that a person begins with: every key, and none of them set."""

from __future__ import annotations

import textwrap
from pathlib import Path

from kakeya_fleet.node.config.config import Config
from kakeya_fleet.node.config.keys import FOUND_OUT, keys
from kakeya_fleet.node.config.state_directory import unwritable
from kakeya_fleet.node.config.toml import toml_value

WIDTH = 96
_HEADER = """\
# The configuration of this machine's nodes: what `fleet join` reads where no --config and no
# KAKEYA_CONFIG names another file. Later ones win: these defaults, this file, variables, flags.
# Every key stands here with its default. To set one, take away the # before it.
# All nodes of this machine read it: a name, or a port, is rather a flag's affair.
"""


def template_text() -> str:
    """TOML in which everything is a comment; each key is TOML once its # is taken away."""
    blocks, here = [_HEADER], Config()
    for key in keys():
        lines = textwrap.wrap(
            key.meaning,
            WIDTH,
            initial_indent="# ",
            subsequent_indent="# ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        if key.name in FOUND_OUT:
            lines.append(f"# Default: {FOUND_OUT[key.name]}.")
        value = getattr(here, key.name)
        blocks.append("\n".join([*lines, f"#{key.name} = {toml_value(value)}"]) + "\n")
    return "\n".join(blocks)


def write_template(path: Path) -> bool:
    """Writes it, with its folder; False where there is a file already, which is left as it is.

    Raises `StateUnwritable`.
    """
    if path.exists():
        return False
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Nor over one that another program makes meanwhile.
        with path.open("x", encoding="utf-8") as file:
            file.write(template_text())
    except OSError as error:
        raise unwritable(path, error) from error
    return True
