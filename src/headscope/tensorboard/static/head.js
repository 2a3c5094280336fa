/* One head large: queries down, keys across. Pointing at a cell reads its weight; a click locks it. */

import { element, formatWeight, isolated, legible, nameToken } from "./dom.js";
import { distanceOf } from "./likeness.js";
import { captionOf, counterpart, largest, otherOf, readingOf } from "./reading.js";
import { borderLines, kindOf, quadrantTable } from "./pairs.js";

/* The tokens along the two axes of the large map; of a long text, the stretches. Labels are as large as the cells let them
   be; where cells are too small for a label each, only those that have room stay. The labels of the query and the key in
   question always show, and so does the one that is pointed at: anywhere along an axis is a token, labelled or not. */

const [SMALLEST_LABEL, THINNED_LABEL, LARGEST_LABEL] = [10, 12, 14]; // pixels that one line of a label takes

class Axes {
  constructor(root, onKey = null, onQuery = null) {
    Object.assign(this, { root, names: [], queries: [], keys: [], known: "", line: LARGEST_LABEL });
    if (onKey) this.listen(".keys", "key", onKey);
    if (onQuery) this.listen(".queries", "query", onQuery);
  }

  listen(name, what, onPlace) {
    const axis = this.root.querySelector(name);
    const point = (event, click) => {
      const place = this.placeAt(axis, event, what);
      if (place === this.pointed && !click) return; // the pointer is on its way along one label
      this.point(axis, what, place);
      onPlace(place, click);
    };
    axis.addEventListener("pointermove", (event) => point(event, false));
    axis.addEventListener("click", (event) => point(event, true));
    axis.addEventListener("pointerleave", () => {
      this.point(axis, what, null);
      onPlace(null, false);
    });
  }

  /* The row or column that an event on an axis is beside. */
  placeAt(axis, event, what) {
    const { left, top } = axis.getBoundingClientRect();
    const offset = what === "key" ? event.clientX - left : event.clientY - top;
    return Math.min(this.names.length - 1, Math.max(0, Math.floor(offset / this.cell)));
  }

  /* The label that is pointed at shows in full, whatever else is chosen. */
  point(axis, what, place) {
    this.pointed = place;
    axis.querySelector(".pointed")?.classList.remove("pointed");
    const label = place === null ? null : (what === "key" ? this.keys : this.queries)[place];
    label?.classList.add("pointed");
    axis.title = label ? `${what} ${place} ${legible(this.names[place], 600)}` : "";
  }

  /* New names, one for each row and column; of a pair of texts, the class of each too (pairs.js). */
  name(names, kinds = null) {
    const known = JSON.stringify([names, kinds]);
    if (known === this.known) return false;
    Object.assign(this, { known, names });
    this.queries = this.createLabels(".queries", names, kinds);
    this.keys = this.createLabels(".keys", names, kinds);
    return true;
  }

  createLabels(name, names, kinds) {
    const labels = names.map((text, index) => {
      const label = element("span", kinds === null ? "label" : `label ${kinds[index]}`);
      label.dataset.index = String(index);
      label.append(isolated(text));
      return label;
    });
    this.root.querySelector(name).replaceChildren(...labels);
    return labels;
  }

  /* Room for the longest label, in pixels; the style sheet limits a label's width. */
  measure() {
    const longest = this.queries.reduce((width, label) => Math.max(width, label.offsetWidth), 0);
    const room = Math.max(44, longest + 8);
    this.root.style.setProperty("--axis", `${room}px`);
    return room;
  }

  place(cell) {
    this.cell = cell;
    this.line = cell < SMALLEST_LABEL ? THINNED_LABEL : Math.min(LARGEST_LABEL, cell);
    this.root.style.setProperty("--label", `${this.line}px`);
    this.visible = this.chooseVisible();
    this.placeLabels(this.queries, "top");
    this.placeLabels(this.keys, "left");
  }

  /* Pixels from the start of the axis: the middle of the cell, but the outermost labels do not leave the axis. */
  positionOf(index) {
    const half = this.line / 2;
    const end = Math.max(half, this.queries.length * this.cell - half);
    return Math.min(end, Math.max(half, (index + 0.5) * this.cell));
  }

  /* The labels that have room beside the one shown before them. */
  chooseVisible() {
    const visible = new Set();
    let last = -Infinity;
    for (let index = 0; index < this.queries.length; index += 1) {
      if (this.positionOf(index) - last < this.line) continue;
      last = this.positionOf(index);
      visible.add(index);
    }
    return visible;
  }

  placeLabels(labels, side) {
    labels.forEach((label, index) => {
      label.style[side] = `${this.positionOf(index)}px`;
    });
  }

