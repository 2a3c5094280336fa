/* The page in which the network runs: whoever types sees every head decide. The views are those of
   the Heads tab; what a server gives them there, the network gives them here. */

import { page } from "./api.js";
import { TextBox } from "./box.js";
import { Classifier } from "./classifier.js";
import { showError } from "./dom.js";
import { layOut } from "./index.js";
import { KeptText } from "./kept.js";
import { linkOf, readLink } from "./link.js";
import { Loader, chooseHead } from "./loader.js";
import { Maps } from "./maps.js";
import { followTheme, newStore } from "./store.js";
import { HeadSwitches } from "./switches.js";

const SLICE = 8; // milliseconds of work, after which the browser may take a key
const KEYS = [
  ["/", "to the text box; Esc leaves it"],
  ["o", "the chosen head: zero, average, on"],
  ["a", "all heads on"],
  ["k", "keep this text beside the next"],
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
    if (ablated.size > 0) await this.compute(parts, ablated, true);
    else if (hasWhole) this.show(this.whole.result);
  }

  /* Work in slices, so that no key waits; null where a newer text is there. */
  async compute(parts, ablations, isShown) {
    const { turn } = this;
    const labels = [this.store.label].filter((label) => label !== null);
    const steps = this.classifier.steps(parts, { ablations, labels });
    let since = performance.now();
    for (let step = steps.next(); ; step = steps.next()) {
      if (step.value && isShown) this.show(step.value);
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
    const known = Array.from(maps.values("contributions/classes") ?? []);
    const changes = { index, maps, shown: 0, numbers: this.numbers, bestNumbers: this.numbers };
    if (!known.includes(store.label)) changes.label = null;
    if (!isSame) Object.assign(changes, { word: null, lock: null, query: 0, key: null });
    this.result = { ...result, parts, text, maps };
    this.seconds ??= (performance.now() - this.since) / 1000;
    store.set({ ...changes, ...this.compared(store.kept), text: 0 });
    chooseHead(store);
    this.onShow();
  }

  /* What the text is held against: one that is kept, else itself with all heads. */
  compared(kept) {
    const { store } = this;
    if (kept !== null) {
      const reference = { name: "the kept text", probabilities: kept.probabilities };
      return { other: kept.beside(this.result), reference };
    }
    if (store.ablated.size === 0) return { other: null, reference: null };
    const { probabilities } = this.whole.result;
    return { other: null, reference: { name: "all heads", probabilities } };
  }
}

export async function render() {
  const store = newStore();
  store.set({ kept: null, run: "", loadedRun: "", runs: [{ run: "" }] });
  followTheme(store);
  const box = new TextBox(store, page.live);
  const switches = new HeadSwitches(store, page);
  layOut(store, { top: box.root, middle: [switches.root], keys: KEYS });
  await pause(); // the box is there before the network is unpacked
  let live;
  try {
    live = new Live(store, await Classifier.open(page.network));
  } catch (error) {
    showError(box.error, `The network cannot run here: ${error.message}`);
    if (page.texts.length > 0) new Loader(store).openPage(page);
    return;
  }
  live.onShow = () => box.showCount(live);
  const read = (parts) => live.read(parts).catch((error) => {
    showError(box.error, `This text cannot be read: ${error.message}`);
  });
  const keep = (kept) => {
    store.set({
      kept,
      ...live.compared(kept),
      compare: kept && { run: "", step: 0, view: "beside", text: null },
    });
  };
  box.onText = read;
  box.onKeep = () => keep(live.result ? new KeptText(live.result) : null);
  box.onDrop = () => keep(null);
  box.linkTo = () => linkOf(store, live.parts);
  store.subscribe(["ablated"], () => live.parts.length > 0 && read(live.parts));
  const open = async (link) => {
    if (link.kept !== null) {
      await read(link.kept);
      keep(new KeptText(live.result));
    }
    store.set({ ablated: link.ablated, label: link.label });
    box.fill(link.parts ?? page.live.parts);
    await read(box.parts);
    store.set(link.chosen);
    if (store.compare !== null) store.set({ compare: { ...store.compare, view: link.as } });
  };
  listen(box, switches, store, keep);
  window.addEventListener("hashchange", () => open(readLink(page.index)));
  await open(readLink(page.index));
}

function listen(box, switches, store, keep) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest?.("textarea, input, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/") box.focus();
    else if (event.key === "o") switches.turn(store.layer, store.head);
    else if (event.key === "a") switches.reset();
    else if (event.key === "k") store.kept === null ? box.onKeep() : keep(null);
    else return;
    event.preventDefault();
  });
}
