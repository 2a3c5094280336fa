/* The tokens along the two axes of the large map. Where cells are too small for a label each, only
   those that have room stay; the labels of the query and the key in question always show. */

const LABEL_ROOM = 13; // pixels that one line of a label needs

class Axes {
  constructor(root, tokens) {
    this.root = root;
    this.queries = this.createLabels(root.querySelector(".queries"), tokens);
    this.keys = this.createLabels(root.querySelector(".keys"), tokens);
  }

  createLabels(axis, tokens) {
    const labels = tokens.map((token) => {
      const label = element("span", "label");
      label.append(isolated(token));
      return label;
    });
    axis.append(...labels);
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
    this.visible = this.chooseVisible();
    this.placeLabels(this.queries, "top");
    this.placeLabels(this.keys, "left");
  }

  /* Pixels from the start of the axis: the middle of the cell, but the outermost labels do not leave the axis. */
  positionOf(index) {
    const half = LABEL_ROOM / 2;
    const end = Math.max(half, this.queries.length * this.cell - half);
    return Math.min(end, Math.max(half, (index + 0.5) * this.cell));
  }

  /* The labels that have room beside the one shown before them. */
  chooseVisible() {
    const visible = new Set();
    let last = -Infinity;
    for (let index = 0; index < this.queries.length; index += 1) {
      if (this.positionOf(index) - last < LABEL_ROOM) continue;
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
    const near = (index) => Math.abs(this.positionOf(index) - this.positionOf(active)) < LABEL_ROOM;
    labels.forEach((label, index) => {
      label.classList.toggle("active", index === active);
      label.classList.toggle("thin", !this.visible.has(index) || (active !== null && near(index)));
    });
  }
}
