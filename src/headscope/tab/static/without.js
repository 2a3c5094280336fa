/* What the model predicts without the chosen head, and without all heads of its layer: every head was switched off once, at
   the step whose weights were kept, for each recorded text. */

import { build, element, formatWeight, isolated } from "./dom.js";

const SHOWN = 5; // classes, those that change most

/* The class of the largest probability. */
function likeliest(probabilities) {
  return probabilities.reduce((best, share, place) => (share > probabilities[best] ? place : best), 0);
}

export class WithoutView {
  constructor(section, store) {
    Object.assign(this, { store });
    const title = "what the model predicts for this text without the chosen head (o)";
    this.button = build("button", { class: "plain switch", type: "button", title, onclick: () => this.toggle() }, "Switch off");
    section.querySelector(".tools").append(this.button);
    this.panel = build("div", { class: "without", "aria-live": "polite" });
    section.querySelector(".readout").before(this.panel);
    store.subscribe(["maps", "shown", "index", "text", "layer", "head", "without"], () => this.show());
    this.show();
  }

  get found() {
    const { maps, layer, head } = this.store;
    return maps?.without(layer, head) ?? null;
  }

  toggle() {
    if (!this.button.hidden) this.store.set({ without: this.store.without === "shown" ? "hidden" : "shown" });
  }

  show() {
    const { store, found } = this;
    const off = store.without === "shown";
    const kept = store.index?.kept ?? null;
    const elsewhere = off && found === null && kept !== null && kept !== store.shown;
    this.button.hidden = found === null && !elsewhere;
    this.button.setAttribute("aria-pressed", String(off));
    this.panel.hidden = !off || this.button.hidden;
    if (this.panel.hidden) return;
    if (elsewhere) this.panel.replaceChildren(`Heads were switched off at step ${kept}, whose weights were kept.`);
    else this.panel.replaceChildren(...this.compare(found));
  }

  nameOf(place) {
    return isolated(this.store.index.classes[place] ?? `class ${place}`, "name");
  }

  compare({ before, head, layer }) {
    const { store } = this;
    const change = (place) => Math.max(Math.abs(head[place] - before[place]), Math.abs(layer[place] - before[place])) || 0;
    const first = likeliest(before);
    const others = [...before.keys()].filter((place) => place !== first).sort((left, right) => change(right) - change(left));
    const shown = [first, ...others.slice(0, SHOWN - 1)];
    const layerName = store.layerNames[store.layer] ?? `layer ${store.layer}`;
    const lines = [
      this.sentence(["Without this head"], before, head, first),
      this.sentence(["Without all heads of ", isolated(layerName)], before, layer, first),
    ];
    const header = ["", "all heads", "without the head", "without the layer"].map((words) => build("th", words ? { scope: "col" } : {}, words));
    const rows = shown.map((place) => build(
      "tr", {}, build("th", { scope: "row" }, this.nameOf(place)), ...[before, head, layer].map((all) => this.share(all[place])),
    )); // prettier-ignore
    const left = others.slice(SHOWN - 1);
    const rest = left.length === 0 ? [] : [element("p", "rest", `The other ${left.length} classes change by at most ${formatWeight(change(left[0]), 1)}.`)];
    return [...lines, build("table", {}, build("tr", {}, ...header), ...rows), ...rest];
  }

  /* How the likeliest class fares; and which class is likeliest instead, where a text has one class. */
  sentence(lead, before, after, first) {
    const instead = likeliest(after);
    const changes = this.store.maps.given === null && instead !== first;
    const [from, to] = [before, after].map((all) => formatWeight(all[first], 1));
    return build(
      "p", {}, ...lead, ": P(", this.nameOf(first), `) ${from} → `, element("strong", "", to),
      ...(changes ? ["; it would say ", this.nameOf(instead), ` (${formatWeight(after[instead], 1)})`] : []),
    ); // prettier-ignore
  }

  share(value) {
    const bar = element("span", "bar");
    bar.style.setProperty("--share", String(Math.max(0, Math.min(1, value || 0))));
    return build("td", {}, bar, element("span", "number", formatWeight(value, 1)));
  }
}
