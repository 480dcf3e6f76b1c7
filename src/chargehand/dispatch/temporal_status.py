"""How a Temporal server stands towards the queues of a deployment. For operators."""

import time
from collections.abc import Collection, Sequence
from datetime import timedelta

from msgspec import Struct
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    GetSystemInfoRequest,
    ListTaskQueuePartitionsRequest,
)
from temporalio.service import RPCError

from chargehand.dispatch.engine import EngineUrl
from chargehand.dispatch.temporal import TemporalEngine
from chargehand.engine.policy import Seconds

_TIMEOUT = timedelta(seconds=10)
_RECENT: Seconds = 90.0
"""A process asks for jobs at least once a minute. Temporal lists who did so in the last minutes."""


class EngineStatus(Struct, frozen=True):
    """A server that can carry runs."""

    version: str
    pollers: dict[str, int]
    """How many living processes asked for the jobs of each queue in the last minutes."""
    partitions: dict[str, int]
    """Into how many parts each queue is divided. Tenants take turns within a part."""


async def read_engine(
    url: EngineUrl, *, deployment: str, queues: Sequence[str], living: Collection[str]
) -> EngineStatus:
    """Invalid for a server that cannot carry runs, StoreUnavailable for one that does not answer.

    `living` are the identities of processes that live: Temporal lists those, too, that have ended.
    """
    engine = await TemporalEngine.connect(url, deployment=deployment)
    service = engine.client.workflow_service
    pollers: dict[str, int] = {}
    partitions: dict[str, int] = {}
    try:
        info = await service.get_system_info(GetSystemInfoRequest(), timeout=_TIMEOUT)
        for queue in queues:
            task_queue = TaskQueue(name=engine.task_queue(queue))
            question = DescribeTaskQueueRequest(
                namespace=url.namespace,
                task_queue=task_queue,
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
            )
            answer = await service.describe_task_queue(question, timeout=_TIMEOUT)
            oldest = time.time() - _RECENT
            recent = {poller.identity for poller in answer.pollers if poller.last_access_time.seconds > oldest}
            pollers[queue] = len(recent.intersection(living))
            listing = ListTaskQueuePartitionsRequest(namespace=url.namespace, task_queue=task_queue)
            parts = await service.list_task_queue_partitions(listing, timeout=_TIMEOUT)
            partitions[queue] = len(parts.activity_task_queue_partitions)
    except RPCError as error:
        raise engine.explain(error) from error
    return EngineStatus(info.server_version, pollers, partitions)
