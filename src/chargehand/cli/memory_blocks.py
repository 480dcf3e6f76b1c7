"""`chargehand memory` about blocks: look at them, change them, and walk through their history."""

from argparse import Namespace

from msgspec import structs

from chargehand.cli.console import Console, Tone, clean, clean_lines, short
from chargehand.cli.memory_archives import delete_archive
from chargehand.cli.memory_space import Space, who
from chargehand.cli.memory_text import given_file, given_text, plain_text
from chargehand.cli.phrases import counted
from chargehand.cli.table import ago, bar, now, table, when
from chargehand.config.memory import check_name
from chargehand.errors import Invalid, Refused
from chargehand.memory.blocks import (
    LIMIT,
    Append,
    Block,
    Change,
    Edit,
    Patch,
    Redo,
    Replace,
    ReplaceAll,
    Restore,
    Rethink,
    Undo,
)
from chargehand.memory.differences import differences

_ROOM = 80
_NEARLY_FULL = 0.9


async def blocks(space: Space) -> int:
    """Every block, one line each."""
    found = await space.all(Block)
    last = {one.id: await _last(space, one) for one in found}
    if space.options.json:
        return space.show([{**structs.asdict(one), "last": last[one.id]} for one in found])
    if not found:
        space.out.line("no blocks")
        return 0
    seen = {one.id: bool(await space.catalog.owners(one.id)) for one in found}
    rows = [
        (
            one.label, fullness(one), f"v{one.version}",
            flags(one) if seen[one.id] else "nobody sees it: it is not declared any more", _changed(last[one.id]),
        )
        for one in found
    ]  # fmt: skip
    tones: list[Tone] = ["warn" if len(one.value) >= _NEARLY_FULL * one.limit else "plain" for one in found]
    table(space.out, ("block", "characters", "version", "what it is", "changed"), rows, tones)
    return 0


async def _last(space: Space, block: Block) -> Change | None:
    found = await space.catalog.history(block.id, limit=1)
    return found[0] if found else None


def _changed(last: Change | None) -> str:
    return "" if last is None else f"{ago(last.when, now())} by {who(last.origin)}"


def fullness(block: Block) -> str:
    """How much of its room a block takes."""
    return f"{bar(len(block.value) / max(1, block.limit))} {len(block.value):,} of {block.limit:,}"


def flags(block: Block) -> str:
    said = ["trusted"] if block.trusted else []
    said += ["read-only"] if block.read_only else []
    said += ["holds text from outside"] if block.tainted else []
    return ", ".join([*said, f"share: {block.share}"])


async def get(space: Space) -> int:
    """What stands in a block, now or in a version."""
    block = await space.block(space.options.label)
    version: int | None = space.options.version
    value = block.value if version is None else await _text_at(space, block, version)
    if space.options.json:
        return space.show({**structs.asdict(block), "value": value, "shown": version or block.version})
    out = space.out
    out.line(clean_lines(value) if out.terminal else value)  # into a file or a pipe: every character as it is
    if out.terminal and not value:
        space.note(f"{block.label} is empty", "dim")
    return 0


async def _text_at(space: Space, block: Block, version: int) -> str:
    if version > block.version:
        raise Invalid(f"block {block.label!r} has no version {version}; the last one is {block.version}")
    return await space.catalog.text_at(block.id, version)


async def history(space: Space) -> int:
    """Every change, the latest first."""
    block = await space.block(space.options.label)
    found = await space.catalog.history(block.id, limit=space.options.limit)
    if space.options.json:
        return space.show(found)
    wide = max((len(str(one.version)) for one in found), default=1)
    for one in found:
        _show_change(space.out, one, wide)
    if found and found[-1].version > 1:
        space.note(f"… and {found[-1].version - 1} earlier; see more with --limit", "dim")
    return 0


