"""Texts on which patterns take long that are not linear: one piece, over and over again."""

_PIECES = {
    "spaces": " ",
    "tabs": "\t",
    "newlines": "\n",
    "and": "and ",
    "then": "then ",
    "commas": ",",
    "spaced commas": " ,",
    "dots": ". ",
    "question marks": "? ",
    "colons": " : ",
    "dashes": " - ",
    "digits": "1",
    "numbers": "1,234.",
    "numbers apart": "1 ",
    "dates": "2026-01-01 ",
    "list": "\n1. a",
    "bullets": "\n- ",
    "table": "| a | 1 |\n",
    "brackets": "[",
    "parentheses": "(",
    "quotes": '"',
    "curly quotes": "\u201c",
    "apostrophes": "'",
    "backticks": "`",
    "fences": "```\n",
    "letters": "a",
    "underscores": "_",
    "names": "Anna of ",
    "signs": "\u6f22e\u0301\U0001f600",
    "e-mails": "a@a.",
    "urls": "http://",
    "nested": "",
}
KINDS = tuple(_PIECES)


def hostile_text(kind: str, length: int) -> str:
    """So many characters of one kind; nested parentheses are open up to the middle."""
    if kind == "nested":
        return "(" * (length // 2) + ")" * (length // 2)
    piece = _PIECES[kind]
    return (piece * (length // len(piece) + 1))[:length]
