/* What the reader chose and what was fetched for it, in one place. Views subscribe to the names that they show. */

import { page } from "./api.js";
import { KEPT, outer } from "./share.js";

export class Store {
  constructor(values) {
    Object.assign(this, values);
    this.listeners = [];
  }

  subscribe(names, listener) {
    this.listeners.push([new Set(names), listener]);
  }

  /* Change values; each listener of one that really changed is told once. Where one fails, the others are told all the
     same: none goes on showing what was there before. */
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

  get tokens() {
    return this.index?.texts[this.text]?.tokens ?? [];
  }

  /* Of a pair, which text each token is of (pairs.js); null for a single text. */
  get segments() {
    return this.index?.texts[this.text]?.segments ?? null;
  }

  get steps() {
    return this.index?.steps ?? [];
  }

  get layerNames() {
    return this.index?.layers ?? [];
  }

  /* The place of the chosen step among those that are kept; the nearest one if it is no longer among them. */
  get place() {
    return nearest(this.steps, this.step);
  }

  setError(name, message) {
    if ((this.errors[name] ?? null) !== message) this.set({ errors: { ...this.errors, [name]: message } });
  }

  /* The pointer or the focus is on a cell: a locked query stays, and the column gives the key. */
  pointCell(query, key) {
    this.set({ query: this.lock ? this.lock.query : query, key, by: "query", pointing: true });
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
    this.set({ key: this.lock ? this.lock.key : null, by: "query", pointing: false });
  }

  /* Lock this query and key, or unlock where they are locked already. */
  toggle(query, key) {
    const same = this.lock !== null && this.lock.query === query && this.lock.key === key;
    this.set({ lock: same ? null : { query, key }, query, key, by: "query" });
  }

  release() {
    this.set({ lock: null, key: null, by: "query", pointing: false });
  }
}

export function newStore() {
  return new Store({
    run: null, text: 0, step: null, follow: true, layer: 0, head: 0, query: 0, key: null, by: "query", lock: null, pointing: false,
    ...Object.fromEntries(Object.entries(KEPT).map(([name, values]) => [name, values[0]])), compare: null, playing: false, theme: "light", wanted: null,
    runs: [], index: null, maps: null, shown: null, numbers: null, series: null, answer: null, stepChosen: false, headChosen: false, other: null, errors: {}, logdir: "", page: page !== null,
  }); // prettier-ignore
}

/* The place of the step that is nearest to `step`, or of the last one if there is none to be near to. */
export function nearest(steps, step) {
  if (step === null) return steps.length - 1;
  let best = steps.length - 1;
  for (let place = steps.length - 1; place >= 0; place -= 1) {
    if (Math.abs(steps[place].step - step) < Math.abs(steps[best].step - step)) best = place;
  }
  return best;
}

/* Dark or light as TensorBoard is, and whether this tab can be seen at all. */

export function followTheme(store) {
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  const host = page || outer() === window ? null : outer().document.body;
  const apply = () => {
    const dark = host === null ? scheme.matches : host.classList.contains("dark-mode");
    store.set({ theme: dark ? "dark" : "light" });
    document.documentElement.dataset.theme = store.theme;
  };
  if (host !== null) {
    const watcher = new MutationObserver(apply);
    watcher.observe(host, { attributes: true, attributeFilter: ["class"] });
  }
  scheme.addEventListener("change", apply);
  apply();
}

/* Not while another tab of TensorBoard or of the browser is in front: a hidden frame takes no room. */
export function isVisible() {
  if (document.visibilityState !== "visible") return false;
  try {
    return window.frameElement === null || window.frameElement.getClientRects().length > 0;
  } catch {
    return true;
  }
}
