/* The box in which a text is typed; of a run on pairs, two. Examples, the text that is kept, and
   the link that holds all of it. */

import { button, element, fillSelect, isolated, legible, showError } from "./dom.js";
import { languageOf } from "./words.js";

const LONGEST = 20_000; // characters; no run reads as many
const KINDS = {
  right: "rightly and surely classified",
  wrong: "wrongly classified",
  unsure: "least sure",
};
const VIEWS = [["beside", "side by side"], ["difference", "difference"]];

export class TextBox {
  constructor(store, { pair, examples, max_length: limit, dtype }) {
    Object.assign(this, { store, examples, limit, isComposing: false });
    const nothing = () => null;
    Object.assign(this, { onText: nothing, onKeep: nothing, onDrop: nothing, linkTo: nothing });
    this.inputs = (pair ? ["Text A", "Text B"] : ["Your text"]).map((name) => this.input(name));
    this.error = element("p", { class: "error", role: "alert", hidden: true });
    this.count = element("span", { class: "count", role: "status" }, "unpacking the network …");
    this.choice = this.exampleList();
    this.keep = button("Keep beside", "keep this text, and compare the next with it (k)", () => {
      this.onKeep();
    });
    this.copy = button("Copy link", "a link to this text and view; it is sent nowhere", () => {
      this.copyLink();
    });
    this.copy.hidden = location.protocol === "about:"; // in a notebook's frame
    const field = { class: "link", readonly: true, hidden: true, "aria-label": "Link" };
    this.link = element("input", field);
    this.status = element("span", { class: "count", role: "status" });
    this.kept = element("p", { class: "kept-text", hidden: true });
    this.view = element("select", {
      class: "choose-compare-view",
      "aria-label": "How the two texts are compared",
      onchange: () => store.set({ compare: { ...store.compare, view: this.view.value } }),
    });
    fillSelect(this.view, VIEWS, "beside");
    const halves = dtype === "float16" ? "weights in float16: logits within about 0.001" : "";
    const tools = element("div", "tools", this.choice, this.keep, this.copy);
    const notes = element(
      "p", "notes", this.count, element("span", {}, halves), this.status, this.link,
    );
    const label = { class: "panel box", "aria-label": "Text" };
    const texts = element("div", "inputs", ...this.inputs);
    const line = element("div", "line", tools, notes);
    this.root = element("section", label, texts, line, this.error, this.kept);
    store.subscribe(["kept", "compare"], () => this.showKept());
  }

  input(name) {
    const changed = () => this.changed();
    return element("textarea", {
      rows: "2",
      dir: "auto",
      maxlength: String(LONGEST),
      spellcheck: "false",
      placeholder: `${name}: type, and see every head decide`,
      "aria-label": name,
      oncompositionstart: () => (this.isComposing = true),
      oncompositionend: () => {
        this.isComposing = false;
        changed();
      },
      oninput: (event) => {
        if (!this.isComposing && !event.isComposing) changed();
      },
    });
  }

  exampleList() {
    const groups = Object.entries(KINDS).map(([kind, words]) => {
      const own = [...this.examples.entries()].filter(([, example]) => example.kind === kind);
      const options = own.map(([at, { label, parts }]) => {
        const words = `${legible(label, 30)}: ${legible(parts.join(" ⏐ "), 60)}`;
        return element("option", { value: String(at) }, words);
      });
      return element("optgroup", { label: words }, ...options);
    });
    const onchange = (event) => {
      const example = this.examples[Number(event.target.value)];
      event.target.value = "";
      this.fill(example.parts);
      this.changed();
    };
    const attributes = { class: "choose-example", "aria-label": "Examples", onchange };
    const first = element("option", { value: "" }, "Examples …");
    const list = element("select", attributes, first, ...groups.filter((it) => it.children.length));
    list.hidden = this.examples.length === 0;
    return list;
  }

  get parts() {
    return this.inputs.map((input) => input.value);
  }

  fill(parts) {
    this.inputs.forEach((input, at) => {
      input.value = (parts[at] ?? "").slice(0, LONGEST);
      input.lang = languageOf(input.value);
    });
  }

  changed() {
    for (const input of this.inputs) input.lang = languageOf(input.value);
    this.link.hidden = true;
    this.status.textContent = "";
    showError(this.error, null);
    this.onText(this.parts);
  }

  focus() {
    this.inputs[0].focus();
    this.inputs[0].select();
  }

  /* How much was read, and how fast. */
  showCount({ seconds, result }) {
    const { tokens } = result.text;
    const isFull = tokens.length >= this.limit;
    const words = isFull ? `the first ${tokens.length} tokens are read` : `${tokens.length} tokens`;
    this.count.textContent = `${words} · ${(1000 * seconds).toFixed(0)} ms`;
  }

  async copyLink() {
    const link = this.linkTo();
    if (link === null) {
      this.status.textContent = "this text is too long for a link";
      return;
    }
    try {
      history.replaceState(null, "", link);
      await navigator.clipboard.writeText(link);
      this.status.textContent = "link copied";
    } catch {
      this.link.hidden = false; // a browser that does not let pages copy
      this.link.value = link;
      this.link.select();
    }
  }

  showKept() {
    const { kept, compare } = this.store;
    this.kept.hidden = kept === null;
    this.keep.textContent = kept === null ? "Keep beside" : "Keep this instead";
    if (kept === null) return;
    this.view.value = compare?.view ?? "beside";
    const back = button("Back to it", "put the kept text into the box", () => {
      this.fill(kept.parts);
      this.changed();
    });
    const drop = button("Let go", "compare no longer (k)", () => this.onDrop());
    const words = isolated(kept.parts.join(" ⏐ "), "name");
    words.lang = languageOf(kept.parts[0]);
    this.kept.replaceChildren("Kept: ", words, " ", this.view, back, drop);
  }
}
