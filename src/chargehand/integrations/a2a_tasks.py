"""Runs as A2A tasks, and teams as the cards of agents."""

from typing import Any, cast

import msgspec
from a2a.helpers.proto_helpers import new_data_artifact, new_data_part, new_text_artifact, new_text_message
from a2a.types import a2a_pb2 as pb
from google.protobuf.timestamp_pb2 import Timestamp

from chargehand import __version__
from chargehand.server.extension import (
    Entry,
    RunDocument,
    RunInfo,
    RunSummary,
    TeamInfo,
    document_data,
    explain_answer,
    question_data,
)

CONTEXT = "a2a-context"
"""The label of a run that holds the context of its task."""
STATES = {
    "running": pb.TASK_STATE_WORKING,
    "waiting": pb.TASK_STATE_WORKING,
    "interrupted": pb.TASK_STATE_WORKING,
    "paused": pb.TASK_STATE_WORKING,
    "needs_input": pb.TASK_STATE_INPUT_REQUIRED,
    "complete": pb.TASK_STATE_COMPLETED,
    "partial": pb.TASK_STATE_COMPLETED,
    "failed": pb.TASK_STATE_FAILED,
    "damaged": pb.TASK_STATE_FAILED,
    "cancelled": pb.TASK_STATE_CANCELED,
}


def has_ended(info: RunInfo) -> bool:
    return STATES[info.summary.state] in (pb.TASK_STATE_COMPLETED, pb.TASK_STATE_FAILED, pb.TASK_STATE_CANCELED)


def context_of(summary: RunSummary) -> str:
    return summary.labels.get(CONTEXT, summary.run)


def _make_message(summary: RunSummary, text: str, entry: int, role: pb.Role = pb.ROLE_AGENT) -> pb.Message:
    """A message whose id says after which entry of the run it was made: read again, it has the same."""
    message = new_text_message(text, context_id=context_of(summary), task_id=summary.run, role=role)
    message.message_id = f"{summary.run}-{entry}"
    return message


def _make_status(state: pb.TaskState, at: float, message: pb.Message | None) -> pb.TaskStatus:
    timestamp = Timestamp()
    timestamp.FromMicroseconds(int(at * 1_000_000))
    return pb.TaskStatus(state=state, timestamp=timestamp, message=message)


def state_of(summary: RunSummary) -> pb.TaskStatus:
    """Return the state of the task of a run, without words."""
    return _make_status(STATES[summary.state], summary.changed, None)


def status_of(info: RunInfo) -> pb.TaskStatus:
    """Return how the task of a run stands: in words, and the open question as a data part beside them."""
    summary = info.summary
    document = info.document
    text = _status_text(document)
    message = _make_message(summary, text, summary.entries) if text else None
    if message is not None and document.question is not None:
        message.parts.append(new_data_part(question_data(document.question)))
    return _make_status(STATES[summary.state], summary.changed, message)


def metadata_of(info: RunInfo) -> dict[str, Any]:
    """Return what the protocol has no field for: how the run ended and why, its gaps and its cost."""
    return document_data(info.document)


def progress_of(summary: RunSummary, entry: Entry, text: str) -> pb.TaskStatusUpdateEvent:
    """What an entry of the run says in words."""
    status = _make_status(pb.TASK_STATE_WORKING, entry.at, _make_message(summary, text, entry.seq))
    return pb.TaskStatusUpdateEvent(task_id=summary.run, context_id=context_of(summary), status=status)


def _status_text(document: RunDocument) -> str:
    """Return what the agent says about how the task stands."""
    if document.question is not None:
        return "\n".join(filter(None, (document.question.message, explain_answer(document.question))))
    if document.state in ("failed", "damaged", "cancelled"):
        return document.why or document.reason
    return "; ".join(gap.message for gap in document.gaps)


def artifacts_of(info: RunInfo) -> list[pb.Artifact]:
    """The plan, and the answer once there is one."""
    artifacts: list[pb.Artifact] = []
    if info.plan.tasks:
        plan = msgspec.to_builtins(info.plan)
        artifacts.append(new_data_artifact("plan", plan, artifact_id="plan"))
    if info.answer is None or info.answer == "":
        return artifacts
    if isinstance(info.answer, str):
        artifacts.append(new_text_artifact("answer", info.answer, artifact_id="answer"))
    else:
        artifacts.append(new_data_artifact("answer", cast("Any", info.answer), artifact_id="answer"))
    return artifacts


def task_of(info: RunInfo) -> pb.Task:
    summary = info.summary
    goal = _make_message(summary, summary.goal, 0, pb.ROLE_USER)
    task = pb.Task(
        id=summary.run,
        context_id=context_of(summary),
        status=status_of(info),
        artifacts=artifacts_of(info),
        history=[goal],
    )
    task.metadata.update(metadata_of(info))
    return task


def card_of(team: TeamInfo, url: str) -> pb.AgentCard:
    """The card of a team that is spoken to at this URL."""
    workers = "; ".join(f"{worker.name}: {worker.description}" for worker in team.workers)
    tags = sorted({tag for worker in team.workers for tag in worker.tags}) or [team.name]
    bearer = pb.SecurityScheme(http_auth_security_scheme=pb.HTTPAuthSecurityScheme(scheme="Bearer"))
    return pb.AgentCard(
        name=team.name,
        description=f"A team of {len(team.workers)} workers. {workers}",
        version=__version__,
        supported_interfaces=[pb.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=False),
        security_schemes={"token": bearer},
        security_requirements=[pb.SecurityRequirement(schemes={"token": pb.StringList()})],
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain", "application/json"],
        skills=[
            pb.AgentSkill(id=team.name, name=team.name, description=workers, tags=tags, examples=list(team.examples))
        ],
    )
