// Recorded runs that come with the page, for a server on which nothing has run yet.

import incident from "./examples/incident.entries";

export type Example = { name: string; goal: string; what: string; address: string };

export const EXAMPLES: Example[] = [
  {
    name: "example/incident",
    goal: "Why was checkout slow on 12 November, who was hit, and what do we tell them?",
    what: "ten tasks, three retries, one approval, two gaps",
    address: incident,
  },
];

export const exampleOf = (run: string): Example | undefined => EXAMPLES.find((example) => example.name === run);