  mark(query, key) {
    this.showLabels(this.queries, query);
    this.showLabels(this.keys, key);
  }

  /* The active label shows in any case, and hides those that it would touch. */
  showLabels(labels, active) {
    const near = (index) => Math.abs(this.positionOf(index) - this.positionOf(active)) < this.line;
    labels.forEach((label, index) => {
      label.classList.toggle("active", index === active);
      label.classList.toggle("thin", !this.visible.has(index) || (active !== null && near(index)));
    });
  }
}

const [SMALLEST_CELL, LARGEST_CELL] = [2, 48]; // pixels
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class HeadView {
  constructor(section, store, side) {
    Object.assign(this, { section, store, side, reading: null, cell: SMALLEST_CELL });
    this.root = section.querySelector(".map-scroll");
    this.canvas = section.querySelector("canvas");
    this.readout = section.querySelector(".readout");
    this.shares = section.querySelector(".shares");
    this.lines = [];
    this.heading = section.querySelector("h2");
    this.axes = new Axes(this.root, (at, click) => this.onLabel(at, click, true), (at, click) => this.onLabel(at, click, false));
    this.listen();
    const all = ["maps", "other", "compare", "scale", "theme", "layer", "head", "index", "part"];
    store.subscribe(all, () => this.draw());
    store.subscribe(["query", "key", "lock", "by"], () => this.showCell());
    new ResizeObserver(() => this.layout()).observe(section);
  }

  listen() {
    const { canvas, store } = this;
    canvas.addEventListener("pointermove", (event) => store.pointCell(...this.cellAt(event)));
    canvas.addEventListener("pointerleave", () => store.leave());
    canvas.addEventListener("click", (event) => store.toggle(...this.cellAt(event)));
    canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  /* The first tokens of the stretches under the pointer: of a short text, the tokens. */
  cellAt(event) {
    const index = (offset) => Math.min(this.reading.side - 1, Math.max(0, Math.floor(offset / this.cell)));
    return [event.offsetY, event.offsetX].map((offset) => this.tokenAt(index(offset)));
  }

  tokenAt(place) {
    return this.reading.maps.stretch(place)[0];
  }

  onLabel(place, click, isKey) {
    const { store } = this;
    if (place === null || this.reading === null) store.leave();
    else if (isKey && click) store.toggle(store.query, this.tokenAt(place));
    else if (isKey) store.pointKey(this.tokenAt(place));
    else if (click) store.toggle(this.tokenAt(place), null);
    else if (!store.lock) store.set({ query: this.tokenAt(place), key: null, by: "query" });
  }

  get hidden() {
    return this.side === "other" && this.store.compare?.view !== "beside";
  }

  draw() {
    if (this.hidden) return;
    const { store, side } = this;
    const { layer, head } = store;
    this.reading = readingOf(store, side, layer, head);
    const caption = captionOf(store, side, layer, head);
    this.heading.replaceChildren(element("span", "caption", legible(caption, 200)), element("small", "", this.likeness()));
    this.root.hidden = this.reading === null;
    if (this.reading !== null) {
      this.reading.draw(this.canvas);
      this.canvas.setAttribute("aria-label", `Attention weights of ${caption}: rows are queries, columns are keys`);
      this.showPair();
      if (this.axes.name(this.names(), this.kinds()) || this.laid !== this.root.clientWidth) this.layout();
    } else this.shares.replaceChildren();
    this.showCell();
  }

  /* Of a pair of texts, where they meet, and how each divides its attention. */
  showPair() {
    const { segments } = this.store;
    const shares = segments && this.reading.quadrants();
    this.shares.replaceChildren(...(shares ? [quadrantTable(shares, segments, this.reading.difference, this.between())] : []));
    if (this.marked === segments) return;
    this.marked = segments;
    this.lines.forEach((line) => line.remove());
    this.lines = borderLines(segments);
    this.canvas.after(...this.lines);
  }

  /* What goes from one text to the other, where that was measured over more tokens than are shown. */
  between() {
    const { numbers, layer, head } = this.store;
    return this.reading.difference ? null : (numbers?.measures.between?.mean[layer]?.[head] ?? null);
  }

  /* The text that each row and column begins with, of a pair. */
  kinds() {
    const { segments } = this.store;
    if (segments === null) return null;
    const { maps, side } = this.reading;
    return Array.from({ length: side }, (_, place) => kindOf(segments[maps.stretch(place)[0]]));
  }

  /* How far the head on this side is from the one that it stands beside. */
  likeness() {
    const { layer, head, maps } = this.store;
    const there = this.side === "other" && maps?.has(layer, head) ? counterpart(this.store, layer, head) : null;
    const distance = there === null ? null : distanceOf(maps, otherOf(this.store), layer, head, there);
    return distance === null ? "" : `  Jensen-Shannon distance ${distance.toFixed(3)}`;
  }

  names() {
    const { maps, side } = this.reading;
    const { tokens } = this.store;
    if (!maps.long) return tokens;
    return Array.from({ length: side }, (_, place) => `${maps.stretch(place)[0]} ${tokens[maps.stretch(place)[0]]}`);
  }

  /* Whole pixels per cell, as many as fit beside the labels; a map that still does not fit scrolls. */
  layout() {
    if (this.reading === null || this.root.clientWidth === 0) return;
    const room = this.root.clientWidth - this.axes.measure() - 8;
    this.laid = this.root.clientWidth;
    this.cell = Math.min(LARGEST_CELL, Math.max(SMALLEST_CELL, Math.floor(room / this.reading.side)));
    this.root.style.setProperty("--cell", `${this.cell}px`);
    this.root.style.setProperty("--side", `${this.cell * this.reading.side}px`);
    this.axes.place(this.cell);
    this.showCell();
  }

  showCell() {
    if (this.hidden) return;
    const { query, key, lock, by, tokens } = this.store;
    if (this.reading === null || this.axes.visible === undefined || query >= tokens.length) {
      this.readout.replaceChildren(this.reading === null && this.store.maps ? "There is no head here." : "");
      return;
    }
    const place = (token) => (token === null ? null : this.reading.maps.stretchOf(token));
    this.axes.mark(by === "key" ? null : place(query), place(key));
    this.root.classList.toggle("locked", lock !== null);
    this.mark(".row-mark", place(query), 0, by === "key");
    this.mark(".column-mark", 0, place(key) ?? 0, by !== "key");
    this.mark(".cell-mark", place(query), place(key) ?? 0, key === null || by === "key");
    this.showReadout(query, key, by);
  }

  mark(name, row, column, hidden) {
    const mark = this.root.querySelector(name);
    mark.hidden = hidden;
    mark.style.top = `${row * this.cell}px`;
    mark.style.left = `${column * this.cell}px`;
  }

  showReadout(query, key, by) {
    const { tokens } = this.store;
    if (by === "key") {
      const sum = this.reading.column(key).reduce((total, weight) => total + (weight || 0), 0);
      const share = element("strong", "", formatWeight(sum / tokens.length, 1));
      const atLeast = this.reading.maps.long ? "at least " : ""; // of each query the largest weights alone are known
      this.readout.replaceChildren(...nameToken("key", key, tokens[key]), ` is given ${atLeast}`, share, " by a query, mean");
      return;
    }
    const parts = nameToken("query", query, tokens[query]);
    if (key !== null) parts.push(" → ", ...nameToken("key", key, tokens[key]), ...this.weightOf(query, key));
    this.readout.replaceChildren(...parts);
  }

  weightOf(query, key) {
    const row = this.reading.row(query);
    const exact = row[key];
    const scale = largest(row);
    if (!Number.isNaN(exact)) {
      const text = formatWeight(exact, scale);
      const both = this.reading.parts(query, key).map((weight) => formatWeight(weight, scale));
      const strong = element("strong", "", this.reading.difference && exact > 0 ? `+${text}` : text.replace("-", "−"));
      return both.length > 0 ? [strong, element("small", "", ` ${both.join(" − ")}`)] : [strong];
    }
    const { maps } = this.reading;
    const [rowAt, columnAt] = [maps.stretchOf(query), maps.stretchOf(key)];
    const names = [rowAt, columnAt].map((at) => maps.stretch(at)).map(([first, end]) => `${first}–${end - 1}`);
    const mean = formatWeight(this.reading.cell(rowAt, columnAt), 1);
    return [element("strong", "", mean), element("small", "", ` queries ${names[0]}, mean, to keys ${names[1]}, together`)];
  }

  onKey(event) {
    if (this.reading === null) return;
    const { query, key, lock } = this.store;
    const { maps, side } = this.reading;
    const arrow = ARROWS[event.key];
    const moved = (token, by) => maps.stretch(Math.min(side - 1, Math.max(0, maps.stretchOf(token) + by)))[0];
    if (arrow && key === null) this.store.pointCell(query, 0);
    else if (arrow) this.store.pointCell(arrow[0] ? moved(query, arrow[0]) : query, arrow[1] ? moved(key, arrow[1]) : key);
    else if (event.key === "Enter" || event.key === " ") this.store.toggle(lock ? lock.query : query, key);
    else return;
    event.preventDefault();
    this.root.querySelector(".cell-mark").scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}
