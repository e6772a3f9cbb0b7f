// The exported names of the public packages, so that pages can link to their documentation.
import { readFileSync, readdirSync } from "node:fs";
import { join, posix } from "node:path";

const inside = new Set(["bench", "bin", "cmd", "docs", "examples", "integration", "internal", "migrations", "testdata", "tools"]);

/** By package: the folder, the names at its top level, and the methods as Type.Method. Files are formatted by gofmt. */
export function exported(root) {
  const found = {};
  const visit = (folder) => {
    const entries = readdirSync(join(root, folder), { withFileTypes: true });
    const sources = folder === "" ? [] : entries.filter((entry) => entry.name.endsWith(".go") && !entry.name.endsWith("_test.go"));
    for (const { name } of sources) {
      const text = readFileSync(join(root, folder, name), "utf8");
      const pkg = text.match(/^package (\w+)/m)[1];
      if (pkg === "main" || (found[pkg] && found[pkg].folder !== folder)) continue;
      found[pkg] ??= { folder, names: [] };
      found[pkg].names.push(...declared(text));
    }
    for (const entry of entries) {
      if (entry.isDirectory() && !entry.name.startsWith(".") && !inside.has(entry.name) && folder.split("/").length < 2 && folder !== "ent") {
        visit(posix.join(folder, entry.name));
      }
    }
  };
  visit("");
  return found;
}

function declared(text) {
  const names = [];
  for (const [, type, method] of text.matchAll(/^func \((?:\w+ )?\*?([A-Z]\w*)(?:\[[^\]]*\])?\) ([A-Z]\w*)[[(]/gm)) names.push(`${type}.${method}`);
  for (const [, name] of text.matchAll(/^(?:func|type|const|var) ([A-Z]\w*)/gm)) names.push(name);
  for (const [, group] of text.matchAll(/^(?:type|const|var) \(\n([^]*?)^\)/gm)) {
    for (const [, list] of group.matchAll(/^\t([A-Z]\w*(?:, [A-Z]\w*)*)/gm)) names.push(...list.split(", "));
  }
  return names;
}
