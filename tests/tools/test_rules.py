"""Rules on the order of tool calls: each by itself, together, and contradictions."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.errors import Invalid
from chargehand.tools import rules as r
from chargehand.tools.rules import Called, ToolRule

TOOLS = ("look", "write", "send", "done")


def calls(*tools: str) -> list[Called]:
    return [Called(step, tool) for step, tool in enumerate(tools)]


def test_without_rules_everything_is_allowed_and_the_attempt_may_end() -> None:
    assert r.allowed([], [], TOOLS) == TOOLS
    assert (r.may_exit([], []), r.must_exit([], []), r.needs_approval([], "look")) == ("", False, False)


def test_run_first_keeps_the_others_back_until_it_ran() -> None:
    rules = [r.RunFirst("look")]
    assert r.allowed(rules, [], TOOLS) == ("look",)
    assert "call look first" in r.objection(rules, [], "send", 0)
    assert "call look first" in r.may_exit(rules, [])
    assert r.allowed(rules, calls("look"), TOOLS) == TOOLS


def test_of_two_that_run_first_either_will_do() -> None:
    rules = [r.RunFirst("look"), r.RunFirst("write")]
    assert r.allowed(rules, [], TOOLS) == ("look", "write")
    assert "look or write" in r.objection(rules, [], "send", 0)


def test_exit_loop_ends_the_attempt() -> None:
    rules = [r.ExitLoop("done")]
    assert not r.must_exit(rules, calls("look"))
    assert r.must_exit(rules, calls("look", "done"))
    assert r.allowed(rules, calls("done"), TOOLS) == ()
    assert "give your answer" in r.objection(rules, calls("done"), "look", 1)


def test_continue_loop_asks_for_one_more_call() -> None:
    rules = [r.ContinueLoop("look")]
    assert "right after look" in r.may_exit(rules, calls("look"))
    assert r.may_exit(rules, calls("look", "write")) == ""


def test_children_are_the_only_ones_right_after_their_parent() -> None:
    rules = [r.ConstrainChildTools("look", ("write", "send"))]
    assert r.allowed(rules, calls("look"), TOOLS) == ("write", "send")
    assert "only write or send" in r.objection(rules, calls("look"), "look", 1)
    assert r.allowed(rules, calls("look", "write"), TOOLS) == TOOLS


def test_two_lists_of_children_leave_what_is_in_both() -> None:
    rules = [r.ConstrainChildTools("look", ("write", "send")), r.ConstrainChildTools("look", ("send", "done"))]
    assert r.allowed(rules, calls("look"), TOOLS) == ("send",)


def test_a_tool_with_a_parent_comes_only_right_after_it() -> None:
    rules = [r.ParentLastTool("send", "write")]
    assert "send" not in r.allowed(rules, [], TOOLS)
    assert "send" in r.allowed(rules, calls("write"), TOOLS)
    assert "right after write" in r.objection(rules, calls("write", "look"), "send", 2)


def test_what_follows_can_depend_on_the_result() -> None:
    rules = [r.Conditional("look", {"yes": "send", "no": "done"}, otherwise="write")]
    assert r.allowed(rules, [Called(0, "look", " yes\n")], TOOLS) == ("send",)
    assert r.allowed(rules, [Called(0, "look", "maybe")], TOOLS) == ("write",)
    assert "send must be called" in r.may_exit(rules, [Called(0, "look", "yes")])
    free = [r.Conditional("look", {"yes": "send"})]
    assert r.allowed(free, [Called(0, "look", "maybe")], TOOLS) == TOOLS
    assert r.may_exit(free, [Called(0, "look", "maybe")]) == ""


def test_a_count_holds_for_one_step_only() -> None:
    rules = [r.MaxCountPerStep("look", 2)]
    made = [Called(0, "look"), Called(0, "look")]
    assert "called 2 times in this step" in r.objection(rules, made, "look", 0)
    assert r.objection(rules, made, "look", 1) == ""
    assert r.objection(rules, made, "write", 0) == ""
    assert "called 2 times, which is the most" in r.objection([r.MaxCount("look", 2)], made, "look", 1)


def test_a_required_tool_holds_up_the_end_even_after_one_that_ends() -> None:
    rules = [r.RequiredBeforeExit("write"), r.ExitLoop("done")]
    assert "write has not been called" in r.may_exit(rules, calls("look"))
    assert not r.must_exit(rules, calls("done"))
    assert r.must_exit(rules, calls("write", "done"))


def test_approval_is_asked_for_the_tool_that_needs_it() -> None:
    rules = [r.RequiresApproval("send")]
    assert (r.needs_approval(rules, "send"), r.needs_approval(rules, "look")) == (True, False)


def test_calls_of_one_step_count_in_their_order() -> None:
    rules = [r.RunFirst("look"), r.ParentLastTool("send", "write")]
    together = [Called(0, "look"), Called(0, "write")]
    assert r.objection(rules, together, "send", 0) == ""


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([r.RunFirst("lok")], "did you mean 'look'"),
        ([r.ConstrainChildTools("look", ("wrote",))], "'wrote'"),
        ([r.ParentLastTool("send", "mars")], "'mars'"),
        ([r.Conditional("look", {"a": "sent"})], "'sent'"),
        ([r.Conditional("look", {}, "sent")], "'sent'"),
        ([r.MaxCountPerStep("look", 0)], "is 0"),
        ([r.ConstrainChildTools("look", ())], "lists no tools"),
        ([r.ExitLoop("done"), r.ContinueLoop("done")], "both exit_loop and continue_loop"),
        ([r.ParentLastTool("send", "write"), r.ParentLastTool("send", "look")], "both 'write' and 'look'"),
        ([r.ParentLastTool("send", "send")], "after itself"),
        ([r.ParentLastTool("send", "write"), r.RunFirst("send")], "run first"),
        ([r.ParentLastTool("send", "done"), r.ExitLoop("done")], "ends the attempt"),
        ([r.Conditional("look", {"yes": "send"}), r.ParentLastTool("send", "write")], "dead end"),
        ([r.ConstrainChildTools("look", ("send",)), r.Conditional("look", {}, "write")], "dead end"),
        (
            [r.ConstrainChildTools("look", ("send",)), r.ParentLastTool("send", "write"), r.ContinueLoop("look")],
            "dead end",
        ),
    ],
)
def test_rules_that_cannot_be_kept_are_refused_in_words(rules: list[ToolRule], words: str) -> None:
    with pytest.raises(Invalid) as caught:
        r.check(rules, TOOLS)
    assert words in str(caught.value)


def test_rules_can_be_written_and_read_by_their_names() -> None:
    text = b'[{"type":"run_first","tool":"look"},{"type":"conditional","tool":"look","cases":{"a":"send"}}]'
    found = msgspec.json.decode(text, type=list[ToolRule])
    assert found == [r.RunFirst("look"), r.Conditional("look", {"a": "send"})]


names = st.sampled_from(TOOLS)
some_rules = st.lists(
    st.one_of(
        names.map(r.RunFirst),
        names.map(r.ExitLoop),
        names.map(r.ContinueLoop),
        names.map(r.RequiredBeforeExit),
        st.builds(r.ConstrainChildTools, names, st.lists(names, min_size=1, max_size=3).map(tuple)),
        st.builds(r.ParentLastTool, names, names),
        st.builds(r.Conditional, names, st.dictionaries(st.sampled_from(["a", "b"]), names), st.just("") | names),
        st.builds(r.MaxCountPerStep, names, st.integers(1, 3)),
        st.builds(r.MaxCount, names, st.integers(1, 3)),
    ),
    max_size=5,
)
histories = st.lists(st.builds(Called, st.integers(0, 3), names, st.sampled_from(["", "a", "b"])), max_size=6).map(
    lambda made: sorted(made, key=lambda call: call.step)
)


@given(some_rules, some_rules, histories)
def test_more_rules_never_allow_more(one: list[ToolRule], two: list[ToolRule], made: list[Called]) -> None:
    first = [rule for rule in two if not isinstance(rule, r.RunFirst | r.RequiredBeforeExit)]
    assert set(r.allowed([*one, *first], made, TOOLS)) <= set(r.allowed(one, made, TOOLS))


@given(some_rules, histories)
def test_the_order_of_rules_does_not_matter(rules: list[ToolRule], made: list[Called]) -> None:
    turned = rules[::-1]
    assert r.allowed(rules, made, TOOLS) == r.allowed(turned, made, TOOLS)
    assert bool(r.may_exit(rules, made)) == bool(r.may_exit(turned, made))


@given(some_rules, histories)
def test_what_must_end_may_end(rules: list[ToolRule], made: list[Called]) -> None:
    if r.must_exit(rules, made):
        assert r.may_exit(rules, made) == ""
        assert r.allowed(rules, made, TOOLS) == ()


@given(some_rules, st.data())
def test_rules_that_passed_the_check_never_leave_an_attempt_without_a_way_on(
    rules: list[ToolRule], data: st.DataObject
) -> None:
    try:
        r.check(rules, TOOLS)
    except Invalid:
        return
    made: list[Called] = []
    for step in range(8):
        strategies = r.allowed(rules, made, TOOLS)
        if not strategies:
            break
        made.append(Called(step, data.draw(st.sampled_from(strategies)), data.draw(st.sampled_from(["", "a", "b"]))))
    assert r.allowed(rules, made, TOOLS) or not r.may_exit(rules, made)


@pytest.mark.parametrize(
    ("rules", "made", "end"),
    [
        ([r.ExitLoop("send")], (), ""),  # a plain answer ends it, too
        ([r.ExitLoop("send"), r.RequiredBeforeExit("send")], (), "send"),
        ([r.ExitLoop("send"), r.RequiredBeforeExit("look")], (), ""),  # sending would not end it yet
        ([r.ExitLoop("send"), r.RequiredBeforeExit("look"), r.RequiredBeforeExit("send")], ("look",), "send"),
        ([r.ExitLoop("send"), r.ExitLoop("save"), r.ContinueLoop("look")], ("look",), ""),  # either would end it
        ([r.ExitLoop("send"), r.ContinueLoop("look")], ("look",), "send"),
        ([r.RequiredBeforeExit("look")], (), ""),
    ],
)
def test_the_only_tool_with_which_an_attempt_must_end(rules: list[ToolRule], made: tuple[str, ...], end: str) -> None:
    assert r.only_end(rules, calls(*made), ("look", "send", "save")) == end
