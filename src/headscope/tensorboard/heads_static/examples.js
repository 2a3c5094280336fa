/* The texts of the validation split where the chosen head stands out: where it looks most sharply, and where it changed
   most since the record before. */

import { barLine, build, element } from "./dom.js";

const KINDS = [
  ["focused", "looks most sharply (1 − entropy as a share of its most)"],
  ["changed", "changed most since the record before"],
];

/* The examples of one head: [text, score] pairs, best first; null where the step has none. */
export function examplesOf(extra, kind, layer, head) {
  const rows = extra[`examples/${kind}/rows`]?.[layer]?.[head];
  const scores = extra[`examples/${kind}/scores`]?.[layer]?.[head];
  if (!rows || !scores) return null;
  const texts = new Map((extra["examples/rows"] ?? []).map((row, place) => [row, extra["examples/texts"]?.[place] ?? ""]));
  return rows.flatMap((row, place) => (row < 0 ? [] : [[texts.get(row) ?? `row ${row}`, scores[place]]]));
}

export class ExamplesView {
  constructor(section, store) {
    Object.assign(this, { section, store });
    this.content = build("div", { class: "columns" });
    section.append(this.content);
    store.subscribe(["numbers", "layer", "head", "index"], () => this.show());
    this.show();
  }

  show() {
    const { store } = this;
    const extra = store.numbers?.extra ?? {};
    const lists = KINDS.map(([kind, words]) => this.list(examplesOf(extra, kind, store.layer, store.head), words));
    this.section.hidden = lists.every((list) => list === null);
    const name = `${store.layerNames[store.layer] ?? ""}, head ${store.head}`;
    this.section.querySelector("h2").replaceChildren("Texts where ", element("span", "caption", name), " stands out");
    this.content.replaceChildren(...lists.filter((list) => list !== null));
  }

  list(examples, words) {
    if (examples === null) return null;
    const lines = examples.map(([text, score]) => barLine(text, score ?? 0, score === null ? "–" : score.toFixed(3)));
    return build("div", {}, build("h3", {}, words), build("ol", { class: "bars" }, ...lines));
  }
}
