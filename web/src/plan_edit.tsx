// Editing a plan before it is carried out: a row for each task, or its JSON; the server checks it as it changes.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Refusal, isBlocked, useAction } from "./actions.tsx";
import { type Fault, type Problem, post, runPath } from "./api.ts";
import type { Edge, Finding, Plan, PlannedTask } from "./events.ts";
import { shortTitle } from "./run_changes.ts";
import { type Run, type Task, planned } from "./run_state.ts";
import { Dialog } from "./shell.tsx";
import { Compared } from "./text.tsx";

const CHECK_AFTER = 400;

function planOf(run: Run): Plan {
  const edge = (need: Task["needs"][number]): string | Edge => (need.need === "required" ? need.task : { task: need.task, need: need.need });
  const tasks = planned(run).map((task): PlannedTask => ({
    id: task.id,
    instruction: task.instruction,
    ...(task.givenTitle ? { title: task.givenTitle } : {}),
    ...(task.worker ? { worker: task.worker } : {}),
    ...(task.needs.length ? { after: task.needs.filter((need) => need.task !== task.forEach).map(edge) } : {}),
    ...(task.quorum ? { quorum: task.quorum } : {}),
    ...(task.forEach ? { for_each: task.forEach } : {}),
    ...(task.accept.length ? { accept: task.accept } : {}),
  }));
  return { tasks, combine: run.combine };
}

const needName = (edge: string | Edge): string => (typeof edge === "string" ? edge : edge.task);

/** What the server finds wrong with a plan; undefined while it is not known. */
function useFindings(run: Run, plan: Plan): Fault[] | undefined {
  const [findings, setFindings] = useState<Fault[] | undefined>([]);
  const text = JSON.stringify(plan);
  useEffect(() => {
    setFindings(undefined);
    const timer = setTimeout(async () => {
      try {
        const checked = await post<{ findings?: Finding[] }>(`/api/teams/${encodeURIComponent(run.team)}/plan`, { goal: run.goal, plan });
        setFindings((checked.findings ?? []).map(({ place, message }) => ({ place, message })));
      } catch (error) {
        setFindings((error as Problem).code === "plan_invalid" ? (error as Problem).faults : []);
      }
    }, CHECK_AFTER);
    return () => clearTimeout(timer);
  }, [text]);
  return findings;
}

export function PlanEditor({ run, number, close }: { run: Run; number: number; close: () => void }): JSX.Element {
  const [proposed] = useState(() => planOf(run));
  const [plan, setPlan] = useState(proposed);
  const [tab, setTab] = useState<"tasks" | "json" | "changes">("tasks");
  const action = useAction();
  const findings = useFindings(run, plan);
  const send = (): Promise<void> =>
    action.run(async () => {
      await post(`${runPath(run.run)}/answer`, { number, verdict: "edit", plan });
      close();
    });
  const isSame = JSON.stringify(plan) === JSON.stringify(proposed);
  return (
    <Dialog title="Edit the plan" close={close} class="plan-dialog">
      <div class="tabs" role="tablist" aria-label="Forms of the plan">
        {(["tasks", "json", "changes"] as const).map((each) => (
          <button role="tab" aria-selected={tab === each} class={tab === each ? "is-on" : ""} onClick={() => setTab(each)}>
            {each === "json" ? "JSON" : each[0]!.toUpperCase() + each.slice(1)}
          </button>
        ))}
      </div>
      {tab === "tasks" && <TaskRows run={run} plan={plan} setPlan={setPlan} findings={findings ?? []} />}
      {tab === "json" && <JsonForm plan={plan} setPlan={setPlan} />}
      {tab === "changes" && <Changes before={proposed} after={plan} />}
      <Refusal action={action} />
      <div class="dialog-acts">
        <span class="quiet">{findings === undefined ? "checking …" : findings.length ? `${findings.length} found` : "nothing found"}</span>
        <span class="grow" />
        <button onClick={close}>Close</button>
        <button class="primary" disabled={isBlocked(action) || isSame} onClick={send}>Carry out this plan</button>
      </div>
    </Dialog>
  );
}

const lineOf = (task?: PlannedTask): string =>
  task ? `${task.worker ?? "any worker"}${task.after?.length ? `, needs ${task.after.map(needName).join(", ")}` : ""}: ${task.instruction}` : "";

