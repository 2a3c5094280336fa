/* The choice of run, text, step, comparison and colours; and what can be handed on. */

import { headsOf, rankHeads, studyOf } from "./ablation.js";
import { askMaps, askPage, page } from "./api.js";
import { OWN, SCALES, drawLegend, parseScale } from "./colors.js";
import { isDifference } from "./compare.js";
import { Choice, button, download, element, fillSelect, legible, showError } from "./dom.js";
import { PARTS } from "./pairs.js";
import { isVisible } from "./store.js";

const VIEWS = [
  ["beside", "beside", "both maps, side by side"],
  ["difference", "difference", "this minus that, on one symmetric scale"],
];
const MATCHES = [
  ["own", "own order", "each head beside the one of the same number"],
  ["matched", "matched", "each head beside the most similar one of its layer, for this text"],
];
const STEPS = [["nearest", "nearest step"], ["first", "first step"], ["last", "last step"]];

function select(name, label, onChoose) {
  const onchange = (event) => onChoose(event.target.value);
  return element("select", { class: `choose-${name}`, "aria-label": label, onchange });
}

function labelled(text, control) {
  return element("label", {}, element("span", {}, text), control);
}

/* The choice of run, text, and what it is compared with. */
export class Toolbar {
  constructor(store) {
    this.store = store;
    this.run = select("run", "Run", (run) => {
      store.set({ run, step: null, stepChosen: false, follow: true, lock: null, key: null });
    });
    this.text = select("text", "Text", (text) => {
      store.set({ text: Number(text), query: 0, key: null, lock: null });
    });
    this.other = select("other", "Compare with", (run) => this.chooseOther(run));
    this.otherStep = select("other-step", "Step that is compared with", (step) => {
      this.change({ step: /^\d+$/.test(step) ? Number(step) : step });
    });
    this.view = new Choice("View", VIEWS, (view) => this.change({ view }));
    this.order = new Choice("Order of heads", MATCHES, (order) => this.change({ order }));
    this.part = new Choice("Attention shown", PARTS, (part) => store.set({ part }), "parts");
    this.ofCompare = [this.otherStep, this.view.node, this.order.node];
    const text = labelled("Text", this.text);
    text.hidden = page !== null && page.texts.length < 2;
    const ofTab = [labelled("Run", this.run), text, labelled("Compare with", this.other)];
    const ofPage = [element("h1", { dir: "auto" }, page?.title ?? ""), text];
    const choices = page ? ofPage : [...ofTab, ...this.ofCompare];
    this.error = element("p", { class: "error", role: "alert", hidden: true });
    this.root = element(
      "header", { class: "toolbar", "aria-label": "What is shown" },
      element("div", "line", ...choices, this.part.node), this.error,
    );
    this.whole = element("p", { class: "error whole", role: "alert", hidden: true });
    store.subscribe(["runs", "run", "index", "text"], () => this.showRuns());
    store.subscribe(["runs", "run", "index", "compare", "other"], () => this.showCompare());
    store.subscribe(["index", "text", "part"], () => this.showPart());
    store.subscribe(["errors"], () => this.showErrors());
    this.showPart();
    this.showCompare();
    if (page) this.namePredictions();
  }

  chooseOther(value) {
    const { store } = this;
    const run = value.slice(1); // after "=", since a run may have no name
    const before = store.compare ?? { view: "beside", order: "own" };
    const step = run === store.run ? "first" : "nearest";
    store.set({ compare: value === "" ? null : { ...before, run, step } });
  }

  change(changes) {
    this.store.set({ compare: { ...this.store.compare, ...changes } });
  }

  showRuns() {
    const { runs, run, index, text, shownText } = this.store;
    const nameOf = (each) => (each.error ? `${each.run} (cannot be read)` : each.run);
    fillSelect(this.run, runs.map((each) => [each.run, nameOf(each)]), run);
    const words = (each, place) => {
      const named = page ? `${place + 1}${this.predictions?.[place] ?? ""}` : each.name;
      return [String(place), `${named}: ${legible(each.text, 40)}`];
    };
    fillSelect(this.text, (index?.texts ?? []).map(words), String(text));
    this.text.title = legible(shownText?.text ?? "", 400);
  }

