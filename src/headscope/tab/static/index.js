/* The "Heads" tab of TensorBoard, which calls `render` in an empty frame; and the page without a
   server. */

import { Headline, runOf } from "./ablation.js";
import { page } from "./api.js";
import { isBeside } from "./compare.js";
import { element } from "./dom.js";
import { LedgerView } from "./ledger.js";
import { MatrixView } from "./matrix.js";
import { Grid } from "./grid.js";
import { HeadView } from "./head.js";
import { Loader } from "./loader.js";
import { PredictionView } from "./prediction.js";
import { followTheme, isVisible, keepLink, newStore, readLink } from "./store.js";
import { HeadTable } from "./table.js";
import { TextView } from "./text.js";
import { SaveButton, StepSlider, Toolbar } from "./toolbar.js";
import { TrustView } from "./trust.js";
import { languageOf } from "./words.js";

const POLL = 10_000; // milliseconds between two looks at the runs
const GLANCE = 500; // and at whether anybody looks

const KEYS = [
  ["Arrows", "choose a head in the grid; move along the text; move query and key in the map"],
  ["Enter, Esc", "lock and unlock"],
  ["Home, End", "first and last token of the text"],
];
const STEP_KEYS = [[", and .", "one step back and forward"]];

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
  const own = KEYS.filter(([key]) => !others.some(([other]) => other === key));
  const keys = [...(page ? [] : STEP_KEYS), ...others, ...own];
  const help = keys.flatMap(([key, words]) => [element("dt", {}, key), element("dd", {}, words)]);
  const summary = element("summary", {}, "Keys");
  const folded = element("details", "help", summary, element("dl", {}, ...help));
  const command = element("code");
  const any = element("p", "any", "A page of any other text, with every head: ", command);
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

/* Put the views into the page. Where they stand depends on what is compared. A page in which the
   network runs has its box above the words. */
export function layOut(store, { top = null, tools = [], keys = [] } = {}) {
  document.documentElement.lang = "en";
  document.title = page?.title ?? "Heads";
  document.body.classList.toggle("page", page !== null);
  const toolbar = new Toolbar(store);
  const slider = new StepSlider(store);
  toolbar.root.firstChild.append(...tools);
  toolbar.root.append(slider.root);
  const grids = ["main", "other"].map((side) => {
    const grid = new Grid(store, side);
    const folded = fold("All heads as small maps", grid.root);
    folded.addEventListener("toggle", () => {
      for (const each of grids) each.open = folded.open;
      grid.draw(true); // sizes are measured
    });
    return folded;
  });
  const heads = ["main", "other"].map((side) => {
    const head = new HeadView(store, side);
    const folded = fold("Where the chosen head looks", head.root);
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
    fold("Numbers of every head", new HeadTable(store).root),
    fold("Checks and notes", new TrustView(store).root),
  );
  const above = [toolbar.root, toolbar.whole];
  const main = element("main", {}, ...views, ...heads, ...grids, folds);
  document.body.replaceChildren(...above, main, footer(store, keys));
  const arrange = () => {
    const hasOther = isBeside(store);
    main.dataset.view = hasOther ? "beside" : "one";
    for (const other of [grids[1], heads[1]]) other.hidden = !hasOther;
  };
  store.subscribe(["compare", "other"], arrange);
  arrange();
  const ofText = ".axis, .readout, .ledger, .cells-table, .choose-text, .facts bdi";
  store.subscribe(["index", "text"], () => {
    const lang = languageOf(store.shownText?.text ?? "");
    for (const node of document.querySelectorAll(ofText)) node.lang = lang;
  });
  store.subscribe(["maps"], () => {
    const { maps } = store; // without contributions, maps are what there is to see
    if (maps === null || maps.values("contributions/heads") !== null) return;
    for (const folded of [heads[0], grids[0]]) folded.open = true;
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
  followTheme(store);
  await loadStyle(); // sizes are measured
  const loader = new Loader(store);
  const slider = layOut(store);
  if (page) {
    loader.openPage(page);
    return;
  }
  const follow = (link) => loader.open({ ...link, run: link.run ?? store.run });
  keepLink(store, follow);
  slider.root.append(...new SaveButton(store).nodes);
  await loader.refresh(readLink());
  poll(loader);
}
