/* The numbers of every head: a row a head; a click on a column's name sorts, and groups of columns
   unfold. */

import { EFFECTS, NO_PATTERN } from "./ablation.js";
import {
  button, download, element, formatNumber, isolated, legible, panel, showError, wordsOf,
} from "./dom.js";
import { betweenOf } from "./pairs.js";

/* The columns, by the names of the record. Errors of the pattern stand in titles, to fit. */
const ALWAYS = ["verdict", "loss_zeroed", "accuracy_zeroed", "nats", "role"];
const PATTERN = [
  "entropy_share", "entropy", "mean_distance", "self", "previous", "next", "first", "last",
  "separator", "crossing", "between", "same_token", "position_only",
];
const OTHER_EFFECTS = [
  "gate_gradient", "loss_averaged", "accuracy_averaged", "comprehensiveness", "sufficiency",
];
const GROUPS = [
  ["attention pattern", PATTERN],
  ["other effects", OTHER_EFFECTS],
  ["other numbers", null],
  ["over the steps", ["line"]],
  ["most similar", ["like"]],
];
// Before heads are ablated:
const UNFOLDED = ["attention pattern", "other numbers", "over the steps"];
const IN_WORDS = ["role", "verdict", "line", "like"];

/* What stands above a column, where that is not the name of the record. */
const NAMES = new Map([
  ["verdict", "effect"],
  ["loss_zeroed", "loss change"],
  ["accuracy_zeroed", "accuracy change"],
  ["nats", "contribution"],
  ["mean_distance", "distance"],
  ["loss_averaged", "loss change, mean ablation"],
  ["accuracy_averaged", "accuracy change, mean ablation"],
  ["line", "over the steps"],
  ["like", "most similar"],
]);

/* Its title. */
const MEANINGS = new Map([
  ["verdict", "whether ablating the head changes the loss, by 95 % intervals"],
  ["role", "what the head does, by rules over its numbers; the score of the rule is in the title"],
  ["like", "the other head whose maps are nearest: Jensen-Shannon divergence in nats"],
  ["entropy", "entropy of a query's weights in nats: 0 if each looks at one key"],
  ["entropy_share", "entropy, as a share of the largest that a text of that length allows"],
  ["mean_distance", "tokens between a query and what it looks at, mean"],
  ["first", "weight to the first token, [CLS]"],
  ["separator", "weight to separators, [SEP]"],
  ["crossing", "of pairs: weight from one text to the other; special tokens are of neither text"],
  ["between", "crossing of the shown pair alone, at the shown step"],
  ["same_token", "weight to the other places of the same token"],
  ["position_only", "share of texts where the position alone tells what a query looks at most"],
  ["loss_zeroed", "change of the loss when the head's output is set to zero, in nats"],
  ["accuracy_zeroed", "change of the accuracy when the head's output is set to zero"],
  ["loss_averaged", "change of the loss when the head's output is set to its mean, in nats"],
  ["accuracy_averaged", "change of the accuracy when the head's output is set to its mean"],
  ["gate_gradient", "size of the loss's gradient by a gate on the head (Michel et al. 2019)"],
  ["nats", "contribution to the predicted class, in nats (direct logit attribution)"],
  ["comprehensiveness", "how much the prediction falls without the tokens that the head points at"],
  ["sufficiency", "how much the prediction falls with those tokens alone: less is better"],
]);

function inOrder(names) {
  const known = [...ALWAYS, ...PATTERN, ...OTHER_EFFECTS];
  const others = names.filter((name) => !known.includes(name));
  return [...known.filter((name) => names.includes(name)), ...others];
}

/* What is known of heads at a step, as the columns ask for it; `at` is [layer, head]. */
class Numbers {
  constructor({ numbers, index, maps, segments }) {
    this.extra = numbers.extra;
    this.measures = numbers.measures;
    this.layerNames = index.layers;
    this.heads = index.heads.flatMap((count, layer) => {
      return Array.from({ length: count }, (_, head) => [layer, head]);
    });
    if (segments === null) return;
    const between = (layer, head) => {
      const shares = maps?.has(layer, head) ? maps.quadrants(layer, head) : null;
      return shares === null ? null : betweenOf(shares, segments);
    };
    const mean = index.heads.map((count, layer) => {
      return Array.from({ length: count }, (_, head) => between(layer, head));
    });
    this.measures = { between: { mean }, ...numbers.measures };
  }

  has(name) {
    const key = { verdict: "verdicts", role: "roles", like: "likeness" }[name];
    return key ? key in this.extra : Object.hasOwn(this.measures, name);
  }

