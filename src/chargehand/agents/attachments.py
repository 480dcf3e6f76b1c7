"""Pictures and PDFs of an attempt: which its models are shown, and their bytes, which no journal has."""

import re
from collections.abc import Sequence

from msgspec import Struct, structs

from chargehand.engine.budget import NOTHING
from chargehand.engine.events import FileReference
from chargehand.engine.failure import Failure
from chargehand.engine.owed import Brief
from chargehand.errors import Invalid, Unknown
from chargehand.models.messages import PDF, Document, Image, Message
from chargehand.models.model import Model
from chargehand.runtime.executor import StepContext, WorkFailed
from chargehand.runtime.files import shown_type
from chargehand.runtime.pdf import text_missing
from chargehand.tools.tool_files import MAX_FILES, MAX_PICTURE, ToolFile

MAX_SHOWN = 20
"""Pictures and PDFs of tools that a model is shown in one attempt."""
MAX_SHOWN_BYTES = 20 * 1024 * 1024
"""Bytes that they have together: providers take requests of about 32 MB, in which each byte is four thirds."""
_UNSAFE = re.compile(r"[\0-\x1f\x7f/\\\ud800-\udfff]+")
_LONGEST_NAME = 100
_ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", PDF: "pdf"}


class KeptFile(Struct, frozen=True, omit_defaults=True):
    """A picture or a PDF that a tool returned, as the journal has it."""

    file: FileReference
    """What it is found by."""
    text: str = ""
    """Of a PDF: its text; empty: none was read."""


# --- what models are shown


def as_shown(file: FileReference, models: Sequence[Model]) -> Image | Document | None:
    """A file as models are shown it; None where one of them does not take it."""
    if file.media_type == PDF:
        takes = all(model.card.documents for model in models)
        return Document(file.id, file.name, max(1, file.pages)) if takes else None
    if not file.media_type.startswith("image/"):
        return None
    return Image(file.id, file.media_type) if all(model.card.images for model in models) else None


class ShownFiles(Struct):
    """The pictures and PDFs beside one message."""

    images: tuple[Image, ...] = ()
    documents: tuple[Document, ...] = ()

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(part.file for part in (*self.images, *self.documents))

    def add(self, part: Image | Document) -> None:
        """Show one more."""
        if isinstance(part, Image):
            self.images += (part,)
        else:
            self.documents += (part,)


def shown_inputs(brief: Brief, models: Sequence[Model]) -> ShownFiles:
    """The pictures and PDFs among the inputs of a brief that every model of a worker takes."""
    shown = ShownFiles()
    for source in brief.inputs:
        part = None if source.file is None else as_shown(source.file, models)
        if part is not None:
            shown.add(part)
    return shown


def check_readable(brief: Brief, models: Sequence[Model]) -> None:
    """Raise WorkFailed for a PDF that a model can neither be shown nor read."""
    for source in brief.inputs:
        file = source.file
        if file is None or file.media_type != PDF or source.value is not None:
            continue
        blind = next((model.card.handle for model in models if not model.card.documents), "")
        if blind:
            raise WorkFailed(Failure("resource", text_missing(file.name, blind), permanent=True), NOTHING)


def shown_as_text(brief: Brief, models: Sequence[Model]) -> list[str]:
    """Say which PDFs of a brief go to a model as text, and how that is changed; none where it runs in this process."""
    blind = next((model.card for model in models if not model.card.documents), None)
    if blind is None or blind.in_process or blind.reads_facts:
        return []
    files = [source.file for source in brief.inputs if source.file is not None and source.value is not None]
    return [
        f"{file.name} goes to {blind.handle} as text: it is not known to take PDFs. "
        f"If it does: find_model({blind.handle!r}, os.environ.get, documents=True), in Python"
        for file in files
        if file.media_type == PDF
    ]


async def with_bytes(messages: Sequence[Message], context: StepContext) -> list[Message]:
    """Messages with the bytes of their pictures and PDFs; WorkFailed where one was deleted."""
    try:
        return [await _message_with_bytes(message, context) if message.has_files else message for message in messages]
    except Unknown as error:
        raise WorkFailed(Failure("resource", str(error), permanent=True), NOTHING) from error


async def _message_with_bytes(message: Message, context: StepContext) -> Message:
    images = [structs.replace(image, data=await context.read_file(image.file)) for image in message.images]
    documents = [structs.replace(part, data=await context.read_file(part.file)) for part in message.documents]
    return structs.replace(message, images=tuple(images), documents=tuple(documents))


# --- what tools return


async def keep_files(files: Sequence[ToolFile], context: StepContext) -> tuple[tuple[KeptFile, ...], str]:
    """Keep the files that a tool returned; and what of them is not kept, in words for the model."""
    kept: list[KeptFile] = []
    problems: list[str] = []
    for number, file in enumerate(files[:MAX_FILES], 1):
        media_type = shown_type(file.data)
        if not media_type:
            problems.append(f"File {number} is neither a picture (PNG, JPEG, GIF, WebP) nor a PDF, and is left out.")
        elif media_type != PDF and len(file.data) > MAX_PICTURE:
            problems.append(
                f"Picture {number} has {len(file.data):,} bytes, more than {MAX_PICTURE:,}: it is left out."
            )
        else:
            try:
                reference, text = await context.keep_file(
                    _file_name(file.name, media_type, number), media_type, file.data
                )
            except Invalid as error:  # too large, or a PDF that cannot be read
                problems.append(f"File {number} is left out: {error}.")
            else:
                kept.append(KeptFile(reference, text))
    if len(files) > MAX_FILES:
        problems.append(f"Of {len(files)} files the first {MAX_FILES} are kept.")
    return tuple(kept), " ".join(problems)


def _file_name(name: str, media_type: str, number: int) -> str:
    """A name that can be kept, whoever wrote it."""
    return _UNSAFE.sub("_", name).strip()[:_LONGEST_NAME] or f"result-{number}.{_ENDINGS[media_type]}"


class FilesOfTools(Struct, eq=False):
    """Which files of tools the models of an attempt are shown: so many, and no more."""

    models: Sequence[Model]
    _count: int = 0
    _size: int = 0

    def show(self, files: Sequence[KeptFile]) -> tuple[ShownFiles, str]:
        """What stands beside a result, and what the result says of its files. Of a PDF not shown that is its text."""
        shown = ShownFiles()
        lines: list[str] = []
        texts: list[str] = []
        for kept in files:
            file = kept.file
            named = f"{'PDF' if file.media_type == PDF else 'picture'} {file.name} ({file.media_type}, {file.id})"
            part = as_shown(file, self.models)
            has_room = self._count < MAX_SHOWN and self._size + file.size <= MAX_SHOWN_BYTES
            if part is not None and has_room:
                self._count += 1
                self._size += file.size
                shown.add(part)
                lines.append(f"[{named}: it is shown with this result]")
            elif kept.text:
                lines.append(f"[{named}: its text follows]")
                texts.append(f"[text of {file.name}]\n{kept.text}")
            else:
                why = "too many were shown already" if part is not None else "you cannot be shown such files"
                lines.append(f"[{named}: not shown, {why}]")
        return shown, "\n".join([*lines, *texts])
