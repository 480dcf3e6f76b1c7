"""Three gauges for one river. One of them is stuck."""  # noqa: INP001 - a file beside a team, no package


def left_gauge() -> str:
    """The water level at the bridge."""
    return "The water level at the bridge is 212 cm."


def right_gauge() -> str:
    """The water level at the bridge."""
    return "The water level at the bridge is 212 cm."


def pier_gauge() -> str:
    """The water level at the bridge."""
    return "The water level at the bridge is 150 cm."