def _show_change(out: Console, change: Change, wide: int) -> None:
    """What was done, when and by whom; under it what came in and what went out."""
    back = f" to the text of v{change.at}" if change.at and change.at != change.version else ""
    said = f"v{change.version:<{wide}}  {when(change.when)}, {ago(change.when, now())}  {change.kind}{back}"
    out.line(clean(f"{said}  by {who(change.origin)}"), "bold")
    gone: tuple[tuple[str, str, Tone], ...] = (("-", change.removed, "bad"), ("+", change.added, "good"))
    for sign, text, tone in gone:
        if text:
            count = "" if len(text) <= _ROOM else f"  ({counted(len(text), 'character')})"
            out.line(f"{'':{wide + 3}}{sign} {short(text.strip(), _ROOM)}{count}", tone)


async def diff(space: Space) -> int:
    """What is different between two versions; without any, what the last change did."""
    block = await space.block(space.options.label)
    new: int = space.options.new or block.version
    old: int = space.options.old or new - 1
    if old < 1:
        raise Invalid(f"block {block.label!r} has only one version; there is nothing to compare it with")
    before, after = await _text_at(space, block, old), await _text_at(space, block, new)
    said = differences(before, after, f"{block.label} v{old}", f"{block.label} v{new}")
    if space.options.json:
        return space.show({"label": block.label, "from": old, "to": new, "diff": said})
    for number, line in enumerate(clean_lines(said).split("\n") if said else ["no difference"]):
        space.out.line(line, "bold" if number < _HEAD and said else _TONES.get(line[:1], "plain"))
    return 0


_HEAD = 2  # lines of a diff that say what is compared
_TONES: dict[str, Tone] = {"-": "bad", "+": "good", "@": "dim"}


# --- changes


async def change(space: Space) -> int:
    """One edit by a person, applied to the version that is there then."""
    options = space.options
    edit = _edit(options)
    block = await space.block(options.label)
    if isinstance(edit, Restore):
        await _text_at(space, block, edit.version)
    expect: int | None = vars(options).get("expect")
    after = await space.catalog.edit(block.id, edit, space.origin, expect=expect)
    if options.json:
        return space.show(after)
    if after.version == block.version:
        space.note(f"{after.label}: nothing changed, version {after.version}")
    else:
        space.note(f"{after.label}: version {after.version}, {fullness(after)}", "good")
    return 0


def _edit(options: Namespace) -> Edit:
    match options.what:
        case "set":
            return Rethink(given_text(options.text))
        case "append":
            return Append(_line(given_text(options.text)))
        case "replace":
            return (ReplaceAll if options.all else Replace)(plain_text(options.old), plain_text(options.new))
        case "patch":
            return Patch(given_file(options.file))
        case "restore":
            return Restore(options.version)
        case "undo":
            return Undo()
        case _:
            return Redo()


def _line(text: str) -> str:
    if not text.strip():
        raise Invalid("there is nothing to append: the text is empty; say what to add")
    return text


async def create(space: Space) -> int:
    """A new block, shared with the whole team."""
    options = space.options
    check_name(options.label, "a block")
    if await space.catalog.find(Block, name=options.label, limit=1):
        raise Refused(
            f"there is a block {options.label!r} already; change it with: chargehand memory set {options.label}"
        )
    value = given_text([options.value]) if options.value else ""
    limit: int = options.limit or LIMIT
    if len(value) > limit:
        raise Invalid(f"the value has {len(value):,} characters, and the limit is {limit:,}; raise --limit")
    which = space.id_of(Block, options.label)
    made = await space.made(
        Block(
            options.label, value, options.description, limit, options.read_only, options.trusted, options.share,
            id=which,
        )
    )  # fmt: skip
    if options.json:
        return space.show(made)
    space.note(f"{made.label}: version {made.version}, {fullness(made)}, {flags(made)}", "good")
    return 0


async def delete(space: Space) -> int:
    """A block and its whole history, or an archive and all its passages."""
    if space.options.archive:
        return await delete_archive(space)
    block = await space.block(space.options.label)
    if not space.options.yes:
        said = f"this deletes block {block.label!r} and {counted(block.version, 'version')} of it for good"
        raise Refused(f"{said}; say --yes if that is meant")
    await space.catalog.delete(Block, block.id)
    if any(one.label == block.label for one in space.declared.memory.blocks):
        space.note("the team file declares it: it is made again, with its first value, as soon as memory is used")
    if space.options.json:
        return space.show({"deleted": block.label})
    space.note(f"{clean(block.label)} is deleted", "good")
    return 0
