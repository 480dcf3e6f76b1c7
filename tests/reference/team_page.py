"""The page about team files: every key with what it takes, its default and its meaning, by section."""

from chargehand.config.keys import FileKey, KeySection, sections
from tests.reference.markdown import code, page, table

_ABOUT = """\
Every key there is, by section. How a file is found and read, and an example, is in [team-file.md](../team-file.md);
`chargehand check --explain KEY` says the same of one key. In the name of a section a star is a name you choose. Texts
that are told to models (`instructions`, `prompt`, `prompts`, the `value` of a block) may stand in a file:
`file:prompts/writer.md`."""

_SEE = {
    "supervisor.hedge": "when-things-fail.md#providers-and-tools-that-fail-or-take-too-long",
    "supervisor.strategy": "strategies.md",
    "supervisor.prompts": "team-file.md#supervisorprompts",
    "policy.limits.max_nesting": "strategies.md#teams-in-teams",
    "supervisor.strategy.route.samples": "checks.md#several-samples",
    "supervisor.strategy.route.learn": "routing.md#what-it-learns",
    "workers.*.team": "strategies.md#teams-in-teams",
    "workers.*.tools": "team-file.md#memory-tools",
    "workers.*.every": "memory.md#background-workers",
    "workers.*.contacts": "team-file.md#messages",
    "workers.*.replicas": "routing.md#one-worker-several-models",
    "checks": "checks.md",
    "memory": "team-file.md#memory",
}
"""Where more is said than fits into a row."""


def team_page() -> str:
    return page("The team file: reference", _ABOUT, *(part for one in sections() for part in _section(one)))


def _section(section: KeySection) -> tuple[str, str, str]:
    title = f"## `{section.path}`" if section.path else "## The file"
    about = "Exactly one of these keys." if (section.shape.__doc__ or "").startswith("Exactly one of") else ""
    rows = [_row(f"{section.path}.{key.name}".lstrip("."), key) for key in section.keys]
    return title, about, table(("key", "takes", "default", "means"), rows)


def _row(path: str, key: FileKey) -> tuple[str, str, str, str]:
    assert key.meaning, f"{path} means nothing: say what in leading_keys.py or working_keys.py"
    page_of = _SEE.get(path)
    more = f" ([{page_of.partition('#')[0]}](../{page_of}))" if page_of else ""
    default = "required" if key.required else code(key.default)
    return f'<a id="{path}"></a>`{key.name}`', key.takes, default, key.meaning + more
