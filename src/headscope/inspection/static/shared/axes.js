/* The tokens along the two axes of the large map; of a long text, the stretches. Where cells are too small for a label
   each, only those that have room stay; the labels of the query and the key in question always show. Used by the page of
   inspect.py and by the Heads tab. */

import { element, isolated } from "../dom.js";

const LABEL_ROOM = 13; // pixels that one line of a label needs

export class Axes {
  constructor(root, onKeyLabel = null, onQueryLabel = null) {
    Object.assign(this, { root, queries: [], keys: [], known: "" });
    if (onKeyLabel) this.listen(".keys", onKeyLabel);
    if (onQueryLabel) this.listen(".queries", onQueryLabel);
  }

  listen(name, onLabel) {
    const axis = this.root.querySelector(name);
    const indexOf = (event) => Number(event.target.closest(".label")?.dataset.index ?? -1);
    axis.addEventListener("pointerover", (event) => indexOf(event) >= 0 && onLabel(indexOf(event), false));
    axis.addEventListener("click", (event) => indexOf(event) >= 0 && onLabel(indexOf(event), true));
    axis.addEventListener("pointerleave", () => onLabel(null, false));
  }

  /* New names, one for each row and column; of a pair of texts, the class of each too (pairs.js). */
  name(names, kinds = null) {
    const known = JSON.stringify([names, kinds]);
    if (known === this.known) return false;
    this.known = known;
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
