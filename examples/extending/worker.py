"""A worker that is a function: an agent of another framework, a service, a script."""

from chargehand import Amount, Assignment, Done, Plan, StepContext, Supervisor, Task, Team, Worker


async def count_words(assignment: Assignment, context: StepContext) -> Done:
    """Count the words of the text that another task returned."""
    context.note(f"attempt {assignment.attempt} of {assignment.task}")

    async def look(key: str) -> Done:  # journaled: after a crash it is not done again
        del key
        return Done(len(assignment.instruction.split()))

    words = await context.step("count", look, shape=int)
    unit = assignment.ask_person("Count in words or in pages?", options=["words", "pages"])
    return Done(f"{words} {unit}", Amount(tokens=12, micros=30, calls=1))


plan = Plan((Task("t1", "Count these four words.", "counter"),), "forward")
team = Team([Worker("counter", "counts words", call=count_words)], supervisor=Supervisor(plan=plan))
if __name__ == "__main__":
    result = team.run_sync("How long is it?", on_question=lambda _question: "words")
    print(result.answer, result.cost)
