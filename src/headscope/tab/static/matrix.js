/* Heads and the words that decide, of one layer: what passes through each head at each of them, the
   sums of rows and columns, what goes past the layer and the biases above; where the network runs
   here, each head can be switched on, to an average, or off. */

import { contributionsOf, sumOf } from "./contributions.js";
import {
  button, chooser, element, fillSelect, formatSigned, isolated, panel, percent,
} from "./dom.js";
import { roundedTable, roundedTo } from "./rounding.js";
import { tint } from "./text.js";
import { t } from "./strings.js";

const ROWS = 8; // heads in sight
const STATES = [
  ["on", t`on`, t`as it is`],
  ["uniform", t`average`, t`a plain average over the tokens in place of its map`],
  ["zero", t`off`, t`its output set to zero`],
];

export class MatrixView {
  constructor(store) {
    Object.assign(this, { store, layout: "", isWhole: false });
    this.about = element("small");
    this.table = element("table", "cells-table");
    const name = { role: "region", "aria-label": t`Heads and words`, tabindex: "0" };
    this.scroll = element("div", { class: "table-scroll", ...name }, this.table);
    this.panel = panel("heads-words", t`What passes through each head`, this.scroll);
    this.root = this.panel.root;
    this.panel.title.append(this.about);
    this.layers = chooser("layer", t`Layer`, (layer) => this.chooseLayer(Number(layer)));
    this.whole = button(t`All heads and words`, "", () => {
      this.isWhole = !this.isWhole;
      this.show();
    }, "plain fold");
    this.few = button("", t`all others off`, () => this.keepOnly());
    this.all = button(t`All heads on`, t`undo (a)`, () => store.set({ ablated: new Map() }));
    this.panel.tools.append(this.layers, this.few, this.all, this.whole);
    this.table.addEventListener("pointerover", (event) => this.point(event));
    this.table.addEventListener("focusin", (event) => this.point(event));
    this.table.addEventListener("pointerleave", () => store.leave());
    const shown = ["maps", "index", "text", "other", "compare", "pair", "unit", "layer", "word"];
    store.subscribe([...shown, "ablated"], () => this.show());
    store.subscribe(["lit", "head"], () => this.mark());
    new ResizeObserver(() => this.show()).observe(this.root);
    this.show();
  }

  point(event) {
    const { token } = event.target.closest("[data-token]")?.dataset ?? {};
    if (token !== undefined) this.store.pointWord(Number(token));
  }

  /* Another layer, and of it the head that passes most. */
  chooseLayer(layer) {
    const [head] = contributionsOf(this.store).headsOf(layer)[0] ?? [0];
    this.store.chooseHead(layer, head);
  }

  show() {
    const { store } = this;
    const contributions = contributionsOf(store);
    this.root.hidden = contributions === null || store.shownText === null;
    if (this.root.hidden) return;
    this.contributions = contributions;
    this.layer = Math.min(store.layer, contributions.layers - 1);
    this.words = contributions.inWords(store.shownText, store.unit);
    this.showTools();
    this.choose();
    this.fill();
    this.mark();
  }

  showTools() {
    const { store, contributions, layer } = this;
    const { index, ablated, canSwitch } = store;
    const isOne = contributions.layers === 1;
    this.layers.hidden = isOne;
    const options = index.layers.map((_, at) => [String(at), store.layerName(at)]);
    fillSelect(this.layers, options, String(layer));
    this.all.hidden = !canSwitch;
    this.all.disabled = ablated.size === 0;
    const few = this.fewest();
    this.few.hidden = few === null;
    if (few !== null) this.few.textContent = t`Only the ${few.length} heads that are enough`;
    this.whole.setAttribute("aria-expanded", String(this.isWhole));
    const where = t`at that position, where the words have mixed`;
    const cell = layer === 0 ? t`at that word` : where;
    this.about.textContent = `${isOne ? "" : `${store.layerName(layer)}, `}${cell}`;
  }

  /* The fewest heads that keep the accuracy; null where it takes all, or none is known. */
  fewest() {
    const { canSwitch, numbers } = this.store;
    const heads = numbers?.extra["sets/heads"] ?? [];
    const count = numbers?.extra["sets/enough"] ?? 0;
    return canSwitch && count > 0 && count < heads.length ? heads.slice(0, count) : null;
  }

