"""What the processes of a cluster share, checked one thing at a time: the database, the engine, what waits and why.

Nothing is changed. No password is shown.
"""

from collections.abc import Collection, Iterator, Mapping

from chargehand.config.doctor import CheckResult, bad, good, missing
from chargehand.dispatch.engine import MAX_SKEW, EngineUrl
from chargehand.engine.policy import Seconds
from chargehand.errors import ChargehandError, Invalid, StoreUnavailable
from chargehand.extras import install_command
from chargehand.journal.postgres_jobs import read_deployment
from chargehand.journal.postgres_status import Backlog, DatabaseStatus, read_backlog, read_database
from chargehand.store_url import PostgresUrl

_LATE: Seconds = 60.0
"""Runs that wait longer than this for a process are waiting for something that is missing."""
_LATE_COMMAND: Seconds = 5.0


async def check_cluster(
    store: PostgresUrl | None, engine: EngineUrl | None, deployment: str = "", queues: Collection[str] = ()
) -> list[CheckResult]:
    """Every check in order; none of them raises. `deployment` is its name, where it is not that of the store.

    `queues` need workers though they may have no runs yet.
    """
    if store is None:
        todo = "name it: --store postgresql://USER@HOST/NAME, or CHARGEHAND_STORE"
        return [bad("store", "a cluster needs a database that all processes share", todo)]
    try:
        database = await read_database(store)
    except ChargehandError as error:
        return [bad("store", str(error), "check the URL and the server")]
    results = [*_check_database(store, database)]
    if database.schema != database.latest_schema:  # nothing can be read of what waits
        return results + await _check_engine(engine, deployment, Backlog(), queues=())
    backlog = await read_backlog(store)
    if not deployment and engine is not None:
        deployment = (await read_deployment(store)).name
    results += await _check_engine(engine, deployment, backlog, queues)
    results += _check_backlog(backlog)
    return results


async def _check_engine(
    url: EngineUrl | None, deployment: str, backlog: Backlog, queues: Collection[str]
) -> list[CheckResult]:
    """`deployment` is empty where the database has no tables: then only the server itself is looked at."""
    if url is None:
        message = "none named: each run is driven by the process that began it, and no other takes it over"
        return [missing("engine", message, "name it: --engine temporal://HOST:7233, or CHARGEHAND_ENGINE")]
    names = sorted({*backlog.queues, *queues} - {""})
    try:
        from chargehand.dispatch.temporal import process_identity  # noqa: PLC0415 - an extra
        from chargehand.dispatch.temporal_status import read_engine  # noqa: PLC0415 - an extra

        living = {process_identity(process.pid, process.host) for process in backlog.processes}
        status = await read_engine(url, deployment=deployment or "none", queues=names, living=living)
    except ModuleNotFoundError as error:
        return [bad("engine", f"{error.name} is not installed", install_command("cluster"))]
    except StoreUnavailable as error:
        return [bad("engine", str(error), "start it, or correct --engine")]
    except Invalid as error:
        return [bad("engine", str(error), "change its settings, or name another one with --engine")]
    of_deployment = f", deployment {deployment}" if deployment else ""
    results = [good("engine", f"Temporal {status.version} at {url}{of_deployment}")]
    if deployment and not names:
        message = "no queue has open runs, so none was looked at"
        results.append(missing("workers", message, "name a team, to see who would drive its runs: --team PATH"))
    for queue, pollers in sorted(status.pollers.items()):
        if pollers:
            results.append(good(f"workers of {queue}", f"{pollers} alive"))
        else:
            todo = "start a worker that has this team: chargehand worker --team ..."
            results.append(bad(f"workers of {queue}", "none: its runs wait", todo))
    if backlog.tenants > 1:
        results += _check_fairness(status.partitions)
    return results


def _check_fairness(partitions: Mapping[str, int]) -> Iterator[CheckResult]:
    """Temporal does not tell whether `matching.enableFairness` is on, only how queues are divided."""
    divided = sorted(queue for queue, count in partitions.items() if count > 1)
    if divided:
        message = f"in {', '.join(divided)} one tenant's backlog may delay another's: divided into several partitions"
        todo = "set matching.enableFairness to true, and one read and one write partition (docs/deploy.md)"
        yield missing("fairness", message, todo)


def _check_database(store: PostgresUrl, database: DatabaseStatus) -> Iterator[CheckResult]:
    yield good("store", f"PostgreSQL {database.version} at {store}")
    yield _check_schema(database)
    if database.sees_all_tenants:
        message = "the role ignores row level security: a mistake in a query could show one tenant another's data"
        yield bad("role", message, "use a role that owns the database and is no superuser, without BYPASSRLS")
    else:
        yield good("role", "row level security applies to it")
    if database.vector:
        yield good("pgvector", database.vector)
    else:
        todo = "as a superuser, in this database: CREATE EXTENSION vector"
        yield missing("pgvector", "not installed: archives cannot be searched by vectors", todo)
    skew = f"{abs(database.clock_skew):.1f} s {'behind' if database.clock_skew > 0 else 'ahead of'} the database"
    if abs(database.clock_skew) > MAX_SKEW:
        yield bad(
            "clock", f"this host is {skew}", "set both clocks by NTP; servers and workers refuse to start like this"
        )
    else:
        yield good("clock", f"this host is {skew}")


def _check_schema(database: DatabaseStatus) -> CheckResult:
    if not database.schema:
        return missing("schema", "no tables yet", "the first server or worker creates them")
    if database.schema > database.latest_schema:
        message = f"version {database.schema}, and this chargehand knows {database.latest_schema}"
        return bad("schema", message, "upgrade chargehand on this host")
    if database.schema < database.latest_schema:
        message = f"version {database.schema}; the next process of this chargehand makes it {database.latest_schema}"
        return missing("schema", message, "older processes refuse it then: upgrade all hosts (docs/deploy.md)")
    return good("schema", f"version {database.schema}")


def _check_backlog(backlog: Backlog) -> Iterator[CheckResult]:
    for queue, line in sorted(backlog.queues.items()):
        if not queue:
            continue
        counts = f"{line.driven} runs driven, {line.undriven} waiting"
        if line.undriven and line.seconds > _LATE:
            message = f"{counts}, the oldest for {line.seconds:.0f} s"
            yield bad(f"queue {queue}", message, "start a worker that has this team, or look at the engine")
        else:
            yield good(f"queue {queue}", counts)
    orphans = [run for run in backlog.undriven if not run.queue]
    if orphans:
        examples = ", ".join(f"{run.run} (tenant {run.tenant})" for run in orphans[:3])
        message = f"{backlog.queues[''].undriven} open runs belong to processes that are gone: {examples}"
        yield missing("interrupted", message, "resume them: POST /api/runs/RUN/resume, or chargehand resume RUN")
    if backlog.commands and backlog.command_seconds > _LATE_COMMAND:
        message = f"{backlog.commands} not answered, the oldest for {backlog.command_seconds:.0f} s"
        yield bad("commands", message, "the process that drives the run is stuck or gone; see the queues above")
    else:
        yield good("commands", f"{backlog.commands} not answered yet" if backlog.commands else "all answered")
