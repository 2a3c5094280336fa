/* One head as lines from token to token, as BertViz draws it (Vig 2019, A Multiscale Visualization of Attention in the
   Transformer Model): queries to the left, keys to the right, a line for each weight, the stronger the darker. Pointing at a
   token leaves its lines alone. Of a long text the strongest lines show, and all of a token's when it is pointed at. */

import { build, element, isolated } from "./dom.js";
import { shownOf } from "./reading.js";
import { strengthOn, topOf } from "./scale.js";

const [MOST, FAINTEST, BINS] = [2000, 1 / 255, 4096]; // lines at once; the weakest that is drawn; to find the strongest
const [LOW, HIGH] = [15, 30]; // pixels, a row of tokens

/* A picture's weights, cell by cell. */
function weightAt({ side, levels, scales, weights }) {
  return levels ? (cell) => (levels[cell] * scales[Math.floor(cell / side)]) / 255 : (cell) => weights[cell];
}

/* The cells of the largest weights, at most `most` of those that show, the largest last. A histogram finds where to cut; of
   equal weights at the cut an even share is taken, so that no token is favoured. */
function strongest({ side }, at, top, shown, most) {
  const bin = (cell) => (shown !== null && !shown[cell] ? 0 : Math.min(BINS - 1, Math.floor((BINS * at(cell)) / top) || 0));
  const counts = new Uint32Array(BINS);
  for (let cell = 0; cell < side * side; cell += 1) counts[bin(cell)] += 1;
  let [cut, above] = [BINS - 1, 0];
  while (cut > 1 && above + counts[cut] <= most) above += counts[cut--];
  const every = Math.max(1, Math.ceil(counts[cut] / Math.max(1, most - above)));
  const cells = [];
  let seen = 0;
  for (let cell = 0; cell < side * side; cell += 1) {
    const place = bin(cell);
    if (place > cut || (place === cut && seen++ % every === 0)) cells.push(cell);
  }
  return cells.sort((left, right) => at(left) - at(right));
}

export class Lines {
  constructor(store, onLabel, onKey) {
    Object.assign(this, { store, names: "", only: null });
    this.note = build("p", { class: "lines-note" });
    this.columns = ["from", "to"].map((name) => build("div", { class: `column ${name}`, "aria-hidden": "true" }));
    this.canvas = build("canvas", { tabindex: "0", role: "img" });
    this.scroll = build("div", { class: "lines-scroll" }, this.columns[0], this.canvas, this.columns[1]);
    this.root = build("div", { class: "lines", hidden: true }, this.note, this.scroll);
    this.columns.forEach((column, at) => {
      const point = (event, click) => {
        const label = event.target.closest("[data-index]");
        if (label) onLabel(Number(label.dataset.index), click, at === 1);
      };
      column.addEventListener("pointerover", (event) => point(event, false));
      column.addEventListener("click", (event) => point(event, true));
      column.addEventListener("pointerleave", () => onLabel(null, false, at === 1));
    });
    this.canvas.addEventListener("keydown", onKey);
    this.scroll.addEventListener("scroll", () => this.paint());
  }

  /* Names are those of the tokens, or of the stretches of a long text; kinds are their classes (head.js). */
  draw(reading, names, kinds, caption) {
    const { store } = this;
    const picture = reading.picture();
    const shown = shownOf(store, picture.side);
    const at = weightAt(picture);
    const top = topOf(picture, shown);
    const largestOfRow = (row) => {
      let most = 0;
      for (let cell = row * picture.side; cell < (row + 1) * picture.side; cell += 1) most = Math.max(most, at(cell));
      return most;
    };
    const cells = top > 0 ? strongest(picture, at, top, shown, MOST) : [];
    Object.assign(this, { side: picture.side, at, shown, cells, strength: strengthOn(store.scale, top, largestOfRow) });
    this.canvas.setAttribute("aria-label", `Lines of ${caption}: from queries on the left to keys on the right; arrow keys choose`);
    this.name(names, kinds);
    const all = shown === null ? picture.side ** 2 : shown.reduce((count, shows) => count + shows, 0);
    const drawn = cells.reduce((sum, cell) => sum + at(cell), 0) / picture.side;
    const part = all > MOST ? `The ${cells.length} strongest of ${all} lines: ${Math.round(100 * drawn)} % of all weight. ` : "";
    const stretches = reading.maps.long ? "A row is a stretch of tokens, named by its first. " : "";
    this.note.textContent = `${part}${stretches}Left: queries; right: keys. Point at a token for its lines alone.`;
    this.layout();
  }

