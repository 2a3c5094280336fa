/* What is shown: run, text, what it is compared with, and the colours. */

import { page } from "./api.js";
import { importanceOf } from "./answer.js";
import { Choice, build, fillSelect, legible, showError } from "./dom.js";
import { PARTS } from "./pairs.js";
import { isDifference } from "./reading.js";
import { OWN, SCALES, drawLegend, parseScale } from "./scale.js";
import { isVisible } from "./store.js";

function labelled(text, control) {
  return build("label", {}, build("span", {}, text), control);
}

export class Toolbar {
  constructor(root, store, whole, colors) {
    Object.assign(this, { root, store, whole });
    const select = (name, onChange) => build("select", { class: `choose-${name}`, onchange: (event) => onChange(event.target.value) });
    this.run = select("run", (run) => store.set({ run, step: null, stepChosen: false, follow: true, lock: null, key: null }));
    this.text = select("text", (text) => store.set({ text: Number(text), query: 0, key: null, lock: null }));
    this.other = select("other", (run) => this.chooseOther(run));
    this.otherStep = select("other-step", (step) => this.change({ step: /^\d+$/.test(step) ? Number(step) : step }));
    this.otherStep.setAttribute("aria-label", "Step that is compared with");
    this.view = new Choice("View", [
      ["beside", "beside", "both maps, side by side"], ["difference", "difference", "this minus that, on one symmetric scale"],
    ], (view) => this.change({ view })); // prettier-ignore
    this.order = new Choice("Order of heads", [
      ["own", "own order", "each head beside the one of the same number"],
      ["matched", "matched", "each head beside the one whose map of this text is most like it, layer by layer (Jensen-Shannon distance, optimal assignment)"],
    ], (order) => this.change({ order })); // prettier-ignore
    this.part = new Choice("Attention that is shown", PARTS, (part) => store.set({ part }));
    this.part.node.classList.add("parts");
    this.heads = new Choice("Order of maps", [
      ["importance", "by importance", "the head first without which the loss changes most; where that is not known, the one that put most nats"],
      ["place", "by place", "a row a layer, a column a head"],
    ], (order) => store.set({ order })); // prettier-ignore
    this.filter = new Choice("Heads that are listed", [
      ["every", "all", "every head"], ["matter", "that matter", "only heads that are shown to matter"],
    ], (filter) => store.set({ filter })); // prettier-ignore
    this.top = new Choice("Colours", [
      ["map", "own largest", "colours go up to the largest weight of each map: maps cannot be compared by their colours"],
      ["fixed", "fixed", "the same colours for every map: maps can be compared"],
    ], (top) => store.set({ scale: top === "map" ? OWN : SCALES[0][0] })); // prettier-ignore
    this.scale = select("scale", (scale) => store.set({ scale }));
    this.legend = build("canvas", { class: "legend", role: "img", "aria-label": "Colour scale" });
    this.ends = [build("span", { class: "end" }), build("span", { class: "end" })];
    fillSelect(this.scale, SCALES.map(([value, label]) => ({ value, label })), store.scale);
    const legend = build("span", { class: "scale" }, this.ends[0], this.legend, this.ends[1]);
    this.error = build("p", { class: "error", role: "alert", hidden: true });
    const choices = [
      labelled("Run", this.run), labelled("Text", this.text), labelled("Compare with", this.other), this.otherStep, this.view.node, this.order.node,
    ]; // prettier-ignore
    this.line = build("div", { class: "line" }, ...(page ? [build("h1", { dir: "auto" }, page.title)] : choices), this.part.node);
    this.heads.node.classList.add("order-of-maps");
    this.filter.node.classList.add("listed-heads");
    this.scale.setAttribute("aria-label", "Fixed colours");
    colors.append(this.filter.node, this.heads.node, this.top.node, this.scale, legend);
    root.append(this.line, this.error);
    store.subscribe(["runs", "run", "index", "text"], () => this.showRuns());
    store.subscribe(["runs", "run", "index", "compare", "other"], () => this.showCompare());
    store.subscribe(["scale", "theme", "compare", "other", "maps"], () => this.showScale());
    store.subscribe(["order", "filter", "maps", "numbers", "answer"], () => this.showOrder());
    store.subscribe(["index", "text", "part"], () => this.showPart());
    store.subscribe(["errors"], () => this.showErrors());
    this.showPart();
    this.showCompare();
    this.showScale();
    this.showOrder();
  }

