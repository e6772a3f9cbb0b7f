// Makes the site of the documentation: node tools/site/build.mjs --packages node_modules --into folder [--base /path/] [--version v0.1.0].
// The pages, the site's configuration and its theme are copied into a folder beside the packages, where VitePress reads them.
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { exported } from "./names.mjs";
import { navigation, pages, route } from "./pages.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "..", "..");
const { values: options } = parseArgs({
  options: { packages: { type: "string" }, into: { type: "string" }, base: { type: "string", default: "/" }, version: { type: "string", default: "" } },
});

const listed = navigation(root);
const all = pages(root);
const missing = all.filter((page) => !listed.some((section) => section.pages.some((entry) => entry.path === page)));
if (missing.length > 0) {
  console.error(`llms.txt, from which the navigation is made, does not list ${missing.join(", ")}`);
  process.exit(1);
}
for (const section of listed) {
  section.pages = section.pages.filter((entry) => {
    const there = all.includes(entry.path);
    if (!there) console.error(`llms.txt lists ${entry.path}, which does not exist`);
    return there;
  });
}

function git(...words) {
  try {
    return execFileSync("git", ["-C", root, ...words], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return ""; // an archive of the files has no history
  }
}

function copy(from, to) {
  mkdirSync(dirname(to), { recursive: true });
  cpSync(from, to, { recursive: true, filter: (file) => !file.endsWith(".map") });
}

const into = resolve(options.into);
const stage = mkdtempSync(join(tmpdir(), "gendurable-site-"));
try {
  for (const page of all) copy(join(root, page), join(stage, route(page)));
  for (const folder of ["docs/pictures", "docs/charts"]) {
    if (existsSync(join(root, folder))) copy(join(root, folder), join(stage, folder));
  }
  const packages = resolve(options.packages);
  symlinkSync(packages, join(stage, "node_modules"));
  cpSync(join(here, "theme"), join(stage, ".vitepress", "theme"), { recursive: true });
  for (const file of ["config.mjs", "links.mjs", "pages.mjs"]) cpSync(join(here, file), join(stage, ".vitepress", file));
  const tags = git("tag", "--list", "v*", "--sort=-version:refname").split("\n").filter(Boolean);
  writeFileSync(join(stage, ".vitepress", "site.json"), JSON.stringify({
    base: options.base,
    version: options.version || git("describe", "--tags", "--exact-match", "--match", "v*") || "unreleased",
    tags,
    sections: listed,
    names: exported(root),
    files: git("ls-files").split("\n"),
  }));
  const built = spawnSync(process.execPath, [join(packages, "vitepress", "bin", "vitepress.js"), "build", stage, "--outDir", into], {
    cwd: stage,
    stdio: "inherit",
  });
  process.exitCode = built.status ?? 1;
  // Beside the site are the pages as they are, to which llms.txt links, and Mermaid, which only pages with drawings load.
  for (const file of ["llms.txt", ...all]) copy(join(root, file), join(into, file));
  for (const part of ["mermaid.esm.min.mjs", "chunks/mermaid.esm.min"]) copy(join(packages, "mermaid", "dist", part), join(into, "mermaid", part));
} finally {
  rmSync(stage, { recursive: true, force: true });
}
