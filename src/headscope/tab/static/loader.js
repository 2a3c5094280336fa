/* Fetches what the choices ask for and puts it into the store; a failure goes to the place where the thing would be. */

import { importanceOf } from "./answer.js";
import { Latest, askIndex, askJson, askMaps, askNumbers } from "./api.js";
import { nearest } from "./store.js";

export class Loader {
  constructor(store) {
    this.store = store;
    this.mapRequests = new Latest();
    this.numberRequests = new Latest();
    this.otherRequests = new Latest();
    this.picked = { layer: 0, head: 0 }; // by itself, not by the reader
    this.ahead = new Set(); // what is fetched before it is asked for
    store.subscribe(["run"], () => {
      const { compare, run } = store;
      if (compare?.run === run && compare.step === "nearest") store.set({ compare: { ...compare, step: "first" } });
      if (!store.page) this.loadIndex();
    });
    store.subscribe(["run", "text"], () => {
      store.set({ maps: null, shown: null, other: null }); // of other tokens
      for (const name of ["maps", "other"]) store.setError(name, null);
    });
    store.subscribe(["run", "text", "step", "index"], () => {
      this.loadMaps();
      this.loadNumbers();
    });
    store.subscribe(["compare", "run", "text", "step", "index"], () => this.loadOther());
    store.subscribe(["run", "index"], () => this.loadAnswer());
    store.subscribe(["answer", "numbers", "maps"], () => this.chooseHead());
  }

  /* The one step of a page, whose texts are all here. */
  openPage({ index }) {
    this.store.set({ run: "", loadedRun: "", runs: [{ run: "" }] });
    this.useIndex(index);
  }

  /* The runs; and what is new of the chosen one. `wanted` is what a link asks for. */
  async refresh(wanted = null) {
    const { store } = this;
    try {
      const { runs, logdir } = await askJson("runs");
      const before = store.runs.find((run) => run.run === store.run);
      const after = runs.find((run) => run.run === store.run);
      store.set({ runs, logdir: logdir ?? "" });
      store.setError("runs", runs.length === 0 ? "No run here has recorded heads yet." : null);
      if (store.run === null && runs.length > 0) {
        const known = runs.some((run) => run.run === wanted?.run);
        const first = newest(runs).run;
        if (wanted?.run && !known) store.setError("runs", `There is no run ${wanted.run} here: this is ${first}.`);
        this.open(wanted?.run && !known ? { run: first } : { ...wanted, run: known ? wanted.run : first });
      } else if (JSON.stringify(before) !== JSON.stringify(after)) this.loadIndex();
    } catch (error) {
      store.setError("runs", error.message);
    }
  }

  /* Show what a link says; what it leaves open, as the page opens. */
  open({ run, text = null, step = null, layer = null, head = null, query = 0, lock = null, ...others }) {
    const chosen = { stepChosen: step !== null, headChosen: layer !== null || head !== null };
    const changes = {
      ...others, ...chosen, step, layer: layer ?? 0, head: head ?? 0, follow: step === null, wanted: text,
      lock, query: lock?.query ?? query, key: lock?.key ?? null,
    }; // prettier-ignore
    this.picked = { layer: changes.layer, head: changes.head };
    const named = this.store.index?.texts.findIndex((each) => each.name === text) ?? -1;
    if (run === this.store.run && named >= 0) changes.text = named;
    this.store.set({ ...changes, run });
  }

