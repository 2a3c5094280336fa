/* The list of texts, where a page has several: what each is, what it was taken for, and how it begins. One of them is
   chosen, as in a radio group. */

import { askMaps } from "./api.js";
import { build, isolated, legible, reveal } from "./dom.js";

const BEGINNING = 200; // characters, more than a line holds

export class Chooser {
  constructor(section, store, page) {
    Object.assign(this, { store });
    this.root = build("div", { class: "choices", role: "radiogroup", "aria-label": "Texts; arrow keys choose one" });
    const names = ["", "label", "", "prediction", "", "text"].map((name) => build("span", {}, name));
    section.append(build("div", { class: "text-line names", "aria-hidden": "true" }, ...names), this.root);
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    store.subscribe(["text"], () => this.show());
    if (page.texts.length > 1) this.fill(page.index);
  }

  async fill({ texts, classes }) {
    const verdicts = await Promise.all(texts.map(async (_, at) => (await askMaps("", null, at)).verdict(classes)));
    this.lines = texts.map((text, at) => this.createLine(text, at, verdicts[at]));
    this.root.replaceChildren(...this.lines);
    this.show();
  }

  createLine({ text, label }, at, { ranked, predicted }) {
    const choose = () => this.store.set({ text: at, query: 0, key: null, lock: null });
    const named = (name) => {
      const share = ranked.find(([known]) => known === name)?.[1];
      return [isolated(name ?? "–", "name"), build("span", { class: "number" }, share?.toFixed(3) ?? "–")];
    };
    const beginning = build("bdi", { class: "beginning" }, legible(text, BEGINNING));
    const place = build("span", { class: "number" }, String(at + 1));
    return build("button", { class: "text-line", type: "button", role: "radio", onclick: choose },
      place, ...named(label), ...named(predicted), beginning); // prettier-ignore
  }

  show() {
    this.lines?.forEach((line, at) => {
      line.setAttribute("aria-checked", String(at === this.store.text));
      line.tabIndex = at === this.store.text ? 0 : -1;
    });
    if (this.lines) reveal(this.root, this.lines[this.store.text]);
  }

  onKey(event) {
    const step = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[event.key];
    const next = step && this.lines[this.store.text + step];
    if (step) event.preventDefault();
    if (!next) return;
    next.click();
    next.focus({ preventScroll: true });
  }
}
