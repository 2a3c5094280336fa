/* Whether the maps are what the model used, and what the record notes. */

import { element, legible, panel } from "./dom.js";

const LONGEST_NOTE = 2000; // letters
const TRUSTED = 1e-2; // a larger difference is warned of

export class TrustView {
  constructor(store) {
    this.store = store;
    this.list = element("dl", "facts");
    const title = store.page ? "About this text" : "How far to trust these maps";
    this.root = panel("trust", title, this.list).root;
    store.subscribe(["maps", "numbers", "index", "errors", "text"], () => this.show());
  }

  fact(name, text, warns = false) {
    const kind = warns ? "fact warns" : "fact";
    return element("div", kind, element("dt", {}, name), element("dd", {}, text));
  }

  show() {
    const { index, maps, errors, shownText, page } = this.store;
    if (index === null) return;
    const facts = [];
    if (page) {
      facts.push(this.fact("Text", element("bdi", {}, shownText.text)));
      facts.push(...this.notes(shownText.notes));
    }
    if (maps !== null && !(page && maps.number("check") === null)) facts.push(this.check(maps));
    if (errors.numbers) {
      facts.push(this.fact("Prediction", "The numbers of this step cannot be read.", true));
    }
    facts.push(...this.notes(index.notes));
    this.list.replaceChildren(...facts);
  }

  notes(notes) {
    return Object.entries(notes).map(([name, value]) => {
      return this.fact(legible(name), element("bdi", {}, legible(String(value), LONGEST_NOTE)));
    });
  }

  /* How far the maps are from what the model computed. */
  check(maps) {
    const check = maps.number("check");
    const known = (value) => (value ? value.toExponential(1) : String(value ?? "not measured"));
    const text =
      `Largest difference between the heads’ outputs and these maps times the values: ` +
      `${known(check)}.`;
    return this.fact("Check", text, check > TRUSTED);
  }
}
