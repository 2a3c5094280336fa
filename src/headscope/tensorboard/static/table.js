/* The numbers of every head: a row a head, a column a number with its standard error; a column's name sorts by it. */

import { build, element, formatNumber, isolated, legible, showError, wordsOf } from "./dom.js";
import { betweenOf } from "./pairs.js";

/* What a head seems to be, by rules over its numbers. Each rule says in words when it holds. */

const AT_LEAST = (measure, limit) => (numbers) => numbers[measure] !== undefined && numbers[measure] >= limit;
const AT_MOST = (measure, limit) => (numbers) => numbers[measure] !== undefined && numbers[measure] <= limit;

const RULES = [
  { name: "previous token", holds: AT_LEAST("previous", 0.4), words: "gives at least 0.4 of its weight to the token before" },
  { name: "next token", holds: AT_LEAST("next", 0.4), words: "gives at least 0.4 of its weight to the token after" },
  { name: "itself", holds: AT_LEAST("self", 0.4), words: "each token gives at least 0.4 of its weight to itself" },
  { name: "first-token sink", holds: AT_LEAST("first", 0.4), words: "gives at least 0.4 of its weight to the first token, such as [CLS]" },
  { name: "separator sink", holds: AT_LEAST("separator", 0.4), words: "gives at least 0.4 of its weight to separators such as [SEP]" },
  { name: "across texts", holds: AT_LEAST("crossing", 0.6), words: "tokens of one text of a pair give at least 0.6 of their weight to the other text; about 0.45 if they look everywhere alike" },
  { name: "last token", holds: (numbers) => numbers.last >= 0.4 && !(numbers.separator >= 0.4), words: "gives at least 0.4 of its weight to the last token, which is no separator" },
  { name: "same token", holds: AT_LEAST("same_token", 0.4), words: "gives at least 0.4 of its weight to other places where the same token stands" },
  { name: "position only", holds: AT_LEAST("position_only", 0.9), words: "in at least 0.9 of the texts the place alone tells what a query looks at most, whatever the words are" },
  { name: "broad", holds: AT_LEAST("entropy_share", 0.9), words: "looks nearly everywhere alike: its entropy is at least 0.9 of the largest there is" },
  { name: "focused", holds: AT_MOST("entropy_share", 0.3), words: "looks at few tokens: its entropy is at most 0.3 of the largest there is" },
]; // prettier-ignore

/* The rules that hold for a head's numbers (measure -> value; what was not measured is missing). */
function rolesOf(numbers) {
  return RULES.filter((rule) => rule.holds(numbers));
}

