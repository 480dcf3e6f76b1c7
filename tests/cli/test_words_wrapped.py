"""Lines of prose on a narrow terminal are cut between words."""

from chargehand.cli.console import wrap_words


def test_lines_are_cut_between_words_and_go_on_indented() -> None:
    lines = wrap_words("  gap: the documents do not say how many parcels were lost", 30)
    assert lines == ["  gap: the documents do not", "    say how many parcels were", "    lost"]
    assert wrap_words("short enough", 30) == ["short enough"]


def test_a_word_wider_than_the_screen_stays_whole() -> None:
    address = "https://example.com/" + "a" * 60
    assert wrap_words(f"see {address} for more", 40) == ["see", f"  {address}", "  for more"]
