/* The page in which the network runs: whoever types sees what decides. The views are those of the
   Heads tab; what a server gives them there, the network gives them here. */

import { page } from "./api.js";
import { mount, show } from "./app.js";
import { Box, BoxTools } from "./box.js";
import { Classifier, filled } from "./classifier.js";
import { contributionsOf } from "./contributions.js";
import { followTheme, keepLink, readLink } from "./host.js";
import { Loader, hold } from "./loader.js";
import { Mind, changeMind, mindOf } from "./mind.js";
import { pairOf, shownPair } from "./pair.js";
import { html } from "./preact.js";
import { Report, givenLabels } from "./report.js";
import { newStore } from "./store.js";
import { t } from "./strings.js";
import { told } from "./told.js";
import { JOIN } from "./tokenizer.js";
import { Reader } from "./worker.js";
import { wordsOf } from "./words.js";

const REST = 250; // milliseconds at rest: then cells are computed, and a head is tried off
const ROWS = 10; // heads that are shown before all are asked for
const AT_ONCE = 12; // heads whose cells are asked for together
const SLICE = 8; // milliseconds of work, after which the browser may take a key
const KEYS = [
  ["/", t`to the text box; Esc leaves it`],
  ["a", t`all heads on`],
  ["k", t`compare the next texts with this one`],
];

const { port1, port2 } = new MessageChannel();
const waiting = [];
port1.onmessage = () => waiting.shift()();

/* Let the browser take what waits: keys, clicks, painting. */
function pause() {
  return new Promise((resolve) => {
    waiting.push(resolve);
    port2.postMessage(null);
  });
}

/* Reads texts, and puts what comes of them into the store. */
class Live {
  constructor(store) {
    Object.assign(this, { store, classifier: null, parts: [], turn: 0, whole: null });
    this.words = new Set(); // of the text whose classes are held
    const examples = page.live.examples.map(({ parts, label }) => [parts.join(JOIN), label]);
    this.labels = new Map([...(page.report ? givenLabels(page.report) : []), ...examples]);
    store.subscribe(["pair"], () => (this.words = this.wordsRead()));
    store.subscribe(["ablated"], () => this.parts.length > 0 && this.read());
    store.subscribe(["maps", "pair", "isAllAsked"], () => this.fill());
  }

  /* Read a text with the heads that are ablated now. A later call overtakes this one. */
  async read(parts = this.parts) {
    if (this.classifier === null) return;
    const { store } = this;
    const { ablated } = store;
    this.parts = parts;
    this.turn += 1;
    const since = performance.now();
    const key = JSON.stringify(parts);
    try {
      if (this.whole?.key !== key) {
        const result = await this.compute(parts, new Map());
        if (result === null) return;
        this.whole = { key, result };
      }
      let { result } = this.whole;
      if (ablated.size > 0) result = await this.compute(parts, ablated);
      if (result !== null) this.show(result, since);
    } catch (error) {
      store.setErrors({ box: t`This text cannot be read: ${error.message}` });
    }
  }

  /* The different words of the text that is read. */
  wordsRead() {
    return new Set(wordsOf(this.parts.join(JOIN).toLowerCase()).map(({ segment }) => segment));
  }

  /* Whether this is another text than that whose classes are held: the two share fewer than half
     of the words of the longer one. Texts that are compared have the same classes. */
  isAnother() {
    const words = this.wordsRead();
    const shared = [...words].filter((word) => this.words.has(word)).length;
    return this.store.kept === null && 2 * shared < Math.max(words.size, this.words.size);
  }

  /* Another text altogether, whose classes are its own; or of the same classes. */
  open(parts, pair = null) {
    this.parts = parts;
    this.store.set({ pair: pair && [...pair], typed: parts, isChoice: true });
    return this.read(parts);
  }

  /* What the classifier gives of a text under the heads that are ablated now, by a Worker; where there
     is none by the page, and null where its reader has gone on. */
  async ask(name, parts, ablated, ...given) {
    const { classifier } = this;
    this.reader ??= new Reader(classifier);
    const found = await this.reader.ask(name, parts, ablated, ...given);
    return found ?? this.work(classifier[name](parts, ablated, ...given));
  }

