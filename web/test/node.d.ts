declare module "node:fs" { export function readFileSync(file: number, encoding: "utf8"): string; }
declare const process: { stdout: { write(text: string): void } };