  /* On a page, each text with its label and what it was taken for. */
  async namePredictions() {
    const { texts, classes } = page.index;
    const maps = await Promise.all(texts.map((_, place) => askMaps("", null, place)));
    this.predictions = texts.map(({ label }, place) => {
      const { predicted } = maps[place].prediction(classes);
      return ` ${label ?? "–"} → ${predicted ?? "–"}`;
    });
    this.showRuns();
  }

  showCompare() {
    const { runs, run, compare, other, steps } = this.store;
    const others = runs.filter((each) => each.run !== run && !each.error);
    const options = [["", "nothing"], [`=${run}`, "this run, another step"]];
    options.push(...others.map((each) => [`=${each.run}`, each.run]));
    fillSelect(this.other, options, compare ? `=${compare.run}` : "");
    for (const node of this.ofCompare) node.hidden = compare === null;
    if (compare === null) return;
    const isOwn = compare.run === run;
    const there = (isOwn ? steps : (other?.index.steps ?? [])).map(({ step }) => step);
    const isNumber = typeof compare.step === "number";
    if (isNumber && !there.includes(compare.step)) there.unshift(compare.step);
    const named = STEPS.filter(([name]) => name !== "nearest" || !isOwn);
    const numbered = there.map((step) => [String(step), `step ${step}`]);
    fillSelect(this.otherStep, [...named, ...numbered], String(compare.step));
    this.view.show(compare.view);
    this.order.show(compare.order);
  }

  /* Only of a pair of texts there are parts. */
  showPart() {
    this.part.node.hidden = this.store.segments === null;
    this.part.show(this.store.part);
  }

  showErrors() {
    const { errors, runs } = this.store;
    showError(this.error, errors.runs);
    showError(this.whole, errors.index);
    document.body.classList.toggle("nothing", Boolean(errors.index) || runs.length === 0);
  }
}

const ORDERS = [
  ["importance", "by importance", "the largest change of the loss, or contribution, first"],
  ["place", "by place", "a row a layer, a column a head"],
];
const FILTERS = [
  ["every", "all", "every head"],
  ["matter", "that matter", "only heads that are shown to matter"],
];
const TOPS = [
  ["map", "own largest", "up to the largest weight of each map: not to be compared by colour"],
  ["fixed", "fixed", "the same colours for every map: maps can be compared"],
];

/* How the small maps are ordered, which are listed, and the colours of all maps. */
export class MapControls {
  constructor(store) {
    this.store = store;
    const chooseOrder = (order) => store.set({ order });
    const chooseFilter = (filter) => store.set({ filter });
    const chooseTop = (top) => store.set({ scale: top === "map" ? OWN : SCALES[0][0] });
    this.order = new Choice("Order of maps", ORDERS, chooseOrder, "order-of-maps");
    this.filter = new Choice("Heads listed", FILTERS, chooseFilter, "listed-heads");
    this.top = new Choice("Colours", TOPS, chooseTop);
    this.scale = select("scale", "Fixed colours", (scale) => store.set({ scale }));
    this.legend = element("canvas", { class: "legend", role: "img", "aria-label": "Colour scale" });
    this.low = element("span", "end");
    this.high = element("span", "end");
    fillSelect(this.scale, SCALES, SCALES[0][0]);
    const scale = element("span", "scale", this.low, this.legend, this.high);
    this.nodes = [this.filter.node, this.order.node, this.top.node, this.scale, scale];
    store.subscribe(["scale", "theme", "compare", "other", "maps"], () => this.showScale());
    store.subscribe(["order", "filter", "maps", "numbers", "bestNumbers"], () => this.showOrder());
    this.showScale();
    this.showOrder();
  }

  /* Only where something is known of the heads. */
  showOrder() {
    const { store } = this;
    this.order.node.hidden = rankHeads(headsOf(store)) === null;
    this.filter.node.hidden = !studyOf(store)?.effects;
    this.order.show(store.order);
    this.filter.show(store.filter);
  }

