"""An HTTP API of our own in the server: `chargehand serve --plugin examples.extending.api:api`, then GET /board."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chargehand.server.extension import PROBLEM_HANDLERS, HttpApi, tenant_of


async def board(request: Request) -> Response:
    """The latest runs of the caller's tenant."""
    page = await tenant_of(request.scope).runs()
    return JSONResponse([{"run": run.run, "state": run.state, "title": run.title} for run in page.runs])


async def ask(request: Request) -> Response:
    """Begin a run and wait for its answer, at most a minute."""
    tenant = tenant_of(request.scope)
    body = await request.json()
    begun = await tenant.begin(body["team"], body["goal"], key=request.headers.get("idempotency-key", ""))
    run = await tenant.wait(begun.run, seconds=60)
    return JSONResponse({"run": begun.run, "state": run.summary.state, "answer": run.answer})


app = Starlette(
    routes=[Route("/board", board), Route("/board/ask", ask, methods=["POST"])], exception_handlers=PROBLEM_HANDLERS
)
api = HttpApi(name="board", app=app, prefixes=("/board",))
