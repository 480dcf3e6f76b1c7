"""Skills: folders with a SKILL.md that tell a worker how to do something (agentskills.io).

A model sees the names and descriptions of all of them, in the description of one tool. It reads the instructions of a
skill, and the files beside them, by calling it: what is not needed takes no room.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, cast

import yaml
from msgspec import Struct, structs

from chargehand.errors import Invalid
from chargehand.text.words import did_you_mean
from chargehand.tools.files import read_text, walk_files
from chargehand.tools.tool import Tool, ToolFailed, tool

SKILL_FILE = "SKILL.md"
MAX_SKILLS = 100
_MAX_DESCRIPTION = 1024
_MAX_LISTED = 50
_FIRST_LINE = 2
"""The line of a file where its front matter begins."""
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?\Z")
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)


class SkillFolder(Struct, frozen=True):
    """One skill: what its SKILL.md says of itself, and its instructions."""

    name: str
    description: str
    instructions: str
    folder: Path

    @property
    def files(self) -> list[str]:
        """The other files of the skill, as paths inside it."""
        names = sorted(name for name, _ in walk_files(self.folder) if name != SKILL_FILE)
        return names[:_MAX_LISTED]


def read_skills(folder: Path) -> list[SkillFolder]:
    """The skills in the folders of a folder; Invalid, saying where and why, for one that cannot be used."""
    if not folder.is_dir():
        raise Invalid(f"there is no folder {folder}; name the one that holds the folders of skills")
    places = [folder] if (folder / SKILL_FILE).is_file() else sorted(folder.glob(f"*/{SKILL_FILE}"))
    skills = [_read_skill(place if place.is_dir() else place.parent) for place in places]
    if not skills:
        raise Invalid(f"{folder} holds no skill; write one as NAME/{SKILL_FILE}, with a name and a description in it")
    if len(skills) > MAX_SKILLS:
        raise Invalid(f"{folder} holds {len(skills)} skills; at most {MAX_SKILLS} fit into a prompt")
    by_name: dict[str, SkillFolder] = {}
    for skill in skills:
        other = by_name.setdefault(skill.name, skill)
        if other is not skill:
            raise Invalid(f"{skill.folder} and {other.folder} hold skills of one name, {skill.name!r}; rename one")
    return skills


def _read_skill(folder: Path) -> SkillFolder:
    place = folder / SKILL_FILE
    try:
        text = read_text(folder.resolve(), SKILL_FILE)
    except ToolFailed as error:
        raise Invalid(f"{place}: {error}") from error
    front = _FRONT_MATTER.match(text)
    if front is None:
        raise Invalid(f"{place}:1: a skill begins with ---, a name, a description and ---")
    fields, lines = _read_fields(place, front[1])
    name = fields.get("name")
    description = fields.get("description")
    if not isinstance(name, str) or not _NAME.match(name):
        line = lines.get("name", 1)
        raise Invalid(f"{place}:{line}: name is {name!r}; write up to 64 small letters, digits and hyphens")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= _MAX_DESCRIPTION:
        line = lines.get("description", 1)
        raise Invalid(f"{place}:{line}: write a description of at most {_MAX_DESCRIPTION} characters")
    return SkillFolder(name, " ".join(description.split()), text[front.end() :].strip(), folder.resolve())


def _read_fields(place: Path, front: str) -> tuple[Mapping[str, object], Mapping[str, int]]:
    """What stands between the --- lines by name, and the line of the file where each of it begins."""
    try:
        keys = yaml.safe_load(front)
        node = cast("object", yaml.compose(front, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType] - untyped
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        what = error.problem if isinstance(error, yaml.MarkedYAMLError) else str(error)
        line = 1 if mark is None else mark.line + _FIRST_LINE
        raise Invalid(f"{place}:{line}: what stands between the --- lines is no YAML: {what}") from error
    if not isinstance(keys, dict) or not isinstance(node, yaml.MappingNode):
        return {}, {}
    lines = {key.value: key.start_mark.line + _FIRST_LINE for key, _ in node.value}
    return cast("dict[str, object]", keys), lines


def skills(folder: Path | str, name: str = "skill") -> Tool:
    """A tool that reads the skills in a folder; Invalid where there are none, or one cannot be used."""
    by_name = {skill.name: skill for skill in read_skills(Path(folder))}

    def read_skill(
        skill: Annotated[str, "The name of a skill"],
        file: Annotated[str, "A file of the skill, as its instructions name it; left out, the instructions"] = "",
    ) -> str:
        chosen = by_name.get(skill)
        if chosen is None:
            raise ToolFailed(f"there is no skill {skill[:100]!r}; {did_you_mean(skill, list(by_name))}")
        if file and file != SKILL_FILE:
            return read_text(chosen.folder, file)
        files = chosen.files
        listing = f"\n\nFiles of this skill: {', '.join(files)}" if files else ""
        return f"{chosen.instructions}{listing}"

    listing = "\n".join(f"- {skill.name}: {skill.description}" for skill in by_name.values())
    description = f"Read how to do something, before you do it, where one of these skills fits the task:\n{listing}"
    reader = tool(name=name, description=description, trusted=True, stable=True, summary="reads instructions")(
        read_skill
    )
    return structs.replace(reader, instructs=True)
