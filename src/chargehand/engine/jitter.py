"""All the chance there is in a run: numbers that depend on nothing but its seed and what they are for."""

from hashlib import blake2b

from chargehand.engine.policy import Retry, Seconds


def jitter(seed: int, *parts: object) -> float:
    """A number in [0, 1)."""
    text = "/".join(map(str, (seed, *parts)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64


def backoff(seed: int, retry: Retry, failures: int, *parts: object) -> Seconds:
    """The wait after this many failures: full jitter under a ceiling that doubles."""
    return jitter(seed, *parts, failures) * min(retry.ceiling, retry.base * 2 ** min(failures, 32))