  name(names, kinds) {
    const known = JSON.stringify([names, kinds]);
    if (known === this.names) return;
    this.names = known;
    this.columns.forEach((column) => column.replaceChildren(...names.map((name, index) =>
      build("div", { class: `token-name ${kinds[index]}`, "data-index": String(index) }, isolated(name)),
    ))); // prettier-ignore
  }

  /* All tokens in sight where they can be; the canvas is as large as what is in sight, and stays there. */
  layout() {
    if (this.root.hidden || this.scroll.clientWidth === 0) return;
    const room = Math.max(360, 0.8 * window.innerHeight);
    this.row = Math.min(HIGH, Math.max(LOW, Math.floor(room / this.side)));
    this.scroll.style.setProperty("--row", `${this.row}px`);
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth, Math.min(this.scroll.clientHeight, this.row * this.side)];
    this.canvas.style.height = `${height}px`;
    Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    this.paint();
  }

  /* Which token's lines show alone: of the one that is pointed at or locked. */
  mark(query, key, by) {
    const { pointing, lock } = this.store;
    this.only = pointing || lock !== null ? { place: by === "key" ? key : query, isKey: by === "key", key } : null;
    this.paint();
  }

  /* The lines of one token, from it to each other one. */
  linesOf({ place, isKey }) {
    const cells = Array.from({ length: this.side }, (_, other) => (isKey ? other * this.side + place : place * this.side + other));
    return this.shown === null ? cells : cells.filter((cell) => this.shown[cell]);
  }

  paint() {
    if (this.root.hidden || !this.row) return;
    const { only, side, row, at, strength } = this;
    const cells = only === null ? this.cells : this.linesOf(only);
    const context = this.canvas.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    const [width, height, top] = [this.canvas.width / ratio, this.canvas.height / ratio, this.scroll.scrollTop];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.strokeStyle = getComputedStyle(this.root).getPropertyValue("--accent");
    for (const cell of cells) {
      const [query, key] = [Math.floor(cell / side), cell % side];
      const [from, to] = [(query + 0.5) * row - top, (key + 0.5) * row - top];
      const opacity = strength(at(cell), query);
      if (!(opacity >= FAINTEST) || Math.max(from, to) < 0 || Math.min(from, to) > height) continue;
      context.globalAlpha = opacity;
      context.lineWidth = only !== null && !only.isKey && only.key === key ? 3 : 1.5;
      context.beginPath();
      context.moveTo(0, from);
      context.lineTo(width, to);
      context.stroke();
    }
    this.shade(only);
  }

  /* The tokens at the other ends of a token's lines, as strong as its lines. */
  shade(only) {
    const { at, side } = this;
    this.columns.forEach((column, which) => {
      const far = only !== null && only.isKey === (which === 0);
      [...column.children].forEach((label, index) => {
        const cell = only === null ? 0 : only.isKey ? index * side + only.place : only.place * side + index;
        const shows = far && (this.shown === null || this.shown[cell]);
        const strength = shows ? this.strength(at(cell), Math.floor(cell / side)) : 0;
        label.style.setProperty("--strength", strength > 0 ? strength.toFixed(3) : "0");
        label.classList.toggle("active", only !== null && !far && index === only.place);
      });
    });
  }

  /* After a key, what it led to is in sight. */
  reveal() {
    const { only, columns } = this;
    columns[only?.isKey ? 1 : 0].children[only?.place ?? 0]?.scrollIntoView({ block: "nearest" });
  }
}
