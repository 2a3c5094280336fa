/* Fetches what the choices ask for; an error goes to the place where the thing would be. */

import { rankHeads } from "./answer.js";
import { Latest, askJson, askMaps, askNumbers, outcome, page } from "./api.js";
import { contributionsOf, ownPair } from "./contributions.js";
import { nearest } from "./store.js";
import { t } from "./strings.js";

const NOTHING = {
  index: null, maps: null, numbers: null, bestNumbers: null, shown: null, learned: null,
};

export class Loader {
  constructor(store) {
    this.store = store;
    this.mapRequests = new Latest();
    this.numberRequests = new Latest();
    this.otherRequests = new Latest();
    store.subscribe(["run"], () => page || this.loadIndex());
    store.subscribe(["run", "text"], () => {
      // Of other tokens.
      store.set({ maps: null, shown: null, other: null, word: null, lit: null });
      for (const name of ["maps", "other"]) store.setError(name, null);
    });
    store.subscribe(["run", "text", "step", "index"], () => {
      this.loadMaps();
      this.loadNumbers();
    });
    store.subscribe(["compare", "run", "text", "step", "index"], () => this.loadOther());
    store.subscribe(["run", "index"], () => this.loadBest());
    store.subscribe(["bestNumbers", "numbers", "maps"], () => hold(store));
  }

  /* The one step of a page, whose texts are all here. */
  openPage({ index }) {
    this.store.set({ run: "", loadedRun: "", runs: [{ run: "" }] });
    this.useIndex(index);
  }

  /* The runs; and what is new of the chosen one. `link` is what the address asks for. */
  async refresh(link) {
    const { store } = this;
    try {
      const { runs, logdir } = await askJson("runs");
      const find = (listed) => listed.find(({ run }) => run === store.run);
      const hasChanged = JSON.stringify(find(store.runs)) !== JSON.stringify(find(runs));
      store.set({ runs, logdir });
      store.setError("runs", runs.length === 0 ? "No run here has recorded heads yet." : null);
      if (store.run === null && runs.length > 0) this.openFirst(runs, link);
      else if (hasChanged) this.loadIndex();
    } catch (error) {
      store.setError("runs", error.message);
    }
  }

  /* The run that the link names; without one, the newest. */
  openFirst(runs, link) {
    const first = newest(runs).run;
    const isKnown = !link.run || runs.some(({ run }) => run === link.run);
    const words = `There is no run ${link.run} here: this is ${first}.`;
    if (!isKnown) this.store.setError("runs", words);
    this.open(isKnown ? { ...link, run: link.run || first } : { run: first });
  }

  /* Show what a link says; what it leaves open, as the page opens. */
  open({ run, text = null, step = null, layer = null, head = null, query = null, ...others }) {
    const { store } = this;
    const changes = {
      ...others,
      run,
      step,
      layer: layer ?? 0,
      head: head ?? 0,
      query: query ?? 0,
      key: null,
      wanted: text,
      follow: step === null,
      stepChosen: step !== null,
      headChosen: layer !== null || head !== null,
    };
    const place = store.index?.texts.findIndex(({ name }) => name === text) ?? -1;
    if (run === store.run && place >= 0) changes.text = place;
    store.set(changes);
  }

  async loadIndex() {
    const { store } = this;
    const { run } = store;
    if (store.loadedRun !== run) {
      store.set({ ...NOTHING, errors: { runs: store.errors.runs ?? null } });
    }
    store.loadedRun = run;
    try {
      const failure = store.runs.find((each) => each.run === run)?.error;
      if (failure) throw new Error(failure);
      const index = await askJson("index", { run });
      if (run === store.run) this.useIndex(index);
    } catch (error) {
      if (run !== store.run) return;
      store.set(NOTHING);
      store.setError("index", error.message);
      return;
    }
  }

  useIndex(index) {
    const { store } = this;
    const wanted = index.texts.findIndex(({ name }) => name === store.wanted);
    const text = wanted >= 0 ? wanted : Math.min(store.text, index.texts.length - 1);
    const layer = Math.min(store.layer, index.layers.length - 1);
    const changes = { index, text, layer, wanted: null };
    changes.head = Math.min(store.head, (index.heads[layer] ?? 1) - 1);
    const last = index.steps.at(-1)?.step ?? null;
    if (!store.stepChosen) changes.step = bestStep(index)?.step ?? last;
    else if (store.follow) changes.step = last;
    changes.follow = (changes.step ?? store.step) === last;
    if (Math.max(store.query, store.key ?? 0) >= index.texts[text].tokens.length) {
      Object.assign(changes, { query: 0, key: null });
    }
    const waits = "No step is recorded yet: the first appears by itself.";
    store.setError("index", index.steps.length === 0 ? waits : null);
    store.set(changes);
  }

  loadMaps() {
    const { store } = this;
    const { run, text } = store;
    const step = store.steps[store.place];
    if (!step) return;
    const show = (maps, failure) => {
      if (run !== store.run || text !== store.text) return;
      store.set({ maps, shown: maps === null ? null : step.step });
      store.setError("maps", failure && `Step ${step.step}: ${failure}`);
    };
    this.mapRequests.ask(`${run}\0${text}`, (signal) => askMaps(run, step, text, signal), show);
  }

