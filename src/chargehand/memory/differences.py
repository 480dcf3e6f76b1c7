"""What differs between two texts, line by line, for people to read. Nothing is patched with it."""

from difflib import unified_diff

MOST_LINES = 20_000
"""Beyond this, comparing line by line takes too long; the whole texts are shown instead."""


def differences(old: str, new: str, old_name: str = "before", new_name: str = "after") -> str:
    """A unified diff, three lines of context around each change; empty if there is none."""
    if old == new:
        return ""
    before = _lines(old)
    after = _lines(new)
    if len(before) + len(after) > MOST_LINES:
        lines = [f"--- {old_name}", f"+++ {new_name}", f"@@ all {len(before)} lines, {len(after)} now @@"]
        return "\n".join((*lines, *(f"-{line}" for line in before), *(f"+{line}" for line in after)))
    found = list(unified_diff(before, after, old_name, new_name, lineterm=""))
    # Texts that differ only in how the last line ends have the same lines.
    return "\n".join(found) or f"--- {old_name}\n+++ {new_name}\n\\ only the end of the last line differs"


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []
