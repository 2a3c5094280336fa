/* The numbers of every head: a row a head, a column a number with its standard error; a column's name sorts by it. */

import { build, element, formatNumber, isolated, legible, showError, wordsOf } from "./dom.js";
import { Filters } from "./filters.js";
import { MEANINGS, rolesOf } from "./rules.js";
import { betweenOf } from "./shared/pairs.js";
import { Spark, rangeOf } from "./spark.js";

export const FIRST = ["entropy", "entropy_share", "crossing", "between", "loss_zeroed", "loss_averaged", "accuracy_zeroed"];

/* The order of the columns: what a reader looks for first, then as they come. */
export function orderOf(measures) {
  const names = Object.keys(measures);
  return [...FIRST.filter((name) => names.includes(name)), ...names.filter((name) => !FIRST.includes(name))];
}

export class HeadTable {
  constructor(section, store) {
    Object.assign(this, { section, store, column: null, falling: false, rows: [], measures: {}, shape: "", dirty: false, seen: true });
    this.table = section.querySelector("table");
    this.error = section.querySelector(".error");
    this.filters = new Filters(section.querySelector(".tools"), store, () => this.arrange());
    store.subscribe(["numbers", "index", "text"], () => this.want());
    store.subscribe(["maps"], () => store.segments !== null && this.want());
    store.subscribe(["series", "theme"], () => this.drawSparks());
    store.subscribe(["measure"], () => this.drawSparks());
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
    this.filters.offer(index.layers, columns);
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
    row.append(roles, build("td", {}, spark.node), like, ...cells);
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
    this.arrange();
  }

  /* Heads without the number come last either way; equal ones keep the order of the model. */
  arrange() {
    const sign = this.falling ? -1 : 1;
    const value = (row) => (this.column === null ? this.rows.indexOf(row) : (row.numbers[this.column] ?? null));
    const order = this.rows.filter((row) => this.filters.lets(row)).map((row) => [value(row), row]);
    order.sort(([left], [right]) => {
      if (left === null || right === null) return (left === null) - (right === null);
      return sign * (left - right);
    });
    const nodes = order.map(([, row]) => row.node);
    const body = this.table.tBodies[0];
    const same = body.children.length === nodes.length && nodes.every((node, place) => body.children[place] === node);
    if (!same) body.replaceChildren(...nodes);
    this.filters.count(nodes.length, this.rows.length);
    for (const cell of this.table.tHead.rows[0].cells) {
      if (cell.measure === undefined) continue;
      cell.setAttribute("aria-sort", cell.measure !== this.column ? "none" : this.falling ? "descending" : "ascending");
    }
    this.showChosen();
  }

  drawSparks() {
    const { series, measure } = this.store;
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
    showError(this.error, errors.numbers ?? errors.series);
    this.section.querySelector(".table-scroll").hidden = Boolean(errors.numbers);
  }
}
