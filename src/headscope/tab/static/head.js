/* One head large: queries down, keys across; or as lines from token to token (lines.js). Pointing at a cell reads its
   weight; a click locks it. */

import { Choice, element, formatNumber, formatWeight, isolated, legible, nameToken } from "./dom.js";
import { distanceOf } from "./likeness.js";
import { Lines } from "./lines.js";
import { captionOf, counterpart, largest, otherOf, readingOf, shownOf, viewOf } from "./reading.js";
import { OWN, drawWeights, topOf } from "./scale.js";
import { borderLines, kindOf, quadrantTable } from "./pairs.js";

const VIEWS = [
  ["weight", "weight", "how much a query takes of each key: a row sums to 1"],
  ["value", "weight × value", "the weight times the length of what the key then adds, so a key that is looked at but adds little stays dark (Kobayashi et al. 2020)"],
  ["lines", "lines", "a line from each query to each key, the stronger the weight the stronger the line"],
]; // prettier-ignore

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

  /* New names and classes, one for each row and column. */
  name(names, kinds) {
    const known = JSON.stringify([names, kinds]);
    if (known === this.known) return false;
    Object.assign(this, { known, names });
    this.queries = this.createLabels(".queries", names, kinds);
    this.keys = this.createLabels(".keys", names, kinds);
    return true;
  }

  createLabels(name, names, kinds) {
    const labels = names.map((text, index) => {
      const label = element("span", `label ${kinds[index]}`);
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
const MOST_SPECIAL = 64; // tokens, whose share is summed while a slider moves
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class HeadView {
  constructor(section, store, side) {
    Object.assign(this, { section, store, side, reading: null, cell: SMALLEST_CELL });
    this.root = section.querySelector(".map-scroll");
    this.canvas = section.querySelector("canvas");
    this.readout = section.querySelector(".readout");
    this.shares = section.querySelector(".shares");
    this.borders = [];
    this.heading = section.querySelector("h2");
    this.about = element("small", "about");
    this.heading.after(this.about);
    this.axes = new Axes(this.root, (at, click) => this.onLabel(at, click, true), (at, click) => this.onLabel(at, click, false));
    this.lines = new Lines(store, (at, click, isKey) => this.onLabel(at, click, isKey), (event) => this.onKey(event));
    this.root.after(this.lines.root);
    this.choice = new Choice("What the map shows", VIEWS, (view) => store.set({ view }));
    this.choice.node.classList.add("views");
    if (side === "main") section.querySelector(".tools").append(this.choice.node);
    this.listen();
    const all = ["maps", "other", "compare", "scale", "theme", "layer", "head", "index", "part", "view"];
    store.subscribe(all, () => this.draw());
    store.subscribe(["query", "key", "lock", "by", "pointing"], () => this.showCell());
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
    else store.pointQuery(this.tokenAt(place));
  }

  get hidden() {
    return this.side === "other" && this.store.compare?.view !== "beside";
  }

  draw() {
    if (this.hidden) return;
    const { store, side } = this;
    const { layer, head } = store;
    this.reading = readingOf(store, side, layer, head);
    this.view = viewOf(store, this.reading);
    this.showChoice();
    const caption = captionOf(store, side, layer, head);
    this.root.hidden = this.reading === null || this.view === "lines";
    this.lines.root.hidden = this.reading === null || this.view !== "lines";
    let scaled = "";
    if (this.reading !== null) {
      this.showPair();
      if (this.view === "lines") this.lines.draw(this.reading, this.names(), this.kinds(), caption);
      else scaled = this.drawMap(caption);
    } else this.shares.replaceChildren();
    this.heading.replaceChildren(element("span", "caption", legible(caption, 200)), element("small", "", this.likeness()));
    this.about.textContent = [scaled, this.rests()].filter(Boolean).join(" · ");
    this.showCell();
  }

  /* The cells; what is to be said of their colours. */
  drawMap(caption) {
    const { canvas, reading } = this;
    const valued = this.view === "value" ? reading.valued() : null;
    const shown = shownOf(this.store, reading.side);
    if (valued === null) reading.draw(canvas);
    else drawWeights(canvas, valued, OWN, shown);
    const what = valued === null ? "Attention weights" : "Weight × value";
    canvas.setAttribute("aria-label", `${what} of ${caption}: rows are queries, columns are keys`);
    if (this.axes.name(this.names(), this.kinds()) || this.laid !== this.root.clientWidth) this.layout();
    return valued === null ? "" : `colours up to ${formatNumber(topOf(valued, shown))}`;
  }

  showChoice() {
    const { choice, reading } = this;
    choice.node.hidden = reading === null || reading.difference;
    if (choice.node.hidden) return;
    choice.buttons[1].hidden = reading.norms() === null;
    choice.show(this.view);
  }

  /* How much of its weight a head rests on tokens that are no words, mean over the queries. */
  rests() {
    const { special = null } = this.store.index?.texts[this.store.text] ?? {};
    if (!special?.length || special.length > MOST_SPECIAL || this.reading === null || this.reading.difference || this.reading.maps.long) return "";
    const mass = special.reduce((sum, key) => sum + this.reading.column(key).reduce((total, weight) => total + weight, 0), 0);
    const share = mass / this.store.tokens.length;
    return share >= 0 ? `${Math.round(100 * share)} % rests on special tokens` : "";
  }

  /* Of a pair of texts, where they meet, and how each divides its attention. */
  showPair() {
    const { segments } = this.store;
    const shares = segments && this.reading.quadrants();
    this.shares.replaceChildren(...(shares ? [quadrantTable(shares, segments, this.reading.difference, this.between())] : []));
    if (this.marked === segments) return;
    this.marked = segments;
    this.borders.forEach((line) => line.remove());
    this.borders = borderLines(segments);
    this.canvas.after(...this.borders);
  }

  /* What goes from one text to the other, where that was measured over more tokens than are shown. */
  between() {
    const { numbers, layer, head } = this.store;
    return this.reading.difference ? null : (numbers?.measures.between?.mean[layer]?.[head] ?? null);
  }

  /* The classes of each row and column: of a pair, the text that it begins with; whether a special token is in it; whether
     the answer is read there. */
  kinds() {
    const { segments, index, text } = this.store;
    const { special = null, readout = null } = index?.texts[text] ?? {};
    const { maps, side } = this.reading;
    const rests = new Set((special ?? []).map((token) => maps.stretchOf(token)));
    const read = Number.isInteger(readout) ? maps.stretchOf(readout) : -1;
    return Array.from({ length: side }, (_, place) => {
      const kind = segments === null ? "" : kindOf(segments[maps.stretch(place)[0]]);
      return `${kind} ${rests.has(place) ? "special" : ""} ${place === read ? "reads" : ""}`;
    });
  }

  /* How far the head on this side is from the one that it stands beside. */
  likeness() {
    const { layer, head, maps } = this.store;
    const there = this.side === "other" && maps?.has(layer, head) ? counterpart(this.store, layer, head) : null;
    const distance = there === null ? null : distanceOf(maps, otherOf(this.store), layer, head, there);
    return distance === null ? "" : `Jensen-Shannon distance ${distance.toFixed(3)}`;
  }

  names() {
    const { maps, side } = this.reading;
    const { tokens } = this.store;
    if (!maps.long) return tokens;
    return Array.from({ length: side }, (_, place) => `${maps.stretch(place)[0]} ${tokens[maps.stretch(place)[0]]}`);
  }

  /* Whole pixels per cell, as many as fit beside the labels; a map that still does not fit scrolls. */
  layout() {
    if (this.view === "lines") this.lines.layout();
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
    const drawn = this.reading !== null && (this.view === "lines" || this.axes.visible !== undefined);
    if (!drawn || query >= tokens.length) {
      this.readout.replaceChildren(this.reading === null && this.store.maps ? "There is no head here." : "");
      return;
    }
    this.showReadout(query, key, by);
    const place = (token) => (token === null ? null : this.reading.maps.stretchOf(token));
    if (this.view === "lines") return this.lines.mark(place(query), place(key), by);
    this.axes.mark(by === "key" ? null : place(query), place(key));
    this.root.classList.toggle("locked", lock !== null);
    this.mark(".row-mark", place(query), 0, by === "key");
    this.mark(".column-mark", 0, place(key) ?? 0, by !== "key");
    this.mark(".cell-mark", place(query), place(key) ?? 0, key === null || by === "key");
    return undefined;
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
      const value = this.valueOf(key);
      const length = value === null ? "" : `; it adds ${formatNumber(value)} per weight`;
      this.readout.replaceChildren(...nameToken("key", key, tokens[key]), ` is given ${atLeast}`, share, ` by a query, mean${length}`);
      return;
    }
    const parts = nameToken("query", query, tokens[query]);
    if (key !== null) parts.push(" → ", ...nameToken("key", key, tokens[key]), ...this.weightOf(query, key));
    if (this.store.index.texts[this.store.text]?.special?.includes(key)) parts.push(element("small", "", " · a special token"));
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
      const value = this.valueOf(key);
      if (value !== null) return [strong, element("small", "", ` × value ${formatNumber(value)} = ${formatNumber(exact * value)}`)];
      return both.length > 0 ? [strong, element("small", "", ` ${both.join(" − ")}`)] : [strong];
    }
    const { maps } = this.reading;
    const [rowAt, columnAt] = [maps.stretchOf(query), maps.stretchOf(key)];
    const names = [rowAt, columnAt].map((at) => maps.stretch(at)).map(([first, end]) => `${first}–${end - 1}`);
    const mean = formatWeight(this.reading.cell(rowAt, columnAt), 1);
    const value = this.view === "value" ? ` × value ${formatNumber(this.reading.norms()[columnAt])}, mean` : "";
    return [element("strong", "", mean), element("small", "", `${value} queries ${names[0]}, mean, to keys ${names[1]}, together`)];
  }

  /* How much a key adds per unit of weight, where weight × value is shown; else null. */
  valueOf(key) {
    return this.view === "value" ? this.reading.norm(key) : null;
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
    if (this.view === "lines") this.lines.reveal();
    else this.root.querySelector(".cell-mark").scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}
