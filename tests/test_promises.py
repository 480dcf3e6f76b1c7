"""The names the package promises."""

import chargehand


def test_every_promised_name_is_there_and_at_home_where_it_says() -> None:
    assert sorted(chargehand._HOME) == sorted(chargehand.__all__)
    for name in chargehand.__all__:
        found = getattr(chargehand, name)
        if name == "Unknown":  # a value, which has no name of its own
            assert (type(found).__module__, repr(found)) == (chargehand._HOME[name], "UnknownOutcome()")
            continue
        assert (found.__module__, found.__name__) == (chargehand._HOME[name], name)
    assert set(chargehand.__all__) <= set(dir(chargehand))