  value(name, [layer, head]) {
    if (name === "verdict") return EFFECTS[this.extra.verdicts?.[layer]?.[head]]?.name ?? null;
    if (name === "role") return this.extra.roles?.[layer]?.[head] || null;
    return this.measures[name]?.mean?.[layer]?.[head] ?? null;
  }

  error(name, [layer, head]) {
    return this.measures[name]?.error?.[layer]?.[head] ?? null;
  }

  score([layer, head]) {
    return this.extra["roles/score"]?.[layer]?.[head] ?? null;
  }

  /* By what a column sorts; null comes last. */
  rank(name, at) {
    const value = this.value(name, at);
    const order = ["no effect", "inconclusive", "matters"];
    return name === "verdict" && value !== null ? order.indexOf(value) : value;
  }

  /* The head whose maps are nearest, [layer, head, divergence]; empty where that is not known. */
  nearest([layer, head]) {
    const at = this.heads.findIndex((place) => place[0] === layer && place[1] === head);
    const row = this.extra.likeness?.[at] ?? [];
    const others = [...row.keys()].filter((other) => other !== at && row[other] !== null);
    if (others.length === 0) return [];
    const best = others.reduce((least, other) => (row[other] < row[least] ? other : least));
    return [...this.heads[best], row[best]];
  }
}

/* Names come from the record: one that a spreadsheet would take for a formula gets a quote. */
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(Number(value.toPrecision(8))); // of 32 bits
  const text = legible(value, 1000).replace(/^[=+\-@＝＋－＠]/, "'$&");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/* All numbers of all heads as comma-separated values (RFC 4180). */
function csvOf(numbers) {
  const measures = inOrder(Object.keys(numbers.measures));
  const nearest = ["most_like_layer", "most_like_head", "most_like_divergence"];
  const named = measures.flatMap((name) => [name, `${name}_error`]);
  const header = ["layer", "head", "verdict", "role", "role_score", ...named, ...nearest];
  const lines = numbers.heads.map((at) => {
    const [layer, head, divergence] = numbers.nearest(at);
    return [
      numbers.layerNames[at[0]], at[1],
      numbers.value("verdict", at), numbers.value("role", at), numbers.score(at),
      ...measures.flatMap((name) => [numbers.value(name, at), numbers.error(name, at)]),
      numbers.layerNames[layer], head, divergence,
    ];
  });
  return [header, ...lines].map((line) => `${line.map(csvCell).join(",")}\r\n`).join("");
}

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, EDGE] = [84, 18, 3];

