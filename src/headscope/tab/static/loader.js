/* Fetches what the choices ask for; an error goes to the place where the thing would be. */

import { headsOf, rankHeads } from "./ablation.js";
import { Latest, askJson, askMaps, askNumbers } from "./api.js";
import { nearest } from "./store.js";

const NOTHING = {
  index: null, maps: null, numbers: null, series: null, bestNumbers: null, shown: null,
};

export class Loader {
  constructor(store) {
    this.store = store;
    this.mapRequests = new Latest();
    this.numberRequests = new Latest();
    this.otherRequests = new Latest();
    this.picked = { layer: 0, head: 0 }; // by itself, not by the reader
    store.subscribe(["run"], () => this.changeRun());
    store.subscribe(["run", "text"], () => {
      store.set({ maps: null, shown: null, other: null }); // of other tokens
      for (const name of ["maps", "other"]) store.setError(name, null);
    });
    store.subscribe(["run", "text", "step", "index"], () => {
      this.loadMaps();
      this.loadNumbers();
    });
    store.subscribe(["compare", "run", "text", "step", "index"], () => this.loadOther());
    store.subscribe(["run", "index"], () => this.loadBestNumbers());
    store.subscribe(["bestNumbers", "numbers", "maps"], () => this.chooseHead());
  }

  /* The one step of a page, whose texts are all here. */
  openPage({ index }) {
    this.store.set({ run: "", loadedRun: "", runs: [{ run: "" }] });
    this.useIndex(index);
  }

  changeRun() {
    const { compare, run, page } = this.store;
    if (compare?.run === run && compare.step === "nearest") {
      this.store.set({ compare: { ...compare, step: "first" } });
    }
    if (!page) this.loadIndex();
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
    const isKnown = runs.some(({ run }) => run === link.run);
    if (isKnown || !link.run) {
      this.open({ ...link, run: link.run || first });
      return;
    }
    this.store.setError("runs", `There is no run ${link.run} here: this is ${first}.`);
    this.open({ run: first });
  }

  /* Show what a link says; what it leaves open, as the page opens. */
  open({ run, text = null, step = null, layer = null, head = null, query = 0, ...others }) {
    const { store } = this;
    const { lock = null } = others;
    this.picked = { layer: layer ?? 0, head: head ?? 0 };
    const changes = {
      ...others,
      ...this.picked,
      run,
      step,
      lock,
      wanted: text,
      query: lock?.query ?? query,
      key: lock?.key ?? null,
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
    try {
      const series = await askJson("series", { run });
      if (run !== store.run) return;
      store.set({ series });
      store.setError("series", null);
    } catch (error) {
      if (run === store.run) store.setError("series", error.message);
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
      Object.assign(changes, { query: 0, key: null, lock: null });
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
    const show = (maps, error) => {
      if (run !== store.run || text !== store.text) return;
      store.set(error ? { maps: null, shown: null } : { maps, shown: step.step });
      store.setError("maps", error ? `Step ${step.step}: ${error.message}` : null);
    };
    this.mapRequests.ask(`${run}\0${text}`, (signal) => askMaps(run, step, text, signal), show);
  }

  loadNumbers() {
    const { store } = this;
    const { run, text } = store;
    const step = store.steps[store.place];
    if (!step) return;
    const show = (content, error) => {
      if (run !== store.run) return;
      const numbers = error ? null : { ...content, step: step.step };
      const isBest = numbers !== null && step.step === bestStep(store.index)?.step;
      store.set(isBest ? { numbers, bestNumbers: numbers } : { numbers });
      store.setError("numbers", error ? `Step ${step.step}: ${error.message}` : null);
    };
    this.numberRequests.ask(run, (signal) => askNumbers(run, step, text, signal), show);
  }

  /* The numbers of the best step, where heads were ablated, unless it is shown. */
  async loadBestNumbers() {
    const { store } = this;
    const { run, index, text } = store;
    const best = bestStep(index);
    if (!best || store.page || best.step === store.steps[store.place]?.step) return;
    try {
      const numbers = await askNumbers(run, best, text);
      const isCurrent = run === store.run && index === store.index;
      if (isCurrent) store.set({ bestNumbers: { ...numbers, step: best.step } });
    } catch {
      // Where it matters, the step itself says what is wrong.
    }
  }

  /* The most important head, unless the reader or a link has chosen one. */
  chooseHead() {
    const { store } = this;
    if (store.headChosen || store.maps === null) return;
    if (store.layer !== this.picked.layer || store.head !== this.picked.head) {
      store.set({ headChosen: true });
      return;
    }
    const first = rankHeads(headsOf(store))?.[0];
    if (first) this.picked = { layer: first.layer, head: first.head };
    store.set(this.picked);
  }

  /* The maps that are compared with: of the same text, found by its tokens. */
  loadOther() {
    const { store } = this;
    const { compare, run, tokens } = store;
    if (!compare || !store.index) {
      this.otherRequests.abort();
      store.set({ other: null });
      store.setError("other", null);
      return;
    }
    const load = (signal) => this.askOther(compare, tokens, signal);
    const show = (other, error) => {
      if (store.compare === null || tokens !== store.tokens) return;
      store.set({ other: error ? null : other });
      store.setError("other", error ? error.message : null);
    };
    this.otherRequests.ask(`${compare.run}\0${run}\0${store.text}`, load, show);
  }

  async askOther({ run, step: wish }, tokens, signal) {
    const { store } = this;
    const shownStep = store.steps[store.place]?.step ?? null;
    const index = run === store.run ? store.index : await this.askOtherIndex(run, signal);
    const isSame = (text) => JSON.stringify(text.tokens) === JSON.stringify(tokens);
    const text = index.texts.findIndex(isSame);
    if (text < 0) throw new Error(`${run} has recorded no text of the same tokens`);
    const place = { first: 0, last: index.steps.length - 1 }[wish];
    const near = nearest(index.steps, wish === "nearest" ? shownStep : wish);
    const step = index.steps[place ?? near];
    if (!step) throw new Error(`${run} has recorded no step yet`);
    return { run, index, step: step.step, maps: await askMaps(run, step, text, signal) };
  }

  /* The index of another run, asked for again when the list of runs says that it has grown. */
  async askOtherIndex(run, signal) {
    const listed = JSON.stringify(this.store.runs.find((each) => each.run === run) ?? null);
    if (this.otherIndex?.run !== run || this.otherIndex.listed !== listed) {
      this.otherIndex = { run, listed, index: await askJson("index", { run }, signal) };
    }
    return this.otherIndex.index;
  }
}

/* The run whose last step is the newest, of those that can be read. */
function newest(runs) {
  const timeOf = (run) => (run.error || run.steps === 0 ? -Infinity : (run.time ?? 0));
  return runs.reduce((best, run) => (timeOf(run) > timeOf(best) ? run : best));
}

/* The step of the best checkpoint, where heads were ablated, if the record still has it. */
function bestStep(index) {
  return index?.steps.find(({ step }) => step === index.kept) ?? null;
}
