// Reads drawings from standard input, [{"language": …, "text": …}], and writes what the languages' own parsers made of each:
// {"nodes": {id: label}, "arrows": [[from, to]]}, or {"error": …}. Language "document" is Mermaid of any kind, which is only parsed: {}.
import { readFileSync } from "node:fs";
import { Graphviz } from "@hpcc-js/wasm-graphviz";
import DOMPurify from "dompurify";
import { marked } from "marked";
import mermaid from "mermaid";

// It wants a browser's DOM; what is asked here is what was parsed, before it is cleaned.
DOMPurify.sanitize = (text) => text;
DOMPurify.addHook = () => {};
mermaid.initialize({ startOnLoad: false, securityLevel: "loose" });
const graphviz = await Graphviz.load();

const lines = (parts) => parts.join("\n");

async function readMermaid(text) {
  await mermaid.parse(text);
  const { db } = await mermaid.mermaidAPI.getDiagramFromText(text);
  const nodes = {};
  for (const [id, vertex] of db.getVertices()) {
    // A label is drawn as Markdown, after this step: lists and the like it refuses, emphasis changes the name.
    for (const block of marked.lexer(vertex.text)) {
      const odd = block.type === "paragraph" ? block.tokens.find((token) => token.type !== "text" && token.raw !== "<br/>") : block;
      if (odd && odd.raw.trim() !== "") throw new Error(`${odd.type} in a label: ${odd.raw}`);
    }
    // Between the two steps of mermaid entities are written like this.
    nodes[id] = lines(vertex.text.split("<br/>")).replace(/ﬂ°°(\d+)¶ß/g, (_, code) => String.fromCodePoint(Number(code)));
  }
  return { nodes, arrows: db.getEdges().map((edge) => [edge.start, edge.end]) };
}

async function readDocument(text) {
  await mermaid.parse(text);
  return {};
}

const readers = { mermaid: readMermaid, dot: readDot, document: readDocument };

function readDot(text) {
  const { objects = [], edges = [] } = JSON.parse(graphviz.layout(text, "dot_json", "dot"));
  const nodes = {};
  for (const { name, label } of objects) {
    nodes[name] = label.replace(/\\(.)/g, (_, escaped) => (escaped === "n" ? "\n" : escaped)).replaceAll("&amp;", "&");
  }
  return { nodes, arrows: edges.map((edge) => [objects[edge.tail].name, objects[edge.head].name]) };
}

const answers = [];
for (const { language, text } of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    answers.push(await readers[language](text));
  } catch (error) {
    answers.push({ error: String(error) });
  }
}
process.stdout.write(JSON.stringify(answers));
