/* One head as lines from queries to keys (BertViz: Vig 2019, A Multiscale Visualization of
   Attention in the Transformer Model), the stronger the darker. Pointing at a token leaves its
   lines alone. */

import { largest, strengthOn } from "./colors.js";
import { element, isolated } from "./dom.js";

const MANY = 20; // tokens, from which on each query has its strongest line alone
const FAINTEST = 1 / 255; // the weakest that is drawn
const LOW = 15; // pixels of a row of tokens
const HIGH = 30;

export class Lines {
  constructor(store, onPlace, onKey) {
    Object.assign(this, { store, names: "", only: null });
    this.note = element("p", "lines-note");
    this.columns = ["from", "to"].map((name) => {
      return element("div", { class: `column ${name}`, "aria-hidden": "true" });
    });
    this.canvas = element("canvas", { tabindex: "0", role: "img", onkeydown: onKey });
    const [from, to] = this.columns;
    const onscroll = () => this.paint();
    this.scroll = element("div", { class: "lines-scroll", onscroll }, from, this.canvas, to);
    this.root = element("div", { class: "lines", hidden: true }, this.note, this.scroll);
    this.listen(from, (place, isClick) => onPlace("query", place, isClick));
    this.listen(to, (place, isClick) => onPlace("key", place, isClick));
  }

  listen(column, onPlace) {
    const point = (event) => {
      const label = event.target.closest("[data-index]");
      if (label) onPlace(Number(label.dataset.index), event.type === "click");
    };
    column.addEventListener("pointerover", point);
    column.addEventListener("click", point);
    column.addEventListener("pointerleave", () => onPlace(null, false));
  }

  /* Names and class names are those of the tokens, or of the stretches of a long text. */
  draw(map, names, classes, caption) {
    const { side } = map;
    const weights = map.cells();
    const strength = strengthOn(this.store.scale, largest(weights));
    const isMany = side >= MANY;
    const sorted = (cells) => cells.sort((a, b) => weights[a] - weights[b]);
    const rowOf = (query) => Array.from({ length: side }, (_, key) => query * side + key);
    const queries = Array.from({ length: side }, (_, query) => query);
    const each = queries.map((query) => sorted(rowOf(query)).at(-1));
    const strongest = isMany ? sorted(each) : sorted([...weights.keys()]);
    this.width = isMany ? 1 : 1.5;
    Object.assign(this, { side, strongest, strength: (cell) => strength(weights[cell]) });
    const label = `Lines of ${caption}: from queries on the left to keys on the right`;
    this.canvas.setAttribute("aria-label", `${label}; arrow keys choose`);
    this.name(names, classes);
    const share = strongest.reduce((sum, cell) => sum + weights[cell], 0) / side;
    const notes = ["Left: queries; right: keys. Point at a token for its lines alone."];
    if (map.maps.isLong) notes.unshift("A row is a stretch of tokens, named by its first.");
    if (strongest.length < weights.length) {
      const percent = `${Math.round(100 * share)} % of all weight`;
      notes.unshift(`The strongest line of each query: ${percent}.`);
    }
    this.note.textContent = notes.join(" ");
    this.layout();
  }

  name(names, classes) {
    const key = JSON.stringify([names, classes]);
    if (key === this.names) return;
    this.names = key;
    for (const column of this.columns) {
      const labels = names.map((name, index) => {
        const attributes = { class: `token-name ${classes[index]}`, "data-index": String(index) };
        return element("div", attributes, isolated(name));
      });
      column.replaceChildren(...labels);
    }
  }

  /* All tokens in sight where they can be; the canvas is as large as what is in sight. */
  layout() {
    if (this.root.hidden || this.scroll.clientWidth === 0) return;
    const room = Math.max(360, 0.8 * window.innerHeight);
    this.row = Math.min(HIGH, Math.max(LOW, Math.floor(room / this.side)));
    this.scroll.style.setProperty("--row", `${this.row}px`);
    const ratio = window.devicePixelRatio || 1;
    const height = Math.min(this.scroll.clientHeight, this.row * this.side);
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(this.canvas.clientWidth * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.paint();
  }

  /* Which token's lines show alone: of the one that is pointed at or locked. */
  mark(query, key, by) {
    const { pointing, lock } = this.store;
    const isKey = by === "key";
    const isAlone = pointing || lock !== null;
    this.only = isAlone ? { place: isKey ? key : query, isKey, key } : null;
    this.paint();
  }

  /* The lines of the one token, by the token at the other end. */
  cellsOf({ place, isKey }) {
    const { side } = this;
    const cellOf = (_, other) => (isKey ? other * side + place : place * side + other);
    return Array.from({ length: side }, cellOf);
  }

  paint() {
    if (this.root.hidden || !this.row) return;
    const { only, side, row, strength } = this;
    const cells = only === null ? this.strongest : this.cellsOf(only);
    const context = this.canvas.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.width / ratio;
    const height = this.canvas.height / ratio;
    const top = this.scroll.scrollTop;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.strokeStyle = getComputedStyle(this.root).getPropertyValue("--accent");
    for (const cell of cells) {
      const key = cell % side;
      const from = (Math.floor(cell / side) + 0.5) * row - top;
      const to = (key + 0.5) * row - top;
      const opacity = strength(cell);
      const isOutside = Math.max(from, to) < 0 || Math.min(from, to) > height;
      if (!(opacity >= FAINTEST) || isOutside) continue;
      context.globalAlpha = opacity;
      context.lineWidth = only !== null && !only.isKey && only.key === key ? 3 : this.width;
      context.beginPath();
      context.moveTo(0, from);
      context.lineTo(width, to);
      context.stroke();
    }
    this.shade(only);
  }

  /* The tokens at the other ends of a token's lines, as strong as its lines. */
  shade(only) {
    const cells = only === null ? [] : this.cellsOf(only);
    this.columns.forEach((column, which) => {
      const isFar = only !== null && only.isKey === (which === 0);
      [...column.children].forEach((label, index) => {
        const strength = isFar ? this.strength(cells[index]) : 0;
        label.style.setProperty("--strength", String(strength || 0));
        label.classList.toggle("active", only !== null && !isFar && index === only.place);
      });
    });
  }

  /* After a key, what it led to is in sight. */
  reveal() {
    const { only, columns } = this;
    const column = columns[only?.isKey ? 1 : 0];
    column.children[only?.place ?? 0]?.scrollIntoView({ block: "nearest" });
  }
}
