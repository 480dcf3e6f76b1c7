"""Prompts are text files with named slots. A team may put its own in their place."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from chargehand.errors import Invalid

NAMES = (
    "plan",
    "work",
    "task",
    "refine",
    "answer",
    "make",
    "reduce",
    "summary",
    "speak",
    "ledger",
    "split",
    "judge",
    "verify",
    "review",
    "route",
)
_NEEDED = {
    "plan": ("workers",),
    "task": ("instruction", "inputs"),
    "make": ("tools",),
    "ledger": ("workers",),
    "split": ("workers",),
    "speak": ("workers",),
    "route": ("workers",),
    "judge": ("manner", "form"),
    "verify": ("form",),
    "review": ("prompt", "form"),
    "work": ("prompt",),
}
"""The slots that a prompt must have: the workers, the inputs, the form of the reply."""
_LOST = {
    "workers": "the model would not know who is on the team",
    "instruction": "the worker would not know its task",
    "inputs": "the worker would not see what others found",
    "tools": "the model would not know which tools there are",
    "manner": "the judge would not know what to decide",
    "form": "the model would not know how to reply",
    "prompt": "what each worker is told about itself would be lost",
}
_SLOT = re.compile(r"\{\{(\w+)\}\}")


@cache
def bundled(name: str) -> str:
    return (files("chargehand.agents") / "prompts" / f"{name}.md").read_text(encoding="utf-8")


class Prompts:
    """The prompts of one team: its own where it has any, ours elsewhere."""

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        self._own = dict(own or {})
        self._parts: dict[str, list[str]] = {}
        for name, text in self._own.items():
            if name not in NAMES:
                raise Invalid(f"there is no prompt {name!r}; the prompts are {', '.join(NAMES)}")
            if strange := set(_SLOT.findall(text)) - set(_SLOT.findall(bundled(name))):
                allowed = ", ".join(sorted(set(_SLOT.findall(bundled(name))))) or "none"
                raise Invalid(f"prompt {name!r} has the slot {min(strange)!r}; its slots are {allowed}")
            if missing := [slot for slot in _NEEDED.get(name, ()) if slot not in _SLOT.findall(text)]:
                listed = " and ".join(f"{{{{{slot}}}}}" for slot in missing)
                raise Invalid(f"prompt {name!r} lacks {listed}: {_LOST[missing[0]]}; put it where that is to stand")

    def text(self, prompt: str, /, **slots: str) -> str:
        """A prompt with its slots filled; what fills them is not looked at again."""
        parts = self._parts.get(prompt)
        if parts is None:  # texts and names of slots take turns
            parts = self._parts[prompt] = _SLOT.split(self._own.get(prompt) or bundled(prompt))
        filled = list(parts)
        filled[1::2] = [slots.get(name, "") for name in parts[1::2]]
        text = "".join(filled).strip()
        while "\n\n\n" in text:  # an empty slot leaves a gap
            text = text.replace("\n\n\n", "\n\n")
        return text
