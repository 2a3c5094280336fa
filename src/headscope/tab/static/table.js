/* The numbers of every head: a row a head. A click on a column's name sorts. */

import { EFFECTS, NO_PATTERN, headsOf, rankHeads } from "./ablation.js";
import { button, element, formatNumber, isolated, legible } from "./dom.js";
import { panel, showError, wordsOf } from "./dom.js";

/* The columns in their order, by the names of the record: [what stands above it, its title]. */
const FIRST = {
  effect: ["effect", "whether ablating the head changes the loss, by 95 % intervals"],
  loss_zeroed: ["loss change", "of the loss when the head's output is set to zero, in nats"],
  accuracy_zeroed: ["accuracy change", "of the accuracy when the head's output is set to zero"],
  contribution: ["contribution", "what passes through it to the log-odds of the predicted class"],
  role: ["role", "what the head does, by rules over its numbers; the rule's score is in the title"],
};
const MORE = {
  entropy_share: ["entropy share", "of a query's weights, over ln of the tokens: 0 one key, 1 all"],
  mean_distance: ["distance", "tokens between a query and what it looks at, mean"],
  self: ["self", "weight to the token itself"],
  previous: ["previous", "weight to the token before"],
  next: ["next", "weight to the token after"],
  first: ["first", "weight to the first token, [CLS]"],
  separator: ["separator", "weight to separators, [SEP]"],
  crossing: ["crossing", "of pairs: weight from one text to the other"],
};
const COLUMNS = { ...FIRST, ...MORE };
const IN_WORDS = ["role", "effect"];

/* What is known of heads at a step, as the columns ask for it; `at` is [layer, head]. */
class Numbers {
  constructor({ numbers, index }) {
    Object.assign(this, { extra: numbers.extra, measures: numbers.measures });
    this.layerNames = index.layers;
    this.heads = index.heads.flatMap((count, layer) => {
      return Array.from({ length: count }, (_, head) => [layer, head]);
    });
  }

  /* The names of the measures, those that are known to this table first. */
  get names() {
    const has = (name) => Object.hasOwn(this.measures, name);
    const known = Object.keys(COLUMNS).filter(has);
    return [...known, ...Object.keys(this.measures).filter((name) => !known.includes(name))];
  }

  has(name) {
    const key = { effect: "effects", role: "roles" }[name];
    return key ? key in this.extra : Object.hasOwn(this.measures, name);
  }

  value(name, [layer, head]) {
    if (name === "effect") return EFFECTS[this.extra.effects?.[layer]?.[head]]?.name ?? null;
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
    return name === "effect" && value !== null ? order.indexOf(value) : value;
  }
}

const TITLE = "Numbers of every head";

export class HeadTable {
  constructor(store) {
    Object.assign(this, { store, rows: [], columns: [], layout: "" });
    this.sorted = null; // the column and direction that the reader chose
    this.hasMore = null; // whether the reader unfolded the other columns
    const caption = element("caption", "unseen", "Every head with its numbers");
    this.header = element("tr");
    this.body = element("tbody");
    const table = element("table", {}, caption, element("thead", {}, this.header), this.body);
    const name = { role: "region", "aria-label": TITLE };
    this.scroll = element("div", { class: "table-scroll", tabindex: "0", ...name }, table);
    this.panel = panel("table", TITLE, this.scroll);
    this.root = this.panel.root;
    this.more = button("All columns", "", () => this.unfold(), "plain fold");
    this.panel.tools.append(this.more);
    store.subscribe(["numbers", "bestNumbers", "maps", "index", "text"], () => this.show());
    store.subscribe(["layer", "head"], () => this.showChosen());
    store.subscribe(["errors"], () => this.showErrors());
  }

