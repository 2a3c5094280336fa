/* The "Heads" tab of TensorBoard: every attention head of a run, at every step that was kept. TensorBoard imports this
   module into an empty frame and calls `render`. */

import { ExamplesView } from "./examples.js";
import { ExportMenu } from "./export.js";
import { Grid } from "./grid.js";
import { HeadView } from "./head.js";
import { layOut } from "./layout.js";
import { keepLink, readLink } from "./link.js";
import { Loader } from "./loader.js";
import { RunsTable } from "./runs.js";
import { StepSlider } from "./slider.js";
import { newStore } from "./store.js";
import { HeadTable } from "./table.js";
import { TextView } from "./text.js";
import { followTheme, isVisible } from "./theme.js";
import { Toolbar } from "./toolbar.js";
import { TrustView } from "./trust.js";

const [POLL, GLANCE] = [10_000, 500]; // milliseconds between two looks at the runs, and at whether anybody looks

/* Where the parts of the page stand depends on what is compared. */
function arrange(store, main, sections, command) {
  const show = () => {
    const beside = store.compare?.view === "beside";
    main.dataset.view = beside ? "beside" : "one";
    sections["other-grid"].hidden = sections["other-head"].hidden = !beside;
    const folder = `${store.logdir.replace(/\/$/, "")}/${store.run}`.replace(/\/\.$/, "");
    const named = store.logdir && store.run && /^[\w./@+-]+$/.test(folder) ? folder : "<run>";
    command.textContent = `python scripts/inspect.py run=${named} text="..."`;
  };
  store.subscribe(["compare", "run", "logdir"], show);
  show();
}

function listenToKeys(store, slider) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") store.release();
    if (event.target.closest?.("input[type=number], select")) return;
    if (event.key === ",") slider.move(-1);
    else if (event.key === ".") slider.move(1);
    else if (event.key === "p") slider.toggle();
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
  const linkNow = keepLink(store, isVisible, (link) => loader.open({ ...link, run: link.run ?? store.run }));
  new Grid(sections.grid, store, "main");
  new Grid(sections["other-grid"], store, "other");
  new HeadView(sections.head, store, "main");
  new HeadView(sections["other-head"], store, "other");
  new TextView(sections.text, store);
  new TrustView(sections.trust, store, slider.state);
  new HeadTable(sections.table, store);
  new ExamplesView(sections.examples, store);
  new RunsTable(sections.runs, store);
  new ExportMenu(slider.line, store, linkNow);
  listenToKeys(store, slider);
  await loader.refresh(readLink());
  poll(loader);
}
