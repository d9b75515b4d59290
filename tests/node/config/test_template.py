"""The file that `fleet init` writes: every key, none of them set, and each as it can be set."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest

from kakeya_fleet.node.config.config import Config, build
from kakeya_fleet.node.config.keys import keys, meanings
from kakeya_fleet.node.config.template import template_text, write_template
from kakeya_fleet.node.errors import StateUnwritable

KEYS = [field.name for field in dataclasses.fields(Config)]


def test_nothing_is_set_and_every_key_is_there_with_its_meaning() -> None:
    text = template_text()
    assert tomllib.loads(text) == {}
    assert re.findall(r"^#(\w+) = ", text, re.MULTILINE) == KEYS
    # As words: where lines are broken says nothing.
    words = " ".join(line.removeprefix("# ") for line in text.splitlines())
    assert [key for key, meaning in meanings().items() if meaning not in words] == []
    assert max(map(len, text.splitlines())) <= 100


def test_what_is_uncommented_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(re.sub(r"^#(\w+ = )", r"\1", template_text(), flags=re.MULTILINE))
    assert list(tomllib.loads(file.read_text())) == KEYS
    assert build({}, {}, file) == Config()


def test_a_file_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    file = tmp_path / "new" / "config.toml"
    assert write_template(file)
    file.write_text("mdns = false\n")
    assert not write_template(file)
    assert file.read_text() == "mdns = false\n"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateUnwritable, match=r"config\.toml cannot be written"):
        write_template(tmp_path / "file" / "config.toml")


def test_a_default_that_is_found_out_is_none_that_is_told() -> None:
    assert [key.name for key in keys() if key.default is None] == ["name"]
