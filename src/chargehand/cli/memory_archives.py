"""`chargehand memory` about archives: what they hold, searching them, adding to them and forgetting."""

from msgspec import structs

from chargehand.cli.console import clean_lines, short
from chargehand.cli.memory_space import Space, who
from chargehand.cli.memory_text import given_passages
from chargehand.cli.phrases import counted
from chargehand.cli.progress import ProgressLine, told_if_stopped
from chargehand.cli.table import bar, now, size_of, table, when
from chargehand.errors import Invalid, Refused, Unknown
from chargehand.memory.archives import Archive, Filter, Hit, Passage

_MOST_FOUND = 100
_SHOWN = 400
_SAMPLE = 200
_AT_ONCE = 16  # texts between two words about progress


async def archives(space: Space) -> int:
    """Every archive, one line each."""
    found = await space.all(Archive)
    facts = [await _facts(space, one) for one in found]
    if space.options.json:
        return space.show([{**structs.asdict(one), **fact} for one, fact in zip(found, facts, strict=True)])
    if not found:
        space.out.line("no archives")
        return 0
    rows = [
        (
            one.name, f"{fact['passages']:,}", f"{fact['with_vectors']:,}", model_of(one), size_of(fact["bytes"]),
            f"share: {one.share}", one.description,
        )
        for one, fact in zip(found, facts, strict=True)
    ]  # fmt: skip
    table(space.out, ("archive", "passages", "vectors", "model", "size", "what it is", ""), rows)
    return 0


async def _facts(space: Space, archive: Archive) -> dict[str, int]:
    """How much there is. The size is reckoned from the first texts and the width of the vectors."""
    passages, dressed = await space.catalog.count(archive.id)
    sample = await space.catalog.passages(archive.id, limit=_SAMPLE)
    texts = sum(len(one.text.encode(errors="replace")) for one in sample)
    size = texts * passages // max(1, len(sample)) + dressed * archive.width * 4
    return {"passages": passages, "with_vectors": dressed, "bytes": size}


def model_of(archive: Archive) -> str:
    return archive.embedding + (f", {archive.width} wide" if archive.width else "")


# --- search


async def search(space: Space) -> int:
    """The best passages, with their scores and why."""
    options, moment = space.options, now()
    query = " ".join(options.query)
    if not query.strip():
        raise Invalid("the question is empty; say what to look for")
    within = Filter(
        tags=tuple(dict.fromkeys(options.tag)),
        tag_match=options.match,
        start=options.since(moment) if options.since else None,
        end=options.until(moment) if options.until else None,
        source=options.source,
    )
    archive = await space.archive(options.archive)
    limit = min(options.limit, _MOST_FOUND)
    found = await space.opened.search([archive], query, within=within, limit=limit)
    if options.json:
        return space.show(found)
    best = max((hit.score for hit in found), default=1.0)
    for number, hit in enumerate(found, 1):
        _show_hit(space, number, hit, hit.score / best if best > 0 else 0.0)
    if not found:
        space.out.line("nothing found")
    elif all(hit.meaning is None for hit in found):
        space.note("words were compared, not meanings; vectors: chargehand memory embed, chargehand doctor", "dim")
    return 0


def _show_hit(space: Space, number: int, hit: Hit, share: float) -> None:
    space.out.line(f"{number}. {bar(share)} {hit.score:.3f}  {short(hit.why, 100)}", "bold")
    space.out.line(f"   {facts_of(hit.passage)}", "dim")
    said = clean_lines(hit.passage.text)
    cut = f"{said[:_SHOWN]} …" if len(said) > _SHOWN else said
    for line in cut.splitlines():
        space.out.line(f"   {line}")


def facts_of(passage: Passage) -> str:
    """Where a passage is from, in one line."""
    part = (
        f"part {passage.part + 1} of {passage.document}" if passage.document and passage.document != passage.id else ""
    )
    parts = (passage.id, when(passage.created), who(passage.origin), passage.origin.source, part)
    tags = " ".join(f"#{tag}" for tag in passage.tags)
    return short(" · ".join(one for one in (*parts, tags) if one), 200)


# --- what is in them


