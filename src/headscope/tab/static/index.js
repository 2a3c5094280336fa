/* The tab of TensorBoard, which calls `render` in an empty frame; and the page without a server. */

import { page } from "./api.js";
import { mount } from "./app.js";
import { followTheme, isVisible, keepLink, readLink } from "./host.js";
import { Loader } from "./loader.js";
import { newStore } from "./store.js";
import { moveStep } from "./steps.js";

const POLL = 10_000; // milliseconds between two looks at the runs

/* The style sheet of the tab, once it is there or cannot be; a page has its own. */
async function loadStyle() {
  if (page) return;
  const sheet = document.createElement("link");
  Object.assign(sheet, { rel: "stylesheet", href: new URL("heads.css", import.meta.url).href });
  const viewport = document.createElement("meta");
  Object.assign(viewport, { name: "viewport", content: "width=device-width, initial-scale=1" });
  document.head.append(viewport, sheet);
  await new Promise((resolve) => Object.assign(sheet, { onload: resolve, onerror: resolve }));
}

/* Ask for new runs and steps while somebody looks. */
function poll(loader) {
  const look = () => isVisible() && loader.refresh(readLink());
  setInterval(look, POLL);
  document.addEventListener("visibilitychange", look);
}

export async function render() {
  const store = newStore();
  followTheme();
  await loadStyle(); // sizes are measured
  const loader = new Loader(store);
  mount(store);
  if (page) {
    loader.openPage(page);
    return;
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input[type=number], select, textarea")) return;
    const by = { ",": -1, ".": 1 }[event.key];
    if (by) moveStep(store, by);
  });
  keepLink(store, (link) => loader.open({ ...link, run: link.run ?? store.run }));
  await loader.refresh(readLink());
  poll(loader);
}