  async loadIndex() {
    const { store } = this;
    const { run } = store;
    const nothing = { index: null, maps: null, numbers: null, series: null, answer: null, shown: null };
    if (store.loadedRun !== run) store.set({ ...nothing, errors: { runs: store.errors.runs ?? null } });
    store.loadedRun = run;
    const failed = store.runs.find((each) => each.run === run)?.error;
    try {
      if (failed) throw new Error(failed);
      const index = await askIndex(run);
      if (run === store.run) this.useIndex(index);
    } catch (error) {
      if (run !== store.run) return;
      store.set(nothing);
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
    const named = index.texts.findIndex((text) => text.name === store.wanted);
    const text = named >= 0 ? named : Math.min(store.text, Math.max(0, index.texts.length - 1));
    const layer = Math.min(store.layer, Math.max(0, index.layers.length - 1));
    const head = Math.min(store.head, Math.max(0, (index.heads[layer] ?? 1) - 1));
    const last = index.steps.at(-1)?.step ?? null;
    const tokens = index.texts[text]?.tokens.length ?? 0;
    const outside = Math.max(store.query, store.key ?? 0) >= tokens ? { query: 0, key: null, lock: null } : {};
    const empty = index.steps.length === 0 ? "Nothing has been recorded yet: the first step appears here by itself." : null;
    store.setError("index", empty);
    const step = store.stepChosen ? (store.follow ? last : store.step) : (keptOf(index)?.step ?? last);
    store.set({ index, text, layer, head, step, follow: step === last, wanted: null, ...outside });
  }

  loadMaps() {
    const { store } = this;
    const { run, text } = store;
    const step = store.steps[store.place];
    if (!step) return;
    const show = (maps, error) => {
      if (run !== store.run || text !== store.text) return;
      if (error) store.set({ maps: null, shown: null });
      else store.set({ maps, shown: step.step });
      store.setError("maps", error ? `Step ${step.step}: ${error.message}` : null);
    };
    this.mapRequests.ask(`${run}\0${text}`, (signal) => askMaps(run, step, text, signal), show);
  }

  loadNumbers() {
    const { store } = this;
    const { run, text } = store;
    const step = store.steps[store.place];
    if (!step) return;
    const show = (numbers, error) => {
      if (run !== store.run) return;
      const found = error ? null : { ...numbers, step: step.step };
      store.set(found && step.step === keptOf(store.index)?.step ? { numbers: found, answer: found } : { numbers: found });
      store.setError("numbers", error ? `Step ${step.step}: ${error.message}` : null);
    };
    this.numberRequests.ask(run, (signal) => askNumbers(run, step, text, signal), show);
  }

  /* The numbers of the step whose weights were kept, which tell which heads matter; those of the shown step come by
     themselves. */
  async loadAnswer() {
    const { store } = this;
    const { run, index, text } = store;
    const kept = keptOf(index);
    if (!kept || store.page || kept.step === store.steps[store.place]?.step) return;
    const numbers = await askNumbers(run, kept, text).catch(() => null); // where it matters, the step itself says what is wrong
    if (numbers !== null && run === store.run && index === store.index) store.set({ answer: { ...numbers, step: kept.step } });
  }

  /* The most important head, unless the reader or a link has chosen one. */
  chooseHead() {
    const { store } = this;
    if (store.headChosen || store.maps === null) return;
    const best = importanceOf(store).ranked?.[0];
    const chosen = store.layer !== this.picked.layer || store.head !== this.picked.head;
    if (best && !chosen) this.picked = { layer: best.layer, head: best.head };
    store.set(chosen ? { headChosen: true } : this.picked);
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
    const at = store.steps[store.place]?.step ?? null;
    const load = async (signal) => {
      const index = compare.run === run ? store.index : await this.indexOf(compare.run, signal);
      const text = index.texts.findIndex((each) => each.tokens.join("\0") === tokens.join("\0"));
      if (text < 0) throw new Error(`${compare.run} has recorded no text of the same tokens`);
      const place = { first: 0, last: index.steps.length - 1 }[compare.step];
      const wish = compare.step === "nearest" ? at : compare.step;
      const step = index.steps[place ?? nearest(index.steps, wish)];
      if (!step) throw new Error(`${compare.run} has recorded no step yet`);
      return { run: compare.run, index, step: step.step, maps: await askMaps(compare.run, step, text, signal) };
    };
    const show = (other, error) => {
      if (store.compare === null || tokens !== store.tokens) return;
      store.set({ other: error ? null : other });
      store.setError("other", error ? error.message : null);
    };
    this.otherRequests.ask(`${compare.run}\0${run}\0${store.text}`, load, show);
  }

  /* The index of another run, asked for again when the list of runs says that it has grown. */
  async indexOf(run, signal) {
    const known = JSON.stringify(this.store.runs.find((each) => each.run === run) ?? null);
    if (this.otherIndex?.run !== run || this.otherIndex.known !== known) {
      this.otherIndex = { run, known, index: await askIndex(run, signal) };
    }
    return this.otherIndex.index;
  }

  /* Fetch a step before it is asked for, while the steps are played. */
  prefetch(place) {
    const { run, text, steps } = this.store;
    const step = steps[place];
    const key = `${run}\0${step?.step}\0${step?.time}\0${text}`;
    if (!step || this.ahead.has(key)) return;
    this.ahead.add(key);
    askMaps(run, step, text).catch(() => {}).finally(() => this.ahead.delete(key));
  }
}

/* The run whose last step is the newest, of those that can be read. */
function newest(runs) {
  const readable = runs.filter((run) => !run.error && run.steps > 0);
  return readable.reduce((best, run) => ((run.time ?? -Infinity) > (best.time ?? -Infinity) ? run : best), readable[0] ?? runs[0]);
}

/* The step whose weights were kept, if the record still has it. */
function keptOf(index) {
  return index?.steps.find(({ step }) => step === index.kept) ?? null;
}
