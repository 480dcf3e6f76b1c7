// Memory of a team: blocks with their history, and search in its archives.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Refusal, isBlocked, useAction } from "./actions.tsx";
import { type Problem, get, mayAct, post, put, serverNow } from "./api.ts";
import { ago } from "./format.ts";
import { runAddress } from "./route.ts";
import { Bar, Empty, Link } from "./shell.tsx";
import { Diff } from "./text.tsx";

type Block = {
  id: string; label: string; value: string; description: string; limit: number; version: number; read_only: boolean;
  trusted: boolean; tainted: boolean; share: string; updated: number;
};
type Change = {
  version: number; kind: string; when: number; start: number; removed: string; added: string; tainted: boolean;
  origin: { by: string; name: string; run: string; task: string };
};
type Hit = { id: string; archive: string; text: string; score: number; why: string; tags: string[]; source: string };

export function MemoryPage({ team }: { team: string }): JSX.Element {
  const [teams, setTeams] = useState<string[] | undefined>(undefined);
  useEffect(() => {
    document.title = "Memory · chargehand";
    get<{ teams: { name: string; memory: boolean }[] }>("/api/teams")
      .then((reply) => setTeams(reply.teams.filter((each) => each.memory).map((each) => each.name)))
      .catch(() => setTeams([]));
  }, []);
  const shown = teams?.includes(team) ? team : teams?.[0];
  return (
    <>
      <Bar />
      <main class="page" id="main">
        <div class="page-tools"><h1>Memory</h1></div>
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
  const [blocks, setBlocks] = useState<Block[]>([]);
  const load = (): void => { get<{ blocks: Block[] }>(`${base}/blocks`).then((reply) => setBlocks(reply.blocks)).catch(() => {}); };
  useEffect(load, [team]);
  return (
    <div>
      <Search base={base} />
      <h2>Blocks</h2>
      {blocks.length === 0 && <p class="quiet">There are none.</p>}
      {blocks.map((block) => <BlockCard key={`${block.id} ${block.version}`} base={base} block={block} reload={load} />)}
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
      {changes && <History block={block} changes={changes} restore={save} />}
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

function History({ block, changes, restore }: { block: Block; changes: Change[]; restore: (text: string) => Promise<void> }): JSX.Element {
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
          {mayAct() && change.version < block.version && <button class="small" onClick={() => restore(after)}>Restore this text</button>}
        </li>
      ))}
    </ol>
  );
}

function Search({ base }: { base: string }): JSX.Element {
  const [hits, setHits] = useState<Hit[] | undefined>(undefined);
  const [problem, setProblem] = useState("");
  const search = (event: Event): void => {
    event.preventDefault();
    const query = new FormData(event.target as HTMLFormElement).get("query");
    setProblem("");
    post<{ hits: Hit[] }>(`${base}/search`, { query })
      .then((reply) => setHits(reply.hits))
      .catch((error: Problem) => setProblem(error.message));
  };
  return (
    <section>
      <h2>Archives</h2>
      <form class="row" onSubmit={search}>
        <input id="search" name="query" type="search" required placeholder="Search what was kept  /" aria-label="Search the archives" />
        <button>Search</button>
      </form>
      {problem && <p class="failure">{problem}</p>}
      {hits?.length === 0 && <p class="quiet">Nothing fits.</p>}
      <ul class="hits">
        {hits?.map((hit) => (
          <li>
            <p>{hit.text}</p>
            <p class="quiet"><b>{hit.score.toFixed(2)}</b> {hit.why} · {hit.archive}{hit.tags.length > 0 && ` · ${hit.tags.join(", ")}`}{hit.source && ` · ${hit.source}`}</p>
          </li>
        ))}
      </ul>
    </section>
  );
}
