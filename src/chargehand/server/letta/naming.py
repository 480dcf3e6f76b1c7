"""Names for agents that were given none. Pure: the same id, the same name."""

from hashlib import blake2b

_MANNERS = (
    "Amber",
    "Bold",
    "Brisk",
    "Calm",
    "Clear",
    "Deft",
    "Eager",
    "Early",
    "Fair",
    "Fleet",
    "Gentle",
    "Glad",
    "Golden",
    "Keen",
    "Kind",
    "Lively",
    "Merry",
    "Mild",
    "Nimble",
    "Patient",
    "Plain",
    "Quick",
    "Quiet",
    "Ready",
    "Silver",
    "Steady",
    "Sunny",
    "Swift",
    "Tidy",
    "True",
    "Warm",
    "Wise",
)
_CREATURES = (
    "Badger",
    "Beaver",
    "Crane",
    "Curlew",
    "Deer",
    "Dipper",
    "Dove",
    "Falcon",
    "Finch",
    "Fox",
    "Hare",
    "Hawk",
    "Heron",
    "Ibis",
    "Jay",
    "Kestrel",
    "Lark",
    "Linnet",
    "Marten",
    "Merlin",
    "Otter",
    "Owl",
    "Petrel",
    "Plover",
    "Puffin",
    "Raven",
    "Robin",
    "Stoat",
    "Swallow",
    "Tern",
    "Thrush",
    "Wren",
)


def pleasant_name(which: str) -> str:
    """A name somebody can say, with a few signs of the id behind it so that no two agents share one."""
    digest = blake2b(which.encode(), digest_size=2).digest()
    manner = _MANNERS[digest[0] % len(_MANNERS)]
    creature = _CREATURES[digest[1] % len(_CREATURES)]
    return f"{manner}{creature}-{which.rpartition('-')[2][:6]}"
