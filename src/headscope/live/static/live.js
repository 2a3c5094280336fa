/* The page in which the network runs: whoever types sees what decides. The views are those of the
   Heads tab; what a server gives them there, the network gives them here. */

import { page } from "./api.js";
import { TextBox } from "./box.js";
import { Classifier, JOIN } from "./classifier.js";
import { element, showError } from "./dom.js";
import { layOut } from "./index.js";
import { linkOf, readLink } from "./link.js";
import { Loader, hold } from "./loader.js";
import { Maps } from "./maps.js";
import { MindView } from "./mind.js";
import { reportViews } from "./report.js";
import { followTheme, newStore } from "./store.js";
import { t } from "./strings.js";

const SLICE = 8; // milliseconds of work, after which the browser may take a key
const NEXT = { zero: "uniform", uniform: "on" }; // a head that is on is switched off first
const KEYS = [
  ["/", t`to the text box; Esc leaves it`],
  ["o", t`the chosen head: off, average, on`],
  ["a", t`all heads on`],
  ["k", t`compare the next texts with this one`],
];

/* Let the browser take what waits: keys, clicks, painting. */
function pause() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

/* Reads texts, and puts what comes of them into the store. */
class Live {
  constructor(store, classifier) {
    Object.assign(this, { store, classifier, parts: [], turn: 0, whole: null });
    this.numbers = { ...page.numbers, step: 0 };
  }

  /* Read a text with the heads that are ablated now. A later call overtakes this one. */
  async read(parts = this.parts) {
    this.parts = parts;
    this.turn += 1;
    this.since = performance.now();
    this.seconds = null;
    const { ablated } = this.store;
    const key = JSON.stringify(parts);
    const hasWhole = this.whole?.key === key;
    if (!hasWhole) {
      const result = await this.compute(parts, new Map(), ablated.size === 0);
      if (result === null) return;
      this.whole = { key, result };
    }
    if (ablated.size > 0) {
      if ((await this.compute(parts, ablated, true)) === null) return;
    } else if (hasWhole) this.show(this.whole.result);
    this.onRead();
  }

  /* The log-odds of another text under the heads that are ablated now, in slices. */
  logOdds(text) {
    return this.work(this.classifier.logOdds(text.split(JOIN), this.store.ablated), () => null);
  }

  /* Work in slices, so that no key waits, and show each answer; null where a newer text came. */
  async compute(parts, ablations, isShown) {
    const steps = this.classifier.steps(parts, { ablations, labels: this.store.pair ?? [] });
    return this.work(steps, (result) => isShown && this.show(result));
  }

  async work(steps, show) {
    const { turn } = this;
    let since = performance.now();
    for (let step = steps.next(); ; step = steps.next()) {
      if (step.value) show(step.value);
      if (step.done) return step.value;
      if (performance.now() - since < SLICE) continue;
      await pause();
      if (turn !== this.turn) return null;
      since = performance.now();
    }
  }

  show(result) {
    const { store, parts } = this;
    const maps = new Maps(result.arrays);
    const isPart = (example) => JSON.stringify(example.parts) === JSON.stringify(parts);
    const label = page.live.examples.find(isPart)?.label ?? null;
    let text = { ...result.text, label, notes: {} };
    const before = store.shownText;
    const isSame = JSON.stringify(before) === JSON.stringify(text);
    if (isSame) text = before; // its words stay as they are, and what is chosen among them
    const index = isSame ? store.index : { ...page.index, texts: [text] };
    const changes = { index, maps, shown: 0, numbers: this.numbers, bestNumbers: this.numbers };
    if (!isSame) Object.assign(changes, { word: null, lit: null, lock: null, query: 0, key: null });
    const { probabilities } = result;
    const logOdds = Array.from(result.logits, (logit) => logit / page.network.temperature);
    this.result = { parts, text, maps, probabilities, logOdds };
    this.seconds ??= (performance.now() - this.since) / 1000;
    store.set({ ...changes, ...this.compared(store.kept), text: 0 });
    hold(store);
    this.onShow();
  }

  /* What the text is held against: one that is kept, else itself with all heads. */
  compared(kept) {
    if (kept !== null) {
      const { text, maps, probabilities } = kept;
      const index = { layers: page.index.layers };
      const name = t`the other text`;
      return {
        other: { run: name, step: 0, index, text, maps }, reference: { name, probabilities },
      };
    }
    if (this.store.ablated.size === 0 || this.whole === null) {
      return { other: null, reference: null };
    }
    const { probabilities } = this.whole.result;
    return { other: null, reference: { name: t`all heads`, probabilities } };
  }

