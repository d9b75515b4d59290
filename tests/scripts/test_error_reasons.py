"""What is made of a vocabulary of errors, and what is refused in one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scripts.write import error_classes, error_page
from scripts.write.descriptors import compiled
from scripts.write.error_reasons import Chapter, Reason, Vocabulary, read

ROOT = Reason(
    name="KAKEYA_ERROR",
    cause="The root of all errors.",
    advice="Report it.",
    family="",
    status="UNKNOWN",
    http_status=503,
    retry_after_seconds=0.0,
    remedy="",
    terminal_remedy="",
    page_remedy="",
    attributes={},
)
LOST = replace(
    ROOT, name="TEA_LOST", cause="The tea is lost. It was hot.", family="KAKEYA_ERROR", status=""
)
COLD = replace(
    LOST,
    name="TEA_COLD",
    family="TEA_LOST",
    status="NOT_FOUND",
    http_status=404,
    advice="Warm it.",
    terminal_remedy="run `kettle`",
    page_remedy="Warm it.",
    attributes={"cup": "Which one."},
)


def vocabulary(*reasons: Reason) -> Vocabulary:
    return Vocabulary((Chapter("Tea", "", reasons),))


TEA = vocabulary(COLD, LOST, ROOT)


def test_the_contract_has_no_mistakes_and_its_comments_are_cause_and_advice() -> None:
    ours = read(compiled())
    full = ours.reasons["TOKENIZER_NOT_FOUND"]
    assert full.summary == "No tokenizer is there."
    assert full.description.startswith("The model is served without one")
    assert full.advice.startswith("Name the folder")
    assert ours.chapters[0].title == "Sessions and generations"
    assert all(chapter.reasons for chapter in ours.chapters)


@pytest.mark.parametrize(
    ("reason", "mistake"),
    [
        (replace(COLD, family="TEE"), "its family TEE is no reason"),
        (replace(COLD, status="LUKEWARM"), "LUKEWARM is no status of gRPC"),
        (replace(COLD, advice="", terminal_remedy=""), "nothing mends it"),
        (replace(COLD, cause=f"{'x' * 90}."), "over 90 characters"),
    ],
)
def test_a_mistake_is_told_with_the_reason_that_has_it(reason: Reason, mistake: str) -> None:
    (told,) = vocabulary(reason, LOST, ROOT).mistakes()
    assert told.startswith("TEA_COLD: ")
    assert mistake in told


def test_members_have_the_statuses_of_their_family() -> None:
    assert (TEA.status(LOST), TEA.http_status(LOST)) == ("UNKNOWN", 503)
    assert (TEA.status(COLD), TEA.http_status(COLD)) == ("NOT_FOUND", 404)


def test_classes_of_python_derive_from_their_families_whatever_comes_first() -> None:
    made: dict[str, Any] = {}
    exec(compile(error_classes.python(TEA), "errors", "exec"), made)
    assert made["__all__"] == ["KakeyaError", "TeaCold", "TeaLost"]
    assert issubclass(made["TeaCold"], made["TeaLost"])
    cold = made["TeaCold"]("cold", metadata={"cup": "blue"})
    assert (cold.reason, cold.code, cold.cup) == ("TEA_COLD", "NOT_FOUND", "blue")
    assert made["TeaLost"]("lost").code == "UNKNOWN"


def test_classes_of_typescript_are_the_same() -> None:
    text = error_classes.typescript(TEA)
    assert "export class TeaCold extends TeaLost {" in text
    assert 'defaultCode: string = "NOT_FOUND";' in text
    assert text.count("defaultCode") == 1
    assert 'return this.metadata["cup"] ?? "";' in text


def test_the_page_has_cause_remedy_and_statuses() -> None:
    page = error_page.page(TEA)
    assert "### TEA_COLD\nThe tea is lost. It was hot. **Remedy:** Run `kettle`. Warm it.\n" in page
    assert "| [TEA_COLD](#tea_cold) | NOT_FOUND | 404 | `TeaCold` |  |" in page


def test_the_dashboard_has_the_remedies_of_its_page_alone() -> None:
    assert '  TEA_COLD: "Warm it.",' in error_page.dashboard(TEA)
    assert "TEA_LOST" not in error_page.dashboard(TEA)