  loadNumbers() {
    const { store } = this;
    const { run, text } = store;
    const step = store.steps[store.place];
    if (!step) return;
    const show = (content, failure) => {
      if (run !== store.run) return;
      const numbers = content && { ...content, step: step.step };
      const isBest = numbers !== null && step.step === bestStep(store.index)?.step;
      store.set(isBest ? { numbers, bestNumbers: numbers } : { numbers });
      store.setError("numbers", failure && `Step ${step.step}: ${failure}`);
    };
    this.numberRequests.ask(run, (signal) => askNumbers(run, step, text, signal), show);
  }

  /* What is known of the best step alone: the numbers, where heads were ablated, unless it is
     shown; and the words that the run learned. What fails here is left out. */
  async loadBest() {
    const { store } = this;
    const { run, index, text } = store;
    const best = bestStep(index);
    if (!best || page) return;
    const isCurrent = () => run === store.run && index === store.index;
    if (store.listed?.trained) {
      const [learned] = await outcome(askJson("words", { run }));
      if (isCurrent()) store.set({ learned });
    }
    if (best.step === store.steps[store.place]?.step) return;
    const [numbers] = await outcome(askNumbers(run, best, text));
    if (numbers && isCurrent()) store.set({ bestNumbers: { ...numbers, step: best.step } });
  }

  /* The maps that are compared with: of the same text, found by its tokens. */
  loadOther() {
    const { store } = this;
    const { compare, run, tokens } = store;
    if (!compare || !store.index) {
      this.otherRequests.abort();
      store.set({ other: null, reference: null });
      store.setError("other", null);
      return;
    }
    const isText = compare.text !== null;
    const load = (signal) => {
      return isText ? this.askText(compare, signal) : this.askOther(compare, tokens, signal);
    };
    const show = (other, failure) => {
      if (store.compare === null || tokens !== store.tokens) return;
      const probabilities = other?.text && other.maps.values("probabilities");
      store.set({ other, reference: probabilities ? { name: other.name, probabilities } : null });
      store.setError("other", failure);
    };
    const group = [compare.run, compare.text, run, store.text].join("\0");
    this.otherRequests.ask(group, load, show);
  }

  /* Another text of the shown run, at the shown step. */
  async askText({ text: place }, signal) {
    const { index, run, steps, place: at } = this.store;
    const text = index.texts[place];
    if (!text) throw new Error(`this run has recorded no text ${place + 1}`);
    const maps = await askMaps(run, steps[at], place, signal);
    const name = page ? t`text ${place + 1}` : text.name;
    return { name, index, step: steps[at].step, text, maps };
  }

  async askOther({ run, step: wish }, tokens, signal) {
    const { store } = this;
    const shownStep = store.steps[store.place]?.step ?? null;
    const index = run === store.run ? store.index : await askJson("index", { run }, signal);
    const isSame = (own, other) => JSON.stringify(own) === JSON.stringify(other);
    if (!isSame(index.classes, store.index.classes)) throw new Error(`${run} has other classes`);
    const text = index.texts.findIndex((each) => isSame(each.tokens, tokens));
    if (text < 0) throw new Error(`${run} has recorded no text of the same tokens`);
    const last = index.steps.at(-1);
    const named = { best: bestStep(index) ?? last, first: index.steps[0], last };
    const near = nearest(index.steps, wish === "nearest" ? shownStep : wish);
    const step = Object.hasOwn(named, wish) ? named[wish] : index.steps[near];
    if (!step) throw new Error(`${run} has recorded no step yet`);
    const maps = await askMaps(run, step, text, signal);
    return { name: t`${run}, step ${step.step}`, index, step: step.step, text: null, maps };
  }
}

/* Hold the two classes of a text from its first maps on, and the head that passed most between
   them, unless the reader or a link has chosen others. Without contributions the most important
   head. */
export function hold(store) {
  const { maps, pair, headChosen } = store;
  if (maps === null) return;
  const contributions = contributionsOf(store);
  const first = contributions === null ? rankHeads(store)?.[0] : null;
  if (first && !headChosen) store.set({ layer: first.layer, head: first.head });
  if (pair !== null || contributions === null) return;
  const changes = { pair: ownPair(maps) };
  const { layer } = contributions;
  const [head] = contributions.headsOf(layer)[0] ?? [null];
  if (head !== null && !headChosen) Object.assign(changes, { layer, head });
  store.set(changes);
}

/* The run whose last step is the newest, of those that can be read. */
function newest(runs) {
  const timeOf = (run) => (run.error || run.steps === 0 ? -Infinity : (run.time ?? 0));
  return runs.reduce((best, run) => (timeOf(run) > timeOf(best) ? run : best));
}

/* The step of the best checkpoint, where heads were ablated, if the record still has it. */
function bestStep(index) {
  return index?.steps.find(({ step }) => step === index.best) ?? null;
}
