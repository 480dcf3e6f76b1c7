"""Conditions and functions that decide which calls of a tool need approval."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest

from chargehand import Caller, tool
from chargehand.errors import Invalid
from chargehand.tools.approval import Condition, must_ask
from chargehand.tools.rules import RequiresApproval, check_approvals, rule_asks

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "euros": {"type": "number"},
        "to": {"type": "string", "enum": ["Ott", "Lehm"]},
        "urgent": {"type": "boolean", "default": False},
        "count": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "any": {},
    },
}


@pytest.mark.parametrize(
    ("when", "arguments", "asks"),
    [
        ({"euros": "> 500"}, {"euros": 501}, True),
        ({"euros": "> 500"}, {"euros": 500.0}, False),
        ({"euros": ">500"}, {"euros": 1e9}, True),
        ({"euros": ">= 500"}, {"euros": 500}, True),
        ({"euros": "< -0.5"}, {"euros": -1}, True),
        ({"euros": "<= 0"}, {"euros": 1}, False),
        ({"euros": "!= 5"}, {"euros": 5}, False),
        ({"euros": 5}, {"euros": 5}, True),
        ({"to": "Ott"}, {"to": "Lehm"}, False),
        ({"to": "== Ott"}, {"to": "Ott"}, True),
        ({"to": "in [Ott, 'Lehm']"}, {"to": "Lehm"}, True),
        ({"to": ["Ott"]}, {"to": "Ott"}, True),
        ({"to": 'not in ["Ott"]'}, {"to": "Ott"}, False),
        ({"to": "not  in [Ott]"}, {"to": "Lehm"}, True),
        ({"to": "== in transit"}, {"to": "in transit"}, True),
        ({"to": ["in transit"]}, {"to": "in transit"}, True),
        ({"to": "== 'in [Ott]'"}, {"to": "in [Ott]"}, True),
        ({"to": "== ~ Ott"}, {"to": "~ Ott"}, True),
        ({"to": "inland"}, {"to": "inland"}, True),
        ({"to": "nothing"}, {"to": "nothing"}, True),
        ({"to": "not in ['Ott, Lehm', O'Neill,]"}, {"to": "Ott, Lehm"}, False),
        ({"to": "not in ['Ott, Lehm', O'Neill,]"}, {"to": "O'Neill"}, False),
        ({"urgent": True}, {"urgent": True}, True),
        ({"urgent": "== true"}, {}, False),
        ({"euros": "> 500", "to": "Ott"}, {"euros": 501, "to": "Lehm"}, False),
        ({"euros": "> 500", "to": "Ott"}, {"euros": 501, "to": "Ott"}, True),
        # what cannot be decided asks
        ({"euros": "> 500"}, {}, True),
        ({"euros": "> 500"}, {"euros": None}, True),
        ({"euros": "> 500"}, {"euros": "1"}, True),
        ({"euros": "> 500"}, {"euros": False}, True),
        ({"any": "== 5"}, {"any": "five"}, True),
        ({"any": "== five"}, {"any": ["five"]}, True),
        ({"count": "> 5"}, {}, True),
    ],
)
def test_a_call_asks_where_its_arguments_meet_all_conditions(
    when: Mapping[str, Condition], arguments: Mapping[str, object], *, asks: bool
) -> None:
    assert must_ask(when, json.dumps(arguments), SCHEMA) == asks


@pytest.mark.parametrize(
    "written",
    [
        "not in Ott, Lehm",
        "not in (Ott, Lehm)",
        "Not In [Ott]",
        "NOT IN [Ott]",
        "notin [Ott]",
        "not_in [Ott]",
        "not [Ott]",
        "not(Ott)",
        "!Ott",
        "! Ott",
        "~ Ott",
        "= Ott",
        "=> 500",
        "≥ 500",
        "in Eve",
        "In [Eve]",
        "in(Eve)",
        " in Eve ",
        "[Ott, Lehm]",
        "(Ott, Lehm)",
    ],
)
def test_a_text_that_only_looks_like_an_operator_is_refused_with_the_right_form(written: str) -> None:
    def remit(to: str) -> str:
        """Pay."""
        return to

    schema = {"properties": {"to": {"type": "string"}}}
    with pytest.raises(Invalid) as caught:
        tool(approve={"to": written})(remit)
    assert str(caught.value) == (
        f"to: {written!r} begins like an operator and is none; write one of '> 500', '== Ott', '!= Ott', "
        f"'in [Ott, Lehm]' or 'not in [Ott, Lehm]', or [{written!r}] if the argument must be this very text"
    )
    with pytest.raises(Invalid, match="begins like an operator and is none"):
        check_approvals([RequiresApproval("pay", {"to": written})], {})
    assert must_ask({"to": [written]}, json.dumps({"to": written}), schema)


@pytest.mark.parametrize("written", ["== in [Ott]", "!= not in (Ott)", "=== Ott", "!== Ott", "== [Ott, Lehm]"])
def test_two_operators_in_one_condition_are_refused(written: str) -> None:
    schema = {"properties": {"to": {"type": "string"}}}
    with pytest.raises(Invalid, match=r"has two operators; write one of '> 500'.* or put the text in quotes: [=!]= '"):
        check_approvals([RequiresApproval("pay", {"to": written})], {"pay": schema})


@pytest.mark.parametrize("written", ["in [Ott] or [Lehm]", "not in [Ott", "in ['Ott, Lehm]", "in [[Ott], Lehm]"])
def test_a_list_that_cannot_be_read_is_refused(written: str) -> None:
    schema = {"properties": {"to": {"type": "string"}}}
    with pytest.raises(Invalid, match="names no value"):
        check_approvals([RequiresApproval("pay", {"to": written})], {"pay": schema})


@pytest.mark.parametrize("arguments", ["", "[]", "{", '{"euros": '])
def test_arguments_that_cannot_be_read_ask(arguments: str) -> None:
    assert must_ask({"euros": "> 500"}, arguments, SCHEMA)


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ({"euro": "> 500"}, "'pay' has no argument 'euro'; did you mean 'euros'?"),
        ({"euros": ">"}, "euros: '>' names no value; write for example '> 500' or 'not in [EUR, CHF]'"),
        ({"euros": "> much"}, "euros: '> much' compares with 'much', which is no number; use == or in for texts"),
        ({"euros": "> true"}, "euros: '> true' compares with 'true', which is no number; use == or in for texts"),
        ({"euros": "500 or more"}, "a condition on 'pay' can never be decided: euros must be number, not a text"),
        ({"to": "> 5"}, "a condition on 'pay' can never be decided: to must be string, not a number"),
        ({"to": "in [Ott, Lem]"}, "a condition on 'pay' can never be decided: to is 'Lem'; allowed are 'Ott', 'Lehm'"),
        ({"to": "in []"}, "to: 'in []' names no value; write for example '> 500' or 'not in [EUR, CHF]'"),
        ({"to": []}, "to: the list is empty; name the values of which each asks"),
        ({"urgent": "yes"}, "a condition on 'pay' can never be decided: urgent must be boolean, not a text"),
    ],
)
def test_a_condition_that_does_not_fit_the_tool_is_refused(when: dict[str, Condition], words: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_approvals([RequiresApproval("pay", when)], {"pay": SCHEMA})
    assert str(caught.value) == words


def test_one_of_several_rules_is_enough_and_other_tools_do_not_count() -> None:
    rules = [RequiresApproval("pay", {"euros": "> 500"}), RequiresApproval("pay", {"to": "Ott"})]
    for arguments in ('{"euros": 1, "to": "Ott"}', '{"euros": 501}'):
        assert rule_asks(rules, "pay", arguments, SCHEMA)
    assert not rule_asks(rules, "pay", '{"euros": 1, "to": "Lehm"}', SCHEMA)
    assert not rule_asks(rules, "mail", '{"euros": 501}', SCHEMA)
    assert rule_asks([RequiresApproval("mail")], "mail", "{}", {})


def pay(euros: float, to: Literal["Ott", "Lehm"] = "Ott") -> str:
    """Pay."""
    return f"{to} got {euros}"


def of_nothing() -> bool:
    return True


def of_some(euros: float) -> bool:
    return euros > 500


def of_caller(caller: Caller, to: str) -> bool:
    return caller.worker == to


def with_default(euros: float, limit: float = 500) -> bool:
    return euros > limit


async def later(euros: float) -> bool:
    return euros > 500


@pytest.mark.parametrize(
    ("decide", "asks"), [(of_nothing, True), (of_some, False), (of_caller, True), (with_default, False), (later, False)]
)
async def test_a_function_is_given_the_arguments_that_it_names(decide: Callable[..., bool], *, asks: bool) -> None:
    made = tool(effect="effect", approve=decide)(pay)
    assert made.may_need_approval
    assert not made.approve
    assert await made.decide_approval('{"euros": 5}', Caller("k", "Ott")) == asks


def of_other(euro: float) -> bool:
    return euro > 500


def of_any(*values: float) -> bool:
    return bool(values)


def of_text(euros: float) -> str:
    return str(euros)


@pytest.mark.parametrize(
    ("decide", "words"),
    [
        (of_other, "takes 'euro', which is no argument of the tool; did you mean 'euros'?"),
        (of_any, "takes '*values: float'; name the arguments of the tool that it decides by"),
        (of_text, "returns str; it must return a bool"),
    ],
)
def test_a_function_that_cannot_decide_is_refused_when_it_is_declared(
    decide: Callable[..., object], words: str
) -> None:
    with pytest.raises(Invalid) as caught:
        tool(approve=decide)(pay)
    assert str(caught.value) == f"tool 'pay': approve {words}"


def test_conditions_of_a_tool_are_checked_when_it_is_declared() -> None:
    assert tool(approve={"euros": "> 500"})(pay).conditions == {"euros": "> 500"}
    with pytest.raises(Invalid, match="'pay' has no argument 'dollars'"):
        tool(approve={"dollars": "> 500"})(pay)
    with pytest.raises(Invalid, match="the conditions of 'pay' are empty"):
        tool(approve={})(pay)
