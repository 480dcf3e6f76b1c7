// Builds the page into the Python package: hashed names, gzip siblings, the same bytes each time.

import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "src", "chargehand", "server", "ui");
const assets = join(out, "assets");
const fonts = join(here, "node_modules", "@fontsource-variable", "inter");

rmSync(out, { recursive: true, force: true });
mkdirSync(assets, { recursive: true });
const result = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  outdir: assets,
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".woff2": "file", ".entries": "file" },
  publicPath: "/assets/",
  legalComments: "none",
  metafile: true,
});

const files = Object.keys(result.metafile.outputs).map((path) => path.split("/").at(-1));
const script = files.find((name) => /^app-.*\.js$/.test(name));
const style = files.find((name) => /^app-.*\.css$/.test(name));
const font = files.find((name) => name.endsWith(".woff2"));
const icon = readFileSync(join(here, "src", "icon.svg"));
const iconName = `icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8)}.svg`;
writeFileSync(join(assets, iconName), icon);
copyFileSync(join(fonts, "LICENSE"), join(assets, "inter-license.txt"));
const page = readFileSync(join(here, "src", "index.html"), "utf8")
  .replace("{script}", script)
  .replace("{style}", style)
  .replace("{font}", font)
  .replace("{icon}", iconName);
writeFileSync(join(out, "index.html"), page);

let total = 0;
for (const name of readdirSync(assets).sort()) {
  if (!/\.(js|css|svg|entries)$/.test(name)) continue;
  const packed = gzipSync(readFileSync(join(assets, name)), { level: 9 });
  packed[9] = 255; // the operating system, which says nothing here
  writeFileSync(join(assets, `${name}.gz`), packed);
  if (name.endsWith(".js")) total += packed.length;
}
console.log(`scripts: ${(total / 1024).toFixed(1)} kB gzipped`);
