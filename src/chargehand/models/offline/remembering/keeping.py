"""What is kept: the calls that keep it, each made once, and how the result tells of them."""

import re
from collections.abc import Sequence

from chargehand.models.offline.closing import heading
from chargehand.models.offline.drafts import listed
from chargehand.models.offline.remembering.family import INSERT, REPLACING, RETHINK
from chargehand.models.offline.remembering.notebook import Call, Notebook
from chargehand.models.offline.remembering.wishes import Keep, Rewrite, Swap
from chargehand.models.offline.words import related, terms
from chargehand.models.subject import Given

Wish = Keep | Swap | Rewrite
_PASSAGE, _LINE = 6_000, 300  # characters of a passage, and of a line in a block
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")
_KEPT_IN = re.compile(r"\bkept in (?P<new>[\w.-]+)|\A(?P<old>[\w.-]+) has this text already")
_IN_MONEY = re.compile(
    r"\s+(?:to|into|in)\s+(?:US\s+|American\s+|Swiss\s+)?(?:dollars?|euros?|pounds?|francs?|yen|[A-Z]{3})\b.*$"
)
_LABEL = 60  # characters in which a text may say for itself what it is: "Converted amount: ..."
_NO_SUCH = re.compile(r"\byou have no archive\b", re.IGNORECASE)


def due(book: Notebook, wishes: Sequence[Wish], asked: str, found: str) -> list[Call]:
    """The calls that are still to be made for what was found."""
    calls: list[Call] = []
    for number, wish in enumerate(wishes, 1):
        key = f"keep_{number}"
        made = book.came_of(key)
        if made is None:
            if not _needless(book, wish, asked, found) and (call := _call(book, key, wish, asked, found)):
                calls.append(call)
        elif made.error and isinstance(wish, Keep) and wish.archive and _NO_SUCH.search(made.error):
            again = Keep(wish.said, wish.about, tags=wish.tags)  # a word before "archive" need not be its name
            if book.came_of(f"{key}_again") is None and (call := _call(book, f"{key}_again", again, asked, found)):
                calls.append(call)
    return calls


def _call(book: Notebook, key: str, wish: Wish, asked: str, found: str) -> Call | None:
    match wish:
        case Swap():
            name = book.has(*REPLACING)
            old, new = ("old_string", "new_string") if name == REPLACING[0] else ("old_content", "new_content")
            return (key, name, {"label": wish.label, old: wish.old, new: wish.new}) if name else None
        case Rewrite():
            return (key, RETHINK, {"label": wish.label, "new_memory": wish.text}) if book.has(RETHINK) else None
        case Keep(label=""):
            more: dict[str, object] = {"tags": list(wish.tags), "archive": wish.archive}
            arguments: dict[str, object] = {
                "content": _content(wish, asked, found),
                **{name: one for name, one in more.items() if one},
            }
            return (key, INSERT, arguments) if book.has(INSERT) and arguments["content"] else None
        case Keep():
            name, line = book.appends(), _content(wish, asked, found)
            text = "new_string" if name == "memory_insert" else "content"
            return (key, name, {"label": wish.label, text: line}) if name and line else None


def _needless(book: Notebook, wish: Wish, asked: str, found: str) -> bool:
    """Whether a block has the line already: nobody wants it twice."""
    if not isinstance(wish, Keep) or not wish.label:
        return False
    block = book.block(wish.label)
    return block is not None and _content(wish, asked, found) in block.text.splitlines()


def _content(wish: Keep, asked: str, found: str) -> str:
    if wish.said:
        return wish.said
    if not wish.label:
        return headed(asked, found)[:_PASSAGE]
    lines = [part for line in found.splitlines() for part in _SENTENCE.split(line.strip()) if part.strip()]
    kept = lines[0] if lines else ""
    for one in lines[1:]:
        if len(kept) + len(one) >= _LINE:
            break
        kept = f"{kept} {one}"
    return headed(asked, kept)[: 2 * _LINE]


def headed(asked: str, text: str) -> str:
    """A text that can be understood by itself: with what it is about before it, where it does not say so."""
    if not text or not asked:
        return text
    topic = re.sub(r"\A(?:The|Our) (?=\w)", "", heading(Given("", asked, "", None)))
    topic = _IN_MONEY.sub("", f"{topic[:1].upper()}{topic[1:]}")
    own = set(terms(_SENTENCE.split(text)[0]))
    lost = [term for term in terms(topic) if not any(related(term, other) >= 0.8 for other in own)]
    mark = "." if ":" in text[:_LABEL] else ":"
    return f"{topic}{mark} {text}" if lost else text


def told(book: Notebook, wishes: Sequence[Wish], asked: str, found: str) -> tuple[list[str], list[str]]:
    """What was kept, in words; and what could not be, with the reason."""
    done: list[str] = []
    failed: list[str] = []
    for number, wish in enumerate(wishes, 1):
        made = book.came_of(f"keep_{number}_again") or book.came_of(f"keep_{number}")
        if made is not None and not made.error:
            done.append(_done(wish, str(made.value)))
        elif isinstance(wish, Keep) and made is None and _needless(book, wish, asked, found):
            done.append(f"The block {wish.label} has this already.")
        else:
            failed.append(made.error if made is not None else _unable(book, wish))
    return done, failed


def _done(wish: Wish, said: str) -> str:
    match wish:
        case Swap():
            return f'In the block {wish.label}, "{wish.old}" was replaced by "{wish.new}".'
        case Rewrite():
            return f"The block {wish.label} was written anew."
        case Keep(label=""):
            where = _KEPT_IN.search(said)
            tags = f", tagged {listed(wish.tags)}" if wish.tags else ""
            text = f": {wish.said}" if wish.said else "."
            if where is not None and where["old"]:
                return f"The archive {where['old']} had this already{tags}{text}"
            name = f" {where['new']}" if where is not None else ""
            return f"Kept in the archive{name}{tags}{text}"
        case Keep():
            return f"Added to the block {wish.label}{f': {wish.said}' if wish.said else '.'}"


def _unable(book: Notebook, wish: Wish) -> str:
    if isinstance(wish, Keep) and not wish.label:
        return "there is no archive here that may be added to"
    if book.block(wish.label) is None:
        return f"there is no block {wish.label!r} here"
    return f"the block {wish.label!r} may not be changed here"