  keepOnly() {
    const kept = new Set(this.fewest().map((place) => place.join()));
    const places = this.store.index.heads.flatMap((count, layer) => {
      return Array.from({ length: count }, (_, head) => `${layer},${head}`);
    });
    const others = places.filter((place) => !kept.has(place));
    this.store.set({ ablated: new Map(others.map((place) => [place, "zero"])) });
  }

  /* Which heads are rows and which words are columns. While heads are switched they stay where
     they are; so the node that has the focus does. */
  choose() {
    const { store, layer, contributions, words, isWhole } = this;
    const room = Math.max(2, Math.floor((this.root.clientWidth - 440) / 84) || 8);
    const { shownText, shown, unit, word, pair } = store;
    const key = [shownText, shown, unit, word, pair?.join(), layer, isWhole, room];
    const isSame = this.chosen?.every((part, at) => part === key[at]) ?? false;
    const { groups, units } = words;
    if (isSame && this.columns.every(({ at }) => at < groups.length)) return;
    this.chosen = key;
    this.heads = contributions.headsOf(layer).map(([head]) => head);
    if (!isWhole) this.heads = this.heads.slice(0, this.heads.length > ROWS ? ROWS - 1 : ROWS);
    const isPinned = ({ places }) => {
      return word !== null && places.some((at) => word >= units[at].start && word < units[at].end);
    };
    const isColumn = (group, at) => isWhole || at < room || isPinned(group);
    this.names = groups.filter(isColumn).map((group) => group.word);
    this.build();
  }

  /* The words that have a column, as groups of the shown contributions. */
  get columns() {
    const places = new Map(this.words.groups.map((group, at) => [group.word, at]));
    return (this.names ?? []).map((name) => ({ name, at: places.get(name) ?? Infinity }));
  }

  build() {
    const { store, words, layer } = this;
    const groups = this.columns.map(({ at }) => words.groups[at]);
    this.hasOthers = groups.length < words.groups.length || this.contributions.unseen !== 0;
    const token = ({ places }) => ({ "data-token": String(words.units[places[0]].start) });
    const at = () => (layer === 0 ? [] : [element("small", {}, t`at `)]);
    const header = groups.map((group) => {
      const times = group.places.length > 1 ? ` ×${group.places.length}` : "";
      const name = [...at(), isolated(group.word), element("small", {}, times)];
      return element("th", { scope: "col", ...token(group) }, ...name);
    });
    if (this.hasOthers) {
      const count = sumOf(words.groups.map(({ places }) => places.length));
      const own = sumOf(groups.map(({ places }) => places.length));
      header.push(element("th", { scope: "col", class: "others" }, t`${count - own} others`));
    }
    const cellsOf = () => [
      ...groups.map((group) => element("td", { class: "cell", ...token(group) })),
      ...(this.hasOthers ? [element("td", "cell others")] : []),
      element("td", "sum-of"),
    ];
    const rowOf = (...name) => {
      return element("tr", {}, element("th", { scope: "row" }, ...name), ...cellsOf());
    };
    this.rows = this.heads.map((head) => {
      const choose = () => store.chooseHead(layer, head);
      const name = button(store.headName(layer, head), t`show where it looks`, choose, "head-name");
      const without = element("small", "without");
      const row = rowOf(...(store.canSwitch ? [this.switchOf(head)] : []), name, without);
      row.dataset.head = String(head);
      return row;
    });
    const others = this.contributions.headsOf(layer).length - this.heads.length;
    if (others > 0) this.rows.push(rowOf(t`${others} other heads`));
    this.foot = rowOf(t`all heads`);
    this.rest = element("td", { class: "rest", colspan: String(header.length + 1) });
    const first = element("td");
    header.push(element("th", { scope: "col" }, t`sum`));
    this.table.replaceChildren(
      element("thead", {}, element("tr", {}, first, ...header)),
      element("tbody", {}, ...this.rows),
      element("tfoot", {}, this.foot, element("tr", {}, this.rest)),
    );
  }

  /* On, average, off. */
  switchOf(head) {
    const { store, layer } = this;
    const buttons = STATES.map(([state, name, title]) => {
      const node = button(name, title, () => store.switchHead(layer, head, state), "state");
      node.dataset.state = state;
      return node;
    });
    const label = { role: "group", "aria-label": store.headName(layer, head) };
    return element("span", { class: "switch", ...label }, ...buttons);
  }

