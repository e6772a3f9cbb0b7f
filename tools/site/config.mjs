import { readFileSync } from "node:fs";
import { defineConfig } from "vitepress";
import { braces, drawings, links, slug } from "./links.mjs";
import { route } from "./pages.mjs";

const site = JSON.parse(readFileSync(new URL("site.json", import.meta.url), "utf8"));
const repository = "https://github.com/gendurable/gendurable";
const titles = { Optional: "The project" }; // the name has a meaning in llms.txt

const icon = "data:image/svg+xml," + encodeURIComponent('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="4" cy="8" r="3" fill="#3451b2"/>' +
  '<path d="M7 8h5M10 5l3 3-3 3" fill="none" stroke="#3451b2" stroke-width="2"/></svg>');

const sources = new Map(site.sections.flatMap((section) => section.pages.map((page) => [route(page.path), page])));
const address = (page) => `/${route(page.path).replace(/(^|\/)index\.md$/, "$1").replace(/\.md$/, ".html")}`;
const has = (path) => site.sections.some((section) => section.pages.some((page) => page.path === path));
const first = site.sections[0].pages[0];

/** A page as the search indexes it: without colors in programs, which take most of a build. */
function searched(text, env, markdown) {
  const { highlight } = markdown.options;
  markdown.options.highlight = undefined;
  try {
    return markdown.render(text, env);
  } finally {
    markdown.options.highlight = highlight;
  }
}

export default defineConfig({
  title: "gendurable",
  description: "Durable state machines for Go, on the Postgres that you already have.",
  lang: "en",
  base: site.base,
  head: [["link", { rel: "icon", href: icon }]],
  metaChunk: true,
  transformPageData: (page) => ({ description: sources.get(page.relativePath)?.description }),
  markdown: {
    anchor: { slugify: slug },
    theme: { light: "github-light", dark: "github-dark" },
    languageAlias: { promql: "text" },
    config: (markdown) => {
      links(markdown, site);
      drawings(markdown);
      braces(markdown);
    },
  },
  vite: { build: { reportCompressedSize: false, chunkSizeWarningLimit: 2000 } },
  themeConfig: {
    search: { provider: "local", options: { _render: searched } },
    outline: [2, 3],
    nav: [
      { text: first.title, link: address(first) },
      {
        text: site.version,
        items: [
          ...(has("CHANGELOG.md") ? [{ text: "Changelog", link: "/CHANGELOG.html" }] : []),
          ...site.tags.map((tag) => ({ text: `Documentation of ${tag}`, link: `${repository}/tree/${tag}/docs` })),
        ],
      },
      { text: "API", link: "https://pkg.go.dev/github.com/gendurable/gendurable" },
    ],
    sidebar: site.sections.map((section, number) => ({
      text: titles[section.title] ?? section.title,
      collapsed: number > 1,
      items: section.pages.map((page) => ({ text: page.title, link: address(page) })),
    })),
    socialLinks: [{ icon: "github", link: repository }],
    editLink: {
      // It is sent to the browser, so it knows nothing of this file.
      pattern: ({ filePath }) => `https://github.com/gendurable/gendurable/edit/main/${filePath.replace(/index\.md$/, "README.md")}`,
      text: "Edit this page",
    },
    externalLinkIcon: false,
  },
});
