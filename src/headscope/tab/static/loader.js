/* Fetches what the choices ask for; an error goes to the place where the thing would be. */

import { rankHeads } from "./answer.js";
import { askJson, askMaps, askNumbers, latest, outcome, page } from "./api.js";
import { contributionsOf } from "./contributions.js";
import { heldPair } from "./pair.js";
import { nearest } from "./store.js";
import { t } from "./strings.js";

const OF_STEP = { maps: null, shown: null, history: new Map() };
const OF_RUN = { ...OF_STEP, index: null, numbers: null, bestNumbers: null, learned: null };

export class Loader {
  constructor(store) {
    Object.assign(this, { store, requests: latest(), otherRequests: latest() });
    store.subscribe(["run"], () => page || this.loadIndex());
    store.subscribe(["run", "text"], () => {
      store.set({ ...OF_STEP, other: null, lit: null }); // of other tokens
      store.setErrors({ maps: null, other: null });
    });
    store.subscribe(["run", "text", "step", "index"], () => this.loadStep());
    store.subscribe(["compare", "run", "text", "step", "index"], () => this.loadOther());
    store.subscribe(["isUnfolded", "run", "text", "index"], () => this.loadHistory());
    store.subscribe(["run", "index"], () => this.loadBest());
    store.subscribe(["bestNumbers", "numbers", "maps"], () => hold(store));
  }

  /* The one step of a page, whose texts are all here. */
  openPage({ index }) {
    this.store.set({ run: "", runs: [{ run: "" }] });
    this.useIndex(index);
  }

  /* The runs, and what is new of the chosen one. The first time the run that the link names; where
     it names none that is here, the newest. */
  async refresh(link) {
    const { store } = this;
    const [answer, failure] = await outcome(askJson("runs"));
    store.setErrors({ runs: failure });
    if (failure !== null) return;
    const { runs, logdir } = answer;
    const find = (listed) => listed.find(({ run }) => run === store.run);
    const isNews = JSON.stringify(find(store.runs)) !== JSON.stringify(find(runs));
    const hasFailed = store.errors.index || store.errors.maps; // the server may be back
    store.set({ runs, logdir });
    if (runs.length === 0) store.setErrors({ runs: t`No run here has recorded heads yet.` });
    else if (store.run !== null && (isNews || hasFailed)) this.loadIndex();
    if (store.run !== null || runs.length === 0) return;
    const first = newest(runs).run;
    const isKnown = !link.run || runs.some(({ run }) => run === link.run);
    if (!isKnown) store.setErrors({ runs: t`There is no run ${link.run} here: this is ${first}.` });
    this.open(isKnown ? { ...link, run: link.run || first } : { run: first });
  }

  /* Show what a link says; what it leaves open, as the page opens. */
  open({ run, text = null, step = null, layer = null, head = null, query = null, ...others }) {
    const { store } = this;
    const chosen = { follow: step === null, stepChosen: step !== null };
    const place = store.index?.texts.findIndex(({ name }) => name === text) ?? -1;
    if (run === store.run && place >= 0) chosen.text = place;
    chosen.headChosen = layer !== null || head !== null;
    const places = { layer: layer ?? 0, head: head ?? 0, query: query ?? 0, key: null };
    const own = { run, step, wanted: text, chosen: others.pair ?? null };
    store.set({ ...others, ...chosen, ...places, ...own });
  }

  async loadIndex() {
    const { store } = this;
    const { run, listed } = store;
    if (store.loadedRun !== run) store.set({ ...OF_RUN, errors: { runs: store.errors.runs } });
    store.loadedRun = run;
    const [index, failure] = await outcome(
      listed?.error ? Promise.reject(Error(listed.error)) : askJson("index", { run }),
    );
    if (run !== store.run) return;
    if (failure === null) this.useIndex(index);
    else {
      store.set(OF_RUN);
      store.setErrors({ index: failure });
    }
  }

  useIndex(index) {
    const { store } = this;
    const wanted = index.texts.findIndex(({ name }) => name === store.wanted);
    const text = wanted >= 0 ? wanted : Math.min(store.text, index.texts.length - 1);
    const layer = Math.min(store.layer, index.layers.length - 1);
    const head = Math.min(store.head, (index.heads[layer] ?? 1) - 1);
    const last = index.steps.at(-1)?.step ?? null;
    let { step, query, key } = store;
    if (!store.stepChosen) step = bestStep(index)?.step ?? last;
    else if (store.follow) step = last;
    if (Math.max(query, key ?? 0) >= index.texts[text].tokens.length) [query, key] = [0, null];
    const waits = t`No step is recorded yet: the first appears by itself.`;
    store.setErrors({ index: index.steps.length === 0 ? waits : null });
    store.set({ index, text, layer, head, query, key, step, follow: step === last, wanted: null });
  }

