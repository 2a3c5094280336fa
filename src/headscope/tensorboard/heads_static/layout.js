/* The frame of the page: its sections, empty. Each view fills its own. */

import { build } from "./dom.js";

const SHEETS = ["./shared/map.css", "./shared/pairs.css", "./heads.css"];
const HELP =
  "Keys: , and . one step back and on, p plays; in the grid the arrows choose a head; in the map and the text they move " +
  "the query and the key, Enter locks, Esc unlocks.";

function section(name, heading, ...content) {
  const id = `${name}-heading`;
  const title = build("h2", { id }, heading);
  return build(
    "section", { class: `panel ${name}`, "aria-labelledby": id },
    build("div", { class: "heading" }, title, build("div", { class: "tools" })),
    build("p", { class: "error", role: "alert", hidden: true }), ...content,
  ); // prettier-ignore
}

function gridSection(name, heading) {
  const grid = build("div", {
    class: "maps", role: "radiogroup", "aria-label": `${heading}: attention maps; arrow keys choose a head`,
  }); // prettier-ignore
  return section(name, heading, grid);
}

function headSection(name, heading) {
  const corner = build("div", { class: "corner", "aria-hidden": "true" }, build("span", {}, "key →"), build("span", {}, "query ↓"));
  const cells = build(
    "div", { class: "cells" },
    build("canvas", { class: "large", tabindex: "0", role: "img" }),
    build("div", { class: "row-mark", hidden: true }),
    build("div", { class: "column-mark", hidden: true }),
    build("div", { class: "cell-mark", hidden: true }),
  ); // prettier-ignore
  const map = build(
    "div", { class: "map-scroll" }, corner, build("div", { class: "axis keys", "aria-hidden": "true" }),
    build("div", { class: "axis queries", "aria-hidden": "true" }), cells,
  ); // prettier-ignore
  return section(name, heading, build("p", { class: "readout", "aria-live": "polite" }), build("div", { class: "shares" }), map);
}

function textSection() {
  const tokens = build("div", { class: "tokens", role: "group", "aria-label": "Tokens; arrow keys move the query, Enter locks it" });
  const ranking = build("div", { class: "ranking" }, build("h3", {}), build("ol", { class: "bars" }), build("p", { class: "rest" }), build("p", { class: "put" }));
  const pooled = build("div", { class: "tokens", role: "group", "aria-label": "Tokens by pooling weight" });
  const pooling = build(
    "div", { class: "pooling", hidden: true },
    build("h3", {}, "Pooling: how much each token counts in the vector of the text", build("span", { class: "readout" })), pooled,
  ); // prettier-ignore
  const prediction = build("div", { class: "prediction" }, build("h3", {}), build("ul", { class: "bars" }));
  const words = build("div", { class: "words" }, tokens, pooling);
  return section("text", "Text", build("div", { class: "columns" }, words, ranking, prediction));
}

function tableSection() {
  const table = build("table", {}, build("caption", { class: "unseen" }, "Every head with its numbers"), build("thead", {}, build("tr")), build("tbody"));
  return section("table", "Numbers of every head", build("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Numbers of every head" }, table));
}

function runsSection() {
  const table = build("table", {}, build("caption", { class: "unseen" }, "Runs"), build("thead", {}, build("tr")), build("tbody"));
  return section("runs", "Runs side by side", build("div", { class: "table-scroll" }, table));
}

/* Once a style sheet is there, or cannot be. */
function settled(sheet) {
  return new Promise((resolve) => ["load", "error"].forEach((event) => sheet.addEventListener(event, resolve)));
}

/* Put the frame into the page and return its sections by name. */
export function layOut() {
  const sheets = SHEETS.map((name) => build("link", { rel: "stylesheet", href: new URL(name, import.meta.url).href }));
  const ready = Promise.all(sheets.map(settled));
  document.head.append(
    build("meta", { name: "viewport", content: "width=device-width, initial-scale=1" }), ...sheets,
  ); // prettier-ignore
  document.documentElement.lang = "en";
  document.title = "Heads";
  const names = ["toolbar", "grid", "other-grid", "head", "other-head", "text", "trust", "table", "examples", "runs"];
  const toolbar = build("header", { class: "toolbar", "aria-label": "What is shown" });
  const main = build(
    "main", {},
    gridSection("grid", "Heads"), gridSection("other-grid", "Heads"), headSection("head", ""), headSection("other-head", ""),
    textSection(), section("trust", "How far to trust these maps"), tableSection(), section("examples", "Texts that stand out"), runsSection(),
  ); // prettier-ignore
  const command = build("code", {}, 'python scripts/inspect.py run=<run> text="..."');
  const any = build("p", { class: "any" }, "Any text? One command writes a page of it, with every head: ", command);
  document.body.replaceChildren(toolbar, build("p", { class: "error whole", role: "alert", hidden: true }), main,
    build("footer", {}, any, build("p", { class: "help" }, HELP)));
  const sections = Object.fromEntries(names.map((name) => [name, document.querySelector(`.${name}`)]));
  return { sections, main, whole: document.querySelector(".error.whole"), command, ready };
}