  chooseOther(run) {
    const before = this.store.compare ?? { view: "beside", order: "own" };
    const step = run === this.store.run ? "first" : "nearest";
    this.store.set({ compare: run === "" ? null : { ...before, run: run.slice(1), step: run.slice(1) === this.store.run ? "first" : step } });
  }

  change(changes) {
    this.store.set({ compare: { ...this.store.compare, ...changes } });
  }

  showRuns() {
    const { runs, run, index, text } = this.store;
    fillSelect(this.run, runs.map((each) => ({ value: each.run, label: each.error ? `${each.run} (cannot be read)` : each.run })), run);
    const name = (each) => `${each.name}: ${legible(each.text, 40)}`;
    fillSelect(this.text, (index?.texts ?? []).map((each, at) => ({ value: String(at), label: name(each) })), String(text));
    this.text.title = legible(index?.texts[text]?.text ?? "", 400);
  }

  showCompare() {
    const { runs, run, compare, other, steps } = this.store;
    const rest = runs.filter((each) => each.run !== run && !each.error).map((each) => ({ value: `=${each.run}`, label: each.run }));
    const options = [{ value: "", label: "nothing" }, { value: `=${run}`, label: "this run, another step" }, ...rest];
    fillSelect(this.other, options, compare ? `=${compare.run}` : "");
    for (const node of [this.otherStep, this.view.node, this.order.node]) node.hidden = compare === null;
    if (compare === null) return;
    const there = compare.run === run ? steps : (other?.index.steps ?? []);
    const fixed = there.map(({ step }) => ({ value: String(step), label: `step ${step}` }));
    const named = [["nearest", "nearest step"], ["first", "first step"], ["last", "last step"]];
    const ways = named.filter(([value]) => value !== "nearest" || compare.run !== run);
    const known = typeof compare.step === "number" && !there.some(({ step }) => step === compare.step);
    const missing = known ? [{ value: String(compare.step), label: `step ${compare.step}` }] : [];
    const steps_ = [...ways.map(([value, label]) => ({ value, label })), ...missing, ...fixed];
    fillSelect(this.otherStep, steps_, String(compare.step));
    this.view.show(compare.view);
    this.order.show(compare.order);
  }

  /* Only of a pair of texts there are parts. */
  showPart() {
    this.part.node.hidden = this.store.segments === null;
    this.part.show(this.store.part);
  }

  /* Only where something is known of the heads. */
  showOrder() {
    const { ranked, judged } = importanceOf(this.store);
    this.heads.node.hidden = ranked === null;
    this.filter.node.hidden = !judged;
    this.heads.show(this.store.order);
    this.filter.show(this.store.filter);
  }

  showScale() {
    const { scale, theme } = this.store;
    const differences = isDifference(this.store);
    const { top } = parseScale(scale);
    drawLegend(this.legend, differences, theme);
    const own = scale === OWN && !differences;
    this.top.node.hidden = differences;
    this.top.show(scale === OWN ? "map" : "fixed");
    this.scale.hidden = own;
    this.scale.value = scale === OWN ? SCALES[0][0] : scale;
    this.ends[0].textContent = differences ? `−${top ?? 1}` : "0";
    this.ends[1].textContent = differences ? `+${top ?? 1}` : own ? "largest" : top === null ? "max" : String(top);
    this.legend.title = own ? "from 0 to the largest weight of each map" : top === null ? "from 0 to the largest weight of each row" : "the same for every map";
  }