async def passages(space: Space) -> int:
    """In the order they came."""
    archive = await space.archive(space.options.archive)
    limit: int = space.options.limit
    found = await space.catalog.passages(archive.id, after=space.options.after, limit=limit)
    if space.options.json:
        return space.show(found)
    for one in found:
        space.out.line(facts_of(one), "dim")
        space.out.line(f"  {short(one.text, 160)}")
    if not found:
        space.out.line("no passages" if not space.options.after else "no more passages")
    elif len(found) == limit:
        space.note(f"for more: --after {found[-1].id}", "dim")
    return 0


async def add(space: Space) -> int:
    """Texts, or whatever files hold. Long ones are cut into parts; what is there already is not kept twice."""
    options = space.options
    given = given_passages(options.text, space.origin, options.source, options.tag)
    archive = await space.archive(options.archive, create=options.create)
    line = ProgressLine(archive.name, still=True)
    ids: list[str] = []
    new = 0
    with told_if_stopped(line, lambda: f"at least {counted(len(ids), 'passage')} of {archive.name} kept"):
        for start in range(0, len(given), _AT_ONCE):
            line.show(f"{start:,} of {counted(len(given), 'text')}", start, len(given))
            done = await space.opened.add(archive, given[start : start + _AT_ONCE])
            ids += [one.id for one in done]
            new += sum(one.new for one in done)
    if options.json:
        return space.show({"archive": archive.name, "new": new, "known": len(ids) - new, "ids": ids})
    known = f", {len(ids) - new:,} were there already" if len(ids) > new else ""
    space.note(f"{archive.name}: {counted(new, 'new passage')}{known}", "good")
    return 0


async def forget(space: Space) -> int:
    """Delete passages by their ids."""
    archive = await space.archive(space.options.archive)
    gone = await space.catalog.forget(archive.id, space.options.ids)
    if not gone:
        said = f"archive {archive.name!r} has none of these passages"
        raise Invalid(f"{said}; see their ids with: chargehand memory passages {archive.name}")
    if space.options.json:
        return space.show({"archive": archive.name, "forgotten": gone})
    space.note(f"{archive.name}: {counted(gone, 'passage')} forgotten", "good")
    return 0


async def delete_archive(space: Space) -> int:
    """An archive and everything in it."""
    archive = await space.archive(space.options.label)
    passages, _ = await space.catalog.count(archive.id)
    if not space.options.yes:
        said = f"this deletes archive {archive.name!r} and {counted(passages, 'passage')} of it for good"
        keep = f"to keep them: chargehand memory export {archive.name} -o FILE"
        raise Refused(f"{said}; say --yes if that is meant ({keep})")
    await space.catalog.delete(Archive, archive.id)
    if any(one.name == archive.name for one in space.declared.memory.archives):
        space.note("the team file declares it: it is made again, empty but for what it adds, as soon as memory is used")
    if space.options.json:
        return space.show({"deleted": archive.name, "passages": passages})
    space.note(f"{archive.name} is deleted, with {counted(passages, 'passage')}", "good")
    return 0


async def embed(space: Space) -> int:
    """Make the vectors that are missing."""
    archive = await space.archive(space.options.archive)
    passages, dressed = await space.catalog.count(archive.id)
    line, missing, made = ProgressLine(archive.name, still=True), passages - dressed, 0

    def tell(done: int) -> None:
        nonlocal made
        made = done
        line.show(f"{done:,} of {counted(missing, 'vector')}", done, missing)

    with told_if_stopped(line, lambda: f"at least {counted(made, 'vector')} of {archive.name} made"):
        try:
            made = await space.opened.embed_rest(archive, tell)
        except Unknown:
            raise
        except Refused as error:
            raise Refused(f"{error}: {_way_to_a_model(archive)}") from error
    if space.options.json:
        return space.show({"archive": archive.name, "made": made, "missing": max(0, missing - made)})
    space.note(
        f"{archive.name}: {counted(made, 'vector')} made" if made else f"{archive.name}: none was missing", "good"
    )
    return 0


def _way_to_a_model(archive: Archive) -> str:
    if archive.embedding == "words":
        return "say  embed: auto  of it in the team file"
    return "chargehand models pull minilm  (chargehand doctor says what else is missing)"
