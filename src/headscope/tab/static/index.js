/* The "Heads" tab of TensorBoard: every attention head of a run, at every step that was kept. TensorBoard imports this
   module into an empty frame and calls `render`. The page that needs no server is the same, over what it embeds. */

import { AnswerView, folderOf } from "./answer.js";
import { page } from "./api.js";
import { Chooser } from "./chooser.js";
import { build } from "./dom.js";
import { Grid } from "./grid.js";
import { HeadView } from "./head.js";
import { Loader } from "./loader.js";
import { ExportButtons, keepLink, readLink } from "./share.js";
import { followTheme, isVisible, newStore } from "./store.js";
import { HeadTable } from "./table.js";
import { TextView } from "./text.js";
import { StepSlider, Toolbar } from "./toolbar.js";
import { TrustView, ExamplesView } from "./trust.js";
import { WithoutView } from "./without.js";

const [POLL, GLANCE] = [10_000, 500]; // milliseconds between two looks at the runs, and at whether anybody looks

const HELP =
  "In the grid the arrow keys choose a head; in the map and the text they move the query and the key, Enter locks, Esc unlocks. " +
  "Home and End go to the first and the last token of the text. Where heads were switched off, o shows what is predicted without the chosen one.";

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
    build("div", { class: "answer-row", title: "the answer is read here" }),
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

/* Once a style sheet is there, or cannot be. */
function settled(sheet) {
  return new Promise((resolve) => ["load", "error"].forEach((event) => sheet.addEventListener(event, resolve)));
}

/* Put the frame into the page and return its sections by name. */
function layOut() {
  const sheet = page ? null : build("link", { rel: "stylesheet", href: new URL("heads.css", import.meta.url).href });
  const viewport = build("meta", { name: "viewport", content: "width=device-width, initial-scale=1" });
  const ready = sheet && settled(sheet);
  if (!page) document.head.append(viewport, sheet);
  document.documentElement.lang = "en";
  document.title = page?.title ?? "Heads";
  document.body.classList.toggle("page", page !== null);
  const names = ["toolbar", "answer", "grid", "other-grid", "head", "other-head", "text", "trust", "table", "examples", "chooser"];
  const toolbar = build("header", { class: "toolbar", "aria-label": "What is shown" });
  const main = build(
    "main", {},
    section("chooser", "Texts"), gridSection("grid", "Heads"), gridSection("other-grid", "Heads"), headSection("head", ""), headSection("other-head", ""),
    textSection(), section("trust", "How far to trust these maps"),
    build("div", { class: "numbers" }, tableSection(), section("examples", "Texts that stand out")),
  ); // prettier-ignore
  const command = build("code", {}, `headscope inspect run=<run> 'text="..."'`);
  const any = build("p", { class: "any" }, "Any text? One command writes a page of it, with every head: ", command);
  document.body.replaceChildren(toolbar, build("p", { class: "error whole", role: "alert", hidden: true }), section("answer", "Which heads matter"), main,
    build("footer", {}, page ? "" : any, build("p", { class: "help" }, page ? HELP : `Keys: , and . one step back and on, p plays. ${HELP}`)));
  const sections = Object.fromEntries(names.map((name) => [name, document.querySelector(`.${name}`)]));
  return { sections, main, whole: document.querySelector(".error.whole"), command, ready };
}

/* Where the parts of the page stand depends on what is compared. */
function arrange(store, main, sections, command) {
  const show = () => {
    const beside = store.compare?.view === "beside";
    main.dataset.view = beside ? "beside" : "one";
    sections["other-grid"].hidden = sections["other-head"].hidden = !beside;
    sections.chooser.hidden = !page || page.texts.length < 2;
    command.textContent = `headscope inspect run=${folderOf(store)} 'text="..."'`;
  };
  store.subscribe(["compare", "run", "logdir"], show);
  show();
}

function listenToKeys(store, slider, without) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") store.release();
    if (event.target.closest?.("input[type=number], select")) return;
    if (event.key === ",") slider.move(-1);
    else if (event.key === ".") slider.move(1);
    else if (event.key === "p") slider.toggle();
    else if (event.key === "o") without.toggle();
  });
}

/* Ask for new runs and steps while somebody looks. */
function poll(loader) {
  let [visible, last] = [true, performance.now()];
  const look = () => {
    const before = visible;
    visible = isVisible();
    if (!visible || (before && performance.now() - last < POLL)) return;
    last = performance.now();
    loader.refresh(readLink());
  };
  setInterval(look, GLANCE);
  document.addEventListener("visibilitychange", () => {
    visible = false; // as it was until now, or is from now on
    look();
  });
}

export async function render() {
  const store = newStore();
  const { sections, main, whole, command, ready } = layOut();
  followTheme(store);
  const loader = new Loader(store);
  new Toolbar(sections.toolbar, store, whole, sections.grid.querySelector(".tools"));
  const slider = new StepSlider(sections.toolbar, store, loader);
  arrange(store, main, sections, command);
  await ready; // sizes are measured
  new AnswerView(sections.answer, store);
  new Grid(sections.grid, store, "main");
  new Grid(sections["other-grid"], store, "other");
  new HeadView(sections.head, store, "main");
  new HeadView(sections["other-head"], store, "other");
  new TextView(sections.text, store);
  new TrustView(sections.trust, store, slider.state);
  new HeadTable(sections.table, store);
  new ExamplesView(sections.examples, store);
  listenToKeys(store, slider, new WithoutView(sections.head, store));
  if (page) {
    new Chooser(sections.chooser, store, page);
    loader.openPage(page);
    return;
  }
  const linkNow = keepLink(store, isVisible, (link) => loader.open({ ...link, run: link.run ?? store.run }));
  new ExportButtons(slider.line, store, linkNow);
  await loader.refresh(readLink());
  poll(loader);
}
