/* What the reader chose and what was fetched, and the link that opens the same view. */

import { page } from "./api.js";
import { t } from "./strings.js";

/* Choices that a link keeps, and the values that they may have; the first is the default. */
export const LINKED = {
  view: ["row", "map"], // of the large map
  unit: ["word", "token"], // that contributions are summed over
};

/* What may be put in place of a head's map or output, as it is called. */
export const ABLATIONS = { zero: t`zero`, uniform: t`average` };

class Store {
  constructor(values) {
    Object.assign(this, values);
    this.listeners = [];
  }

  subscribe(names, listener) {
    this.listeners.push([new Set(names), listener]);
  }

  /* Change values; each listener of one that really changed is told once. Where one fails, the
     others are told all the same: none goes on showing what was there before. */
  set(changes) {
    const changed = Object.keys(changes).filter((name) => !Object.is(this[name], changes[name]));
    for (const name of changed) this[name] = changes[name];
    const failures = [];
    for (const [names, listener] of this.listeners) {
      try {
        if (changed.some((name) => names.has(name))) listener();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  /* The chosen text as the index has it, or null. */
  get shownText() {
    return this.index?.texts[this.text] ?? null;
  }

  get tokens() {
    return this.shownText?.tokens ?? [];
  }

  /* Of a pair, which text each token is of (pairs.js); null for a single text. */
  get segments() {
    return this.shownText?.segments ?? null;
  }

  /* Places of the tokens that are no words, such as [CLS]. */
  get special() {
    return this.shownText?.special ?? [];
  }

  /* The place that the classifier reads its answer from; null if there is none. */
  get readout() {
    return this.shownText?.readout ?? null;
  }

  /* A head as people call it, and how it is ablated. */
  headName(layer, head) {
    const name = headName(this.index.layers, layer, head);
    const change = ABLATIONS[this.ablated.get(`${layer},${head}`)];
    return change === undefined ? name : `${name} (${change})`;
  }

  /* Whether the run is a folder that headscope's commands take. */
  get isTrained() {
    return this.runs.find(({ run }) => run === this.run)?.trained ?? false;
  }

  get steps() {
    return this.index?.steps ?? [];
  }

  /* The place of the chosen step among those that are kept, or of the nearest. */
  get place() {
    return nearest(this.steps, this.step);
  }

  layerName(layer) {
    return nameOf(this.index?.layers ?? [], layer);
  }

  setError(name, message) {
    if ((this.errors[name] ?? null) === message) return;
    this.set({ errors: { ...this.errors, [name]: message } });
  }

  chooseHead(layer, head) {
    this.set({ layer, head, headChosen: true });
  }

  /* Put a head on, or in place of its map or output an ablation. */
  switchHead(layer, head, state) {
    const ablated = new Map(this.ablated);
    if (state === "on") ablated.delete(`${layer},${head}`);
    else ablated.set(`${layer},${head}`, state);
    this.set({ ablated, layer, head, headChosen: true });
  }

  chooseStep(step) {
    this.set({ step, stepChosen: true, follow: step === this.steps.at(-1)?.step });
  }

  /* The pointer or the focus is on a cell: a locked query stays, and the column gives the key. */
  pointCell(query, key) {
    const changes = { query: this.lock ? this.lock.query : query, key, lit: key };
    this.set({ ...changes, by: "query", pointing: true });
  }

  /* On a word anywhere: it is lit in every view, and the map shows it as a key of the readout, or
     as a query. */
  pointWord(token) {
    if (this.lock || this.readout === null) this.pointToken(token);
    else this.pointCell(this.readout, token);
    this.set({ lit: token });
  }

  /* On a token: it becomes the query, or the key of a locked query. */
  pointToken(token) {
    if (this.lock) this.set({ key: token, by: "query", pointing: true });
    else this.pointQuery(token);
  }

  /* On a query of the map's axis: a locked one stays. */
  pointQuery(token) {
    if (!this.lock) this.set({ query: token, key: null, by: "query", pointing: true });
  }

  /* On a key of the map's axis: who attends to it is shown. */
  pointKey(token) {
    this.set({ key: token, by: "key", pointing: true });
  }

  /* The pointer is gone: the query stays, the key goes back to the locked one. */
  leave() {
    this.set({ key: this.lock ? this.lock.key : null, by: "query", pointing: false, lit: null });
  }

  /* Lock this query and key, or unlock where they are locked already. */
  toggle(query, key) {
    const isLocked = this.lock !== null && this.lock.query === query && this.lock.key === key;
    this.set({ lock: isLocked ? null : { query, key }, query, key, by: "query" });
  }

  release() {
    this.set({ lock: null, key: null, by: "query", pointing: false });
  }
}

const CHOSEN = {
  run: null, text: 0, step: null, follow: true, stepChosen: false, layer: 0, head: 0,
  headChosen: false, query: 0, key: null, by: "query", lock: null, pointing: false,
  compare: null, wanted: null,
  pair: null, // the classes that are held against each other, by their places: [asked, against]
  word: null, // the token of a word that has its column in the matrix in any case
  lit: null, // the token of the word that is pointed at
  canSwitch: false, // whether the network runs here, with heads on or off
  ablated: new Map(), // "layer,head" -> an ablation; of a page in which the network runs
};
const FETCHED = {
  runs: [], logdir: "", index: null, maps: null, shown: null, numbers: null,
  bestNumbers: null, other: null, errors: {},
  reference: null, // {name, probabilities} that those of the shown text are held against
};

export function newStore() {
  const linked = Object.entries(LINKED).map(([name, values]) => [name, values[0]]);
  return new Store({ ...CHOSEN, ...FETCHED, ...Object.fromEntries(linked), page: page !== null });
}

/* The names of layers as they are shown: of a foreign model's modules, the number of each. */
export function layerNames(layers) {
  const parts = layers.map((name) => name.split("."));
  if (parts.some((own) => own.length < 3)) return layers;
  const numbers = parts.map((own) => own.filter((part) => /^\d+$/.test(part)).join("."));
  const areApart = new Set(numbers).size === layers.length && !numbers.includes("");
  return areApart ? numbers.map((number) => `layer ${number}`) : layers;
}

/* Layer 0 of a model of ours is called so in its language. */
function nameOf(layers, layer) {
  const name = layerNames(layers)[layer] ?? `layer ${layer}`;
  return name === `layer ${layer}` ? t`layer ${layer}` : name;
}

/* A head as people call it: without its layer where there is one layer. */
export function headName(layers, layer, head) {
  return layers.length === 1 ? t`head ${head}` : t`${nameOf(layers, layer)} head ${head}`;
}

/* The place of the step that is nearest to `step`, or of the last one. */
export function nearest(steps, step) {
  const last = steps.length - 1;
  if (step === null) return last;
  const distance = (place) => Math.abs(steps[place].step - step);
  let best = last;
  for (let place = last; place >= 0; place -= 1) {
    if (distance(place) < distance(best)) best = place;
  }
  return best;
}

/* The window whose address a reader sees and copies. */
function outer() {
  try {
    return window.parent.location.href ? window.parent : window;
  } catch {
    return window; // TensorBoard's page is of another origin
  }
}

/* Dark or light as TensorBoard is; elsewhere as the system is. */
export function followTheme() {
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  const host = page || outer() === window ? null : outer().document.body;
  const apply = () => {
    const isDark = host === null ? scheme.matches : host.classList.contains("dark-mode");
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
  };
  if (host !== null) {
    const watcher = new MutationObserver(apply);
    watcher.observe(host, { attributes: true, attributeFilter: ["class"] });
  }
  scheme.addEventListener("change", apply);
  apply();
}

/* Not while another tab is in front: a hidden frame takes no room. */
export function isVisible() {
  if (document.visibilityState !== "visible") return false;
  try {
    return window.frameElement === null || window.frameElement.getClientRects().length > 0;
  } catch {
    return true;
  }
}

/* TensorBoard's address keeps p.heads.* for this plugin. */
const PREFIX = "p.heads.";

function hashParts() {
  return outer().location.hash.slice(1).split("&").filter(Boolean);
}

export function readLink() {
  const values = new URLSearchParams(hashParts().join("&"));
  const read = (name) => values.get(PREFIX + name);
  const whole = (name) => (/^\d+$/.test(read(name) ?? "") ? Number(read(name)) : null);
  const link = { run: read("run"), text: read("text"), compare: null }; // the text's name
  for (const name of ["step", "layer", "head", "query"]) link[name] = whole(name);
  for (const [name, known] of Object.entries(LINKED)) {
    link[name] = known.includes(read(name)) ? read(name) : known[0];
  }
  link.pair = pairIn(read("classes"));
  if (read("compare") !== null) {
    const isNamed = ["best", "first", "last"].includes(read("at"));
    const step = whole("at") ?? (isNamed ? read("at") : "nearest");
    link.compare = { run: read("compare"), step, text: whole("with") };
  }
  return link;
}

/* Two classes as a link has them, such as 1.0 or 3.-1. */
export function pairIn(words) {
  const places = /^(\d{1,6})\.(-1|\d{1,6})$/.exec(words ?? "");
  return places && places.slice(1).map(Number);
}

function linkOf(store) {
  const { run, shownText, layer, head, query, compare } = store;
  const step = store.steps[store.place]?.step ?? "";
  const values = { run, text: shownText?.name ?? "", step, layer, head };
  if (query > 0) values.query = query;
  if (compare) Object.assign(values, { compare: compare.run, at: compare.step });
  if (compare && compare.text !== null) values.with = compare.text;
  for (const [name, known] of Object.entries(LINKED)) {
    if (store[name] !== known[0]) values[name] = store[name];
  }
  const own = store.maps?.values("contributions/shown")?.join(".");
  if (store.pair !== null && store.pair.join(".") !== own) values.classes = store.pair.join(".");
  const named = Object.entries(values).map(([name, value]) => [PREFIX + name, value]);
  return new URLSearchParams(named).toString().replaceAll("+", "%20");
}

/* Keep the address true while this tab shows: it is a link to this view. Open what it says when a
   reader changes it. */
export function keepLink(store, follow) {
  let written = null;
  let timer = null;
  const write = () => {
    timer = null;
    if (!isVisible() || store.index === null) return;
    const { location, history } = outer();
    const others = hashParts().filter((part) => !part.startsWith(PREFIX));
    if (others.length === 0 && outer() !== window) others.push("heads");
    written = `#${[...others, linkOf(store)].join("&")}`;
    if (location.hash === written) return;
    const address = location.href.split("#")[0] + written; // a hash alone is read against <base>
    history.replaceState(history.state, "", address);
  };
  const linked = ["run", "text", "shown", "layer", "head", "query", "compare", "index", "pair"];
  store.subscribe([...linked, ...Object.keys(LINKED)], () => {
    timer ??= setTimeout(write, 150); // a browser refuses more than 100 changes in ten seconds
  });
  outer().addEventListener("hashchange", () => {
    const { hash } = outer().location;
    if (isVisible() && hash !== written && hash.includes(PREFIX)) follow(readLink());
  });
}