  logOdds(text, ablated = this.store.ablated) {
    const parts = this.parts.length > 1 ? text.split(JOIN) : [text];
    return this.ask("logOdds", parts, ablated);
  }

  /* Each class's probability with one more head off, once no key came for a while. */
  async without(layer, head) {
    const { store } = this;
    const { maps, ablated } = store;
    const place = `${layer},${head}`;
    const isHere = () => store.maps === maps && store.layer === layer && store.head === head;
    await new Promise((resolve) => setTimeout(resolve, REST));
    const known = store.without?.of === maps ? store.without.heads : new Map();
    if (!isHere() || known.has(place) || ablated.has(place) || !this.classifier) return;
    const logOdds = await this.logOdds(this.parts.join(JOIN), new Map(ablated).set(place, "zero"));
    if (logOdds === null || !isHere()) return;
    const odds = logOdds.map((each) => Math.exp(each - Math.max(...logOdds)));
    const all = odds.reduce((sum, each) => sum + each, 0);
    const shares = odds.map((each) => each / all);
    const ofLabels = logOdds.map((each) => 1 / (1 + Math.exp(-each)));
    const own = maps.values("given") === null ? shares : ofLabels;
    store.set({ without: { of: maps, heads: new Map(known).set(place, own) } });
  }

  /* Compute cells that are not known: of the heads in sight once no key came for a while, or of all
     where the reader asks for them. */
  async fill() {
    const { store } = this;
    const { maps, isAllAsked } = store;
    const pair = shownPair(store);
    const isHere = () => store.maps === maps && shownPair(store)?.join() === pair?.join();
    const missing = () => {
      const heads = contributionsOf(store)?.heads ?? [];
      const sought = isAllAsked ? heads : heads.slice(0, ROWS);
      return sought.filter((own) => !contributionsOf(store).knows(own));
    };
    if (!this.classifier || pair === null || missing().length === 0) return;
    if (!isAllAsked) await new Promise((resolve) => setTimeout(resolve, REST));
    if (!isHere() || isAllAsked !== store.isAllAsked) return;
    const { heads } = this.classifier.network;
    const asked = missing().slice(0, AT_ONCE).map(({ layer, head }) => layer * heads + head);
    const since = performance.now();
    const cells = await this.ask("cells", this.parts, store.ablated, pair, asked);
    if (cells === null || !isHere()) return;
    const pace = (performance.now() - since) / 1000 / asked.length;
    this.result.maps = filled(maps, pair, cells);
    store.set({ maps: this.result.maps, pace });
  }

  /* Remove words of the text that is read. */
  changeMind(isAsked = false) {
    return changeMind(this.store, (own) => this.logOdds(own), isAsked);
  }

  compute(parts, ablations) {
    const { store } = this;
    const { index } = page;
    const choose = (own) => pairOf({ own, pair: this.isAnother() ? null : store.pair, index });
    return this.work(this.classifier.steps(parts, { ablations, choose }));
  }

  /* Work in slices, so that no key waits; null where a newer text came. */
  async work(steps) {
    const { turn } = this;
    let since = performance.now();
    for (let step = steps.next(); ; step = steps.next()) {
      if (step.done) return step.value;
      if (performance.now() - since < SLICE) continue;
      await pause();
      if (turn !== this.turn) return null;
      since = performance.now();
    }
  }

  /* Put a text and what comes of it into the store, at once. */
  show({ maps, text: read, probabilities, logits }, since) {
    const { store, parts } = this;
    const label = this.labels.get(parts.join(JOIN)) ?? null;
    const text = { ...read, label, notes: {} };
    const isSame = JSON.stringify(store.shownText) === JSON.stringify(text);
    const ofText = { index: { ...page.index, texts: [text] }, lit: null, query: 0, key: null };
    ofText.pair = this.isAnother() ? null : store.pair;
    const logOdds = Array.from(logits, (logit) => logit / page.network.temperature);
    const own = isSame ? store.shownText : text;
    this.result = { parts, text: own, maps, probabilities, logOdds };
    store.set({
      ...(isSame ? {} : ofText), ...this.compared(store.kept), maps, mind: mindOf(this.result),
      seconds: (performance.now() - since) / 1000, errors: { ...store.errors, box: null },
    });
    hold(store);
    this.changeMind();
  }

