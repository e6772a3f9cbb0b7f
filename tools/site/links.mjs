// Where the links of a page lead on the site: to pages, to files of the repository, and from names to their documentation.
import { posix } from "node:path";
import { route } from "./pages.mjs";

const repository = "https://github.com/gendurable/gendurable";
const documentation = "https://pkg.go.dev/github.com/gendurable/gendurable";

/** GitHub's names of headings, which the pages' links use. */
export const slug = (heading) => heading.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "").replaceAll(" ", "-");

/** Changes the links of each page while Markdown is read. */
export function links(markdown, { sections, names, files }) {
  const sources = new Map(sections.flatMap((section) => section.pages.map((page) => [route(page.path), page.path])));
  const pages = new Set(sources.values());

  markdown.core.ruler.push("links", (state) => {
    const source = sources.get(state.env.relativePath) ?? state.env.relativePath;
    for (const token of state.tokens) {
      if (token.type !== "inline") continue;
      let open = 0;
      token.children = token.children.flatMap((child) => {
        if (child.type === "link_open") {
          open++;
          child.attrSet("href", target(source, child.attrGet("href")));
        } else if (child.type === "link_close") {
          open--;
        } else if (child.type === "code_inline" && open === 0) {
          const address = documented(child.content);
          if (address) return linked(state, child, address);
        }
        return [child];
      });
    }
  });

  function target(source, href) {
    const [path, anchor] = href.split("#");
    if (path === "" || /^[a-z]+:/.test(path)) return href;
    let to = posix.join(posix.dirname(source), decodeURI(path)).replace(/\/$/, "");
    if (pages.has(posix.join(to, "README.md"))) to = posix.join(to, "README.md");
    if (pages.has(to)) return `/${route(to).replace(/(^|\/)index\.md$/, "$1")}${anchor ? "#" + anchor : ""}`;
    const kind = files.includes(to) ? "blob" : "tree";
    return `${repository}/${kind}/main/${to}${anchor ? "#" + anchor : ""}`;
  }

  function documented(code) {
    const [, name, top, below] = code.match(/^[&*]?([a-z]+)\.([A-Z]\w*)(?:\.([A-Z]\w*))?(?:[[({].*)?$/s) ?? [];
    const found = Object.hasOwn(names, name ?? "") ? names[name] : undefined;
    if (!found?.names.includes(top)) return undefined;
    return `${documentation}/${found.folder}#${below && found.names.includes(`${top}.${below}`) ? `${top}.${below}` : top}`;
  }

  function linked(state, child, address) {
    const before = new state.Token("link_open", "a", 1);
    before.attrs = [["href", address]];
    return [before, child, new state.Token("link_close", "a", -1)];
  }
}

/** A drawing is drawn in the browser. Its text is there before, and for readers without scripts. */
export function drawings(markdown) {
  const fence = markdown.renderer.rules.fence;
  markdown.renderer.rules.fence = (tokens, index, ...others) => {
    const { info, content } = tokens[index];
    if (info.trim() !== "mermaid") return fence(tokens, index, ...others);
    return `<Drawing text="${encodeURIComponent(content)}"><pre v-pre>${markdown.utils.escapeHtml(content)}</pre></Drawing>\n`;
  };
}

/** Two braces are text, not an expression of the site's templates. */
export function braces(markdown) {
  for (const rule of ["text", "code_inline"]) {
    const render = markdown.renderer.rules[rule];
    markdown.renderer.rules[rule] = (...given) => render(...given).replaceAll("{{", "&#123;&#123;");
  }
}
