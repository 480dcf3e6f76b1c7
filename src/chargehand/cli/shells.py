"""The completion scripts for bash, zsh and fish, made from places. What may stand where is decided in `places`."""

from collections.abc import Iterable, Sequence
from shlex import quote

from chargehand.cli.places import Option, Place, Wanted

_ASIDE = {"file": ":file", "folder": ":folder", "other": ":other"}  # no word begins with a colon

# The walk is the same in both: which verb is this behind, how many words came since, is an option waiting for one?
_WALK = """\
        if [[ $skip == 1 ]]; then skip=0; continue; fi
        if [[ $plain == 0 && $one == -- ]]; then plain=1; continue; fi
        if [[ $plain == 0 && $one == -* ]]; then
            _chargehand_after "$place $one"
            if [[ -n $wanted ]]; then skip=1; fi
            continue
        fi
        _chargehand_verbs "$place"
        case " $wanted " in
            *" $one "*) place="${place:+$place }$one" ;;
            *) count=$((count + 1)) ;;
        esac
"""

_BASH = """\
_chargehand() {
    local word="${COMP_WORDS[COMP_CWORD]}" place="" wanted="" one at count=0 skip=0 plain=0
    COMPREPLY=()
    if [[ $word == "=" ]]; then word=""; fi
    for ((at = 1; at < COMP_CWORD; at++)); do
        one="${COMP_WORDS[at]}"
        if [[ $one == "=" ]]; then continue; fi
%(walk)s    done
    if [[ $skip == 0 ]]; then
        _chargehand_verbs "$place"
        if [[ -z $wanted ]]; then _chargehand_words "$place $((count + 1))"; fi
        if [[ $plain == 0 && ( $word == -* || -z $wanted ) ]]; then _chargehand_options "$place"; fi
    fi
    case "$wanted" in
        :file) _chargehand_paths -f ;;
        :folder) _chargehand_paths -d ;;
        :other) ;;
        *) COMPREPLY=($(compgen -W "$wanted" -- "$word")) ;;
    esac
}

_chargehand_paths() {
    compopt -o filenames 2> /dev/null
    while IFS= read -r one; do COMPREPLY+=("$one"); done < <(compgen "$1" -- "$word")
}

complete -F _chargehand chargehand"""

_ZSH = """\
_chargehand() {
    local place="" wanted="" one
    local -i at count=0 skip=0 plain=0
    for (( at = 2; at < CURRENT; at++ )); do
        one="${words[at]}"
        if [[ $plain == 0 && $one == --*=* ]]; then continue; fi
%(walk)s    done
    if [[ $skip == 0 && $plain == 0 && $PREFIX == --*=* ]]; then
        _chargehand_after "$place ${PREFIX%%%%=*}"
        compset -P '*='
    elif [[ $skip == 0 ]]; then
        _chargehand_verbs "$place"
        if [[ -z $wanted ]]; then _chargehand_words "$place $((count + 1))"; fi
        if [[ $plain == 0 && ( $PREFIX == -* || -z $wanted ) ]]; then _chargehand_options "$place"; fi
    fi
    case "$wanted" in
        :file) _files ;;
        :folder) _files -/ ;;
        :other) _message 'a word' ;;
        *) _chargehand_tell "$place" ;;
    esac
}

_chargehand_tell() {
    local -a told
    local one about
    for one in ${=wanted}; do
        about=""
        _chargehand_about "$1 $one"
        told+=("$one${about:+:$about}")
    done
    _describe 'chargehand' told
}

if [[ "${funcstack[1]}" == _chargehand ]]; then
    _chargehand "$@"
else
    compdef _chargehand chargehand
fi"""

_FISH = """\
function __chargehand_place
    set -l place ""
    set -l skip 0
    for one in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
        else if contains -- "$place $one" $__chargehand_valued
            set skip 1
        else if contains -- (string trim -- "$place $one") $__chargehand_places
            set place (string trim -- "$place $one")
        end
    end
    printf '%s\\n' "$place"
end

function __chargehand_at
    test (__chargehand_place) = "$argv[1]"
end

complete -c chargehand -f"""


def bash(places: Sequence[Place]) -> str:
    """Works with bash 3.2, too, which has neither associative arrays nor mapfile."""
    made = [_head("bash"), *_tables(places), _BASH % {"walk": _WALK}]
    return "\n\n".join(made)


