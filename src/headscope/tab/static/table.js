/* The numbers of every head: a row a head. A click on a column's name sorts. */

import { EFFECTS, NO_PATTERN, headsOf, rankHeads } from "./ablation.js";
import {
  button, element, formatNumber, isolated, legible, panel, showError, wordsOf,
} from "./dom.js";
import { headName } from "./store.js";
import { t } from "./strings.js";

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
const ORDER = ["no effect", "inconclusive", "matters"]; // of effects, when they are sorted

/* What is known of a head at a step, by column: {words, rank, error, title}. */
function cellOf({ measures, extra }, name, [layer, head]) {
  if (name === "effect") {
    const words = EFFECTS[extra.effects?.[layer]?.[head]] ?? "–";
    return { words, rank: words === "–" ? null : ORDER.indexOf(words) };
  }
  if (name === "role") {
    const role = extra.roles?.[layer]?.[head] || null;
    const title = `score ${formatNumber(extra["roles/score"]?.[layer]?.[head])}`;
    return { words: legible(role ?? "–", 40), rank: role, title };
  }
  const value = measures[name]?.mean?.[layer]?.[head] ?? null;
  const error = value === null ? null : (measures[name].error?.[layer]?.[head] ?? null);
  const words = error === null ? "" : ` ±${formatNumber(error)}`;
  const shown = { words: formatNumber(value), rank: value };
  return Object.hasOwn(FIRST, name) ? { ...shown, error: words } : { ...shown, title: words };
}

/* The columns that are known at a step, those that are known to this table first. */
function columnsOf({ measures, extra }) {
  const inExtra = { effect: "effects", role: "roles" };
  const has = (name) => (inExtra[name] ? inExtra[name] in extra : Object.hasOwn(measures, name));
  const known = Object.keys(COLUMNS).filter(has);
  return [...known, ...Object.keys(measures).filter((name) => !known.includes(name))];
}

export class HeadTable {
  constructor(store) {
    Object.assign(this, { store, sorted: null, columns: [], rows: [] });
    const title = t`Numbers of every head`;
    this.header = element("tr");
    this.body = element("tbody");
    const caption = element("caption", "unseen", title);
    const table = element("table", {}, caption, element("thead", {}, this.header), this.body);
    const attributes = { class: "table-scroll", tabindex: "0", role: "group", "aria-label": title };
    this.scroll = element("div", attributes, table);
    this.panel = panel("table", title, this.scroll);
    this.root = this.panel.root;
    this.about = element("small");
    this.panel.title.append(this.about);
    store.subscribe(["numbers", "bestNumbers", "maps", "index", "text"], () => this.show());
    store.subscribe(["layer", "head"], () => this.showChosen());
    store.subscribe(["errors"], () => this.showErrors());
  }

  show() {
    const { index, numbers } = this.store;
    if (index === null || numbers === null) return;
    const columns = columnsOf(numbers);
    if (columns.join() !== this.columns.join() || this.rows.length === 0) {
      this.columns = columns;
      this.header.replaceChildren(...["head", ...columns].map((name) => this.headerCell(name)));
    }
    this.root.hidden = columns.length === 0;
    const best = index.best ?? null;
    const isHere = best === null || best === numbers.step || columns.includes("loss_zeroed");
    this.about.textContent = isHere || this.store.page ? "" : t`heads were ablated at step ${best}`;
    this.rows = index.heads.flatMap((count, layer) => {
      return Array.from({ length: count }, (_, head) => this.row([layer, head]));
    });
    this.sort();
    this.showChosen();
  }

  headerCell(name) {
    const [label, title] = Object.hasOwn(COLUMNS, name) ? COLUMNS[name] : [wordsOf(name), ""];
    const sort = button(legible(label, 40), title, () => this.sortBy(name), "");
    return element("th", { scope: "col", "data-column": name, class: classOf(name) }, sort);
  }

  row(at) {
    const choose = element("button", { type: "button" });
    choose.append(isolated(headName(this.store.index.layers, ...at)));
    const ranks = {};
    const cells = this.columns.map((name) => {
      const { words, rank, error = "", title = "" } = cellOf(this.store.numbers, name, at);
      ranks[name] = rank;
      const quiet = words === NO_PATTERN ? " quiet" : "";
      const attributes = { "data-column": name, class: classOf(name) + quiet };
      const cell = element("td", attributes, words, element("small", "error-of", error));
      cell.title = title;
      if (name === "effect") cell.dataset.effect = words;
      return cell;
    });
    const onclick = () => this.store.chooseHead(...at);
    const node = element("tr", { onclick }, element("th", { scope: "row" }, choose), ...cells);
    return { at, ranks, node };
  }

  /* The first click sorts numbers downwards and names upwards. */
  sortBy(column) {
    const { order } = this;
    const isName = column === "head" || column === "role";
    this.sorted = { column, falling: column === order.column ? !order.falling : !isName };
    this.sort();
  }

  /* What the rows are sorted by: what the reader chose, else importance (""). */
  get order() {
    const { sorted, columns } = this;
    if (sorted !== null && ["head", ...columns].includes(sorted.column)) return sorted;
    return { column: rankHeads(headsOf(this.store)) === null ? "head" : "", falling: false };
  }

  /* Heads without the number come last either way; equal ones keep the order of the model. */
  sort() {
    const { column, falling } = this.order;
    const important = column === "" ? rankHeads(headsOf(this.store)) : [];
    const rankOf = ({ at, ranks }, place) => {
      if (column === "head") return place;
      if (column !== "") return ranks[column];
      return important.findIndex(({ layer, head }) => layer === at[0] && head === at[1]);
    };
    const ranked = this.rows.map((row, place) => ({ rank: rankOf(row, place), node: row.node }));
    ranked.sort(({ rank: left }, { rank: right }) => {
      if (left === null || right === null) return (left === null) - (right === null);
      const apart = typeof left === "string" ? left.localeCompare(right) : left - right;
      return falling ? -apart : apart;
    });
    this.body.replaceChildren(...ranked.map(({ node }) => node));
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
    const words = t`The numbers of this step cannot be read.`;
    showError(this.panel.error, isSaid ? words : errors.numbers);
    this.scroll.hidden = Boolean(errors.numbers);
  }
}

function classOf(name) {
  if (name === "role" || name === "effect") return "words";
  return Object.hasOwn(FIRST, name) ? "" : "tight";
}
