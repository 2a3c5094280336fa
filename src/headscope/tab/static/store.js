/* What the reader chose and what was fetched; and how layers and heads are called. */

import { page } from "./api.js";
import { t } from "./strings.js";

class Store {
  constructor(values) {
    Object.assign(this, values);
    this.listeners = [];
    this.changes = new Map(); // how often each value changed
    this.draw = () => null; // after every change
  }

  subscribe(names, listener) {
    this.listeners.push([names, listener]);
  }

  /* Change values; each listener of one that really changed is told once. */
  set(changes) {
    const changed = Object.keys(changes).filter((name) => !Object.is(this[name], changes[name]));
    for (const name of changed) {
      this[name] = changes[name];
      this.changes.set(name, (this.changes.get(name) ?? 0) + 1);
    }
    for (const [names, listener] of this.listeners) {
      if (names.some((name) => changed.includes(name))) listener();
    }
    if (changed.length > 0) this.draw();
  }

  /* A number that grows with each change of a value that is none of these. */
  revision(others) {
    const counts = [...this.changes].map(([name, count]) => (others.includes(name) ? 0 : count));
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /* The chosen text as the index has it, or null. */
  get shownText() {
    return this.index?.texts[this.text] ?? null;
  }

  get tokens() {
    return this.shownText?.tokens ?? [];
  }

  /* The place that the classifier reads its answer from; null if there is none. */
  get readout() {
    return this.shownText?.readout ?? null;
  }

  get steps() {
    return this.index?.steps ?? [];
  }

  /* The place of the chosen step among those that are kept, or of the nearest. */
  get place() {
    return nearest(this.steps, this.step);
  }

  /* The run as the list has it. */
  get listed() {
    return this.runs.find(({ run }) => run === this.run);
  }

  layerName(layer) {
    return nameOf(this.index?.layers ?? [], layer);
  }

  headName(layer, head) {
    return headName(this.index.layers, layer, head);
  }

  setErrors(messages) {
    this.set({ errors: { ...this.errors, ...messages } });
  }

  /* Show the map of a head, under its row or, on a wall of maps, beside them. */
  chooseHead(layer, head, isUnfolded = true) {
    this.set({ layer, head, headChosen: true, isUnfolded });
  }

  /* Unfold the map of a head under its row, or fold it. */
  unfoldHead(layer, head) {
    const isThere = this.isUnfolded && this.layer === layer && this.head === head;
    this.set({ layer, head, headChosen: true, isUnfolded: !isThere });
  }

  /* Hold other classes against each other; that makes an entry in the history. */
  choosePair(pair, chosen = pair) {
    this.set({ pair, chosen, isChoice: true });
  }

  /* Put a head on, or in place of its map or output an ablation. */
  switchHead(layer, head, state) {
    const ablated = new Map(this.ablated);
    if (state === "on") ablated.delete(`${layer},${head}`);
    else ablated.set(`${layer},${head}`, state);
    this.set({ ablated, isChoice: true });
  }

  chooseStep(step) {
    this.set({ step, stepChosen: true, follow: step === this.steps.at(-1)?.step });
  }

  /* The pointer or the focus is on a word: it is lit in every view; in the map it is the key of the
     place that is read, or a query. */
  pointWord(token) {
    const cell = this.readout === null ? { query: token, key: null } : { key: token };
    this.set({ lit: token, ...cell });
  }

  leave() {
    this.set({ lit: null });
  }
}

const EMPTY = {
  run: null, text: 0, step: null, follow: true, stepChosen: false, layer: 0, head: 0,
  headChosen: false, query: 0, key: null, compare: null, wanted: null,
  unit: "word", // that contributions are summed over
  pair: null, // the classes that are held against each other, by their places: [asked, against]
  chosen: null, // the pair that was chosen by hand, of this text or of one before
  isUnfolded: false, // whether the chosen head's map is
  mode: "looks", // of maps: where a head looks, or what "passes" through it
  history: new Map(), // step -> the maps of the shown text, as far as they are fetched
  isPlaying: false, // whether the steps are shown one after the other
  lit: null, // the token of the word that is pointed at
  canSwitch: false, // whether the network runs here, with heads on or off
  ablated: new Map(), // "layer,head" -> an ablation; of a page in which the network runs
  isChoice: false, // whether the next address is a new entry of the history
  runs: [], logdir: "", index: null, maps: null, shown: null, numbers: null, bestNumbers: null,
  learned: null, // words of the run
  pace: null, // seconds that the cells of one head took
  isAllAsked: false, // whether the cells of every head are to be computed, which takes long
  other: null, // {name, step, index, text, maps} of what is compared with; of a run text is null
  errors: {},
  without: null, // {of, heads}: of these maps, each class's probability with a head off
  reference: null, // {name, probabilities} that those of the shown text are held against
};

export function newStore() {
  return new Store(EMPTY);
}

/* Which network of an ensemble a layer is of; undefined of one network alone. */
const networkOf = (name) => /^(?:network |members\.)(\d+)/.exec(name)?.[1];

/* Whether no layer of the same network follows. */
export function isLastLayer(layers, layer) {
  const isWithin = layer + 1 < layers.length;
  return !isWithin || networkOf(layers[layer]) !== networkOf(layers[layer + 1]);
}

/* Whether no layer of the same network stands before. */
export function isFirstLayer(layers, layer) {
  return layer === 0 || isLastLayer(layers, layer - 1);
}

/* Layers have their number, of a foreign model's modules too, where it tells them apart. */
function nameOf(layers, layer) {
  const networks = layers.map(networkOf);
  const isOfNetwork = networks[layer] !== undefined && new Set(networks).size === layers.length;
  if (isOfNetwork) return t`network ${networks[layer]}`;
  const numbers = layers.map((name) => /(?:^layer |\.)(\d+)(?:$|\.)/.exec(name)?.[1]);
  const areApart = new Set(numbers).size === layers.length && !numbers.includes(undefined);
  if (!areApart && layers[layer]) return layers[layer];
  return t`layer ${areApart ? (numbers[layer] ?? layer) : layer}`;
}

/* A head as people call it: without its layer where there is one layer. */
export function headName(layers, layer, head) {
  return layers.length === 1 ? t`head ${head}` : t`${nameOf(layers, layer)} head ${head}`;
}

/* A head as Python's tables call it, in English. */
export function headKey(layers, layer, head) {
  const networks = new Set(layers.map(networkOf));
  const isByNetwork = networks.size === layers.length && layers.length > 1;
  const kind = isByNetwork && !networks.has(undefined) ? "network" : "layer";
  return `${kind} ${layer} head ${head}`;
}

/* A head as a key of maps. */
export function placeOf({ layer, head }) {
  return `${layer},${head}`;
}

/* The place of the step that is nearest to `step`, or of the last one. */
export function nearest(steps, step) {
  if (step === null) return steps.length - 1;
  const distance = (each) => Math.abs(each.step - step);
  return steps.reduce((best, each, at) => {
    return best < 0 || distance(each) <= distance(steps[best]) ? at : best;
  }, -1);
}