def zsh(places: Sequence[Place]) -> str:
    """To be evaluated in a start-up file after compinit, or put into a folder of `fpath` as `_chargehand`."""
    about = [(f"{one.path} {name}", words) for one in places for name, words in one.verbs.items()]
    about += [(f"{one.path} {name}", option.about) for one in places for option in one.options for name in option.names]
    told = _choose("_chargehand_about", "about", about)
    return "\n\n".join(["#compdef chargehand\n" + _head("zsh"), *_tables(places), told, _ZSH % {"walk": _WALK}])


def fish(places: Sequence[Place]) -> str:
    """Words are offered wherever they could stand, not only in their turn."""
    valued = [f"{one.path} {name}" for one in places for name, _ in _valued(one)]
    paths = [one.path for one in places if one.path]
    lists = [f"set -g __chargehand_places {_fish_all(paths)}", f"set -g __chargehand_valued {_fish_all(valued)}"]
    lines = [line for one in places for line in _fish_lines(one)]
    return "\n\n".join([_head("fish"), "\n".join(lists), "\n".join([_FISH, *lines])])


def _head(shell: str) -> str:
    return f"# What {shell} offers behind chargehand; made by: chargehand completion {shell}"


def _tables(places: Sequence[Place]) -> list[str]:
    """What both walks ask: each is a function that sets `wanted`."""
    verbs = [(one.path, " ".join(one.verbs)) for one in places if one.verbs]
    options = [(one.path, " ".join(name for option in one.options for name in option.names)) for one in places]
    after = [(f"{one.path} {name}", _aside(wanted)) for one in places for name, wanted in _valued(one)]
    words = [
        (f"{one.path} {'*' if one.many and at == len(one.words) else at}", _aside(wanted))
        for one in places
        for at, wanted in enumerate(one.words, 1)
    ]
    return [
        _choose("_chargehand_verbs", "wanted", verbs),
        _choose("_chargehand_options", "wanted", options),
        _choose("_chargehand_after", "wanted", after),
        _choose("_chargehand_words", "wanted", words),
    ]


def _choose(function: str, variable: str, cases: Iterable[tuple[str, str]]) -> str:
    """A function that sets the variable by its argument. Cases with the same outcome share a line."""
    by_outcome: dict[str, list[str]] = {}
    for case, outcome in cases:
        # the star of a repeated word must stay outside of the quotes
        by_outcome.setdefault(outcome, []).append(f"{quote(case[:-1])}*" if case.endswith(" *") else quote(case))
    lines = [f"        {' | '.join(found)}) {variable}={quote(outcome)} ;;" for outcome, found in by_outcome.items()]
    return "\n".join([f"{function}() {{", '    case "$1" in', *lines, f"        *) {variable}= ;;", "    esac", "}"])


def _valued(place: Place) -> list[tuple[str, Wanted]]:
    return [(name, option.wanted) for option in place.options if option.wanted for name in option.names]


def _aside(wanted: Wanted) -> str:
    return " ".join(wanted.choices) if wanted.kind == "choice" else _ASIDE[wanted.kind]


def _fish_lines(place: Place) -> list[str]:
    at = f"complete -c chargehand -n {_fish_quoted(f'__chargehand_at {_fish_quoted(place.path)}')}"
    lines = [f"{at} -a {_fish_quoted(name)} -d {_fish_quoted(about)}" for name, about in place.verbs.items()]
    wanted = [_fish_wanted(one) for one in dict.fromkeys(place.words)]
    lines += [f"{at} {one.removeprefix('-r ').removeprefix('-x ')}" for one in wanted if one]
    return [*lines, *(f"{at} {_fish_option(option)}" for option in place.options)]


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    taken = [] if option.wanted is None else [_fish_wanted(option.wanted) or "-x"]
    return " ".join([*names, *taken, f"-d {_fish_quoted(option.about)}"])


def _fish_wanted(wanted: Wanted) -> str:
    if wanted.kind == "choice":
        return f"-x -a {_fish_quoted(' '.join(wanted.choices))}"
    return {"file": "-r -F", "folder": "-x -a '(__fish_complete_directories)'"}.get(wanted.kind, "")


def _fish_all(words: Iterable[str]) -> str:
    return " ".join(_fish_quoted(word) for word in words)


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
