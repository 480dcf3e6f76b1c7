// The archives of a team: search in them with scores and reasons, and what they hold.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Refusal, useAction } from "./actions.tsx";
import { post, serverNow } from "./api.ts";
import { ago, plural, shortRun } from "./format.ts";
import { runAddress } from "./route.ts";
import { Link, LoadProblem } from "./shell.tsx";
import { useGet } from "./use_get.ts";

type Archive = { id: string; name: string; description: string; embedding: string; passages: number };
type Passage = {
  id: string; text: string; tags: string[]; source: string; tainted: boolean; created: number;
  origin: { name: string; run: string; task: string };
};
type Hit = Passage & { archive: string; score: number; why: string };

export function Archives({ base }: { base: string }): JSX.Element {
  const { value, problem } = useGet<{ archives: Archive[] }>(`${base}/archives`);
  return (
    <section>
      <h2>Archives</h2>
      <Search base={base} />
      <LoadProblem problem={problem} />
      {value?.archives.map((archive) => <ArchiveView key={archive.id} base={base} archive={archive} />)}
    </section>
  );
}

function Search({ base }: { base: string }): JSX.Element {
  const [hits, setHits] = useState<Hit[] | undefined>(undefined);
  const action = useAction();
  const search = (event: Event): void => {
    event.preventDefault();
    const query = new FormData(event.target as HTMLFormElement).get("query");
    void action.run(async () => setHits((await post<{ hits: Hit[] }>(`${base}/search`, { query })).hits));
  };
  return (
    <>
      <form class="row" onSubmit={search}>
        <input id="search" name="query" type="search" required placeholder="Search what was kept  /" aria-label="Search the archives" />
        <button>Search</button>
      </form>
      <Refusal action={action} />
      {hits?.length === 0 && <p class="quiet">Nothing fits.</p>}
      <ul class="hits" aria-label="Passages that fit">
        {hits?.map((hit) => (
          <li>
            <p>{hit.text}</p>
            <p class="quiet"><b>{hit.score.toFixed(2)}</b> {hit.why} · {hit.archive} · <Facts passage={hit} /></p>
            <Uses path={`${base}/archives/${encodeURIComponent(hit.archive)}/passages/${encodeURIComponent(hit.id)}/uses`} />
          </li>
        ))}
      </ul>
    </>
  );
}

function Facts({ passage }: { passage: Passage }): JSX.Element {
  const { origin } = passage;
  const facts = [passage.source, passage.tags.join(", "), origin.name, ago(passage.created, serverNow())].filter(Boolean);
  return (
    <>
      {facts.join(" · ")}
      {origin.run && <> · <Link class="text-link" to={`${runAddress(origin.run)}?task=${encodeURIComponent(origin.task)}`}>{shortRun(origin.run)} {origin.task}</Link></>}
      {passage.tainted && <> <span class="effect is-effect">tainted</span></>}
    </>
  );
}

type Use = { run: string; task: string; attempt: number; at: number; query: string; score: number };

/** The tasks whose searches found a passage; looked for when it is wanted. */
function Uses({ path }: { path: string }): JSX.Element {
  const [isWanted, setWanted] = useState(false);
  const { value, problem } = useGet<{ uses: Use[]; runs: number }>(isWanted ? path : "");
  if (!isWanted) return <button class="copy uses-ask" onClick={() => setWanted(true)}>Used by …</button>;
  if (problem) return <LoadProblem problem={problem} />;
  if (!value) return <p class="quiet">Looking through runs …</p>;
  if (!value.uses.length) return <p class="quiet">No task of the latest {plural(value.runs, "run")} found it.</p>;
  return (
    <p class="quiet">
      used by {value.uses.map((use) => (
        <Link class="text-link uses-link" title={`${use.query}, ${use.score.toFixed(2)}`} to={`${runAddress(use.run)}?task=${encodeURIComponent(use.task)}&tab=calls`}>{shortRun(use.run)} {use.task}</Link>
      ))}
    </p>
  );
}

function ArchiveView({ base, archive }: { base: string; archive: Archive }): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const path = `${base}/archives/${encodeURIComponent(archive.id)}/passages`;
  const passages = useGet<{ passages: Passage[]; next: string | null }>(isOpen ? path : "");
  return (
    <details class="block" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary><b class="mono">{archive.name}</b> <span class="quiet">{archive.description} {plural(archive.passages, "passage")}</span></summary>
      <LoadProblem problem={passages.problem} />
      <ul class="hits">
        {passages.value?.passages.map((passage) => <li><p>{passage.text}</p><p class="quiet"><Facts passage={passage} /></p><Uses path={`${path}/${encodeURIComponent(passage.id)}/uses`} /></li>)}
      </ul>
      {passages.value?.next && <p class="quiet">The first {passages.value.passages.length}; search for others.</p>}
    </details>
  );
}
