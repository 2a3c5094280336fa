/* The sum of each head, with its main words; the prediction, whose classes can be asked about. */

import { largest } from "./colors.js";
import { contributionsOf, sumOf } from "./contributions.js";
import { barLine, button, element, formatSigned, isolated, panel } from "./dom.js";
import { unitsOf } from "./words.js";

const WORDS = 4; // named for each head
const HEADS = 6; // in sight, as strips are; the others in one line
const CLASSES = 8; // of the prediction

export class SumsView {
  constructor(store) {
    this.store = store;
    this.list = element("ul", "sums");
    this.matrix = element("details", "matrix", element("summary", {}, "Heads × words"));
    this.table = element("div", "table-scroll");
    this.matrix.append(this.table);
    this.matrix.addEventListener("toggle", () => this.showMatrix());
    this.panel = panel("sums-panel", "What passes through each head", this.list, this.matrix);
    this.root = this.panel.root;
    const shown = ["maps", "index", "text", "other", "compare", "label", "only", "unit"];
    store.subscribe(shown, () => this.show());
    this.show();
  }

  show() {
    const contributions = contributionsOf(this.store);
    this.root.hidden = contributions === null;
    if (this.root.hidden) return;
    const { ranked, layer: ownLayer, past } = contributions;
    const above = contributions.biasesAbove(ownLayer);
    const parts = [[`past layer ${ownLayer}`, past[ownLayer], ["the residual stream"]]];
    parts.push(["biases above", above, ["input-independent"]]);
    if (contributions.missed !== 0) parts.push(["not attributed", contributions.missed, []]);
    const rest = ranked.slice(HEADS).reduce((sum, [, , nats]) => sum + nats, 0);
    const most = largest([...ranked.map((own) => own[2]), ...parts.map((own) => own[1])]) || 1;
    const lines = ranked.slice(0, HEADS).map(([layer, head, nats]) => {
      return line(this.nameOf(layer, head), nats, most, this.wordsOf(contributions, layer, head));
    });
    if (ranked.length > HEADS) lines.push(line(`${ranked.length - HEADS} more`, rest, most, []));
    lines.push(...parts.map(([name, value, words]) => line(name, value, most, words)));
    this.list.replaceChildren(...lines);
    this.matrix.hidden = ranked.length <= 2;
    this.showMatrix();
  }

  /* A head as a button: its strip alone, and its map. */
  nameOf(layer, head) {
    const { store } = this;
    const isAlone = store.only?.[0] === layer && store.only?.[1] === head;
    const name = store.headName(layer, head);
    const title = "shade what this head adds alone, and show its map";
    const node = button(name, title, () => store.toggleOnly(layer, head), "head-name");
    node.setAttribute("aria-pressed", String(isAlone));
    return node;
  }

  /* The words of a head, equal ones as one, the largest first. */
  wordsOf(contributions, layer, head) {
    const sums = new Map();
    const cells = contributions.ofHead(layer, head);
    for (const { word, start, end } of unitsOf(this.store.shownText, this.store.unit)) {
      sums.set(word, (sums.get(word) ?? 0) + sumOf(cells.subarray(start, end)));
    }
    const ranked = [...sums].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, WORDS);
    return ranked.flatMap(([word, value], at) => {
      return [at === 0 ? "“" : ", “", isolated(word), `” ${formatSigned(value)}`];
    });
  }

  /* All cells as numbers, the largest heads and words first; made only where it is open. */
  showMatrix() {
    const contributions = contributionsOf(this.store);
    if (!this.matrix.open || this.matrix.hidden || contributions === null) return;
    const { tokens } = this.store;
    const sums = contributions.words;
    const places = [...sums.keys()].sort((a, b) => Math.abs(sums[b]) - Math.abs(sums[a]));
    const most = largest(contributions.cells.map((value) => value || 0));
    const names = contributions.ranked.map(([layer, head]) => {
      return element("th", { scope: "col" }, this.nameOf(layer, head));
    });
    const header = element("tr", {}, element("th", {}, "word"), element("th", {}, "sum"), ...names);
    const rows = places.map((place) => {
      const cells = contributions.ranked.map(([layer, head]) => {
        return cellOf(contributions.cell(layer, head, place), most);
      });
      const name = element("th", { scope: "row" }, isolated(tokens[place]));
      return element("tr", {}, name, cellOf(sums[place], largest(sums)), ...cells);
    });
    this.table.replaceChildren(element("table", "cells-table", header, ...rows));
  }
}

function cellOf(value, most) {
  const node = element("td", value < 0 ? "cell less" : "cell", formatSigned(value, 2));
  node.style.setProperty("--strength", Math.sqrt(Math.abs(value) / (most || 1)).toFixed(3));
  return node;
}

function line(name, value, most, words) {
  const amount = element("span", "number", formatSigned(value));
  const bar = element("span", value < 0 ? "bar less" : "bar");
  bar.style.setProperty("--share", String(Math.abs(value) / most));
  return element(
    "li", {}, element("span", "name", name), amount, bar, element("span", "from", ...words),
  );
}

export class PredictionView {
  constructor(store) {
    this.store = store;
    this.classes = element("ul", "bars");
    this.panel = panel("prediction", "Prediction", this.classes);
    this.root = this.panel.root;
    store.subscribe(["maps", "index", "text", "label", "reference"], () => this.show());
    this.show();
  }

  show() {
    const { store } = this;
    const { index, maps, shownText, reference } = store;
    const { ranked, predicted } = maps?.prediction(index.classes) ?? { ranked: [] };
    this.root.hidden = ranked.length === 0 || shownText === null;
    if (this.root.hidden) return;
    const { label } = shownText;
    const isRight = predicted === label;
    const words = isRight ? " ✓ true label " : " ✗ true label ";
    const truth = element("span", isRight ? "known" : "known wrong", words, isolated(label ?? ""));
    const title = ["Predicted ", isolated(predicted, "name")];
    const against = element("small", {}, reference === null ? "" : `change from ${reference.name}`);
    this.panel.title.replaceChildren(...title, ...(label === null ? [] : [truth]), against);
    const known = Array.from(maps.values("contributions/classes") ?? []);
    const shown = contributionsOf(store)?.shown ?? null;
    const lines = ranked.slice(0, CLASSES).map(([name, share]) => {
      const place = index.classes.indexOf(name);
      const node = barLine(name, share, share.toFixed(3));
      if (reference !== null) {
        const change = share - reference.probabilities[place];
        let kind = change < 0 ? "change less" : "change more";
        if (Math.abs(change) < 0.0005) kind = "change";
        node.lastChild.append(element("span", kind, ` ${formatSigned(change, 3)}`));
        node.classList.add("changed");
      }
      if (!known.includes(place)) return node;
      const explain = () => store.set({ label: place });
      const ask = button("", "why, or why not, this class", explain, "ask");
      ask.setAttribute("aria-pressed", String(place === shown));
      ask.append(node.firstChild);
      node.prepend(ask);
      return node;
    });
    this.classes.replaceChildren(...lines);
  }
}
