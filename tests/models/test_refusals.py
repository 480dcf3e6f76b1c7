"""A provider that refuses the key, the account or the model is not asked again; a single bad request stops nobody."""

import asyncio

import pytest

from chargehand import Plan, ScriptedModel, Supervisor, Task, Team, Worker
from chargehand.engine import events as ev
from chargehand.engine.budget import Budget
from chargehand.engine.decide import decide
from chargehand.engine.failure import Failure, Refusal, RefusalCause
from chargehand.engine.fold import begin, fold
from chargehand.engine.plan import TaskId
from chargehand.engine.policy import Limits, Policy
from chargehand.engine.roster import Agent, Roster
from chargehand.models.call_errors import Party, call_refused
from chargehand.models.guard import Guarded
from chargehand.models.limits import Limiter
from chargehand.models.messages import Message, Reply, Request
from chargehand.models.model import Hear, ModelCard, ModelFailed
from chargehand.models.testing.fault_server import FaultServer
from tests.sim.loop import VirtualLoop

PARTY = Party("openai:gpt-5-mini", "api.openai.com", ("sk-secret-secret-secret",), "OPENAI_API_KEY")
TASKS = 60
FINE = ScriptedModel(["fine"], repeat=True)
WIDE = Policy(limits=Limits(max_tasks=TASKS, fan_out=TASKS))
PLAN = Plan(tuple(Task(TaskId(f"t{n}"), f"Count the boats of harbour {n}.", "ann") for n in range(TASKS)), "none")
HELLO = Request((Message("user", "hello"),))


@pytest.mark.parametrize(
    ("status", "words", "cause", "said"),
    [
        (401, "Incorrect API key", "key", "openai refused the key (401). Check OPENAI_API_KEY."),
        (400, "API key not valid (API_KEY_INVALID)", "key", "openai refused the key (400). Check OPENAI_API_KEY."),
        (403, "no access", "access", "openai does not let this key use gpt-5-mini (403). Ask for access, or name"),
        (404, "no such model", "model", "openai has no model 'gpt-5-mini' (404). Check the model's name and the base"),
        (402, "pay first", "credit", "openai has no credit left for this key (402). Top up the account, or name"),
        (429, "quota (insufficient_quota)", "credit", "openai has no credit left for this key (429). Top up the"),
        (400, "Your credit balance is too low", "credit", "openai has no credit left for this key (400). Top up"),
        (301, "", "address", "openai sends calls on to another address (301). Set the base URL to where it is now."),
        (400, "Unsupported parameter: 'max_tokens'", "request", "openai rejects how gpt-5-mini is called (400). Check"),
        (422, "temperature: unexpected", "request", "openai rejects how gpt-5-mini is called (422). Check its set"),
    ],
)
def test_each_refusal_says_who_refused_what_and_what_to_do(
    status: int, words: str, cause: RefusalCause, said: str
) -> None:
    failure = call_refused(PARTY, status, words).failure
    assert failure.refusal is not None
    assert failure.permanent
    assert failure.refusal.cause == cause
    assert failure.refusal.headline().startswith(said)
    assert "again" not in failure.refusal.headline()
    assert "try again" not in failure.message


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "This model's maximum context length is 8192 tokens (context_length_exceeded)"),
        (400, "prompt is too long: 9 tokens > 8 maximum"),
        (400, "The response was filtered (content_filter)"),
        (413, "request too large"),
        (429, "slow down"),
        (500, "broke"),
        (503, "restarting"),
        (408, "late"),
    ],
)
def test_what_is_about_one_request_or_about_this_moment_is_no_refusal(status: int, words: str) -> None:
    assert call_refused(PARTY, status, words).failure.refusal is None


