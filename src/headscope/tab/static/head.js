/* One head large: a map with queries down and keys across, or the one row that is read. */

import { drawLegend, drawWeights, largest } from "./colors.js";
import { captionOf, headMap } from "./compare.js";
import {
  chooser, element, formatNumber, isolated, legible, nameToken, panel, showError,
} from "./dom.js";
import { classOf } from "./pairs.js";
import { TokenRow } from "./text.js";

/* The one row that is read of a last layer, over the text; or the full map. */
const VIEWS = [
  ["row", "the row that is read"],
  ["map", "full map"],
];
const LABEL = 12; // pixels that a label takes
const SMALLEST_CELL = 2; // pixels
const LARGEST_CELL = 48;
const HIGH = 0.8; // share of the window that a map is high, where it can be
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/* The tokens along one side of the map. Where cells are too small for a label each, every n-th has
   one, and the one that is chosen. */
class Axis {
  constructor(what, onPlace) {
    Object.assign(this, { what, labels: [], key: "", pointed: null });
    const className = what === "key" ? "axis keys" : "axis queries";
    this.root = element("div", { class: className, "aria-hidden": "true" });
    const point = (event) => {
      const place = this.placeAt(event);
      const isClick = event.type === "click";
      if (place === this.pointed && !isClick) return; // on its way along one label
      this.pointed = place;
      this.root.title = `${what} ${place} ${legible(this.names[place], 600)}`;
      onPlace(what, place, isClick);
    };
    this.root.addEventListener("pointermove", point);
    this.root.addEventListener("click", point);
    this.root.addEventListener("pointerleave", () => {
      this.pointed = null;
      onPlace(what, null, false);
    });
  }

  /* The row or column that an event is beside, labelled or not. */
  placeAt(event) {
    const { left, top } = this.root.getBoundingClientRect();
    const offset = this.what === "key" ? event.clientX - left : event.clientY - top;
    return Math.min(this.labels.length - 1, Math.max(0, Math.floor(offset / this.cell)));
  }

  /* New names and classes, one for each row or column; says whether they changed. */
  name(names, classes) {
    const key = JSON.stringify([names, classes]);
    if (key === this.key) return false;
    Object.assign(this, { key, names });
    this.labels = names.map((text, index) => {
      const label = element("span", `label ${classes[index]}`, isolated(text));
      label.style.setProperty("--at", String(index));
      return label;
    });
    this.root.replaceChildren(...this.labels);
    return true;
  }

  get width() {
    return Math.max(...this.labels.map((label) => label.offsetWidth));
  }

  /* Show every n-th label, but for those that the chosen one would lie over. */
  mark(chosen) {
    const every = Math.ceil(LABEL / this.cell);
    const half = Math.floor(every / 2); // those at the ends need room as well
    this.labels.forEach((label, index) => {
      const hasRoom = index % every === half && index + half < this.labels.length;
      const isNear = chosen !== null && Math.abs(index - chosen) < every;
      label.classList.toggle("thin", !hasRoom || isNear);
      label.classList.toggle("active", index === chosen);
    });
  }
}

export class HeadView {
  constructor(store, side) {
    Object.assign(this, { store, side, map: null, view: "map" });
    const onPlace = (...place) => this.onPlace(...place);
    const onKey = (event) => this.onKey(event);
    this.queries = new Axis("query", onPlace);
    this.keys = new Axis("key", onPlace);
    const attributes = { class: "large", tabindex: "0", role: "img", onkeydown: onKey };
    this.canvas = element("canvas", attributes);
    const mark = (name) => element("div", { class: name, hidden: true });
    this.marks = ["row-mark", "column-mark", "cell-mark"].map(mark);
    const readoutRow = element("div", { class: "answer-row", title: "the answer is read here" });
    const corner = ["key →", "query ↓"].map((words) => element("span", {}, words));
    this.scroll = element(
      "div", "map-scroll", element("div", { class: "corner", "aria-hidden": "true" }, ...corner),
      this.keys.root, this.queries.root,
      element("div", "cells", this.canvas, readoutRow, ...this.marks),
    );
    this.readout = element("p", { class: "readout", "aria-live": "polite" });
    this.row = new TokenRow(store, "Words by the weight that the head gives them");
    this.rowNote = element("p", "row-note");
    this.read = element("div", "read-row", this.row.root);
    const content = [this.readout, this.read, this.scroll, this.rowNote];
    this.panel = panel(side === "main" ? "head" : "other-head", "", ...content);
    this.root = this.panel.root;
    this.about = element("small", "about");
    this.most = element("span");
    this.legend = element("canvas", { class: "map-legend", role: "img", "aria-label": "Colours" });
    this.ramp = element("span", "scale", "0", this.legend, this.most);
    this.panel.tools.append(this.ramp);
    this.sparse = element("small", "about");
    this.panel.title.after(this.about, this.sparse);
    this.choice = chooser("view", "What the map shows", (view) => store.set({ view }), VIEWS);
    if (side === "main") this.panel.tools.append(this.choice);
    this.canvas.addEventListener("pointermove", (event) => store.pointCell(...this.cellAt(event)));
    this.canvas.addEventListener("pointerleave", () => store.leave());
    this.canvas.addEventListener("click", (event) => store.toggle(...this.cellAt(event)));
    const drawn = ["maps", "other", "compare", "view"];
    store.subscribe([...drawn, "index", "layer", "head"], () => this.draw());
    store.subscribe(["query", "key", "lock", "by", "pointing"], () => this.showCell());
    store.subscribe(["errors"], () => {
      if (side === "other") showError(this.panel.error, store.errors.other);
    });
    new ResizeObserver(() => this.layout()).observe(this.root);
  }