  show() {
    const { store } = this;
    if (store.index === null || store.numbers === null) return;
    this.numbers = new Numbers(store);
    this.lay(this.choose());
    this.rows.forEach((row) => this.fill(row));
    const best = store.index.best ?? null;
    const isHere = best === null || best === store.numbers.step || this.numbers.has("loss_zeroed");
    const where = isHere || store.page ? "" : `heads were ablated at step ${best}`;
    this.panel.title.replaceChildren(TITLE, element("small", {}, where));
    this.sort();
    this.showChosen();
  }

  /* The columns that show: all of them before heads are ablated. */
  choose() {
    const { numbers, store } = this;
    const first = Object.keys(FIRST).filter((name) => numbers.has(name));
    const others = numbers.names.filter((name) => !Object.hasOwn(FIRST, name));
    const waits = (store.index.best ?? null) === null && !numbers.has("loss_zeroed");
    this.isUnfolded = this.hasMore ?? waits;
    this.more.setAttribute("aria-expanded", String(this.isUnfolded));
    return this.isUnfolded ? [...first, ...others] : first;
  }

  unfold() {
    this.hasMore = !this.isUnfolded;
    this.show();
  }

  /* Make the header and the rows, where they are not the right ones already. */
  lay(columns) {
    const { heads, layerNames } = this.numbers;
    const layout = JSON.stringify([columns, heads, layerNames]);
    if (layout !== this.layout) {
      Object.assign(this, { layout, columns });
      this.header.replaceChildren(...["head", ...columns].map((name) => this.headerCell(name)));
      this.rows = heads.map((at) => this.createRow(at));
      this.body.replaceChildren();
    }
    this.rows.forEach((row, place) => (row.at = heads[place]));
  }

  headerCell(name) {
    const attributes = { scope: "col", "data-column": name, class: this.classOf(name) };
    const [label, title] = Object.hasOwn(COLUMNS, name) ? COLUMNS[name] : [wordsOf(name), ""];
    const words = legible(label, 40);
    return element("th", attributes, button(words, title, () => this.sortBy(name), ""));
  }

  classOf(name) {
    if (IN_WORDS.includes(name)) return "words";
    return Object.hasOwn(FIRST, name) ? "" : "tight";
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
      const [words, small, title] = this.wordsOf(name, at);
      cell.replaceChildren(words, element("small", "error-of", small));
      cell.title = title;
      if (name === "effect") cell.dataset.effect = words;
      if (name === "role") cell.classList.toggle("quiet", words === NO_PATTERN);
    });
  }

  /* What a cell shows: the thing itself, what stands small beside it, and its title. */
  wordsOf(name, at) {
    const { numbers } = this;
    const value = numbers.value(name, at);
    if (name === "effect") return [value ?? "–", "", ""];
    if (name === "role") {
      return [legible(value ?? "–", 40), "", `score ${formatNumber(numbers.score(at))}`];
    }
    const error = value === null ? null : numbers.error(name, at);
    const words = error === null ? "" : `±${formatNumber(error)}`;
    if (!Object.hasOwn(FIRST, name)) return [formatNumber(value), "", words];
    return [formatNumber(value), words && ` ${words}`, ""];
  }

  /* What the rows are sorted by: what the reader chose, else importance, as the grid (""). */
  get order() {
    const { numbers, sorted } = this;
    if (sorted !== null && (sorted.column === "head" || numbers.has(sorted.column))) return sorted;
    return { column: rankHeads(headsOf(this.store)) === null ? "head" : "", falling: false };
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
    const important = column === "" ? rankHeads(headsOf(this.store)) : [];
    const rankOf = (row, place) => {
      if (column === "head") return place;
      const [layer, head] = row.at;
      if (column !== "") return this.numbers.rank(column, row.at);
      return important.findIndex((each) => each.layer === layer && each.head === head);
    };
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
      const direction = falling ? "descending" : "ascending";
      cell.setAttribute("aria-sort", cell.dataset.column === column ? direction : "none");
    }
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
    showError(this.panel.error, isSaid ? words : errors.numbers);
    this.scroll.hidden = Boolean(errors.numbers);
  }
}
