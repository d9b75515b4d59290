from kakeya_fleet.node.cli.terminal.keys import keys_in

KEYS = {
    "q": ["q"],
    "\x1b[A\x1b[B": ["up", "down"],
    "\x1bOA": ["up"],
    "\x1b": ["escape"],
    "\t\r\x1b[Z": ["tab", "enter", "backtab"],
    "\x1b[5~p": ["page up", "p"],
    "\x1b[1;5Cx": ["x"],
    "s\x1b[<": ["s"],
}


def test_what_a_terminal_sends_are_keys() -> None:
    assert {sent: keys_in(sent) for sent in KEYS} == KEYS