  /* All numbers, in hundredths that add up. */
  fill() {
    const { store, contributions, layer, words, heads, hasOthers } = this;
    const groups = this.columns.map(({ at }) => at);
    const lineOf = (head) => {
      const all = contributions.ofGroups(layer, head, words);
      const cells = groups.map((at) => all[at]);
      const rest = contributions.headSum(layer, head) - sumOf(cells);
      return hasOthers ? [...cells, rest] : cells;
    };
    const table = heads.map(lineOf);
    const others = contributions.headsOf(layer).filter(([head]) => !heads.includes(head));
    if (others.length > 0) {
      const lines = others.map(([head]) => lineOf(head));
      table.push(lines[0].map((_, column) => sumOf(lines.map((line) => line[column]))));
    }
    const sums = table.map(sumOf);
    const columns = (table[0] ?? []).map((_, column) => sumOf(table.map((line) => line[column])));
    const parts = [[t`past the layer`, contributions.past[layer]]];
    parts.push([t`biases above`, contributions.biasesAbove(layer)]);
    if (contributions.missed !== 0) parts.push([t`not attributed`, contributions.missed]);
    const total = Math.round(100 * contributions.total);
    const values = [sumOf(sums), ...parts.map(([, value]) => value)];
    const [ofHeads, ...ofParts] = roundedTo(values, total);
    const ofRows = roundedTo(sums, ofHeads);
    const ofColumns = roundedTo(columns, ofHeads);
    const rounded = roundedTable(table, ofRows, ofColumns);
    const most = ofRows.reduce((top, number) => Math.max(top, Math.abs(number / 100)), words.scale);
    this.rows.forEach((row, at) => {
      const cells = [...row.querySelectorAll("td")];
      rounded[at].forEach((number, column) => put(cells[column], number, words.scale));
      putSum(cells.at(-1), ofRows[at], most);
    });
    const foot = [...this.foot.querySelectorAll("td")];
    ofColumns.forEach((number, at) => (foot[at].textContent = formatSigned(number / 100, 2)));
    foot.at(-1).textContent = formatSigned(ofHeads / 100, 2);
    const terms = parts.map(([name], at) => ` ${formatSigned(ofParts[at] / 100, 2)} ${name}`);
    const end = element("strong", {}, formatSigned(total / 100, 2));
    const name = contributions.layers === 1 ? t`the layer` : store.layerName(layer);
    const all = t`${formatSigned(ofHeads / 100, 2)} through ${name}`;
    this.rest.replaceChildren(all, ...terms, " = ", end);
    this.showStates();
  }

  /* How each head is switched; of a record, what the asked class would have without it. */
  showStates() {
    const { store, layer, contributions } = this;
    for (const row of this.rows) {
      const head = Number(row.dataset.head);
      const state = store.ablated.get(`${layer},${head}`) ?? "on";
      for (const node of row.querySelectorAll(".state")) {
        node.setAttribute("aria-pressed", String(node.dataset.state === state));
      }
      const without = store.maps.ablated(layer, head)?.head[contributions.asked] ?? null;
      if (without === null || row.dataset.head === undefined) continue;
      row.querySelector(".without").textContent = t`off: ${percent(without)}`;
    }
  }

  mark() {
    if (this.root.hidden) return;
    const { lit, head } = this.store;
    const { units, groups } = this.words;
    const isIn = (at) => lit >= units[at].start && lit < units[at].end;
    const group = lit === null ? undefined : groups.find(({ places }) => places.some(isIn));
    const first = group && String(units[group.places[0]].start);
    for (const cell of this.table.querySelectorAll("[data-token]")) {
      cell.classList.toggle("lit", cell.dataset.token === first);
    }
    for (const row of this.rows) {
      const isChosen = row.dataset.head === String(head);
      row.querySelector(".head-name")?.setAttribute("aria-pressed", String(isChosen));
    }
  }
}

function put(cell, hundredths, scale) {
  cell.textContent = formatSigned(hundredths / 100, 2);
  tint(cell, hundredths / 100, scale);
}

/* A sum with a bar, which runs left where it is negative. */
function putSum(cell, hundredths, scale) {
  const bar = element("span", { class: "sum-bar", "aria-hidden": "true" });
  cell.replaceChildren(element("b", {}, formatSigned(hundredths / 100, 2)), bar);
  tint(bar, hundredths / 100, scale);
}
