"""Text from outside as models are shown it, taken apart again."""

import re

_ENVELOPE = re.compile(r"\A<data ([0-9a-f]+) from \"([^\"\n]*)\">\n(.*)\n</data \1>\Z", re.DOTALL)


def unwrap(text: str) -> tuple[str, str] | None:
    """The origin and the text of one envelope; None when this is none."""
    match = _ENVELOPE.match(text)
    return (match[2], match[3]) if match else None
