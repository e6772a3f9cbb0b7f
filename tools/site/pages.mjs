// Which pages the site has, and in which order.
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join, posix } from "node:path";

/** The paths of all pages, from the root of the repository. */
export function pages(root) {
  const below = (folder) => readdirSync(join(root, folder)).filter((name) => name.endsWith(".md")).map((name) => posix.join(folder, name));
  return ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md", ...below("docs"), ...below("docs/guide")]
    .filter((page) => existsSync(join(root, page)));
}

/** Where the site has a page: the README of a folder is its index. */
export const route = (page) => page.replace(/README\.md$/, "index.md");

/** The sections of llms.txt, [{title, pages: [{title, path, description}]}]. */
export function navigation(root) {
  const sections = [];
  for (const line of readFileSync(join(root, "llms.txt"), "utf8").split("\n")) {
    const heading = line.match(/^## (.+)$/);
    const entry = line.match(/^- \[(.+)\]\((.+)\): (.+)$/);
    if (heading) sections.push({ title: heading[1], pages: [] });
    if (entry) sections.at(-1).pages.push({ title: entry[1], path: entry[2], description: entry[3] });
  }
  return sections;
}