def test_a_model_by_url_is_called_by_its_host() -> None:
    party = Party("openai+http://127.0.0.1:8080/v1#tiny", "127.0.0.1:8080")
    refusal = call_refused(party, 401, "no").failure.refusal
    assert refusal is not None
    assert refusal.headline() == (
        "127.0.0.1:8080 wants a key (401), and no key is sent to this address; "
        "use openai:tiny with OPENAI_BASE_URL and OPENAI_API_KEY."
    )
    assert call_refused(party, 401, "no").failure.message.endswith(
        "use openai:tiny with OPENAI_BASE_URL and OPENAI_API_KEY"
    )


def test_a_key_that_a_program_sends_to_a_url_is_what_was_refused() -> None:
    party = Party("openai+http://127.0.0.1:8080/v1#tiny", "127.0.0.1:8080", secrets=("sk-1",))
    refusal = call_refused(party, 401, "no").failure.refusal
    assert refusal is not None
    assert refusal.headline() == "127.0.0.1:8080 refused the key (401). Check the key it is given."


class Provider:
    """Answers with what is in `line`: a status, or 200."""

    def __init__(self) -> None:
        self.card = ModelCard("openai:gpt-5-mini")
        self.line: list[tuple[int, str]] = []
        self.calls = 0

    async def reply(self, request: Request, hear: Hear | None = None) -> Reply:
        self.calls += 1
        await asyncio.sleep(0.1)
        status, words = self.line.pop(0) if len(self.line) > 1 else self.line[0]
        if status != 200:
            raise call_refused(PARTY, status, words)
        return Reply("fine")


class Street:
    """A guarded provider on virtual time."""

    def __init__(self, *line: tuple[int, str]) -> None:
        self.loop = VirtualLoop(1000.0)
        self.provider = Provider()
        self.provider.line = list(line)
        self.guard = Guarded(self.provider, limiter=Limiter(clock=self.loop.time), clock=self.loop.time)

    def ask(self) -> Reply | ModelFailed:
        async def once() -> Reply | ModelFailed:
            try:
                return await self.guard.reply(HELLO)
            except ModelFailed as error:
                return error

        return self.loop.run_until_complete(once())


@pytest.mark.parametrize("status", [401, 402, 403, 404, 301])
def test_after_one_refusal_nobody_pays_for_another_until_a_minute_later(status: int) -> None:
    street = Street((status, "no"))
    first = str(street.ask())
    street.loop.now += 17.0
    said = {str(street.ask()) for _ in range(60)}
    assert street.provider.calls == 1
    assert said == {first}
    street.provider.line = [(200, "")]
    street.loop.now += 61.0
    assert isinstance(street.ask(), Reply)
    assert isinstance(street.ask(), Reply)


def test_one_rejected_request_stops_nobody_and_two_in_a_row_stop_the_model() -> None:
    street = Street((422, "temperature: no"), (200, ""), (422, "temperature: no"), (200, ""), (422, "temperature: no"))
    asked = [isinstance(street.ask(), Reply) for _ in range(5)]
    assert asked == [False, True, False, True, False]
    for _ in range(20):
        street.ask()
    assert street.provider.calls == 6


def test_requests_that_are_too_long_never_stop_a_model() -> None:
    street = Street((400, "context_length_exceeded"))
    for _ in range(30):
        street.ask()
    assert street.provider.calls == 30


@pytest.mark.parametrize("mode", ["401", "403", "404", "400", "422", "429-quota"])
@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_sixty_tasks_do_not_pay_for_sixty_refused_calls(mode: str, protocol: str) -> None:
    async with FaultServer() as server:
        ann = Worker("ann", model=f"{protocol}+{server.url(mode)}#any")
        team = Team(
            [ann], supervisor=Supervisor(model=FINE, plan=PLAN), policy=WIDE, timeout=3600, lookup=lambda _: None
        )
        found = await asyncio.wait_for(team.run("count"), 30)
    assert (found.ending, len(found.gaps)) == ("failed", TASKS)
    assert server.requests[mode] <= 16  # those that were under way when the first was refused
    if mode not in ("400", "422"):  # which may be about one request
        begun = [entry for entry in found.entries if isinstance(entry.event, ev.AttemptStarted)]
        assert len(begun) <= 16
        assert {gap.status for gap in found.gaps} == {"failed", "skipped"}
        assert str(found.answer).count("\n- ") == 2
    assert "try again" not in str(found.answer).lower()


