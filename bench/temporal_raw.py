"""`python -m bench.temporal_raw ADDRESS`: a worker of the raw Temporal SDK, to compare a cluster of ours with.

One workflow has so many activities done, at most 500 at the same time; each sleeps 50 ms.
"""

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

QUEUE = "raw"
SECONDS = 0.05
WINDOW = 500


@activity.defn
async def nap(number: int) -> str:
    await asyncio.sleep(SECONDS)
    return f"done {number}"


@workflow.defn
class Naps:
    @workflow.run
    async def run(self, count: int) -> int:
        window = asyncio.Semaphore(WINDOW)

        async def one(number: int) -> str:
            async with window:
                return await workflow.execute_activity(nap, number, start_to_close_timeout=timedelta(seconds=60))

        async with asyncio.TaskGroup() as jobs:
            naps = [jobs.create_task(one(number)) for number in range(count)]
        return sum(task.result().startswith("done") for task in naps)


async def main() -> None:
    client = await Client.connect(sys.argv[1])
    worker = Worker(client, task_queue=QUEUE, workflows=[Naps], activities=[nap], max_concurrent_activities=WINDOW)
    async with worker:
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
