/* Which heads the table shows: those of one layer, and those whose number lies between two limits. */

import { build, fillSelect, wordsOf } from "./dom.js";

export class Filters {
  constructor(root, store, changed) {
    Object.assign(this, { store, layer: "", low: null, high: null });
    this.layerSelect = build("select", { "aria-label": "Layer", onchange: (event) => this.set({ layer: event.target.value }) });
    this.measureSelect = build("select", { "aria-label": "Number: its line over the steps, and the limits", onchange: (event) => {
      store.set({ measure: event.target.value });
      changed();
    } }); // prettier-ignore
    const limit = (name, label) => build("input", {
      type: "number", step: "any", placeholder: label, "aria-label": label,
      oninput: (event) => this.set({ [name]: event.target.value === "" ? null : Number(event.target.value) }),
    }); // prettier-ignore
    this.shown = build("span", { class: "count", "aria-live": "polite" });
    this.changed = changed;
    root.append(this.shown, this.layerSelect, this.measureSelect, limit("low", "at least"), limit("high", "at most"));
  }

  set(changes) {
    Object.assign(this, changes);
    this.changed();
  }

  offer(layers, measures) {
    fillSelect(this.layerSelect, [{ value: "", label: "all layers" }, ...layers.map((name, layer) => ({ value: String(layer), label: name }))], this.layer);
    if (this.layerSelect.selectedIndex < 0) Object.assign(this, { layer: "" }, void (this.layerSelect.value = ""));
    const measure = measures.includes(this.store.measure) ? this.store.measure : (measures[0] ?? null);
    this.store.set({ measure });
    fillSelect(this.measureSelect, measures.map((name) => ({ value: name, label: wordsOf(name) })), measure);
  }

  lets({ layer, numbers }) {
    if (this.layer !== "" && String(layer) !== this.layer) return false;
    if (this.low === null && this.high === null) return true;
    const value = numbers[this.store.measure];
    return value !== undefined && value >= (this.low ?? -Infinity) && value <= (this.high ?? Infinity);
  }

  count(shown, all) {
    this.shown.textContent = shown === all ? `${all} heads` : `${shown} of ${all} heads`;
  }
}
