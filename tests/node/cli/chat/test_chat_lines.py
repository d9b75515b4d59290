from kakeya_fleet.node.cli.chat.lines import (
    COMMANDS,
    Command,
    Said,
    Unknown,
    as_typed,
    help_lines,
    joined,
    read,
)

TYPED = {
    "hello": Said("hello"),
    "  indented": Said("  indented"),
    "//usr/bin": Said("/usr/bin"),
    "/stats": Command("stats"),
    "/fork 2": Command("fork", "2"),
    "/system be brief ": Command("system", "be brief"),
    "": None,
    "   ": None,
}


def test_what_was_typed() -> None:
    assert {typed: read(typed) for typed in TYPED} == TYPED


def test_words_are_typed_so_that_they_are_said() -> None:
    for text in ("hello", "/usr/bin", "//", "/quit", "a /b"):
        assert read(as_typed(text)) == Said(text)


def test_a_command_that_does_not_exist_gets_the_nearest_as_a_hint() -> None:
    unknown = read("/stat")
    assert isinstance(unknown, Unknown)
    assert "did you mean /stats?" in unknown.message
    unknown = read("/xyzzy")
    assert isinstance(unknown, Unknown)
    assert "/help" in unknown.message


def test_help_names_every_command() -> None:
    text = "\n".join(help_lines())
    for name in COMMANDS:
        assert f"/{name}" in text


def test_a_backslash_joins_lines() -> None:
    assert joined(["one\\", "two"]) == "one\ntwo"
    assert joined(["pasted", "lines"]) == "pasted\nlines"
