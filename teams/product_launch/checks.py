"""What headlines must keep to: no words that no test can prove."""

FORBIDDEN = ("revolutionary", "best", "number one", "unique", "thermos")


def honest(value: object) -> str:
    """Empty where the copy claims nothing that cannot be proved."""
    text = str(value).lower()
    found = [word for word in FORBIDDEN if word in text]
    return f"it says {', '.join(found)}, which nobody can prove" if found else ""