  /* The tokens under the pointer. */
  cellAt(event) {
    const places = [event.offsetY, event.offsetX].map((offset) => Math.floor(offset / this.cell));
    return places.map((place) => this.within(place));
  }

  within(place) {
    return Math.min(this.map.side - 1, Math.max(0, place));
  }

  /* A query or a key of an axis is pointed at, is clicked, or is left (null). */
  onPlace(what, token, isClick) {
    const { store } = this;
    if (token === null || this.map === null) {
      store.leave();
      return;
    }
    if (what === "key" && isClick) store.toggle(store.query, token);
    else if (what === "key") store.pointKey(token);
    else if (isClick) store.toggle(token, null);
    else store.pointQuery(token);
  }

  /* The text that the map is of: beside another text, that one. */
  get text() {
    const { other, shownText } = this.store;
    return (this.side === "other" && other?.text) || shownText;
  }

  get isHidden() {
    return this.side === "other" && this.store.compare === null;
  }

  draw() {
    if (this.isHidden || this.root.closest("details")?.open === false) return;
    const { store, side, choice } = this;
    const { layer, head } = store;
    this.map = headMap(store, side, layer, head);
    this.view = this.viewOf();
    const caption = captionOf(store, side, layer, head);
    const isRow = this.view === "row";
    this.scroll.hidden = this.map === null || isRow;
    this.read.hidden = this.map === null || !isRow;
    const isRead = this.map !== null && this.map.readout !== null;
    choice.hidden = !isRead;
    choice.value = this.view;
    this.about.textContent = "";
    this.ramp.hidden = this.scroll.hidden;
    this.sparse.hidden = this.scroll.hidden;
    this.rowNote.hidden = !isRead;
    if (isRead) this.noteRow();
    if (this.map !== null && isRow) this.drawRow();
    else if (this.map !== null) this.drawMap(caption);
    const name = isRow ? `${caption}: where ${this.text.tokens[this.map.readout]} looks` : caption;
    this.panel.title.replaceChildren(element("span", "caption", legible(name, 200)));
    this.showCell();
  }

  /* How the map is drawn: as the reader chose, where one row alone is read. */
  viewOf() {
    return this.map === null || this.map.readout === null ? "map" : this.store.view;
  }

  /* The weights of the one query that is read, as shades of the words. */
  drawRow() {
    const { map } = this;
    const row = map.row(map.readout);
    this.row.show(this.text);
    this.row.shade(row);
    this.about.textContent = `weight: 0 to ${formatNumber(largest(row))}`;
  }

  noteRow() {
    const { tokens } = this.text;
    const reader = isolated(tokens[this.map.readout]);
    const count = tokens.length - 1;
    const others = ` alone is read out: the other ${count} rows of the full map decide nothing.`;
    this.rowNote.replaceChildren("The row of ", reader, others);
  }

