/* The numbers of every head: a row a head. Which heads matter and what their role is always show; the other columns are
   in groups that a click on the group's name unfolds. A column's name sorts by it, and all of it can be saved as a file. */

import { SAID } from "./answer.js";
import { build, element, formatNumber, isolated, legible, showError, wordsOf } from "./dom.js";
import { betweenOf } from "./pairs.js";
import { fileName } from "./share.js";

/* The columns in their order: name, what stands above it, what it shows. Errors of what a head looks at are small, and
   stand in the title of a number, so that the group fits. What no group names is shown as it comes. */
const ALWAYS = ["verdict", "loss_zeroed", "accuracy_zeroed", "nats", "role"];
const LOOKS = [
  "entropy_share", "entropy", "mean_distance", "self", "previous", "next", "first", "last", "separator", "crossing",
  "between", "same_token", "position_only",
]; // prettier-ignore
const DEPENDS = ["gate_gradient", "loss_averaged", "accuracy_averaged", "comprehensiveness", "sufficiency"];
const GROUPS = [
  ["what it looks at", LOOKS],
  ["what depends on it", DEPENDS],
  ["other numbers", null],
  ["over the steps", ["line"]],
  ["most like", ["like"]],
];
const UNFOLDED = ["what it looks at", "other numbers", "over the steps"]; // while nothing else is known

const WORDS = {
  loss_zeroed: "loss rise", accuracy_zeroed: "accuracy change", nats: "nats for the class", mean_distance: "distance",
  loss_averaged: "loss rise, averaged", accuracy_averaged: "accuracy change, averaged",
}; // prettier-ignore
const ORDER = { 1: 2, "-1": 1, 0: 0 }; // of verdicts, when sorted by them

/* What a table of words has for a name, which may be any. */
function wordsIn(table, name) {
  return Object.hasOwn(table, name) ? table[name] : wordsOf(name);
}

function inOrder(names) {
  const known = [...ALWAYS, ...LOOKS, ...DEPENDS];
  return [...known.filter((name) => names.includes(name)), ...names.filter((name) => !known.includes(name))];
}

/* What is known of heads, as the columns ask for it: numbers with their errors, verdicts, roles, and which is most like. */
class Known {
  constructor({ numbers, index, layerNames }, measures) {
    Object.assign(this, { measures, layerNames, extra: numbers?.extra ?? {} });
    const { likeness } = this.extra;
    this.heads = index.heads.flatMap((count, layer) => Array.from({ length: count }, (_, head) => [layer, head]));
    this.likeness = Array.isArray(likeness) && likeness.length === this.heads.length ? likeness : null;
  }

  /* Whether any head has it. */
  has(name) {
    if (name === "verdict") return Array.isArray(this.extra.verdicts);
    if (name === "role") return Array.isArray(this.extra.roles);
    if (name === "like") return this.likeness !== null;
    return name in this.measures;
  }

  number(name, layer, head) {
    return this.measures[name]?.mean?.[layer]?.[head] ?? null;
  }

  error(name, layer, head) {
    return this.number(name, layer, head) === null ? null : (this.measures[name].error?.[layer]?.[head] ?? null);
  }

  verdict(layer, head) {
    const verdict = this.extra.verdicts?.[layer]?.[head];
    return verdict in SAID ? verdict : null;
  }

  role(layer, head) {
    return this.extra.roles?.[layer]?.[head] || null;
  }

  score(layer, head) {
    return this.extra["roles/score"]?.[layer]?.[head] ?? null;
  }

  /* By what a column sorts; null comes last. */
  rank(name, layer, head) {
    if (name === "verdict") return ORDER[this.verdict(layer, head)] ?? null;
    return name === "role" ? this.role(layer, head) : this.number(name, layer, head);
  }

  /* The head whose maps are nearest, [layer, head, divergence], or null. */
  nearest(layer, head) {
    const at = this.heads.findIndex(([of, number]) => of === layer && number === head);
    const row = this.likeness?.[at] ?? [];
    const others = [...row.keys()].filter((other) => other !== at && row[other] !== null);
    if (others.length === 0) return null;
    const best = others.reduce((least, other) => (row[other] < row[least] ? other : least));
    return [...this.heads[best], row[best]];
  }

