"""Text that came from outside, marked as such: data between two lines that hold a number that cannot be guessed.

It helps a model to tell data from instructions. What a worker may do does not rest on it: that is enforced elsewhere.
"""

import os
import re

_ENVELOPE = re.compile(r"\A<data ([0-9a-f]+) from \"([^\"\n]*)\">\n(.*)\n</data \1>\Z", re.DOTALL)


def new_nonce() -> str:
    """What delimits material that a model is shown: the author of the material could not know it.

    It begins with a letter: a model may repeat it, and it must not be taken for a figure.
    """
    return "d" + os.urandom(8).hex()[1:]


def wrap(nonce: str, origin: str, text: str) -> str:
    """`text` as data from `origin`; a closing line inside it is made harmless."""
    source = origin.replace('"', "'").replace("\n", " ")
    return f'<data {nonce} from "{source}">\n{text.replace(f"</data {nonce}>", "</data>")}\n</data {nonce}>'


def unwrap(text: str) -> tuple[str, str] | None:
    """The origin and the text of one envelope; None when this is none."""
    match = _ENVELOPE.match(text)
    return (match[2], match[3]) if match else None
