"""An evaluation does not act: what a tool would change stays as it is, unless somebody says otherwise."""

import pytest

from chargehand.agents.roles import Factory, Supervisor, Worker
from chargehand.engine.budget import Budget
from chargehand.engine.events import Effect
from chargehand.engine.policy import Policy
from chargehand.evals.cases import Case, Expect
from chargehand.evals.report import Score
from chargehand.evals.run import evaluate
from chargehand.evals.scoring import require_approval
from chargehand.models.resolve import Finder
from chargehand.team import Team
from chargehand.tools.tool import Tool
from tests.evals.samples import Till, dataset

REFUND = Case("Refund order A17.", worker="cashier", expect=Expect(contains="A17"))


async def tried(till: Till, case: Case, *, act: bool = False) -> Score:
    report = await evaluate([dataset(case)], till.team, act=act)
    return report.sections[0].scores[0]


@pytest.mark.parametrize("effect", ["effect", "idempotent"])
async def test_nothing_is_paid_by_an_evaluation(effect: Effect) -> None:
    till = Till(effect)
    score = await tried(till, REFUND)
    assert till.paid == []
    assert (score.passed, score.error) == (False, True)
    assert 'it would call refund({"order": "A17"})' in score.why[0]
    assert "--act" in score.why[0]


async def test_whoever_says_so_has_it_act() -> None:
    till = Till()
    assert (await tried(till, REFUND, act=True)).passed
    assert till.paid == ["A17"]


async def test_what_only_looks_is_called_as_ever() -> None:
    till = Till("read")
    assert (await tried(till, REFUND)).passed
    assert till.paid == ["A17"]


async def test_a_case_may_be_that_it_would_act() -> None:
    till = Till()
    case = Case(
        REFUND.request, kind="worker", worker="cashier", expect=Expect(excludes="refunded"), ending="needs_input"
    )
    assert (await tried(till, case)).passed
    assert till.paid == []


async def test_a_tool_that_asks_by_itself_asks_nobody_and_is_not_called() -> None:
    till = Till(approval=True)
    score = await tried(till, REFUND, act=True)
    assert till.paid == []
    assert not score.error
    assert any("it waits for input: tool refund" in one for one in score.why)


async def test_a_team_inside_a_team_does_not_act_and_says_what_it_would_do() -> None:
    till = Till()

    def outer() -> Team:
        return Team([till.team().bounded(policy=Policy()).as_worker("desk", "pays back orders: refunds")])

    for case in (Case("Refund order A17."), Case("Refund order A17.", worker="desk", expect=Expect(contains="A17"))):
        report = await evaluate([dataset(case)], outer)
        assert till.paid == []
        assert report.sections[0].scores[0].error
        assert "refund" in report.sections[0].scores[0].why[0]
        assert (await evaluate([dataset(case)], outer, act=True)).sections[0].scores[0].passed
        assert till.paid == ["A17"]
        till.paid.clear()


def test_teams_inside_a_team_and_those_made_on_the_fly_do_not_act_either() -> None:
    till = Till()
    outer = Team([till.team().as_worker("desk", "pays back")], supervisor=Supervisor(factory=Factory([till.refund])))
    spec = require_approval(outer).spec
    assert spec.supervisor.factory is not None
    inner = spec.workers[0].team
    assert isinstance(inner, Team)
    tools = [*spec.supervisor.factory.tools, *inner.spec.workers[0].tools]
    assert [one.approve for one in tools if isinstance(one, Tool)] == [True, True]
    assert not till.refund.approve
    assert outer.spec.supervisor.factory is not None
    assert outer.spec.supervisor.factory.tools == (till.refund,)


async def test_whoever_is_made_on_the_fly_does_not_act() -> None:
    till = Till()

    def made() -> Team:
        return Team([], supervisor=Supervisor(factory=Factory([till.refund])))

    for act, paid in ((False, []), (True, ["A17"])):
        (part,) = (await evaluate([dataset(Case("Refund order A17."))], made, act=act)).sections
        assert (part.scores[0].passed, till.paid) == (act, paid)


class Foreign:
    """A team of somebody else's making: all of one of ours, and not one of ours."""

    def __init__(self, team: Team) -> None:
        self.name = "foreign"
        self.policy = team.policy
        self.budget = team.budget
        self.timeout = team.timeout
        self.roster = team.roster
        self.notice = team.notice
        self.teams = team.teams
        self.request = team.request
        self.offered = team.offered
        self.queue = team.queue
        self.queues = team.queues
        self.executor = team.executor
        self.unpriced_models = team.unpriced_models

    def bounded(self, *, budget: Budget | None = None, policy: Policy | None = None) -> "Foreign":
        del budget, policy
        return self

    async def keep_budget(self, finder: Finder | None = None) -> "Foreign":
        del finder
        return self


async def test_a_team_nobody_can_make_careful_is_not_tried() -> None:
    till = Till()
    inner = Foreign(till.team().bounded(policy=Policy()))
    case = Case("Refund order A17.", worker="desk", expect=Expect(contains="A17"))

    def outer() -> Team:
        return Team([Worker("desk", "pays back orders: refunds", team=inner)])

    (part,) = (await evaluate([dataset(case)], outer)).sections
    assert part.scores[0].error
    assert "whether desk, a team of another kind, changes something is not known" in part.scores[0].why[0]
    assert till.paid == []
    (part,) = (await evaluate([dataset(case)], outer, act=True)).sections
    assert part.scores[0].passed, part.scores[0].why