@pytest.mark.parametrize("mode", ["401", "404", "429-quota"])
async def test_a_fallback_model_does_everything_and_the_refused_one_is_hardly_asked(mode: str) -> None:
    async with FaultServer() as server:
        ann = Worker("ann", model=f"openai+{server.url(mode)}#any", fallback_models=(FINE,))
        team = Team(
            [ann], supervisor=Supervisor(model=FINE, plan=PLAN), policy=WIDE, timeout=3600, lookup=lambda _: None
        )
        found = await asyncio.wait_for(team.run("count"), 30)
    assert found.ending == "complete"
    assert server.requests[mode] <= 16


async def test_tasks_of_other_models_go_on_and_a_fallback_worker_takes_what_is_refused() -> None:
    async with FaultServer() as server:
        call_refused = f"openai+{server.url('401')}#any"
        workers = [
            Worker("ann", model=call_refused),
            Worker("bob", model=FINE),
            Worker("cyd", model=call_refused, fallbacks=("bob",)),
        ]
        names = ("ann", "bob", "cyd")
        tasks = [Task(TaskId(f"{name}{n}"), "Count the boats.", name) for name in names for n in range(20)]
        team = Team(
            workers,
            supervisor=Supervisor(model=FINE, plan=Plan(tuple(tasks), "none")),
            policy=WIDE,
            lookup=lambda _: None,
        )
        found = await asyncio.wait_for(team.run("count"), 30)
    assert found.ending == "partial"
    assert {gap.task for gap in found.gaps} == {f"ann{n}" for n in range(20)}
    assert server.requests["401"] <= 16


def test_a_resumed_run_asks_a_model_again_that_refused_before() -> None:
    refusal = Failure("resource", "401", permanent=True, refusal=Refusal("acme", "acme:small", "key", 401))
    requested = ev.RunRequested(
        goal="count",
        roster=Roster((Agent("ann", model="acme:small"),)),
        policy=Policy(limits=Limits(width=1)),
        budget=Budget(),
        deadline=900.0,
        seed=0,
        plan=Plan(PLAN.tasks[:3], "none"),
    )
    state = begin(ev.Entry(1, 0.0, requested))

    def write(*events: ev.Event) -> list[ev.Event]:
        for event in events:
            fold(state, ev.Entry(state.seq + 1, 1.0, event))
        return decide(state, 1.0)

    write(*write(), ev.AttemptFailed(TaskId("t0"), 1, refusal))
    (given_up,) = decide(state, 1.0)
    assert [skipped.reason for skipped in write(given_up) if isinstance(skipped, ev.TaskSkipped)] == ["refused"]
    (started,) = write(ev.RunResumed(2))
    assert isinstance(started, ev.AttemptStarted)


async def test_a_request_that_is_too_long_fails_its_own_task_only() -> None:
    async with FaultServer() as server:
        workers = [Worker("ann", model=f"openai+{server.url('400-long')}#any"), Worker("bob", model=FINE)]
        team = Team(
            workers, supervisor=Supervisor(model=FINE, plan=PLAN), policy=WIDE, timeout=3600, lookup=lambda _: None
        )
        found = await asyncio.wait_for(team.run("count"), 30)
    assert server.requests["400-long"] == TASKS
    assert len(found.gaps) == TASKS


@pytest.mark.parametrize("mode", ["401", "404", "422"])
async def test_a_run_whose_only_model_is_refused_ends_at_once_with_the_cause(mode: str) -> None:
    async with FaultServer() as server:
        model = f"openai+{server.url(mode)}#any"
        team = Team(
            [Worker("ann", "counts boats")], supervisor=Supervisor(model=model), timeout=3600, lookup=lambda _: None
        )
        found = await asyncio.wait_for(team.run("Count the boats."), 30)
    assert found.ending == "failed"
    assert server.requests[mode] <= 2
    assert mode in str(found.answer)