  get verdictTitle() {
    const { studied, "verdicts/smallest": smallest } = this.extra;
    const over = studied > 0 ? `over ${studied} texts` : "over the texts that were studied";
    const from = typeof smallest === "number" ? `; a change of the loss counts from ${formatNumber(smallest)} nats` : "";
    return `whether the loss rises without the head, ${over}: it matters, it does nothing, or that cannot be said with so few${from}`;
  }
}

/* All numbers of all heads as comma-separated values (RFC 4180). Names come from the record of whoever wrote it: one that a
   spreadsheet would take for a formula is led by an apostrophe. */
function valuesOf(known) {
  const cell = (value) => {
    if (value === null) return "";
    if (typeof value === "number") return String(Number(value.toPrecision(8))); // a record has them in 32 bits
    const text = legible(value, 1000).replace(/^[=+\-@＝＋－＠]/, "'$&");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const columns = [
    ["layer", (layer) => known.layerNames[layer] ?? `layer ${layer}`], ["head", (_, head) => head],
    ["verdict", (...at) => SAID[known.verdict(...at)] ?? null], ["role", (...at) => known.role(...at)],
    ["role_score", (...at) => known.score(...at)],
  ]; // prettier-ignore
  for (const name of inOrder(Object.keys(known.measures))) {
    columns.push([name, (...at) => known.number(name, ...at)], [`${name}_error`, (...at) => known.error(name, ...at)]);
  }
  columns.push(["most_like_layer", (...at) => known.layerNames[known.nearest(...at)?.[0]] ?? null]);
  columns.push(["most_like_head", (...at) => known.nearest(...at)?.[1] ?? null]);
  columns.push(["most_like_divergence", (...at) => known.nearest(...at)?.[2] ?? null]);
  const lines = known.heads.map((at) => columns.map(([, value]) => cell(value(...at))));
  return [columns.map(([name]) => cell(name)), ...lines].map((line) => `${line.join(",")}\r\n`).join("");
}

/* What each number says, for its column's title. */
const MEANINGS = {
  head: "layer and head",
  role: "what the head does, by rules over its numbers; the score of the rule is in the title",
  like: "the other head whose maps are nearest, of all layers: Jensen-Shannon divergence in nats",
  entropy: "entropy of a query's weights in nats, mean: 0 if each looks at one key",
  entropy_share: "entropy, as a share of the largest that a text of that length allows",
  mean_distance: "how many tokens away a query looks, mean",
  self: "weight that a token gives to itself",
  previous: "weight that a token gives to the one before",
  next: "weight that a token gives to the one after",
  first: "weight given to the first token, [CLS]",
  last: "weight given to the last token",
  separator: "weight given to separators, [SEP]",
  crossing: "of pairs: weight that a token of one text gives to tokens of the other, mean; special tokens are of neither text",
  between: "crossing of the shown pair alone, at the shown step",
  same_token: "weight given to the other places where the same token stands",
  position_only: "share of the texts where the place alone tells what a query looks at most",
  loss_zeroed: "by how much the loss rises without the head, its output set to zero, in nats: above 0, the head was of use",
  accuracy_zeroed: "change of the accuracy when the head's output is set to zero: below 0, the head was of use",
  loss_averaged: "change of the loss when the head's output is set to its mean: above 0, the head was of use",
  accuracy_averaged: "change of the accuracy when the head's output is set to its mean: below 0, the head was of use",
  gate_gradient: "size of the loss's gradient by a gate on the head (Michel et al. 2019)",
  nats: "what the head put for the class that a text is given, against the mean of classes: above 0, it spoke for it",
  comprehensiveness: "how much the prediction falls without the tokens that the head points at: more is better",
  sufficiency: "how much the prediction falls with only the tokens that the head points at: less is better",
};

/* How a number of a head went over the steps: a small line, and a dot at the step that is shown. */

const [WIDTH, HEIGHT, EDGE] = [84, 18, 2];

function finite(value) {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/* One range for all heads, so that their lines can be compared. */
function rangeOf(measure) {
  const values = (measure?.mean ?? []).flat(2).filter(finite);
  if (values.length === 0) return [0, 1];
  const [low, high] = values.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
  return high > low ? [low, high] : [low - 0.5, low + 0.5];
}

class Spark {
  constructor() {
    this.node = element("span", "spark");
    this.canvas = element("canvas");
    this.dot = element("span", "dot");
    this.node.append(this.canvas, this.dot);
  }

  /* Values by steps, drawn where the steps lie. */
  draw(steps, values, [low, high], color) {
    Object.assign(this, { steps, values, low, high });
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this.canvas, { width: WIDTH * ratio, height: HEIGHT * ratio });
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.strokeStyle = color;
    context.lineWidth = 1.2;
    context.lineJoin = "round";
    context.beginPath();
    let down = false;
    values.forEach((value, place) => {
      if (!finite(value)) return void (down = false);
      context[down ? "lineTo" : "moveTo"](this.x(steps[place]), this.y(value));
      down = true;
    });
    context.stroke();
  }

  x(step) {
    const [first, last] = [this.steps[0], this.steps.at(-1)];
    return EDGE + ((WIDTH - 2 * EDGE) * (step - first)) / (last - first || 1);
  }

  y(value) {
    return HEIGHT - EDGE - ((HEIGHT - 2 * EDGE) * (value - this.low)) / (this.high - this.low);
  }

  mark(step) {
    const value = this.values?.[this.steps.indexOf(step)];
    this.dot.hidden = !finite(value);
    if (this.dot.hidden) return;
    this.dot.style.left = `${this.x(step)}px`;
    this.dot.style.top = `${this.y(value)}px`;
  }
}

export class HeadTable {
  constructor(section, store) {
    Object.assign(this, { section, store, rows: [], columns: [], shape: "", dirty: false, seen: true });
    this.sorted = null; // the column and direction that the reader chose
    this.chosen = null; // the groups that the reader left unfolded
    this.table = section.querySelector("table");
    this.error = section.querySelector(".error");
    this.heading = section.querySelector("h2");
    const toggle = (name) => this.toggle(name);
    this.buttons = GROUPS.map(([name]) => build("button", { class: "plain fold", type: "button", onclick: () => toggle(name) }, name));
    const title = "all numbers of all heads, with errors, as comma-separated values";
    this.save = build("button", { class: "plain", type: "button", title, onclick: () => this.download() }, "Save CSV");
    section.querySelector(".tools").append(...this.buttons, this.save);
    store.subscribe(["numbers", "index", "text"], () => this.want());
    store.subscribe(["maps"], () => store.segments !== null && this.want());
    store.subscribe(["series", "theme"], () => this.drawLines());
    store.subscribe(["layer", "head"], () => this.showChosen());
    store.subscribe(["errors"], () => this.showErrors());
    const watcher = new IntersectionObserver(([entry]) => {
      this.seen = entry.isIntersecting;
      if (this.dirty) this.want();
    }, { rootMargin: "200px" });
    watcher.observe(section);
  }

  /* Numbers that cannot be seen wait: a moving slider has enough to draw. */
  want() {
    this.dirty = !this.seen && this.rows.length > 0;
    if (!this.dirty) this.show();
  }

  /* What was measured over many texts and, where the shown one is a pair, what each head gives between its two texts. */
  measured() {
    const { maps, segments, numbers, index } = this.store;
    if (segments === null) return numbers?.measures ?? {};
    const between = (layer, head) => {
      const shares = maps?.has(layer, head) ? maps.quadrants(layer, head) : null;
      return shares === null ? null : betweenOf(shares, segments);
    };
    const mean = index.heads.map((count, layer) => Array.from({ length: count }, (_, head) => between(layer, head)));
    return { between: { mean }, ...numbers?.measures };
  }

  show() {
    const { store } = this;
    if (store.index === null || store.numbers === null) return;
    this.known = new Known(store, this.measured());
    const columns = this.choose();
    const shape = JSON.stringify([columns, store.index.heads, store.layerNames]);
    const isNew = shape !== this.shape;
    if (isNew) this.lay(columns);
    this.shape = shape;
    this.rows.forEach((row) => this.fill(row));
    const { kept } = store.index;
    const elsewhere = typeof kept === "number" && kept !== store.numbers.step && !this.known.has("loss_zeroed") && !store.page;
    const where = elsewhere ? `which heads matter was measured at step ${kept}` : "";
    this.heading.replaceChildren("Numbers of every head", element("small", "", where));
    if (isNew) this.drawLines();
    else this.markLines();
    this.arrange();
  }

  /* The columns that show. Before it is known which heads matter, what they look at is all that there is to see. */
  choose() {
    const { known, store } = this;
    const measures = Object.keys(known.measures);
    const grouped = new Set(["head", ...ALWAYS, ...GROUPS.flatMap(([, names]) => names ?? [])]);
    const of = (names) => {
      if (names === null) return measures.filter((name) => !grouped.has(name));
      return names.filter((name) => (name === "line" ? store.steps.length > 1 : known.has(name)));
    };
    const waits = (store.index.kept ?? null) === null && !known.has("loss_zeroed");
    const unfolded = (this.unfolded = this.chosen ?? new Set(waits ? UNFOLDED : []));
    const groups = GROUPS.map(([name, names]) => [name, of(names)]);
    groups.forEach(([name, names], at) => {
      this.buttons[at].hidden = names.length === 0;
      this.buttons[at].setAttribute("aria-expanded", String(unfolded.has(name)));
    });
    const open = groups.filter(([name]) => unfolded.has(name)).map(([, names]) => names);
    this.starts = new Set(open.map(([first]) => first));
    return [...of(ALWAYS), ...open.flat()];
  }

  toggle(name) {
    this.chosen = new Set(this.unfolded);
    if (!this.chosen.delete(name)) this.chosen.add(name);
    this.show();
  }

  lay(columns) {
    this.columns = columns;
    const header = ["head", ...columns].map((name) => this.headerCell(name));
    this.table.tHead.rows[0].replaceChildren(...header);
    this.rows = this.known.heads.map(([layer, head]) => this.createRow(layer, head));
  }

  headerCell(name) {
    const cell = build("th", { scope: "col", "data-column": name, class: this.classOf(name) });
    const title = name === "verdict" ? this.known.verdictTitle : wordsIn(MEANINGS, name);
    if (name === "line") cell.append(element("span", "line-name", "over the steps"));
    else if (name === "like") cell.append(build("span", { title }, "most like"));
    else cell.append(build("button", { type: "button", title, onclick: () => this.sortBy(name) }, legible(wordsIn(WORDS, name), 40)));
    return cell;
  }

  classOf(name) {
    const kind = ["role", "verdict", "line", "like"].includes(name) ? "words" : LOOKS.includes(name) ? "tight" : "";
    return this.starts.has(name) ? `${kind} starts` : kind;
  }

  createRow(layer, head) {
    const name = this.store.layerNames[layer];
    const button = build("button", { type: "button", "aria-label": `${name}, head ${head}` }, isolated(name), ` · ${head}`);
    const row = build("tr", { onclick: () => this.store.set({ layer, head }) }, build("th", { scope: "row" }, button));
    const spark = new Spark();
    const cells = this.columns.map((column) => {
      const inside = column === "line" ? [spark.node] : [element("span", "value"), element("small", "error-of")];
      return build("td", { "data-column": column, class: this.classOf(column) }, ...inside);
    });
    row.append(...cells);
    return { layer, head, node: row, spark, cells };
  }

  /* Nodes are touched where they change alone: there may be thousands. */
  fill({ layer, head, cells }) {
    this.columns.forEach((name, place) => {
      if (name === "line") return;
      const cell = cells[place];
      const [value, small, title] = this.words(name, layer, head);
      if (cell.firstChild.textContent !== value) cell.firstChild.textContent = value;
      if (cell.lastChild.textContent !== small) cell.lastChild.textContent = small;
      if (cell.title !== title) cell.title = title;
      if (name === "verdict") cell.dataset.verdict = String(this.known.verdict(layer, head));
      if (name === "role") cell.classList.toggle("quiet", value === "no clear pattern");
    });
  }

  /* What a cell says: the thing itself, what stands small beside it, and its title. */
  words(name, layer, head) {
    const { known } = this;
    if (name === "verdict") return [SAID[known.verdict(layer, head)] ?? "–", "", ""];
    if (name === "role") {
      const score = known.score(layer, head);
      return [legible(known.role(layer, head) ?? "–", 40), "", score === null ? "" : `score ${formatNumber(score)}`];
    }
    if (name === "like") {
      const [there, number, divergence] = known.nearest(layer, head) ?? [];
      if (there === undefined) return ["–", "", ""];
      return [`${legible(known.layerNames[there], 20)} · ${number}`, ` ${formatNumber(divergence)}`, ""];
    }
    const error = known.error(name, layer, head);
    const after = error === null ? "" : `±${formatNumber(error)}`;
    const inTitle = LOOKS.includes(name);
    return [formatNumber(known.number(name, layer, head)), inTitle || !after ? "" : ` ${after}`, inTitle ? after : ""];
  }

  /* What the rows are sorted by: what the reader chose or, where this step has not got it, by importance. */
  get order() {
    const { known } = this;
    if (this.sorted !== null && (this.sorted.column === "head" || known.has(this.sorted.column))) return this.sorted;
    return known.has("loss_zeroed") ? { column: "loss_zeroed", falling: true } : { column: "head", falling: false };
  }

  /* A number is more often looked for at its largest, so the first click sorts downwards; names start upwards. */
  sortBy(column) {
    const { order } = this;
    this.sorted = { column, falling: column === order.column ? !order.falling : !["head", "role"].includes(column) };
    this.drawLines();
    this.arrange();
  }

  /* Heads without the number come last either way; equal ones keep the order of the model. */
  arrange() {
    const { column, falling } = this.order;
    const sign = falling ? -1 : 1;
    const ranked = this.rows.map((row, place) => [column === "head" ? place : this.known.rank(column, row.layer, row.head), row]);
    ranked.sort(([left], [right]) => {
      if (left === null || right === null) return (left === null) - (right === null);
      return sign * (typeof left === "string" ? left.localeCompare(right) : left - right);
    });
    const nodes = ranked.map(([, row]) => row.node);
    const body = this.table.tBodies[0];
    const same = body.children.length === nodes.length && nodes.every((node, place) => body.children[place] === node);
    if (!same) body.replaceChildren(...nodes);
    for (const cell of this.table.tHead.rows[0].cells) {
      if (cell.querySelector("button") === null) continue;
      cell.setAttribute("aria-sort", cell.dataset.column !== column ? "none" : falling ? "descending" : "ascending");
    }
    this.showChosen();
  }

  /* The lines are of what the rows are sorted by, or else of the first number that was measured more than once. */
  drawLines() {
    const { series } = this.store;
    if (!series || !this.columns.includes("line")) return;
    const often = (name) => (series.measures[name]?.mean ?? []).flat().some((values) => values.filter(finite).length > 1);
    const measure = [this.order.column, ...inOrder(Object.keys(series.measures))].find(often) ?? null;
    const values = series.measures[measure] ?? { mean: [] };
    this.table.querySelector(".line-name").textContent = measure === null ? "over the steps" : `${wordsOf(measure)} over the steps`;
    const range = rangeOf(values);
    const color = getComputedStyle(this.section).getPropertyValue("--bar");
    for (const row of this.rows) row.spark.draw(series.steps, values.mean[row.layer]?.[row.head] ?? [], range, color);
    this.markLines();
  }

  markLines() {
    if (this.columns.includes("line")) for (const row of this.rows) row.spark.mark(this.store.numbers?.step);
  }

  showChosen() {
    const { layer, head } = this.store;
    for (const row of this.rows) {
      if (row.layer === layer && row.head === head) row.node.setAttribute("aria-current", "true");
      else row.node.removeAttribute("aria-current");
    }
  }

  showErrors() {
    const { errors } = this.store;
    const said = errors.numbers && errors.numbers === errors.maps; // above, of the same file
    showError(this.error, said ? "The numbers of this step cannot be read." : (errors.numbers ?? errors.series));
    this.section.querySelector(".table-scroll").hidden = Boolean(errors.numbers);
    this.save.disabled = Boolean(errors.numbers);
  }

  download() {
    const { store } = this;
    if (store.index === null || store.numbers === null) return;
    const content = valuesOf(new Known(store, this.measured()));
    const url = URL.createObjectURL(new Blob([content], { type: "text/csv" }));
    const parts = store.page ? [document.title] : [store.run, `step ${store.numbers.step}`];
    build("a", { href: url, download: fileName([...parts, "heads"], "csv") }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}