  showErrors() {
    const { errors } = this.store;
    showError(this.error, errors.runs);
    showError(this.whole, errors.index);
    document.body.classList.toggle("nothing", Boolean(errors.index) || this.store.runs.length === 0);
  }
}

/* One slider for the step, over maps and numbers at once. */

const FRAME = 100; // milliseconds between two steps that are played

export class StepSlider {
  constructor(root, store, loader) {
    Object.assign(this, { store, loader, timer: null });
    const icon = (name, label, onclick) => build("button", { class: `plain ${name}`, type: "button", title: label, "aria-label": label, onclick });
    this.play = icon("play", "Play the steps (p)", () => this.toggle());
    this.back = icon("back", "One step back (,)", () => this.move(-1));
    this.on = icon("on", "One step on (.)", () => this.move(1));
    this.range = build("input", { type: "range", min: "0", step: "1", value: "0", "aria-label": "Step" });
    this.range.addEventListener("input", () => this.choose(Number(this.range.value)));
    this.now = build("output", { class: "now" });
    this.kept = build("span", { class: "kept" });
    this.state = build("span", { class: "badge" });
    this.line = build("div", { class: "line steps" }, this.play, this.back, this.on, this.range, this.now, this.kept, this.state);
    root.append(this.line);
    store.subscribe(["index", "step", "runs", "shown"], () => this.show());
    store.subscribe(["playing"], () => this.showPlaying());
    this.showPlaying();
  }

  choose(place) {
    const { steps } = this.store;
    const inside = Math.min(steps.length - 1, Math.max(0, place));
    if (inside >= 0) this.store.set({ step: steps[inside].step, stepChosen: true, follow: inside === steps.length - 1 });
  }

  move(by) {
    this.choose(this.store.place + by);
  }

  toggle() {
    const { store } = this;
    if (!store.playing && store.place >= store.steps.length - 1) this.choose(0);
    store.set({ playing: !store.playing && store.steps.length > 1 });
    this.fetched = null;
    if (store.playing) this.tick(performance.now());
  }

  /* The next step, once the one before has been drawn and its time is over. */
  tick(due) {
    clearTimeout(this.timer);
    const { store } = this;
    if (!store.playing) return undefined;
    if (!isVisible()) return store.set({ playing: false });
    const { place, steps } = store;
    const drawn = store.shown === steps[place]?.step || store.errors.maps;
    let next = due;
    if (drawn && performance.now() >= due) {
      if (place >= steps.length - 1) return store.set({ playing: false });
      this.choose(place + 1);
      next = Math.max(due + FRAME, performance.now() + FRAME / 2);
    }
    if (this.fetched !== store.place) [1, 2].forEach((ahead) => this.loader.prefetch(store.place + ahead));
    this.fetched = store.place;
    this.timer = setTimeout(() => this.tick(next), drawn ? Math.max(4, next - performance.now()) : 8);
    return undefined;
  }

  show() {
    const { steps, place, index, shown } = this.store;
    this.line.hidden = this.store.page || steps.length === 0;
    this.now.classList.toggle("pending", shown !== (steps[place]?.step ?? NaN));
    if (steps.length === 0) return;
    this.range.max = String(steps.length - 1);
    this.range.value = String(place);
    this.range.setAttribute("aria-valuetext", `step ${steps[place].step}`);
    this.now.textContent = `step ${steps[place].step}`;
    const { recorded } = index;
    const all = steps.length === recorded;
    this.kept.textContent = all ? `${place + 1} of ${steps.length} recorded steps` : `${steps.length} of ${recorded} recorded steps kept`;
    this.kept.title = all ? "every step that was recorded is here"
      : `thinned to fit the budget of ${Math.round(index.budget / 2 ** 20)} MiB: each ${index.every}th step; the first and the last always stay`; // prettier-ignore
  }

  showPlaying() {
    const { playing } = this.store;
    this.play.textContent = playing ? "❚❚" : "▶";
    this.play.setAttribute("aria-pressed", String(playing));
  }
}
