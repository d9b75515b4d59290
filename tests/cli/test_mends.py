import re
from pathlib import Path

import pytest

from kakeya_fleet.node.cli.shell.mends import MENDS, with_mend

ROOT = Path(__file__).parents[2]
ROOMS = ("node", "engine", "fleet", "sdks/python/kakeya")
GIVEN = re.compile(
    r'(?:\breason|default_reason)(?:: ClassVar\[str\])? = "([A-Z][A-Z_]+)"'
    r'|CommandFailed\(\s*"([A-Z][A-Z_]+)"'
)


@pytest.fixture(scope="module")
def reasons():
    """Every reason that a source file gives to an error of ours."""
    found = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for groups in GIVEN.findall(path.read_text("utf-8")):
                found |= set(filter(None, groups))
    return found


def test_every_reason_that_people_can_meet_has_a_mend(reasons):
    assert len(reasons) > 80
    assert sorted(reasons - MENDS.keys()) == []


def test_no_mend_is_kept_for_a_reason_that_nobody_gives(reasons):
    assert sorted(MENDS.keys() - reasons) == []


def test_mends_are_a_few_words_that_fit_behind_a_message():
    for reason, mend in MENDS.items():
        assert mend == mend.strip(), reason
        assert not mend.endswith("."), reason
        assert 5 < len(mend) < 130, reason


def test_a_message_that_says_its_mend_gets_no_second_one():
    assert with_mend("NO_LOCAL_NODE", "none here: start one") == "none here: start one."
    assert with_mend("NOT_LOOPBACK", "refused").startswith("refused; run the command")


def test_the_nodes_words_stand_for_a_reason_that_the_terminal_does_not_know():
    assert with_mend("NEWER_REASON", "no room", "close sessions") == "no room; close sessions."
    assert "--max-tokens" in with_mend("CONTEXT_EXCEEDED", "too long", "generate fewer tokens")