  /* What the text is held against: one that is kept, else itself with all heads. */
  compared(kept) {
    const name = kept ? t`the other text` : t`all heads`;
    const { probabilities } = kept ?? this.whole?.result ?? {};
    const isHeld = kept || this.store.ablated.size > 0;
    const other = kept && { ...kept, name, index: page.index };
    return { other, reference: isHeld && probabilities ? { name, probabilities } : null };
  }

  keep(kept) {
    const compare = kept && { run: "", step: 0, text: null };
    this.store.set({ kept, ...this.compared(kept), compare, isChoice: true });
  }

  /* Show what an address says; what the run does not have is left out. */
  async follow({ parts, kept, ablated, pair, unit, layer, head, query, ...shown }) {
    const { store } = this;
    const { heads, classes } = page.index;
    const isHead = ([own, at]) => at < (heads[own] ?? 0);
    if (kept) {
      await this.read(kept);
      this.keep(this.result);
    }
    const known = [...ablated].filter(([place]) => isHead(place.split(",").map(Number)));
    const chosen = pair?.every((place) => place < classes.length) ? pair : null;
    const typed = store.typed.map((_, at) => (parts ?? page.live.parts)[at] ?? "");
    this.parts = typed; // whose classes these are
    store.set({ ablated: new Map(known), pair: chosen, chosen, typed, unit });
    await this.read(typed);
    store.set({ query: Math.min(query ?? 0, store.tokens.length - 1) });
    const { isUnfolded, mode = store.mode } = shown;
    const isKnown = layer !== null && head !== null && isHead([layer, head]);
    store.set({ isUnfolded, mode, ...(isKnown && { layer, head, headChosen: true }) });
  }
}

export async function render() {
  followTheme();
  if (!page.network) {
    renderReport();
    return;
  }
  const store = newStore();
  store.learned = page.report?.words ?? null;
  const { pair, examples } = page.live;
  const typed = pair ? ["", ""] : [""];
  store.set({ kept: null, mind: null, seconds: null, typed, canSwitch: true, shown: 0 });
  const numbers = { ...page.numbers, step: 0 };
  store.set({ run: "", runs: [{ run: "" }], index: { ...page.index, texts: [] }, numbers });
  const live = new Live(store);
  const openText = (parts) => {
    live.open(parts);
    document.querySelector(".panel.text").scrollIntoView({ block: "start" });
  };
  const report = page.report && html`<${Report} open=${openText} />`; // drawn once
  mount(store, {
    box: () => html`<${Box} store=${store} live=${live} weights=${page.live} />`,
    tools: () => html`<${BoxTools} store=${store} live=${live} examples=${examples} />`,
    without: (layer, head) => live.without(layer, head),
    mind: () => html`<${Mind}
      store=${store} open=${(text) => live.open(pair ? text.split(JOIN) : [text], store.pair)}
      ask=${() => live.changeMind(true)}
    />`,
    report: page.report && (() => report),
    keys: KEYS,
  });
  await pause(); // the box is there before the network is unpacked
  try {
    live.classifier = await Classifier.open(page.network);
  } catch (error) {
    store.setErrors({ box: t`The network cannot run here: ${error.message}` });
    store.set({ canSwitch: false });
    if (page.texts.length > 0) new Loader(store).openPage(page);
    return;
  }
  listen(store, live);
  await live.follow(readLink());
  keepLink(store, (link) => live.follow(link));
}

/* The report of a run whose network does not run here. */
function renderReport() {
  const why = told(page.report.without);
  const words = t`The network does not run in this page: ${why}`;
  show(() => html`
    <header class="toolbar">
      <h1 dir="auto">${told(page.title)}</h1><p class="notes">${words}</p>
    </header>
    <main><${Report} open=${null} /></main>`);
}

function listen(store, live) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest?.("textarea, input, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/") document.querySelector("textarea").select();
    else if (event.key === "a") store.set({ ablated: new Map(), isChoice: true });
    else if (event.key === "k") live.keep(store.kept === null ? live.result : null);
    else return;
    event.preventDefault();
  });
}
