"""The verbs of team files: `chargehand init` copies a template, `chargehand check` looks for mistakes."""

import os
import shlex
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from chargehand.cli.arguments import add_options, model_handle, shared
from chargehand.cli.console import Console, Tone, print_table
from chargehand.cli.format import counted
from chargehand.config.describe import Description, WorkerLine, describe
from chargehand.config.keys import full_path, json_schema, key_at, known_keys
from chargehand.config.source import NAMES, TEMPLATES, Detected, detect_model, near, read_source
from chargehand.config.validate import validate
from chargehand.errors import Invalid, Refused
from chargehand.models.providers import BUILT_IN
from chargehand.text.words import listed

USUAL = "minimal"
_ABOUT = {
    "minimal": "two workers and one tool of your own: the smallest team that is of use",
    "shop": "five colleagues with books, documents and exchange rates; what runs when there is no team file",
    "support": "answers customers from a handbook and an order book, and drafts the reply",
    "code-review": "reads a small code base, measures it, and writes a review",
}
_VARIABLE = "CHARGEHAND_MODEL"
_TEMPLATE_MODEL = f"${{{_VARIABLE}:-{BUILT_IN}}} # no key, no network"
"""How every template names its model."""
_IGNORED = (".chargehand/", ".env", "__pycache__/")
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.pyc", ".chargehand")


def add_init(parser: ArgumentParser) -> None:
    add_options(
        parser,
        {
            "template": {"metavar": "TEMPLATE", "nargs": "?", "default": USUAL, "help": f"default {USUAL}; see --list"},
            "folder": {
                "metavar": "DIR",
                "nargs": "?",
                "default": "",
                "help": "where to put it (default: a folder of its name)",
            },
            "--force": {"action": "store_true", "help": "write over files that are there"},
            "--model": {
                "metavar": "NAME",
                "type": model_handle,
                "help": f"the model of the team (default: by the key in the environment, else {BUILT_IN})",
            },
            "--list": {"action": "store_true", "help": "list the templates"},
        },
    )


def init(options: Namespace) -> int:
    """Copy a template. Nothing is written before everything was checked."""
    console = Console(sys.stdout)
    if options.list:
        print_table(console, ("template", "what it is"), list(_ABOUT.items()))
        return 0
    name: str = options.template
    if name not in _ABOUT:
        raise Invalid(f"there is no template {name!r}{near(name, _ABOUT) or f'; there are {listed(list(_ABOUT))}'}")
    folder = Path(options.folder or name)
    model = Detected(options.model, "--model names it") if options.model else detect_model(os.environ)
    _copy(TEMPLATES / name, folder, force=options.force)
    try:
        _set_model(folder / NAMES[0], model)
        _ignore(folder / ".gitignore")
    except OSError as error:
        raise Refused(f"{folder} cannot be written: {error.strerror or error}; choose another folder") from error
    _next_steps(console, folder, model)
    return 0


def _copy(template: Path, folder: Path, *, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder} is a file; name a folder")
    if not force:
        names = [*NAMES, *(path.relative_to(template) for path in template.rglob("*.*") if path.suffix != ".pyc")]
        taken = [str(name) for name in names if (folder / name).exists()]
        if taken:
            raise Refused(f"{folder} holds {taken[0]} already; choose another folder, or --force to write over")
    try:
        shutil.copytree(template, folder, dirs_exist_ok=True, ignore=_NOT_COPIED)
    except (OSError, shutil.Error) as error:
        raise Refused(f"{folder} cannot be written: {error.strerror or error}; choose another folder") from error


def _set_model(file: Path, model: Detected) -> None:
    """Put the model where the template has the built-in one."""
    if model.handle == BUILT_IN:
        return
    text = file.read_text(encoding="utf-8")
    note = f"# {model.why}; `{BUILT_IN}` needs no key and no network"
    file.write_text(text.replace(_TEMPLATE_MODEL, f"${{{_VARIABLE}:-{model.handle}}} {note}", 1), encoding="utf-8")