  showScale() {
    const { scale, theme } = this.store;
    const isSigned = isDifference(this.store);
    const isOwn = scale === OWN && !isSigned;
    const { top } = parseScale(scale);
    drawLegend(this.legend, isSigned, theme);
    this.top.node.hidden = isSigned;
    this.top.show(scale === OWN ? "map" : "fixed");
    this.scale.hidden = isOwn;
    this.scale.value = scale === OWN ? SCALES[0][0] : scale;
    this.low.textContent = isSigned ? `−${top ?? 1}` : "0";
    if (isSigned) this.high.textContent = `+${top ?? 1}`;
    else this.high.textContent = isOwn || top === null ? "largest" : String(top);
  }
}

const FRAME = 100; // milliseconds between two steps that are played

/* One slider for the step, over maps and numbers at once. */
export class StepSlider {
  constructor(store) {
    Object.assign(this, { store, timer: null });
    const icon = (name, label, onclick) => {
      const node = button("", label, onclick, `plain ${name}`);
      node.setAttribute("aria-label", label);
      return node;
    };
    this.play = icon("play", "Play the steps (p)", () => this.toggle());
    const back = icon("back", "One step back (,)", () => this.move(-1));
    const forward = icon("on", "One step forward (.)", () => this.move(1));
    const oninput = () => this.choose(Number(this.range.value));
    this.range = element("input", { type: "range", min: "0", "aria-label": "Step", oninput });
    this.now = element("output", "now");
    this.kept = element("span", "kept");
    this.badge = element("span", { class: "badge", hidden: true });
    const nodes = [this.play, back, forward, this.range, this.now, this.kept, this.badge];
    this.root = element("div", "line steps", ...nodes);
    store.subscribe(["index", "step", "runs", "shown"], () => this.show());
    store.subscribe(["playing"], () => this.showPlaying());
    this.show();
    this.showPlaying();
  }

  choose(place) {
    const { steps } = this.store;
    const inside = Math.min(steps.length - 1, Math.max(0, place));
    if (inside >= 0) this.store.chooseStep(steps[inside].step);
  }

  move(by) {
    this.choose(this.store.place + by);
  }

  toggle() {
    const { store } = this;
    if (!store.playing && store.place >= store.steps.length - 1) this.choose(0);
    store.set({ playing: !store.playing && store.steps.length > 1 });
    if (store.playing) this.tick(performance.now());
  }

  /* The next step, once the one before has been drawn and its time is over. */
  tick(due) {
    clearTimeout(this.timer);
    const { store } = this;
    if (!store.playing) return;
    const { place, steps } = store;
    const isDrawn = store.shown === steps[place]?.step || store.errors.maps;
    const isDue = isDrawn && performance.now() >= due;
    if (!isVisible() || (isDue && place >= steps.length - 1)) {
      store.set({ playing: false });
      return;
    }
    if (isDue) this.choose(place + 1);
    const next = isDue ? performance.now() + FRAME : due;
    this.timer = setTimeout(() => this.tick(next), 8);
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
    const { recorded, every } = index;
    const isThinned = steps.length < recorded;
    const all = `${place + 1} of ${steps.length} recorded steps`;
    this.kept.textContent = isThinned ? `${steps.length} of ${recorded} recorded steps kept` : all;
    this.kept.title = isThinned ? `each ${every}th step, the first and the last` : "";
  }

  showPlaying() {
    const { playing } = this.store;
    this.play.textContent = playing ? "❚❚" : "▶";
    this.play.setAttribute("aria-pressed", String(playing));
  }
}

/* Exactly this view, to hand on: a page that needs nothing else, and a link. */
export class ExportButtons {
  constructor(store, linkNow) {
    Object.assign(this, { store, linkNow });
    this.status = element("span", { class: "kept", role: "status" });
    const title = "one HTML file of this text and step, which needs nothing else";
    this.nodes = [
      button("Save page", title, () => this.savePage()),
      button("Copy link", "to exactly this view", () => this.copyLink()),
      this.status,
    ];
  }

  async savePage() {
    const { run, shownText, text, shown } = this.store;
    try {
      download(await askPage(run, shown, text), [run, shownText.name, `step ${shown}`], "html");
      this.status.textContent = "";
    } catch (error) {
      this.status.textContent = error.message;
    }
  }

  async copyLink() {
    try {
      await navigator.clipboard.writeText(this.linkNow());
      this.status.textContent = "Copied.";
    } catch {
      this.status.textContent = "It is in the address bar: copy it there.";
    }
  }
}
