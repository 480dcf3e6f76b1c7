// Recorded runs that come with the page, for a server on which nothing has run yet.

import cascade from "./examples/cascade.entries";
import incident from "./examples/incident.entries";

export type Example = { name: string; goal: string; what: string; address: string };

export const EXAMPLES: Example[] = [
  {
    name: "example/incident",
    goal: "Why was checkout slow on 12 November, who was hit, and what do we tell them?",
    what: "ten tasks, three retries, one approval, two gaps",
    address: incident,
  },
  {
    name: "example/cascade",
    goal: "Why was checkout slow, going by the archive of the logs?",
    what: "one task that fails three times, four that fall with it, one refund that is rejected",
    address: cascade,
  },
];

export const exampleOf = (run: string): Example | undefined => EXAMPLES.find((example) => example.name === run);