function shape(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/* How a number of a head went over the steps: a small line, and a dot at the step that is shown. */
function sparkLine(steps, values, [low, high], shown) {
  const xOf = (step) => {
    const span = steps.at(-1) - steps[0] || 1;
    return EDGE + ((WIDTH - 2 * EDGE) * (step - steps[0])) / span;
  };
  const yOf = (value) => HEIGHT - EDGE - ((HEIGHT - 2 * EDGE) * (value - low)) / (high - low || 1);
  const isKnown = (place) => typeof values[place] === "number";
  const parts = steps.map((step, place) => {
    if (!isKnown(place)) return "";
    const pen = place > 0 && isKnown(place - 1) ? "L" : "M";
    return `${pen}${xOf(step).toFixed(1)} ${yOf(values[place]).toFixed(1)}`;
  });
  const node = shape("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}` });
  node.append(shape("path", { d: parts.join("") }));
  const place = steps.indexOf(shown);
  if (isKnown(place)) {
    node.append(shape("circle", { class: "dot", cx: xOf(shown), cy: yOf(values[place]), r: 2.5 }));
  }
  return node;
}

const TITLE = "Numbers of every head";

export class HeadTable {
  constructor(store) {
    Object.assign(this, { store, rows: [], columns: [], layout: "" });
    this.sorted = null; // the column and direction that the reader chose
    this.chosen = null; // the groups that the reader left unfolded
    const caption = element("caption", "unseen", "Every head with its numbers");
    this.header = element("tr");
    this.body = element("tbody");
    const table = element("table", {}, caption, element("thead", {}, this.header), this.body);
    const name = { role: "region", "aria-label": TITLE };
    this.scroll = element("div", { class: "table-scroll", tabindex: "0", ...name }, table);
    this.panel = panel("table", TITLE, this.scroll);
    this.root = this.panel.root;
    this.folds = GROUPS.map(([name]) => button(name, "", () => this.toggle(name), "plain fold"));
    const title = "all numbers of all heads, with errors, as comma-separated values";
    this.save = button("Save CSV", title, () => this.saveFile());
    this.panel.tools.append(...this.folds, this.save);
    store.subscribe(["numbers", "index", "text", "series"], () => this.show());
    store.subscribe(["maps"], () => store.segments !== null && this.show());
    store.subscribe(["layer", "head"], () => this.showChosen());
    store.subscribe(["errors"], () => this.showErrors());
  }

  show() {
    const { store } = this;
    if (store.index === null || store.numbers === null) return;
    this.numbers = new Numbers(store);
    this.lay(this.choose());
    this.series = this.seriesOf();
    this.rows.forEach((row) => this.fill(row));
    const best = store.index.kept ?? null;
    const isHere = best === null || best === store.numbers.step || this.numbers.has("loss_zeroed");
    const where = isHere || store.page ? "" : `heads were ablated at step ${best}`;
    this.panel.title.replaceChildren(TITLE, element("small", {}, where));
    this.sort();
    this.showChosen();
  }

  /* The columns that show: patterns, before heads are ablated. */
  choose() {
    const { numbers, store } = this;
    const grouped = new Set([...ALWAYS, ...GROUPS.flatMap(([, names]) => names ?? [])]);
    const others = Object.keys(numbers.measures).filter((name) => !grouped.has(name));
    const isShown = (name) => (name === "line" ? store.steps.length > 1 : numbers.has(name));
    const waits = (store.index.kept ?? null) === null && !numbers.has("loss_zeroed");
    this.unfolded = this.chosen ?? new Set(waits ? UNFOLDED : []);
    this.starts = new Set();
    const columns = ALWAYS.filter(isShown);
    GROUPS.forEach(([group, names], place) => {
      const own = names === null ? others : names.filter(isShown);
      const isUnfolded = this.unfolded.has(group);
      this.folds[place].hidden = own.length === 0;
      this.folds[place].setAttribute("aria-expanded", String(isUnfolded));
      if (!isUnfolded) return;
      this.starts.add(own[0]);
      columns.push(...own);
    });
    return columns;
  }

  toggle(name) {
    this.chosen = new Set(this.unfolded);
    if (!this.chosen.delete(name)) this.chosen.add(name);
    this.show();
  }

  /* Make the header and the rows, where they are not the right ones already. */
  lay(columns) {
    const { heads, layerNames } = this.numbers;
    const layout = JSON.stringify([columns, heads, layerNames]);
    if (layout === this.layout) return;
    Object.assign(this, { layout, columns });
    this.header.replaceChildren(...["head", ...columns].map((name) => this.headerCell(name)));
    this.rows = heads.map((at) => this.createRow(at));
    this.body.replaceChildren();
  }

  headerCell(name) {
    const attributes = { scope: "col", "data-column": name, class: this.classOf(name) };
    const words = legible(NAMES.get(name) ?? wordsOf(name), 40);
    const title = MEANINGS.get(name) ?? "";
    const sorts = name !== "line" && name !== "like";
    const onclick = () => this.sortBy(name);
    const label = sorts ? button(words, title, onclick, "") : element("span", { title }, words);
    return element("th", attributes, label);
  }

  classOf(name) {
    const names = this.starts.has(name) ? ["starts"] : [];
    if (IN_WORDS.includes(name)) names.push("words");
    if (PATTERN.includes(name)) names.push("tight");
    return names.join(" ");
  }

  createRow(at) {
    const [layer, head] = at;
    const name = this.numbers.layerNames[layer];
    const attributes = { type: "button", "aria-label": `${name}, head ${head}` };
    const choose = element("button", attributes, isolated(name), ` · ${head}`);
    const cells = this.columns.map((column) => {
      return element("td", { "data-column": column, class: this.classOf(column) });
    });
    const header = element("th", { scope: "row" }, choose);
    const onclick = () => this.store.chooseHead(layer, head);
    return { at, cells, node: element("tr", { onclick }, header, ...cells) };
  }

  fill({ at, cells }) {
    this.columns.forEach((name, place) => {
      const cell = cells[place];
      if (name === "line") {
        cell.replaceChildren(this.lineOf(at));
        return;
      }
      const [words, small, title] = this.wordsOf(name, at);
      cell.replaceChildren(words, element("small", "error-of", small));
      cell.title = title;
      if (name === "verdict") cell.dataset.effect = words;
      if (name === "role") cell.classList.toggle("quiet", words === NO_PATTERN);
    });
  }

  /* What a cell says: the thing itself, what stands small beside it, and its title. */
  wordsOf(name, at) {
    const { numbers } = this;
    if (name === "like") {
      const [layer, head, divergence] = numbers.nearest(at);
      if (layer === undefined) return ["–", "", ""];
      const nearest = `${legible(numbers.layerNames[layer], 20)} · ${head}`;
      return [nearest, ` ${formatNumber(divergence)}`, ""];
    }
    const value = numbers.value(name, at);
    if (name === "verdict") return [value ?? "–", "", ""];
    if (name === "role") {
      return [legible(value ?? "–", 40), "", `score ${formatNumber(numbers.score(at))}`];
    }
    const error = numbers.error(name, at);
    const small = value === null || error === null ? "" : `±${formatNumber(error)}`;
    if (PATTERN.includes(name)) return [formatNumber(value), "", small];
    return [formatNumber(value), small && ` ${small}`, ""];
  }

  /* What the rows are sorted by: what the reader chose, else the effect. */
  get order() {
    const { numbers, sorted } = this;
    if (sorted !== null && (sorted.column === "head" || numbers.has(sorted.column))) return sorted;
    const isKnown = numbers.has("loss_zeroed");
    return isKnown ? { column: "loss_zeroed", falling: true } : { column: "head", falling: false };
  }

  /* The first click sorts numbers downwards and names upwards. */
  sortBy(column) {
    const { order } = this;
    const isName = column === "head" || column === "role";
    this.sorted = { column, falling: column === order.column ? !order.falling : !isName };
    this.show();
  }

  /* Heads without the number come last either way; equal ones keep the order of the model. */
  sort() {
    const { column, falling } = this.order;
    const rankOf = (row, place) => (column === "head" ? place : this.numbers.rank(column, row.at));
    const ranked = this.rows.map((row, place) => ({ rank: rankOf(row, place), node: row.node }));
    ranked.sort(({ rank: left }, { rank: right }) => {
      if (left === null || right === null) return (left === null) - (right === null);
      const apart = typeof left === "string" ? left.localeCompare(right) : left - right;
      return falling ? -apart : apart;
    });
    const isSorted = ranked.every(({ node }, place) => this.body.children[place] === node);
    const nodes = ranked.map(({ node }) => node);
    if (!isSorted) this.body.replaceChildren(...nodes); // which loses the focus
    for (const cell of this.header.cells) {
      if (cell.querySelector("button") === null) continue;
      const direction = falling ? "descending" : "ascending";
      cell.setAttribute("aria-sort", cell.dataset.column === column ? direction : "none");
    }
  }

  /* What the lines show: what the rows are sorted by, else the first measure of several steps; and
     the range of all heads. */
  seriesOf() {
    const { series } = this.store;
    if (!series || !this.columns.includes("line")) return null;
    const valuesOf = (name) => (series.measures[name]?.mean ?? []).flat(2).filter(Number.isFinite);
    const isOften = (name) => {
      const heads = (series.measures[name]?.mean ?? []).flat();
      return heads.some((values) => values.filter(Number.isFinite).length > 1);
    };
    const name = [this.order.column, ...inOrder(Object.keys(series.measures))].find(isOften);
    if (name === undefined) return null;
    const header = this.header.querySelector("[data-column=line] span");
    header.textContent = `${wordsOf(name)} over the steps`;
    const fold = (better) => valuesOf(name).reduce((best, value) => better(best, value));
    const range = [fold((a, b) => Math.min(a, b)), fold((a, b) => Math.max(a, b))];
    return { steps: series.steps, means: series.measures[name].mean, range };
  }

  lineOf([layer, head]) {
    const { steps, means, range } = this.series ?? {};
    const values = means?.[layer]?.[head];
    return values ? sparkLine(steps, values, range, this.store.numbers.step) : "";
  }

  showChosen() {
    const { layer, head } = this.store;
    for (const { at, node } of this.rows) {
      node.removeAttribute("aria-current");
      if (at[0] === layer && at[1] === head) node.setAttribute("aria-current", "true");
    }
  }

  showErrors() {
    const { errors } = this.store;
    const isSaid = errors.numbers && errors.numbers === errors.maps; // above, of the same file
    const words = "The numbers of this step cannot be read.";
    showError(this.panel.error, isSaid ? words : (errors.numbers ?? errors.series));
    this.scroll.hidden = Boolean(errors.numbers);
    this.save.disabled = Boolean(errors.numbers);
  }

  saveFile() {
    const { store } = this;
    if (store.index === null || store.numbers === null) return;
    const content = csvOf(new Numbers(store));
    const parts = store.page ? [document.title] : [store.run, `step ${store.numbers.step}`];
    download(new Blob([content], { type: "text/csv" }), [...parts, "heads"], "csv");
  }
}
