"""Lines of prose on a narrow terminal are cut between words; charts are drawn with characters."""

from chargehand.cli.console import wrap_words
from chargehand.cli.diagrams import draw_chart
from chargehand.models.artifacts import Chart


def test_lines_are_cut_between_words_and_go_on_indented() -> None:
    lines = wrap_words("  gap: the documents do not say how many parcels were lost", 30)
    assert lines == ["  gap: the documents do not", "    say how many parcels were", "    lost"]
    assert wrap_words("short enough", 30) == ["short enough"]


def test_a_word_wider_than_the_screen_stays_whole() -> None:
    address = "https://example.com/" + "a" * 60
    assert wrap_words(f"see {address} for more", 40) == ["see", f"  {address}", "  for more"]


def test_a_chart_has_a_bar_for_each_value_as_long_as_the_value_is_large() -> None:
    chart = Chart("Revenue", plotted=(("Netherlands", 4000.0), ("Italy", 2000.0), ("Malta", 0.0), ("Ireland", -3.5)))
    title, first, second, third, fourth, _ = draw_chart(chart, 60)
    assert title == "chart: Revenue"
    assert first.startswith("  Netherlands  4,000  █")
    assert len(first) <= 60
    assert first.count("█") == 2 * second.count("█") > 0
    assert (third, fourth) == ("  Malta            0", "  Ireland       -3.5")


def test_of_many_values_the_first_are_drawn_and_the_rest_is_counted() -> None:
    lines = draw_chart(Chart("Days", plotted=tuple((f"day {n}", float(n)) for n in range(50))), 80)
    assert len(lines) == 15
    assert lines[-2] == "  … and 38 more"
