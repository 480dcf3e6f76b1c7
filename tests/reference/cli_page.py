"""The page about the command line: every verb and option, as the parsers have them."""

import re
from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Collection, Iterator

from chargehand.cli.exit_codes import exit_codes_of
from chargehand.cli.main import parser
from tests.reference.markdown import code, page, sentence, table
from tests.reference.parsers import verbs_of

_ABOUT = """\
Every verb, every option. What they are good for, with examples, is in [cli.md](../cli.md); `chargehand VERB --help`
says the same as this page. `-h` and `--help` are left out below. What the codes mean is in
[exit-codes.md](exit-codes.md)."""


def cli_page() -> str:
    top = parser()
    (verbs,) = [found for one in top._actions if (found := verbs_of(one))]
    listed = table(
        ("verb", "what it does"), [(f"[{name}](#chargehand-{name})", _first(one)) for name, one in verbs.items()]
    )
    parts = [part for name, one in verbs.items() for part in _verb(f"chargehand {name}", one, 2, ())]
    return page("The command line: reference", _ABOUT, listed, *parts)


def _verb(name: str, one: ArgumentParser, level: int, known: Collection[tuple[str, ...]]) -> Iterator[str]:
    """A verb, then its own verbs. `known` are options that the verb around it has told of."""
    words = [action for action in one._actions if not action.option_strings and not verbs_of(action)]
    options = [action for action in one._actions if action.option_strings and "--help" not in action.option_strings]
    inner = [action for action in one._actions if verbs_of(action)]
    yield f"{'#' * level} `{name}`"
    yield _first(one)
    yield f"```text\n{_usage(name, words, inner, options)}\n```"
    yield table(("word", "holds"), [(code(_word(action)), _help(action)) for action in words])
    new = [action for action in options if tuple(action.option_strings) not in known]
    yield table(
        ("option", "default", "what it does"),
        [(_flags(action), code(_default(action)), _help(action)) for action in new],
    )
    yield _also(name, [action for action in options if action not in new])
    yield _epilog(one)
    if level == 2:
        codes = ", ".join(f"[{number}](exit-codes.md#{number})" for number in exit_codes_of(name.split()[1]))
        yield f"Exit codes: {codes}."
    told = {tuple(action.option_strings) for action in options}
    for action in inner:
        for verb, nested in verbs_of(action).items():
            yield from _verb(f"{name} {verb}", nested, level + 1, told)


def _first(one: ArgumentParser) -> str:
    assert one.description, f"{one.prog} has no description"
    return sentence(one.description)


def _usage(name: str, words: list[Action], inner: list[Action], options: list[Action]) -> str:
    verbs = ["|".join(verbs_of(action)) if action.required else "[VERB]" for action in inner]
    return " ".join([name, *(["[options]"] if options else []), *map(_word, words), *verbs])


def _word(action: Action) -> str:
    shown = str(action.metavar or action.dest)
    return {"*": f"[{shown} ...]", "+": f"{shown} ...", "?": f"[{shown}]"}.get(str(action.nargs), shown)


def _flags(action: Action) -> str:
    value = "" if action.nargs == 0 else f" {'|'.join(map(str, action.choices)) if action.choices else action.metavar}"
    value = f" [{value.strip()}]" if action.nargs == "?" else value
    return ", ".join(code(f"{flag}{value}") for flag in action.option_strings)


def _default(action: Action) -> str:
    usual = action.default
    return "" if usual is None or usual is SUPPRESS or usual is False or usual in ([], "") else f"{usual}"


def _help(action: Action) -> str:
    assert action.help or not action.option_strings, f"{action.option_strings} has no help"
    said = (action.help or "").replace(f" (default {_default(action)})", "")
    more = "; may be repeated" if type(action).__name__ == "_AppendAction" and "repeated" not in said else ""
    return re.sub(" {2,}", " ", said) + more


def _also(name: str, options: list[Action]) -> str:
    flags = ", ".join(code(action.option_strings[-1]) for action in options)
    return f"Also {flags}, as for `{name.rpartition(' ')[0]}`." if flags else ""


def _epilog(one: ArgumentParser) -> str:
    own = (one.epilog or "").partition("exit codes:")[0].strip()
    return f"```text\n{own}\n```" if own else ""