  drawMap(caption) {
    const { canvas, map } = this;
    const label = `Attention weights of ${caption}: rows are queries, columns are keys`;
    canvas.setAttribute("aria-label", label);
    const { tokens } = this.text;
    const isNew = [this.queries, this.keys].map((axis) => axis.name(tokens, this.classes()));
    if (isNew[0] || this.laid !== this.scroll.clientWidth) this.layout();
    drawWeights(canvas, map.cells());
    this.most.textContent = formatNumber(largest(map.cells()));
    drawLegend(this.legend);
  }

  /* The class names of each row and column: its text of a pair, special tokens, the readout. */
  classes() {
    const { readout } = this.store;
    const { segments, special } = this.text;
    return Array.from({ length: this.map.side }, (_, place) => {
      const names = !segments ? [] : [classOf(segments[place])];
      if (special?.includes(place)) names.push("special");
      if (place === readout) names.push("reads");
      return names.join(" ");
    });
  }

  /* Whole pixels per cell, as many as fit; a map that still does not fit scrolls. */
  layout() {
    if (this.map === null || this.scroll.clientWidth === 0) return;
    const { scroll, map } = this;
    this.laid = scroll.clientWidth;
    const axis = Math.max(44, this.queries.width + 8);
    const room = Math.floor((this.laid - axis - 8) / map.side);
    const high = Math.floor((HIGH * window.innerHeight) / map.side);
    this.cell = Math.min(LARGEST_CELL, Math.max(SMALLEST_CELL, Math.min(room, high)));
    const sizes = { axis, cell: this.cell, side: this.cell * map.side, label: LABEL };
    for (const [name, size] of Object.entries(sizes)) {
      scroll.style.setProperty(`--${name}`, `${size}px`);
    }
    for (const view of [this.queries, this.keys]) view.cell = this.cell;
    const every = Math.ceil(LABEL / this.cell);
    const words = `one label in ${every} has room: point for the others`;
    this.sparse.textContent = every > 1 ? words : "";
    this.showCell();
  }

  showCell() {
    if (this.isHidden) return;
    const { query, lock, by } = this.store;
    const tokens = this.text?.tokens ?? [];
    const key = this.store.key < tokens.length ? this.store.key : null;
    if (this.map === null || query >= tokens.length) {
      const isMissing = this.map === null && this.store.maps !== null;
      this.readout.replaceChildren(isMissing ? "There is no head here." : "");
      return;
    }
    const isKey = by === "key" && key !== null;
    this.readout.hidden = this.view === "row";
    this.readout.replaceChildren(...(isKey ? this.readKey(key) : this.readQuery(query, key)));
    if (this.view === "row") return;
    this.queries.mark(isKey ? null : query);
    this.keys.mark(key);
    this.scroll.classList.toggle("locked", lock !== null);
    const [rowMark, columnMark, cellMark] = this.marks;
    this.mark(rowMark, query, 0, !isKey);
    this.mark(columnMark, 0, key ?? 0, isKey);
    this.mark(cellMark, query, key ?? 0, key !== null && !isKey);
  }

  mark(node, row, column, isShown) {
    node.hidden = !isShown;
    node.style.top = `${row * this.cell}px`;
    node.style.left = `${column * this.cell}px`;
  }

  /* What is to be read of a key that is pointed at on its axis. */
  readKey(key) {
    const { tokens } = this.text;
    const sum = this.map.column(key).reduce((total, weight) => total + weight, 0);
    const share = element("strong", {}, formatNumber(sum / tokens.length));
    const name = nameToken("key", key, tokens[key]);
    return [...name, " receives ", share, " of a query's attention, mean"];
  }

  readQuery(query, key) {
    const { tokens, special } = this.text;
    const parts = nameToken("query", query, tokens[query]);
    if (key === null) return parts;
    parts.push(" → ", ...nameToken("key", key, tokens[key]), this.readCell(query, key));
    if (special?.includes(key)) parts.push(element("small", {}, " · a special token"));
    return parts;
  }

  /* The weight of a cell. */
  readCell(query, key) {
    return element("strong", {}, formatNumber(this.map.row(query)[key]));
  }

  onKey(event) {
    if (this.map === null) return;
    const { store } = this;
    const { query, key, lock } = store;
    const isEnter = event.key === "Enter" || event.key === " ";
    const arrow = ARROWS[event.key];
    if (arrow && key === null) store.pointCell(query, 0);
    else if (arrow) store.pointCell(this.within(query + arrow[0]), this.within(key + arrow[1]));
    else if (isEnter) store.toggle(lock ? lock.query : query, key);
    else return;
    event.preventDefault();
    this.marks[2].scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}