  /* The maps and numbers of the chosen text and step. */
  loadStep() {
    const { store } = this;
    const { run, text } = store;
    const step = store.steps[store.place];
    if (!step) return;
    const load = () => {
      return Promise.all([askMaps(run, step, text), askNumbers(run, step, text)].map(outcome));
    };
    this.requests(load, ([[maps, failure], [numbers, other]]) => {
      if (run !== store.run || text !== store.text) return;
      const said = (words) => words && t`Step ${step.step}: ${words}`;
      store.setErrors({ maps: said(failure ?? other), numbers: said(other) });
      store.set({ maps, numbers, shown: maps && step.step });
      if (step.step === bestStep(store.index)?.step) store.set({ bestNumbers: numbers });
    });
  }

  /* The maps of the shown text at all steps, one after the other, for the line over the steps. */
  async loadHistory() {
    const { store } = this;
    const { run, text, steps } = store;
    const isCurrent = () => run === store.run && text === store.text && store.isUnfolded;
    for (const step of page ? [] : steps) {
      if (!isCurrent() || steps !== store.steps) return;
      if (store.history.has(step.step)) continue;
      const [maps] = await outcome(askMaps(run, step, text));
      if (maps && isCurrent()) store.set({ history: new Map(store.history).set(step.step, maps) });
    }
  }

  /* What is known of the best step alone: the numbers, where heads were ablated, unless it is
     shown; and the words that the run learned. What fails here is left out. */
  async loadBest() {
    const { store } = this;
    const { run, index, text } = store;
    const best = bestStep(index);
    if (!best || page) return;
    const isCurrent = () => run === store.run && index === store.index;
    const isShown = best.step === store.steps[store.place]?.step;
    const [numbers] = isShown ? [null] : await outcome(askNumbers(run, best, text));
    if (numbers && isCurrent()) store.set({ bestNumbers: numbers });
    const [learned] = store.listed?.trained ? await outcome(askJson("words", { run })) : [null];
    if (isCurrent()) store.set({ learned });
  }

  /* The maps that are compared with: of the same text, found by its tokens. */
  loadOther() {
    const { store } = this;
    const { compare, tokens } = store;
    if (!compare || !store.index) {
      store.set({ other: null, reference: null });
      store.setErrors({ other: null });
      return;
    }
    const load = () => {
      return outcome(compare.text === null ? this.otherStep(compare) : this.otherText(compare));
    };
    this.otherRequests(load, ([other, failure]) => {
      if (store.compare !== compare || tokens !== store.tokens) return;
      const probabilities = other?.text && other.maps.values("probabilities");
      store.set({ other, reference: probabilities ? { name: other.name, probabilities } : null });
      store.setErrors({ other: failure });
    });
  }

  /* Another text of the shown run, at the shown step. */
  async otherText({ text: place }) {
    const { index, run, steps, place: at } = this.store;
    const text = index.texts[place];
    if (!text) throw new Error(t`this run has recorded no text ${place + 1}`);
    const maps = await askMaps(run, steps[at], place);
    return { name: page ? t`text ${place + 1}` : text.name, index, text, maps };
  }

  async otherStep({ run, step: wish }) {
    const { store } = this;
    const index = run === store.run ? store.index : await askJson("index", { run });
    const isSame = (own, other) => JSON.stringify(own) === JSON.stringify(other);
    if (!isSame(index.classes, store.index.classes)) throw new Error(t`${run} has other classes`);
    const text = index.texts.findIndex(({ tokens }) => isSame(tokens, store.tokens));
    if (text < 0) throw new Error(t`${run} has recorded no text of the same tokens`);
    const last = index.steps.at(-1);
    const named = { best: bestStep(index) ?? last, first: index.steps[0], last };
    const shown = store.steps[store.place]?.step ?? null;
    const near = nearest(index.steps, wish === "nearest" ? shown : wish);
    const step = Object.hasOwn(named, wish) ? named[wish] : index.steps[near];
    if (!step) throw new Error(t`${run} has recorded no step yet`);
    const maps = await askMaps(run, step, text);
    return { name: t`${run}, step ${step.step}`, index, text: null, maps };
  }
}

/* Hold the two classes of a text from its first maps on, and the head that passed most between
   them, unless the reader or a link has chosen others; without contributions the most important. */
export function hold(store) {
  const { maps, pair, headChosen } = store;
  if (maps === null) return;
  const found = contributionsOf(store);
  const { layer, head } = (found === null ? rankHeads(store)[0] : found.heads[0]) ?? store;
  const isOpen = !headChosen && (found === null || pair === null);
  store.set({ ...(isOpen && { layer, head }), pair: heldPair(store) });
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
