"""A page as plain text, as Markdown and as a table, within the limits of receivers."""

from __future__ import annotations

from collections.abc import Iterator

from alerts.message.page import ADVICE, Fact, Page
from alerts.message.text import cut

_SHORT = 200
"""Characters of what to do, and of its meaning, in a short text."""


def _shorter(page: Page) -> Iterator[tuple[tuple[str, ...], tuple[Fact, ...], int]]:
    """Yield further alerts, evidence and characters of advice, less and less of them."""
    yield page.others, page.evidence, ADVICE
    yield (), page.evidence, ADVICE
    yield (), page.evidence, _SHORT
    yield (), (), _SHORT


def text(page: Page, limit: int | None = None) -> str:
    """Return a page as plain text of at most `limit` characters; the least important goes first."""
    whole = ""
    for others, evidence, advice in _shorter(page):
        lines = [page.headline]
        lines += [cut(part, advice) for part in page.head]  # first: a lock screen shows two lines
        lines += [f"{fact.name}: {fact.value}" for fact in (*page.facts, *evidence)]
        lines += [f"Also: {other}" for other in others]
        lines += [f"{fact.name}: {fact.value}" for fact in (*page.links, *page.commands)]
        whole = "\n".join(lines)
        if limit is None or len(whole) <= limit:
            return whole
    return cut(whole, limit or 0)


def markdown(page: Page, limit: int | None = None, *, headline: bool = True) -> str:
    """Return a page as Markdown of at most `limit` characters."""
    whole = ""
    for others, evidence, advice in _shorter(page):
        blocks = [f"**{escaped(page.headline)}**"] if headline else []
        blocks += [escaped(cut(part, advice)) for part in page.head]
        blocks.append("\n".join(f"- {fact.name}: {escaped(fact.value)}" for fact in page.facts))
        blocks.append("\n".join(f"- {fact.name}: {escaped(fact.value)}" for fact in evidence))
        if others:
            blocks.append("\n".join(f"- {escaped(other)}" for other in others))
        if page.links:
            blocks.append(" · ".join(f"[{link.name}]({link.value})" for link in page.links))
        blocks += [f"{command.name}: `{command.value.replace('`', '')}`" for command in page.commands]
        whole = "\n\n".join(block for block in blocks if block)
        if limit is None or len(whole) <= limit:
            return whole
    return cut(whole, limit or 0)


def details(page: Page) -> dict[str, object]:
    """Return a page as plain values, for receivers that show a table."""
    first = {"What to do": page.act, "Owner": page.owner, "Meaning": page.meaning}
    table: dict[str, object] = {name: words for name, words in first.items() if words}
    table |= {fact.name: fact.value for fact in page.facts}
    for fact in page.evidence:
        table[fact.name] = f"{table[fact.name]}\n{fact.value}" if fact.name in table else fact.value
    if page.others:
        table["Also"] = list(page.others)
    table.update(page.commands)
    return table


def escaped(words: str) -> str:
    """Return words without markup of Markdown and mentions of a chat."""
    marked = "".join(f"\\{one}" if one in "\\`*_[]<>#|~" else one for one in words)
    return marked.replace("@", "@\u2060")  # a word joiner: `@channel` is no mention then