/* What each known number says, for its column's title. */
const MEANINGS = {
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
  loss_zeroed: "change of the loss when the head's output is set to zero: above 0, the head was of use",
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

const FIRST = ["entropy", "entropy_share", "crossing", "between", "loss_zeroed", "loss_averaged", "accuracy_zeroed"];

/* The order of the columns: what a reader looks for first, then as they come. */
function orderOf(measures) {
  const names = Object.keys(measures);
  return [...FIRST.filter((name) => names.includes(name)), ...names.filter((name) => !FIRST.includes(name))];
}

export class HeadTable {
  constructor(section, store) {
    Object.assign(this, { section, store, column: null, falling: false, rows: [], measures: {}, shape: "", dirty: false, seen: true });
    this.table = section.querySelector("table");
    this.error = section.querySelector(".error");
    store.subscribe(["numbers", "index", "text"], () => this.want());
    store.subscribe(["maps"], () => store.segments !== null && this.want());
    store.subscribe(["series", "theme"], () => this.drawSparks());
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
    this.measures = this.measured();
    const columns = orderOf(this.measures);
    const shape = JSON.stringify([columns, store.index.heads, store.layerNames]);
    if (shape !== this.shape) this.lay(columns);
    this.shape = shape;
    this.rows.forEach((row) => this.fill(row));
    this.table.classList.toggle("still", store.steps.length < 2);
    this.table.classList.toggle("alone", !Array.isArray(store.numbers.extra?.likeness));
    this.markSparks();
    this.arrange();
  }

  lay(columns) {
    const { index } = this.store;
    this.columns = columns;
    if (!columns.includes(this.column)) this.column = null;
    const header = [this.headerCell("head", null, "layer and head"), element("th", "", "seems to be")];
    const [spark, like] = [element("th", "spark-name", "over steps"), element("th", "like-name", "most like")];
    like.scope = "col";
    like.title = "the other head whose maps are nearest, of all layers: Jensen-Shannon divergence in nats";
    header.push(spark, like, ...columns.map((name) => this.headerCell(wordsOf(name), name, MEANINGS[name] ?? wordsOf(name))));
    header[1].scope = header[2].scope = "col";
    this.table.tHead.rows[0].replaceChildren(...header);
    this.rows = index.heads.flatMap((count, layer) => Array.from({ length: count }, (_, head) => this.createRow(layer, head)));
    this.drawSparks();
  }

  headerCell(text, name, title) {
    const button = build("button", { type: "button", title, onclick: () => this.sortBy(name) }, text);
    const cell = build("th", { scope: "col" }, button);
    cell.measure = name;
    return cell;
  }

  createRow(layer, head) {
    const name = this.store.layerNames[layer];
    const button = build("button", { type: "button", "aria-label": `${name}, head ${head}` }, isolated(name), ` · ${head}`);
    const row = build("tr", { onclick: () => this.store.set({ layer, head }) }, build("th", { scope: "row" }, button));
    const roles = element("td", "roles");
    const spark = new Spark();
    const cells = this.columns.map(() => build("td", {}, element("span", "value"), element("small", "error-of")));
    const like = element("td", "like");
    row.append(roles, build("td", { class: "line-of" }, spark.node), like, ...cells);
    return { layer, head, node: row, roles, spark, like, cells, numbers: {} };
  }

  fill(row) {
    const at = (values) => values?.[row.layer]?.[row.head] ?? null;
    row.numbers = {};
    this.columns.forEach((name, place) => {
      const [mean, error] = [at(this.measures[name]?.mean), at(this.measures[name]?.error)];
      if (mean !== null) row.numbers[name] = mean;
      const [value, uncertainty] = row.cells[place].children;
      value.textContent = formatNumber(mean);
      uncertainty.textContent = error === null || mean === null ? "" : ` ±${formatNumber(error)}`;
    });
    const roles = rolesOf(row.numbers);
    const names = roles.map((rule) => rule.name).join("\n");
    if (row.shownRoles !== names) row.roles.replaceChildren(...roles.map((rule) => build("span", { class: "role", title: rule.words }, rule.name)));
    row.shownRoles = names;
    row.like.textContent = this.nearest(this.rows.indexOf(row));
  }

  /* The head that is most like another one, if that was measured: a table of divergences between all heads. */
  nearest(at) {
    const divergences = this.store.numbers.extra?.likeness;
    if (!Array.isArray(divergences) || divergences.length !== this.rows.length) return "";
    const order = [...divergences[at].keys()].filter((other) => other !== at && divergences[at][other] !== null);
    const best = order.reduce((least, other) => (divergences[at][other] < divergences[at][least] ? other : least), order[0]);
    if (best === undefined) return "";
    const { layer, head } = this.rows[best];
    return `${legible(this.store.layerNames[layer], 20)} · ${head} (${formatNumber(divergences[at][best])})`;
  }

  /* A number is more often looked for at its largest, so the first click sorts downwards; heads start upwards. */
  sortBy(column) {
    this.falling = column === this.column ? !this.falling : column !== null;
    this.column = column;
    this.drawSparks();
    this.arrange();
  }

  /* Heads without the number come last either way; equal ones keep the order of the model. */
  arrange() {
    const sign = this.falling ? -1 : 1;
    const value = (row) => (this.column === null ? this.rows.indexOf(row) : (row.numbers[this.column] ?? null));
    const order = this.rows.map((row) => [value(row), row]);
    order.sort(([left], [right]) => {
      if (left === null || right === null) return (left === null) - (right === null);
      return sign * (left - right);
    });
    const nodes = order.map(([, row]) => row.node);
    const body = this.table.tBodies[0];
    const same = body.children.length === nodes.length && nodes.every((node, place) => body.children[place] === node);
    if (!same) body.replaceChildren(...nodes);
    for (const cell of this.table.tHead.rows[0].cells) {
      if (cell.measure === undefined) continue;
      cell.setAttribute("aria-sort", cell.measure !== this.column ? "none" : this.falling ? "descending" : "ascending");
    }
    this.showChosen();
  }

  drawSparks() {
    const { series } = this.store;
    const measure = this.column ?? this.columns?.[0] ?? null; // that is sorted by
    const values = series?.measures[measure] ?? { mean: [] }; // none of what is of the shown text alone
    const name = this.table.querySelector(".spark-name");
    if (name) name.textContent = measure ? `${wordsOf(measure)} over steps` : "over steps";
    if (!series) return;
    const range = rangeOf(values);
    const color = getComputedStyle(this.section).getPropertyValue("--bar");
    for (const row of this.rows) row.spark.draw(series.steps, values.mean[row.layer]?.[row.head] ?? [], range, color);
    this.markSparks();
  }

  markSparks() {
    const step = this.store.numbers?.step;
    if (this.store.series) for (const row of this.rows) row.spark.mark(step);
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
  }
}
