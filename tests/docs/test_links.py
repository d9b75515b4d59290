"""Every link and file that the pages name is there."""

from __future__ import annotations

import re
from pathlib import Path

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def anchors(page: str) -> set[str]:
    """The headings as GitHub names them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        for heading in HEADING.findall(page)
    }


def test_links_lead_somewhere(docs: Path) -> None:
    pages = sorted(docs.glob("*.md"))
    assert len(pages) >= 9
    broken = []
    for page in pages:
        text = page.read_text("utf-8")
        for link in LINK.findall(text):
            if link.startswith(("http://", "https://")):
                continue
            path, _, heading = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            there = target.exists()
            if there and heading:
                there = heading in anchors(target.read_text("utf-8"))
            if not there:
                broken.append((page.name, link))
    assert not broken


def test_the_index_has_every_page(docs: Path) -> None:
    index = (docs / "README.md").read_text("utf-8")
    for page in docs.glob("*.md"):
        if page.name != "README.md":
            assert f"({page.name})" in index, page.name
