/* One head large: queries down, keys across. Pointing at a cell reads its weight; a click locks it. */

const SMALLEST_CELL = 2; // pixels
const LARGEST_CELL = 36;

class HeadView {
  constructor(report, selection, palette) {
    Object.assign(this, { report, selection, palette });
    this.root = document.getElementById("map");
    this.canvas = document.getElementById("large");
    this.axes = new Axes(this.root);
    this.axes.name(report.tokens, report.segments && report.segments.map(kindOf));
    this.canvas.after(...borderLines(report.segments));
    this.listen();
    selection.subscribe("head", () => this.draw());
    selection.subscribe("part", () => this.draw());
    selection.subscribe("token", () => this.showCell());
    palette.subscribe(() => this.draw());
    new ResizeObserver(() => this.layout()).observe(this.root.parentElement);
    this.layout();
    this.draw();
  }

  get head() {
    return this.report.heads[this.selection.head];
  }

  listen() {
    const point = (event) => this.selection.pointCell(...this.cellAt(event));
    this.canvas.addEventListener("pointermove", point);
    this.canvas.addEventListener("pointerleave", () => this.selection.leave());
    this.canvas.addEventListener("click", (event) => this.selection.toggle(...this.cellAt(event)));
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  cellAt(event) {
    const index = (offset) => Math.min(this.report.count - 1, Math.max(0, Math.floor(offset / this.cell)));
    return [index(event.offsetY), index(event.offsetX)];
  }

  /* Whole pixels per cell, as many as fit beside the labels; a map that still does not fit scrolls. */
  layout() {
    if (!this.root.isConnected) return; // another text has taken this one's place
    const room = this.root.clientWidth - this.axes.measure() - 16;
    this.cell = Math.min(LARGEST_CELL, Math.max(SMALLEST_CELL, Math.floor(room / this.report.count)));
    this.root.style.setProperty("--cell", `${this.cell}px`);
    this.root.style.setProperty("--side", `${this.cell * this.report.count}px`);
    this.axes.place(this.cell);
    this.showCell();
  }

  draw() {
    const { count, segments } = this.report;
    this.palette.draw(this.canvas, this.head, count, shownCells(segments, this.selection.part, count));
    const spoken = document.getElementById("spoken");
    spoken.textContent = this.head.spoken ?? "";
    spoken.hidden = this.head.spoken === null;
    if (segments !== null) document.getElementById("shares").replaceChildren(this.createShares(segments));
    const help = "rows are queries, columns are keys; arrow keys move, Enter locks";
    this.canvas.setAttribute("aria-label", `Attention weights of ${this.head.caption}: ${help}`);
    this.showCell();
  }

  createShares(segments) {
    const { quadrants, numbers } = this.head;
    return quadrantTable(quadrants, segments, false, numbers[this.report.columns.indexOf("between")]);
  }

  showCell() {
    const { query, key, lock } = this.selection;
    this.axes.mark(query, key);
    this.root.classList.toggle("locked", lock !== null);
    this.placeMark(".row-mark", query, 0, false);
    this.placeMark(".cell-mark", query, key ?? 0, key === null);
    this.showReadout(query, key);
  }

  placeMark(name, query, key, hidden) {
    const mark = this.root.querySelector(name);
    mark.hidden = hidden;
    mark.style.top = `${query * this.cell}px`;
    mark.style.left = `${key * this.cell}px`;
  }

  showReadout(query, key) {
    const readout = document.getElementById("readout");
    readout.replaceChildren(...nameToken(this.report, "query", query));
    if (key === null) return;
    const weight = element("strong", "", formatWeight(this.report, this.head, query, key));
    readout.append("→", ...nameToken(this.report, "key", key), weight);
  }

  onKey(event) {
    const { query, key, lock } = this.selection;
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const inside = (index) => Math.min(this.report.count - 1, Math.max(0, index));
    if (step && key === null) this.selection.pointCell(query, 0);
    else if (step) this.selection.pointCell(inside(query + step[0]), inside(key + step[1]));
    else if (event.key === "Enter" || event.key === " ") this.selection.toggle(lock ? lock.query : query, key);
    else return;
    event.preventDefault();
    this.root.querySelector(".cell-mark").scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}