/** What is different from the plan that was proposed, task by task. */
function Changes({ before, after }: { before: Plan; after: Plan }): JSX.Element {
  const ids = [...new Set([...before.tasks, ...after.tasks].map((task) => task.id))];
  const find = (plan: Plan, id: string): PlannedTask | undefined => plan.tasks.find((task) => task.id === id);
  const changed = ids.filter((id) => lineOf(find(before, id)) !== lineOf(find(after, id)));
  if (!changed.length) return <p class="quiet">Nothing was changed.</p>;
  return (
    <dl class="plan-changes">
      {changed.map((id) => <><dt class="mono">{id}</dt><dd><Compared before={lineOf(find(before, id))} after={lineOf(find(after, id))} /></dd></>)}
    </dl>
  );
}

type RowsProps = { run: Run; plan: Plan; setPlan: (plan: Plan) => void; findings: Fault[] };

function TaskRows({ run, plan, setPlan, findings }: RowsProps): JSX.Element {
  const change = (index: number, changes: Partial<PlannedTask>): void =>
    setPlan({ ...plan, tasks: plan.tasks.map((task, at) => (at === index ? { ...task, ...changes } : task)) });
  const remove = (id: string): void => {
    const rest = plan.tasks.filter((task) => task.id !== id);
    const without = (task: PlannedTask): PlannedTask =>
      task.after ? { ...task, after: task.after.filter((edge) => needName(edge) !== id) } : task;
    setPlan({ ...plan, tasks: rest.map(without) });
  };
  const add = (): void => {
    let next = plan.tasks.length + 1;
    while (plan.tasks.some((task) => task.id === `t${next}`)) next += 1;
    setPlan({ ...plan, tasks: [...plan.tasks, { id: `t${next}`, instruction: "", worker: [...run.agents.keys()][0] }] });
  };
  return (
    <div class="plan-rows">
      {plan.tasks.map((task, index) => (
        <fieldset key={task.id}>
          <legend><b class="mono">{task.id}</b> {task.title || shortTitle(task.instruction)}</legend>
          <select aria-label={`Worker of ${task.id}`} value={task.worker} onChange={(event) => change(index, { worker: event.currentTarget.value })}>
            {[...run.agents.keys()].map((name) => <option>{name}</option>)}
          </select>
          <Needs task={task} plan={plan} change={(after) => change(index, { after })} />
          <button class="small danger" title={`Remove ${task.id}`} onClick={() => remove(task.id)}>Remove</button>
          <textarea rows={2} aria-label={`Instruction of ${task.id}`} value={task.instruction}
            onInput={(event) => change(index, { instruction: event.currentTarget.value })} />
          {findings.filter((finding) => finding.place.includes(`tasks[${index}]`)).map((finding) => <p class="failure">{finding.message}</p>)}
        </fieldset>
      ))}
      {findings.filter((finding) => !finding.place.startsWith("tasks[")).map((finding) => <p class="failure">{finding.message}</p>)}
      <button class="small" onClick={add}>Add a task</button>
    </div>
  );
}

function Needs({ task, plan, change }: { task: PlannedTask; plan: Plan; change: (after: (string | Edge)[]) => void }): JSX.Element {
  const after = task.after ?? [];
  const names = after.map(needName);
  const others = plan.tasks.map((other) => other.id).filter((id) => id !== task.id && !names.includes(id));
  return (
    <span class="plan-needs">
      needs{" "}
      {names.map((name) => (
        <button class="ref" title={`${task.id} does not need ${name}`} onClick={() => change(after.filter((edge) => needName(edge) !== name))}>{name} ×</button>
      ))}
      <select aria-label={`Add an input of ${task.id}`} value="" onChange={(event) => change([...after, event.currentTarget.value])}>
        <option value="">+</option>
        {others.map((id) => <option>{id}</option>)}
      </select>
    </span>
  );
}

function JsonForm({ plan, setPlan }: { plan: Plan; setPlan: (plan: Plan) => void }): JSX.Element {
  const [text, setText] = useState(() => JSON.stringify(plan, null, 2));
  const [problem, setProblem] = useState("");
  const read = (typed: string): void => {
    setText(typed);
    try {
      setPlan(JSON.parse(typed) as Plan);
      setProblem("");
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <>
      <textarea class="mono plan-json" rows={18} aria-label="The plan as JSON" spellcheck={false} value={text} onInput={(event) => read(event.currentTarget.value)} />
      {problem && <p class="failure">{problem}</p>}
    </>
  );
}
