// All runs: first those that wait for a person, then the rest, the latest first.

import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { mayAct, serverNow } from "./api.ts";
import { EXAMPLES } from "./examples.ts";
import { ago, count, dollars, seconds, shortRun } from "./format.ts";
import { Labels } from "./labels.tsx";
import { NewRun } from "./new_run.tsx";
import { query, runAddress, setQuery } from "./route.ts";
import { FILTERS, type RunFilter, type RunLine, RunsStore } from "./runs_store.ts";
import { RunsTools, isNewOpen } from "./runs_tools.tsx";
import { Bar, Empty, Link, LoadProblem, Loading } from "./shell.tsx";
import { Chip, Icon } from "./states.tsx";

export function RunsPage(): JSX.Element {
  const filter = Object.fromEntries(FILTERS.map((name) => [name, query.value.get(name) ?? ""])) as RunFilter;
  const store = useMemo(() => new RunsStore(filter), Object.values(filter));
  useEffect(() => store.open(), [store]);
  const [chosen, setChosen] = useState<string[]>([]);
  const [, tick] = useState(0);
  useEffect(() => {
    document.title = "Runs · chargehand";
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const lines = store.lines.value;
  const waiting = lines?.filter((line) => line.state === "needs_input") ?? [];
  const rest = lines?.filter((line) => line.state !== "needs_input") ?? [];
  const isFiltered = Object.values(filter).some(Boolean);
  const choose = (run: string): void =>
    setChosen(chosen.includes(run) ? chosen.filter((each) => each !== run) : [...chosen, run].slice(-2));
  return (
    <>
      <Bar />
      <main class="page" id="main">
        <RunsTools filter={filter} chosen={chosen} />
        {filter.label && <p class="rl-filter">with <button class="label" title="Take this filter away" onClick={() => setQuery({ label: "" })}>{filter.label.replace(":", ": ")} ×</button></p>}
        <LoadProblem problem={store.problem.value} />
        {waiting.length > 0 && <Inbox lines={waiting} />}
        {lines === undefined && !store.problem.value && <Loading />}
        {lines?.length === 0 && <NoRuns isFiltered={isFiltered} />}
        {rest.length > 0 && (
          <ul class="rl" aria-label="Runs">
            {rest.map((line) => <RunRow key={line.run} line={line} isChosen={chosen.includes(line.run)} choose={choose} />)}
          </ul>
        )}
        {store.next.value !== null && <button class="rl-more" onClick={() => store.load(store.next.value ?? undefined)}>Older runs</button>}
        {isNewOpen.value && <NewRun team={filter.team} close={() => { isNewOpen.value = false; }} />}
      </main>
    </>
  );
}

function verbOf(line: RunLine): JSX.Element {
  const question = line.question;
  if (question?.what === "plan") return <>Approve a plan</>;
  if (question?.what === "effect") return <>Say what happened</>;
  if (question?.what === "question") return <>Answer a question</>;
  return question?.tool ? <>Approve <code>{question.tool}</code></> : <>Needs you</>;
}

function Inbox({ lines }: { lines: RunLine[] }): JSX.Element {
  return (
    <section class="inbox" aria-label="Needs you">
      <h2><Icon state="asking" size={16} />{lines.length === 1 ? "One run needs you" : `${lines.length} runs need you`}</h2>
      {lines.map((line) => (
        <Link key={line.run} to={runAddress(line.run)} class="inbox-row">
          <b>{verbOf(line)}</b>
          <span class="inbox-goal">{line.goal}</span>
          <span class="inbox-team">{line.team}</span>
          <span class="inbox-when">{ago(line.changed, serverNow())}</span>
        </Link>
      ))}
    </section>
  );
}

function RunRow({ line, isChosen, choose }: { line: RunLine; isChosen: boolean; choose: (run: string) => void }): JSX.Element {
  const now = serverNow();
  const took = (line.ended ?? (line.state === "running" ? now : line.changed)) - line.started;
  return (
    <li class={`rl-row ${isChosen ? "is-chosen" : ""}`}>
      <input type="checkbox" checked={isChosen} aria-label={`Compare ${shortRun(line.run)}`} onChange={() => choose(line.run)} />
      <Chip state={line.state} />
      <span class="rl-what">
        <Link to={runAddress(line.run)} class="rl-goal">{line.goal || line.run}</Link>
        <span class="rl-meta">
          {line.team || "agent"} · <span class="mono">{shortRun(line.run)}</span>
          {line.source && <> · after {shortRun(line.source)}</>}
          {line.state === "damaged" && <> · {line.reason}</>}
          <Labels labels={line.labels} />
        </span>
      </span>
      <Segments line={line} />
      <span class="rl-time">{line.tasks || line.ended ? seconds(Math.max(0, took)) : ""}</span>
      <span class="rl-cost">{line.spent.usd ? dollars(line.spent.usd * 1e6) : <span class="quiet">{count(line.spent.tokens)} tok</span>}</span>
      <span class="rl-when">{ago(line.started, now)}</span>
    </li>
  );
}

const MOST_SEGMENTS = 12;

function Segments({ line }: { line: RunLine }): JSX.Element {
  const size = Math.min(line.tasks, MOST_SEGMENTS);
  const share = size / Math.max(1, line.tasks);
  const done = Math.round(line.done * share);
  const running = Math.min(size - done, Math.ceil(line.running * share));
  const missing = line.ended === null ? line.failed : line.gaps;
  const kind = (index: number): string => {
    if (index < done) return "done";
    if (index < done + running) return "run";
    return missing > 0 && line.ended !== null ? "fail" : "wait";
  };
  return (
    <span class="rl-progress" role="img" aria-label={`${line.done} of ${line.tasks} tasks done, ${missing} missing`}>
      <span class="segments">{Array.from({ length: size }, (_, index) => <i class={`is-${kind(index)}`} />)}</span>
      <span class="quiet">{line.done}/{line.tasks}</span>
      {missing > 0 && <b class="is-bad">{missing} missing</b>}
    </span>
  );
}

function NoRuns({ isFiltered }: { isFiltered: boolean }): JSX.Element {
  if (isFiltered) {
    return (
      <Empty state="skipped" title="No run matches">
        <button onClick={() => setQuery(Object.fromEntries(FILTERS.map((name) => [name, ""])))}>Take the filter away</button>
      </Empty>
    );
  }
  return (
    <Empty title="Nothing has run here yet">
      <p>A run begins with a request to a team.</p>
      {mayAct() && <button class="primary" onClick={() => { isNewOpen.value = true; }}>New run</button>}
      <section class="examples" aria-label="Examples">
        <h2>Examples</h2>
        {EXAMPLES.map((example) => (
          <Link to={runAddress(example.name)}><b>{example.goal}</b><span class="quiet">{example.what}</span></Link>
        ))}
      </section>
    </Empty>
  );
}
