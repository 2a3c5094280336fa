/* The choice of run, text, step, comparison and colours; and the page to save. */

import { page } from "./api.js";
import { button, chooser, element, fillSelect, legible, showError } from "./dom.js";

const STEPS = [
  ["best", "best step"],
  ["nearest", "nearest step"],
  ["first", "first step"],
  ["last", "last step"],
];
const LONGEST = 34; // characters of a run's name in a selector

/* The names of runs without the folders that they share; of a long one both ends. */
function shortNames(runs) {
  const parts = runs.map((run) => run.split("/"));
  const depth = runs.length > 1 ? Math.min(...parts.map((own) => own.length)) - 1 : 0;
  let shared = 0;
  while (shared < depth && parts.every((own) => own[shared] === parts[0][shared])) shared += 1;
  const names = parts.map((own) => own.slice(shared).join("/"));
  const half = Math.floor(LONGEST / 2);
  const cuts = names.map((name) => {
    return name.length > LONGEST ? `${name.slice(0, half)}…${name.slice(-half)}` : name;
  });
  const areApart = new Set(cuts).size === runs.length;
  return new Map(runs.map((run, at) => [run, areApart ? cuts[at] : names[at]]));
}

function labelled(text, control) {
  return element("label", {}, element("span", {}, text), control);
}

/* The choice of run, text, and what it is compared with. */
export class Toolbar {
  constructor(store) {
    Object.assign(this, { store, texts: [] });
    this.run = chooser("run", "Run", (run) => {
      const first = { step: null, stepChosen: false, follow: true };
      store.set({ run, ...first, pair: null, lock: null, key: null });
    });
    this.text = chooser("text", "Text", (text) => {
      store.set({ text: Number(text), pair: null, query: 0, key: null, lock: null });
    });
    this.other = chooser("other", "Compare with", (run) => this.chooseOther(run));
    this.otherText = chooser("other-text", "Text that is compared with", (text) => {
      this.change({ text: Number(text) });
    });
    this.otherStep = chooser("other-step", "Step that is compared with", (step) => {
      this.change({ step: /^\d+$/.test(step) ? Number(step) : step });
    });
    const text = labelled("Text", this.text);
    text.hidden = page !== null && page.texts.length < 2;
    const first = page ? element("h1", { dir: "auto" }, page.title) : labelled("Run", this.run);
    const other = labelled("Compare with", this.other);
    const compare = [other, this.otherText, this.otherStep];
    const choices = [first, text, ...(text.hidden ? [] : compare)];
    this.error = element("p", { class: "error", role: "alert", hidden: true });
    const attributes = { class: "toolbar", "aria-label": "What is shown" };
    this.root = element("header", attributes, element("div", "line", ...choices), this.error);
    this.whole = element("p", { class: "error whole", role: "alert", hidden: true });
    store.subscribe(["runs", "run", "index", "text"], () => this.showRuns());
    store.subscribe(["runs", "run", "index", "compare", "other"], () => this.showCompare());
    store.subscribe(["errors"], () => this.showErrors());
    this.showCompare();
  }

  chooseOther(value) {
    const { store } = this;
    if (value === "text") {
      const text = store.text === 0 ? 1 : 0;
      store.set({ compare: { run: store.run, step: "nearest", text } });
      return;
    }
    const run = value.slice(1); // after "=", since a run may have no name
    const isBest = store.steps[store.place]?.step === store.index?.best;
    const near = isBest ? "best" : "nearest"; // the best step with the best of the other run
    const step = run === store.run ? "first" : near;
    store.set({ compare: value === "" ? null : { run, step, text: null } });
  }

  change(changes) {
    this.store.set({ compare: { ...this.store.compare, ...changes } });
  }

  showRuns() {
    const { runs, run, index, text, shownText } = this.store;
    const names = shortNames(runs.map((each) => each.run));
    const nameOf = (each) => names.get(each.run) + (each.error ? " (cannot be read)" : "");
    this.run.title = run ?? "";
    fillSelect(this.run, runs.map((each) => [each.run, nameOf(each)]), run);
    const words = (each, place) => {
      const named = page ? `${place + 1} ${each.label ?? ""}`.trim() : each.name;
      return [String(place), `${named}: ${legible(each.text, 40)}`];
    };
    this.texts = (index?.texts ?? []).map(words);
    fillSelect(this.text, this.texts, String(text));
    this.text.title = legible(shownText?.text ?? "", 400);
  }

  showCompare() {
    const { runs, run, compare, other, steps } = this.store;
    const others = runs.filter((each) => each.run !== run && !each.error);
    const names = shortNames(runs.map((each) => each.run));
    const options = [["", "nothing"]];
    if (this.texts.length > 1) options.push(["text", "another text"]);
    if (!page) options.push([`=${run}`, "this run, another step"]);
    options.push(...others.map((each) => [`=${each.run}`, names.get(each.run)]));
    const isText = compare !== null && compare.text !== null;
    const chosen = compare === null ? "" : `=${compare.run}`;
    fillSelect(this.other, options, isText ? "text" : chosen);
    this.otherText.hidden = !isText;
    this.otherStep.hidden = compare === null || isText;
    if (compare === null) return;
    if (isText) fillSelect(this.otherText, this.texts, String(compare.text));
    const there = compare.run === run ? steps : (other?.index.steps ?? []);
    const numbers = new Set(there.map(({ step }) => step));
    if (typeof compare.step === "number") numbers.add(compare.step);
    const numbered = [...numbers].map((step) => [String(step), `step ${step}`]);
    fillSelect(this.otherStep, [...STEPS, ...numbered], String(compare.step));
  }

  showErrors() {
    const { errors, runs } = this.store;
    showError(this.error, errors.runs);
    showError(this.whole, errors.index);
    document.body.classList.toggle("nothing", Boolean(errors.index) || runs.length === 0);
  }
}

/* One slider for the step, over maps and numbers at once. */
export class StepSlider {
  constructor(store) {
    this.store = store;
    const icon = (name, label, onclick) => {
      const node = button("", label, onclick, `plain ${name}`);
      node.setAttribute("aria-label", label);
      return node;
    };
    const back = icon("back", "One step back (,)", () => this.move(-1));
    const forward = icon("on", "One step forward (.)", () => this.move(1));
    const oninput = () => this.choose(Number(this.range.value));
    this.range = element("input", { type: "range", min: "0", "aria-label": "Step", oninput });
    this.now = element("output", "now");
    this.kept = element("span", "kept");
    const nodes = [back, forward, this.range, this.now, this.kept];
    this.root = element("div", "line steps", ...nodes);
    store.subscribe(["index", "step", "runs", "shown"], () => this.show());
    this.show();
  }

  choose(place) {
    const { steps } = this.store;
    const inside = Math.min(steps.length - 1, Math.max(0, place));
    if (inside >= 0) this.store.chooseStep(steps[inside].step);
  }

  move(by) {
    this.choose(this.store.place + by);
  }

  show() {
    const { steps, place, index, shown, page: isPage } = this.store;
    const step = steps[place]?.step ?? null;
    this.root.hidden = isPage || step === null;
    this.now.classList.toggle("pending", step === null || shown !== step);
    if (this.root.hidden) return;
    this.range.max = String(steps.length - 1);
    this.range.value = String(place);
    this.range.setAttribute("aria-valuetext", `step ${step}`);
    this.now.textContent = `step ${step}`;
    const { recorded } = index;
    const isThinned = steps.length < recorded;
    const all = `${place + 1} of ${steps.length} recorded steps`;
    this.kept.textContent = isThinned ? `${steps.length} of ${recorded} recorded steps kept` : all;
  }
}