def _ignore(file: Path) -> None:
    """What git must not take: runs and memory, keys, compiled files. Lines that are there stay."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    missing = [line for line in _IGNORED if line not in text.splitlines()]
    if missing:
        joint = "" if not text or text.endswith("\n") else "\n"
        file.write_text(text + joint + "".join(f"{line}\n" for line in missing), encoding="utf-8")


def _next_steps(console: Console, folder: Path, model: Detected) -> None:
    team, _ = validate(read_source(folder / NAMES[0]))
    console.line(f"{folder / NAMES[0]}: the team {team.name!r}", "good")
    console.prose(f"model: {model.handle}, because {model.why}")
    if model.handle == BUILT_IN:
        console.prose("  a demo: rules, and no language model; docs/first-model.md says how to get one")
    elif model.charged:
        console.prose(f"  its calls are charged; --model {BUILT_IN} costs nothing")
    console.line("next:")
    if folder.resolve() != Path.cwd():
        console.line(f"  cd {shlex.quote(str(folder))}")
    console.line("  chargehand check")
    request = " ".join(team.examples[0].split())
    console.line(f"  chargehand run {shlex.quote(request)}")


# --- check


def add_check(parser: ArgumentParser) -> None:
    add_options(
        parser,
        {
            **shared("--team"),
            "--schema": {"action": "store_true", "help": "print the JSON Schema of team files, for editors"},
            "--explain": {
                "metavar": "KEY",
                "help": "say what a key such as workers.*.tools means, what it takes and its default",
            },
            "--strict": {"action": "store_true", "help": "warnings count as errors"},
            **shared("--json", "--no-color"),
        },
    )


def check(options: Namespace) -> int:
    """Look at a team file from all sides."""
    console = Console(sys.stdout)
    if options.schema:
        console.json(json_schema())
        return 0
    if options.explain is not None:
        _explain(console, options.explain)
        return 0
    team = describe(options.team)
    errors = team.findings if options.strict else team.errors
    code = 2 if errors else 0
    if options.json:
        console.json({"ok": not team.errors, **structs.asdict(team)})
        return code
    for finding in team.findings:
        is_error = finding.grave or options.strict
        console.line(f"{'error' if is_error else 'warning'}: {finding}", "bad" if is_error else "warn")
    _summarize(Console(sys.stderr), team, "bad" if errors else "good")
    return code


def _explain(console: Console, path: str) -> None:
    path = full_path(path)
    key = key_at(path)
    if key is None:
        hint = near(path, known_keys()) or "; docs/reference/team-file.md lists them"
        raise Invalid(f"a team file has no key {path!r}{hint}")
    default = f"; default {key.default}" if key.default else ""
    console.line(f"{path}: {key.meaning}")
    console.line(f"takes: {key.takes}{default}")


def _summarize(console: Console, team: Description, tone: Tone) -> None:
    if team.name:
        counts = f"{counted(len(team.workers), 'worker')}, {counted(len(team.tools), 'tool')}"
        if team.memory is not None:
            archives = counted(len(team.memory.archives), "archive")
            counts += f"; memory: {counted(len(team.memory.blocks), 'block')}, {archives}"
        console.line(f"team {team.name}: {counts}; models: {', '.join(team.models)}")
        if team.memory is not None and team.memory.remembering:
            names = listed(team.memory.remembering)
            console.prose(f"  earlier tasks ({names}): kept apart by the labels session and user; served, else by key")
        _list_nested_teams(console, team.workers)
        for threshold in team.thresholds:
            console.prose(f"  {threshold}")
        if team.in_doubt:
            outcome = "a person is asked whether it happened" if team.uncertain == "ask" else "its task fails"
            advice = "take a CallKey or give happened= to look it up"
            console.prose(f"  {', '.join(team.in_doubt)}: after a crash {outcome}; {advice}")
    errors = len(team.errors)
    verdict = "all is well"
    if team.findings:
        verdict = f"{counted(errors, 'error')}, {counted(len(team.findings) - errors, 'warning')}"
    console.line(f"{team.file}: {verdict} ({team.how})", tone)


def _list_nested_teams(console: Console, workers: Sequence[WorkerLine], indent: str = "  ") -> None:
    """Which workers are teams, and who is in them."""
    for worker in workers:
        if worker.team:
            names = ", ".join(member.name for member in worker.inside)
            count = counted(len(worker.inside), "worker")
            console.line(f"{indent}{worker.name} is a team of {count} in {worker.team}: {names}")
            _list_nested_teams(console, worker.inside, f"{indent}  ")
