import re
from pathlib import Path

import pytest

from scripts.write import contract_reference as contract_script
from scripts.write.descriptors import Commented


@pytest.fixture(scope="module")
def files() -> list[Commented]:
    return contract_script.read()


def test_the_page_is_what_the_protos_say(files: list[Commented], docs: Path) -> None:
    page = (docs / "contract.md").read_text("utf-8")
    assert page == contract_script.page(files), "run python -m scripts.write.contract_reference"


def test_every_element_is_there_with_its_comment(files: list[Commented]) -> None:
    page = contract_script.page(files)
    for commented in files:
        for service in commented.file.service:
            assert f"\n## {service.name}\n" in page
            for method in service.method:
                assert f"| `{method.name}` |" in page
        for message in commented.file.message_type:
            assert f"\n### {message.name}\n" in page
            for field in message.field:
                assert f"| `{field.name}` = {field.number} |" in page
    assert not re.findall(r"^\|.*\| *\|$", page.replace("|  |\n", ""), flags=re.MULTILINE)


def test_reasons_lead_to_their_mends(files: list[Commented]) -> None:
    page = contract_script.page(files)
    assert "[SESSION_NOT_FOUND](troubleshooting.md#session_not_found)" in page
    assert "[DRAINING](troubleshooting.md#draining)" in page
    assert "[CANCELLED]" not in page