  keep(kept) {
    const compare = kept && { run: "", step: 0, text: null };
    this.store.set({ kept, ...this.compared(kept), compare });
  }
}

export async function render() {
  const store = newStore();
  store.set({ kept: null, run: "", loadedRun: "", runs: [{ run: "" }], canSwitch: true });
  followTheme();
  if (!page.network) {
    renderReport();
    return;
  }
  const box = new TextBox(store, page.live);
  const mind = new MindView(store);
  layOut(store, { top: box.root, tools: [box.tools], keys: KEYS });
  document.querySelector("main > .answer").after(mind.root);
  if (page.report) document.querySelector("main > .folds").before(...reportViews((text) => {
    box.open(text.split(JOIN));
    window.scrollTo({ top: 0 });
  }));
  await pause(); // the box is there before the network is unpacked
  let live;
  try {
    live = new Live(store, await Classifier.open(page.network));
  } catch (error) {
    showError(box.error, t`The network cannot run here: ${error.message}`);
    store.set({ canSwitch: false });
    if (page.texts.length > 0) new Loader(store).openPage(page);
    return;
  }
  live.onShow = () => box.showCount(live);
  live.onRead = () => {
    const { text, logOdds } = live.result;
    mind.show(text, logOdds, (other) => live.logOdds(other));
  };
  mind.onOpen = (text) => box.open(text.split(JOIN), store.pair);
  const read = (parts) => live.read(parts).catch((error) => {
    showError(box.error, t`This text cannot be read: ${error.message}`);
  });
  box.onText = read;
  box.onKeep = () => live.keep(live.result ?? null);
  box.onDrop = () => live.keep(null);
  box.linkTo = () => linkOf(store, live.parts);
  store.subscribe(["ablated"], () => live.parts.length > 0 && read(live.parts));
  const open = async (link) => {
    if (link.kept !== null) {
      await read(link.kept);
      live.keep(live.result);
    }
    store.set({ ablated: link.ablated, pair: link.pair });
    box.fill(link.parts ?? page.live.parts);
    await read(box.parts);
    store.set(link.chosen);
  };
  listen(box, store, live);
  await open(readLink(page.index));
  keepLink(store, box, () => open(readLink(page.index)));
}

/* The report of a run whose network does not run here. */
function renderReport() {
  document.body.classList.add("page");
  const title = element("div", "line", element("h1", { dir: "auto" }, page.title));
  const words = t`The network does not run in this page: ${page.report.without}`;
  const why = element("p", "notes", words);
  const header = element("header", "toolbar", title, why);
  document.body.replaceChildren(header, element("main", {}, ...reportViews(null)));
}

/* The address is a link to what is shown, so that a reload shows it again. Typing changes it; a
   text that is opened, classes that are chosen and heads that are ablated make an entry in the
   history, to which the browser goes back. */
function keepLink(store, box, open) {
  if (location.protocol === "about:") return;
  let timer = null;
  let isChoice = false;
  let written = location.hash;
  let pair = store.pair?.join();
  const write = () => {
    const link = box.linkTo();
    if (link === null || new URL(link).hash === location.hash) return;
    history[isChoice ? "pushState" : "replaceState"](null, "", link);
    written = location.hash;
    isChoice = false;
  };
  box.onOpen = () => (isChoice = true);
  store.subscribe(["ablated"], () => (isChoice = true));
  store.subscribe(["pair"], () => {
    const now = store.pair?.join();
    if (now && pair && now !== pair) isChoice = true;
    pair = now;
  });
  const linked = ["maps", "pair", "layer", "head", "compare", "unit", "view"];
  store.subscribe(linked, () => {
    clearTimeout(timer);
    timer = setTimeout(write, 300);
  });
  window.addEventListener("hashchange", async () => {
    if (location.hash === written) return;
    written = location.hash;
    await open();
    isChoice = false;
  });
}

function listen(box, store, live) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest?.("textarea, input, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const { layer, head, ablated, kept } = store;
    if (event.key === "/") box.focus();
    else if (event.key === "o") {
      store.switchHead(layer, head, NEXT[ablated.get(`${layer},${head}`)] ?? "zero");
    } else if (event.key === "a") store.set({ ablated: new Map() });
    else if (event.key === "k") live.keep(kept === null ? live.result : null);
    else return;
    event.preventDefault();
  });
}
