// Which worker requests were meant for, and which got them.

import type { JSX } from "preact";
import type { RouteCount } from "./eval_types.ts";

const MOST_NAMES = 14;
const MOST_MISTAKES = 20;

/** The confusion matrix; where there are too many names for one, the commonest mistakes. */
export function RouteMatrix({ routes }: { routes: RouteCount[] }): JSX.Element {
  const names = [...new Set(routes.flatMap((route) => [route.wanted, route.got]))].sort();
  if (names.length > MOST_NAMES) return <Mistakes routes={routes} />;
  const counts = new Map(routes.map((route) => [`${route.wanted}\n${route.got}`, route.count]));
  const wanted = names.filter((name) => routes.some((route) => route.wanted === name));
  const totalOf = (name: string): number => routes.reduce((sum, route) => sum + (route.wanted === name ? route.count : 0), 0);
  return (
    <div class="tx-scroll" tabIndex={0} role="group" aria-label="Where requests went">
      <table class="ev-matrix">
        <caption>Rows are who was wanted, columns who got it.</caption>
        <thead><tr><td />{names.map((name) => <th scope="col"><span>{name}</span></th>)}</tr></thead>
        <tbody>
          {wanted.map((row) => (
            <tr>
              <th scope="row">{row}</th>
              {names.map((name) => <MatrixCell count={counts.get(`${row}\n${name}`) ?? 0} total={totalOf(row)} isRight={row === name} />)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function MatrixCell({ count, total, isRight }: { count: number; total: number; isRight: boolean }): JSX.Element {
  if (!count) return <td class="is-none">·</td>;
  const share = Math.round((count / total) * 100);
  return (
    <td class={isRight ? "is-right" : "is-wrong"} title={`${share} % of ${total}`} style={{ "--share": `${50 + share / 2}%` }}>{count}</td>
  );
}

function Mistakes({ routes }: { routes: RouteCount[] }): JSX.Element {
  const mistakes = routes.filter((route) => route.wanted !== route.got).slice(0, MOST_MISTAKES);
  return (
    <table class="grid">
      <thead><tr><th scope="col">Wanted</th><th scope="col">Got</th><th scope="col">Cases</th></tr></thead>
      <tbody>{mistakes.map((route) => <tr><td>{route.wanted}</td><td>{route.got}</td><td class="is-number">{route.count}</td></tr>)}</tbody>
    </table>
  );
}
