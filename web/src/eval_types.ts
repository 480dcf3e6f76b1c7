// Evaluations as the server sends them. Figures that are shown in percent are shares, from 0 to 1.

export type Measure = {
  name: string; value: number; low: number; high: number; count: number; better: "more" | "less"; percent: boolean;
};
export type RouteCount = { wanted: string; got: string; count: number };
export type Score = {
  case: string; kind: string; passed: boolean; why: string[]; error: boolean; request: string; got: string; wanted: string;
  mistake: string; notes: string[]; seconds: number; usd: number | null;
};
export type Section = {
  dataset: string; kind: string; scores: Score[]; measures: Measure[]; routes: RouteCount[];
};
export type Gate = {
  dataset: string; kind: string; measure: string; wanted: number; value: number; passed: boolean; better: "more" | "less";
  percent: boolean; why: string;
};
export type ScoreChange = {
  dataset: string; kind: string; measure: string; before: number; now: number; low: number; high: number; count: number;
  verdict: "better" | "worse" | "no difference shown"; percent: boolean; lost: string[]; won: string[];
};
export type EvalReport = {
  team: string; sections: Section[]; gates: Gate[]; changes: ScoreChange[]; notice: string; warnings: string[]; stopped: string;
  at: number;
};

/** A report in the list of a team. */
export type ReportSummary = {
  report: string; at: number; gates_passed: number; gates_failed: number; stopped: string; damage: string;
  sections: { dataset: string; kind: string; cases: number; passed: number; headline: Measure | null }[];
};

export function figure(value: number, isPercent: boolean): string {
  if (isPercent) return `${(value * 100).toFixed(1)} %`;
  return String(Number(value.toPrecision(4)));
}

/** The cases of one kind in one dataset, in words; a dataset of one kind is often named after it. */
export const sectionName = ({ dataset, kind }: { dataset: string; kind: string }): string =>
  dataset === kind ? dataset : `${dataset}, ${kind}`;

export const evalsPath = (team: string, report = ""): string =>
  `/api/teams/${encodeURIComponent(team)}/evals${report ? `/${encodeURIComponent(report)}` : ""}`;
