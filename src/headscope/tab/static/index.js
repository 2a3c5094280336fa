/* The "Heads" tab of TensorBoard, which calls `render` in an empty frame; and the page without a
   server. */

import { Headline, runOf } from "./ablation.js";
import { askPage, page } from "./api.js";
import { button, element } from "./dom.js";
import { LedgerView } from "./ledger.js";
import { MatrixView } from "./matrix.js";
import { Grid } from "./grid.js";
import { HeadView } from "./head.js";
import { Loader } from "./loader.js";
import { PredictionView } from "./prediction.js";
import { followTheme, isVisible, keepLink, newStore, readLink } from "./store.js";
import { HeadTable } from "./table.js";
import { TextView } from "./text.js";
import { StepSlider, Toolbar } from "./toolbar.js";
import { trustView } from "./trust.js";
import { languageOf } from "./words.js";
import { saveMenu } from "./save.js";
import { choose, language, t } from "./strings.js";

const POLL = 10_000; // milliseconds between two looks at the runs
const GLANCE = 500; // and at whether anybody looks

const KEYS = [
  [t`Arrows`, t`choose a head in the grid; move along the text; move query and key in the map`],
  ["Enter, Esc", t`lock and unlock`],
];
const STEP_KEYS = [[t`, and .`, t`one step back and forward`]];

/* The style sheet of the tab, once it is there or cannot be; a page has its own. */
async function loadStyle() {
  if (page) return;
  const href = new URL("heads.css", import.meta.url).href;
  const sheet = element("link", { rel: "stylesheet", href });
  const content = "width=device-width, initial-scale=1";
  document.head.append(element("meta", { name: "viewport", content }), sheet);
  await new Promise((resolve) => {
    for (const event of ["load", "error"]) sheet.addEventListener(event, resolve);
  });
}

function footer(store, others) {
  const keys = [...(page ? [] : STEP_KEYS), ...others, ...KEYS];
  const help = keys.flatMap(([key, words]) => [element("dt", {}, key), element("dd", {}, words)]);
  const summary = element("summary", {}, t`Keys`);
  const folded = element("details", "help", summary, element("dl", {}, ...help));
  const command = element("code");
  const any = element("p", "any", t`A page of any other text, with every head: `, command);
  const showRun = () => {
    any.hidden = !store.isTrained;
    command.textContent = `headscope inspect ${runOf(store)} 'text="..."'`;
  };
  store.subscribe(["run", "runs", "logdir"], showRun);
  showRun();
  return element("footer", {}, ...(page ? [] : [any]), folded);
}

/* What is seldom read, under one line; gone where the view is. */
function fold(words, view) {
  const root = element("details", "fold-view", element("summary", {}, words), view);
  const follow = () => {
    root.hidden = view.hidden;
  };
  new MutationObserver(follow).observe(view, { attributes: true, attributeFilter: ["hidden"] });
  follow();
  return root;
}

/* The other language; a notebook's frame cannot keep a choice. */
function languageButton() {
  const [other, name] = language === "ja" ? ["en", "English"] : ["ja", "日本語"];
  const node = button(name, "", () => choose(other), "plain language");
  node.lang = other;
  node.hidden = location.protocol === "about:";
  return node;
}

/* Put the views into the page. Where they stand depends on what is compared. A page in which the
   network runs has its box above the words. */
export function layOut(store, { top = null, tools = [], keys = [] } = {}) {
  document.documentElement.lang = language;
  document.title = page?.title ?? "Heads";
  document.body.classList.toggle("page", page !== null);
  const toolbar = new Toolbar(store);
  const slider = new StepSlider(store);
  const ofText = page ? null : ({ run, shown, text }) => askPage(run, shown, text);
  const menu = saveMenu(store, ofText);
  const files = element("div", "tools", ...menu, languageButton());
  toolbar.root.firstChild.append(element("div", "tools", ...tools, files));
  toolbar.root.append(slider.root);
  const grid = new Grid(store);
  const maps = fold(t`All heads as small maps`, grid.root);
  maps.addEventListener("toggle", () => grid.draw()); // sizes are measured
  const heads = ["main", "other"].map((side) => {
    const head = new HeadView(store, side);
    const folded = fold(t`Where the chosen head looks`, head.root);
    folded.addEventListener("toggle", () => {
      for (const each of heads) each.open = folded.open;
      head.draw();
    });
    return folded;
  });
  const first = [new TextView(store, top), new PredictionView(store), new LedgerView(store)];
  const views = [...first, new MatrixView(store), new Headline(store)].map(({ root }) => root);
  const folds = element(
    "div", "folds",
    fold(t`Numbers of every head`, new HeadTable(store).root),
    fold(t`Checks and notes`, trustView(store)),
  );
  const above = [toolbar.root, toolbar.whole];
  const main = element("main", {}, ...views, ...heads, maps, folds);
  document.body.replaceChildren(...above, main, footer(store, keys));
  const arrange = () => {
    const hasOther = store.compare !== null;
    main.dataset.view = hasOther ? "beside" : "one";
    heads[1].hidden = !hasOther;
  };
  store.subscribe(["compare", "other"], arrange);
  arrange();
  const inText = ".axis, .readout, .ledger, .cells-table, .choose-text, .facts bdi";
  store.subscribe(["index", "text"], () => {
    const lang = languageOf(store.shownText?.text ?? "");
    for (const node of document.querySelectorAll(inText)) node.lang = lang;
  });
  store.subscribe(["maps"], () => {
    // Without contributions, maps are what there is to see.
    if (!store.maps || store.maps.values("contributions/heads") !== null) return;
    for (const folded of [heads[0], maps]) folded.open = true;
  });
  store.subscribe(["index", "maps", "text"], () => markReadout(store));
  listenToKeys(store, slider);
  return slider;
}

/* Where the answer is read, as lengths for the style sheet. */
function markReadout(store) {
  const { readout, maps, tokens } = store;
  const { style } = document.documentElement;
  const hasReadout = readout !== null && maps !== null;
  document.body.classList.toggle("has-readout", hasReadout);
  if (!hasReadout) return;
  style.setProperty("--readout", String(readout));
  style.setProperty("--readout-share", String(readout / tokens.length));
  style.setProperty("--row-share", String(1 / tokens.length));
}

function listenToKeys(store, slider) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") store.release();
    if (event.target.closest?.("input[type=number], select, textarea")) return;
    if (event.key === ",") slider.move(-1);
    else if (event.key === ".") slider.move(1);
  });
}

/* Ask for new runs and steps while somebody looks. */
function poll(loader) {
  let visible = true;
  let last = performance.now();
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
  followTheme();
  await loadStyle(); // sizes are measured
  const loader = new Loader(store);
  const slider = layOut(store);
  if (page) {
    loader.openPage(page);
    return;
  }
  const follow = (link) => loader.open({ ...link, run: link.run ?? store.run });
  keepLink(store, follow);
  await loader.refresh(readLink());
  poll(loader);
}
