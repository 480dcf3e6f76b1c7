// Memory of a team: blocks with their history, and search in its archives.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Refusal, isBlocked, useAction } from "./actions.tsx";
import { get, mayAct, post, put, serverNow } from "./api.ts";
import { Archives } from "./archives.tsx";
import { ago } from "./format.ts";
import { runAddress } from "./route.ts";
import { Bar, Empty, Link, LoadProblem, Loading } from "./shell.tsx";
import { Diff } from "./text.tsx";
import { useGet } from "./use_get.ts";

type Block = {
  id: string; label: string; value: string; description: string; limit: number; version: number; read_only: boolean;
  trusted: boolean; tainted: boolean; share: string; updated: number;
};
type Change = {
  version: number; kind: string; when: number; start: number; removed: string; added: string; tainted: boolean;
  origin: { by: string; name: string; run: string; task: string };
};

export function MemoryPage({ team }: { team: string }): JSX.Element {
  const loaded = useGet<{ teams: { name: string; memory: boolean }[] }>("/api/teams");
  const teams = loaded.value?.teams.filter((each) => each.memory).map((each) => each.name);
  useEffect(() => { document.title = "Memory · chargehand"; }, []);
  const shown = teams?.includes(team) ? team : teams?.[0];
  return (
    <>
      <Bar />
      <main class="page" id="main">
        <div class="page-tools"><h1>Memory</h1></div>
        <LoadProblem problem={loaded.problem} />
        {!teams && !loaded.problem && <Loading />}
        {teams?.length === 0 && <Empty title="No team here remembers anything"><p>Give one a <code>memory</code> in its file.</p></Empty>}
        <div class="two-panes">
          <nav class="pick-list" aria-label="Teams">
            {teams?.map((each) => <Link to={`/memory/${encodeURIComponent(each)}`} class={each === shown ? "is-on" : ""}>{each}</Link>)}
          </nav>
          {shown && <TeamMemory key={shown} team={shown} />}
        </div>
      </main>
    </>
  );
}

function TeamMemory({ team }: { team: string }): JSX.Element {
  const base = `/api/teams/${encodeURIComponent(team)}`;
  const { value, problem, reload } = useGet<{ blocks: Block[] }>(`${base}/blocks`);
  return (
    <div>
      <h2>Blocks</h2>
      <LoadProblem problem={problem} />
      {value?.blocks.length === 0 && <p class="quiet">There are none.</p>}
      {value?.blocks.map((block) => <BlockCard key={`${block.id} ${block.version}`} base={base} block={block} reload={reload} />)}
      <Archives base={base} />
    </div>
  );
}

function BlockCard({ base, block, reload }: { base: string; block: Block; reload: () => void }): JSX.Element {
  const [value, setValue] = useState(block.value);
  const [changes, setChanges] = useState<Change[] | undefined>(undefined);
  const action = useAction();
  const at = `${base}/blocks/${encodeURIComponent(block.id)}`;
  const save = (text: string): Promise<void> =>
    action.run(async () => {
      await put(at, { value: text, version: block.version });
      reload();
    });
  const restore = (version: number): Promise<void> =>
    action.run(async () => {
      await post(`${at}/restore`, { version });
      reload();
    });
  const show = (): void => {
    get<{ changes: Change[] }>(`${at}/history`).then((reply) => setChanges(reply.changes)).catch(() => setChanges([]));
  };
  const size = value.length / Math.max(1, block.limit);
  return (
    <article class="block">
      <header>
        <b class="mono">{block.label}</b>
        <span class="quiet">{block.description}</span>
        <span class="grow" />
        {block.trusted && <span class="effect">trusted</span>}
        {block.tainted && <span class="effect is-effect">tainted</span>}
        <span class="quiet">version {block.version}, {ago(block.updated, serverNow())}</span>
      </header>
      <textarea rows={Math.min(10, Math.max(2, value.split("\n").length))} value={value} aria-label={block.label}
        readOnly={block.read_only || !mayAct()} onInput={(event) => setValue(event.currentTarget.value)} />
      <div class="block-foot">
        <span class={`meter ${size > 0.9 ? "is-near" : ""}`}><i><em style={{ width: `${Math.min(100, size * 100)}%` }} /></i>{value.length} of {block.limit}</span>
        <span class="grow" />
        <button class="small" onClick={() => (changes ? setChanges(undefined) : show())}>History</button>
        {value !== block.value && <button class="small" onClick={() => setValue(block.value)}>Undo</button>}
        {mayAct() && <button class="small primary" disabled={value === block.value || isBlocked(action)} onClick={() => save(value)}>Save</button>}
      </div>
      <Refusal action={action} />
      {changes && <History block={block} changes={changes} restore={restore} />}
    </article>
  );
}

/** The text after each change, worked out backwards from what is there now. */
function textsOf(block: Block, changes: Change[]): { change: Change; before: string; after: string }[] {
  let after = block.value;
  return changes.map((change) => {
    const before = after.slice(0, change.start) + change.removed + after.slice(change.start + change.added.length);
    const shown = { change, before, after };
    after = before;
    return shown;
  });
}

function History({ block, changes, restore }: { block: Block; changes: Change[]; restore: (version: number) => Promise<void> }): JSX.Element {
  if (!changes.length) return <p class="quiet">It was never changed.</p>;
  return (
    <ol class="block-history">
      {textsOf(block, changes).map(({ change, before, after }) => (
        <li>
          <p class="quiet">
            version {change.version} · {change.kind} · {change.origin.name || change.origin.by} · {ago(change.when, serverNow())}
            {change.origin.run && <> · <Link class="text-link" to={`${runAddress(change.origin.run)}?task=${encodeURIComponent(change.origin.task)}`}>{change.origin.run} {change.origin.task}</Link></>}
          </p>
          <Diff before={before} after={after} />
          {mayAct() && change.version < block.version && <button class="small" onClick={() => restore(change.version)}>Restore this text</button>}
        </li>
      ))}
    </ol>
  );
}
