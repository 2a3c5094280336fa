/* The box in which a text is typed; of a run on pairs, two. Examples, the text that is compared
   with, and the link that holds all of it. */

import { button, element, isolated, showError } from "./dom.js";
import { languageOf } from "./words.js";
import { count, t } from "./strings.js";

const LONGEST = 20_000; // characters; no run reads as many
const KINDS = {
  right: [t`✓ sure`, t`the next text that is classified rightly and surely`],
  wrong: [t`✗ wrong`, t`the next text that is classified wrongly`],
  unsure: [t`≈ unsure`, t`the next text that it is least sure of`],
};

export class TextBox {
  constructor(store, { pair, examples, dtype }) {
    Object.assign(this, { store, isComposing: false });
    const nothing = () => null;
    Object.assign(this, { onText: nothing, onKeep: nothing, onDrop: nothing });
    Object.assign(this, { onOpen: nothing, linkTo: nothing });
    this.inputs = (pair ? [t`Text A`, t`Text B`] : [t`Your text`]).map((name) => this.input(name));
    this.error = element("p", { class: "error", role: "alert", hidden: true });
    this.count = element("span", "count", t`unpacking the network …`);
    this.keep = button(t`Compare`, t`keep this text, and compare the next with it (k)`, () => {
      this.onKeep();
    });
    this.copy = button(t`Copy link`, t`a link to this text and view; it is sent nowhere`, () => {
      this.copyLink();
    });
    this.copy.hidden = location.protocol === "about:"; // in a notebook's frame
    const field = { class: "link", readonly: true, hidden: true, "aria-label": t`Link` };
    this.link = element("input", field);
    this.status = element("span", { class: "count", role: "status" });
    this.kept = element("p", { class: "kept-text", hidden: true });
    const halves = dtype === "float16" ? t`weights in float16: logits within about 0.001` : "";
    const chips = this.exampleButtons(examples);
    this.tools = element("div", "tools", ...chips, this.keep, this.copy);
    const notes = element(
      "p", "notes", this.count, element("span", {}, halves), this.status, this.link,
    );
    const texts = element("div", "inputs", ...this.inputs);
    this.root = element("div", "box", texts, this.error, this.kept, notes);
    store.subscribe(["kept"], () => this.showKept());
  }

  input(name) {
    const changed = () => this.changed();
    return element("textarea", {
      rows: "2",
      dir: "auto",
      spellcheck: "false",
      placeholder: t`${name}: type, and see what decides`,
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

  /* A button for each kind of examples; each click shows the next of them. */
  exampleButtons(examples) {
    return Object.entries(KINDS).flatMap(([kind, [words, title]]) => {
      const own = examples.filter((example) => example.kind === kind);
      let at = -1;
      const next = () => {
        at = (at + 1) % own.length;
        this.open(own[at].parts);
      };
      return own.length === 0 ? [] : [button(words, title, next, "plain example")];
    });
  }

  get parts() {
    return this.inputs.map((input) => input.value.slice(0, LONGEST));
  }

  fill(parts) {
    this.inputs.forEach((input, at) => {
      input.value = parts[at] ?? "";
      input.lang = languageOf(input.value);
    });
  }

  /* Another text altogether, whose classes are its own; or of the same classes. */
  open(parts, pair = null) {
    this.onOpen();
    this.store.set({ pair, word: null });
    this.fill(parts);
    this.changed();
  }

  changed() {
    for (const input of this.inputs) input.lang = languageOf(input.value);
    this.link.hidden = true;
    this.status.textContent = "";
    const long = this.inputs.find((input) => input.value.length > LONGEST)?.value.length ?? 0;
    const cut = t`The first ${count(LONGEST)} of ${count(long)} characters are read.`;
    showError(this.error, long > 0 ? cut : null);
    this.onText(this.parts);
  }

  focus() {
    this.inputs[0].focus();
    this.inputs[0].select();
  }

  /* How much was read, and how fast. */
  showCount({ seconds, result }) {
    const { length } = result.text.tokens;
    this.count.textContent = t`${length} tokens · ${(1000 * seconds).toFixed(0)} ms`;
  }

  async copyLink() {
    const link = this.linkTo();
    if (link === null) {
      this.status.textContent = t`this text is too long for a link`;
      return;
    }
    try {
      await navigator.clipboard.writeText(link);
      this.status.textContent = t`link copied`;
    } catch {
      this.link.hidden = false; // a browser that does not let pages copy
      this.link.value = link;
      this.link.select();
    }
  }

  showKept() {
    const { kept } = this.store;
    this.kept.hidden = kept === null;
    this.keep.textContent = kept === null ? t`Compare` : t`Compare with this`;
    if (kept === null) return;
    const back = button(t`Back to it`, t`put it into the box`, () => this.open(kept.parts));
    const drop = button(t`Stop comparing`, "(k)", () => this.onDrop());
    const words = isolated(kept.parts.join(" ⏐ "), "name");
    words.lang = languageOf(kept.parts[0]);
    this.kept.replaceChildren(t`Compared with `, words, " ", back, drop);
  }
}
