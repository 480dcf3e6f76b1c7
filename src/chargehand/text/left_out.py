"""How a text for a model says what it leaves out: always with the number, and where there is a way, how to read it."""


def left_out(count: int, noun: str, how: str = "") -> str:
    """Return the words for what is not shown.

    Args:
        count: How much is left out.
        noun: What that is, in the singular, such as `character` or `earlier turn`.
        how: How the rest is read, or why it is left out; empty: that is not said.
    """
    what = f"{count:,} {noun} is" if count == 1 else f"{count:,} {noun}s are"
    return f"… {what} left out here{f': {how}' if how else ''} …"


def cut_text(text: str, most: int, how: str = "") -> str:
    """Return the beginning of a text in at most so many characters, with what is left out of it at its end.

    Where there is hardly room for these words, an ellipsis stands for them.
    """
    if len(text) <= most:
        return text
    kept = most - len(left_out(len(text), "character", how)) - 1
    if kept < most // 2:
        return text[: max(0, most - 1)].rstrip() + "…"[:most]
    start = text[:kept].rstrip()
    return f"{start} {left_out(len(text) - len(start), 'character', how)}"
