"""A link leads somewhere: to a file of the repository, and to a heading that is there."""

from __future__ import annotations

import re

import pytest

from .pages import Page, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    dead = []
    for link in page.links():
        file, _, anchor = link.partition("#")
        target = (page.path.parent / file).resolve() if file else page.path
        if not target.exists():
            dead.append(f"{link}: no such file")
        elif anchor and anchor not in Page(target, target.read_text()).anchors():
            dead.append(f"{link}: no such heading")
    assert dead == []


def test_every_guide_can_be_reached_from_the_readme() -> None:
    """A page that nothing links to is not read."""
    by_path = {page.path: page for page in pages()}
    start = next(page for page in by_path.values() if page.name == "README.md")
    reached, waiting = set(), [start]
    while waiting:
        page = waiting.pop()
        reached.add(page.path)
        for link in page.links():
            target = (page.path.parent / link.partition("#")[0]).resolve()
            inside = [path for path in by_path if target.is_dir() and path.parent == target] + [target]
            waiting += [by_path[path] for path in inside if path in by_path and path not in reached]
    docs = {path for path, page in by_path.items() if page.name.startswith("docs/")}
    assert sorted(str(path) for path in docs - reached) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_no_figure_is_still_to_be_filled_in(page: Page) -> None:
    """A draft's mark for a figure to come, two @ before and after its name."""
    assert not re.search(r"@@[A-Z]+@@", page.text)
