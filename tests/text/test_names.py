"""Names that are not known: which ones may be meant."""

from chargehand.text.words import did_you_mean, listed, nearest_names


def test_the_nearest_name_is_suggested() -> None:
    assert did_you_mean("calulator", ["calculator", "chart"]) == "did you mean 'calculator'?"
    assert did_you_mean("ann", ["anna", "anne", "bob"]) == "did you mean 'anne' or 'anna'?"


def test_where_none_is_near_all_are_listed_or_something_else_is_said() -> None:
    assert did_you_mean("xyz", ["ann", "bob"]) == "there are ann, bob"
    assert did_you_mean("xyz", ["ann", "bob"], "leave it out") == "leave it out"
    assert did_you_mean("xyz", []) == "there are none"
    assert listed("abcd", 2) == "a, b and 2 more"


def test_a_name_that_stands_twice_is_offered_once() -> None:
    assert did_you_mean("stok", ["stock", "stock"]) == "did you mean 'stock'?"


def test_a_name_of_any_length_is_compared_quickly() -> None:
    assert nearest_names("a" * 1_000_000, ["a" * 90]) == ["a" * 90]
