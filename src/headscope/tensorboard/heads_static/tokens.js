/* The tokens in their order, each shaded by a weight, and the largest weights ranked. Shades are relative to the row's
   largest weight, since weights of a long text are too small to be seen on a scale that ends at 1. */

import { build, formatWeight, isolated, reveal } from "./dom.js";
import { largest } from "./reading.js";
import { directionOf } from "./shared/direction.js";
import { blocksOf } from "./shared/pairs.js";

const STEPS = { ltr: { ArrowLeft: -1, ArrowRight: 1 }, rtl: { ArrowLeft: 1, ArrowRight: -1 } };

export class TokenRow {
  constructor(root, store) {
    Object.assign(this, { root, store, tokens: [], texts: null });
    this.root.addEventListener("pointerleave", () => store.leave());
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.root.addEventListener("pointerover", (event) => this.onToken(event, (index) => store.pointToken(index)));
    this.root.addEventListener("focusin", (event) => this.onToken(event, (index) => store.pointToken(index)));
    this.root.addEventListener("click", (event) => this.onToken(event, (index) => store.toggle(index, null)));
    store.subscribe(["query", "key", "lock"], () => this.mark());
  }

  onToken(event, act) {
    const token = event.target.closest(".token");
    if (token) act(Number(token.dataset.index));
  }

  show(texts, whole, segments) {
    if (texts === this.texts) return;
    this.texts = texts;
    this.root.dir = segments === null ? directionOf(whole) : "ltr"; // a pair has a direction for each block
    this.tokens = texts.map((text, index) =>
      build("button", { class: "token", type: "button", "data-index": String(index) }, isolated(text)),
    );
    this.marked = [];
    this.root.replaceChildren(...blocksOf(this.tokens, texts, segments));
    this.mark();
  }

  mark() {
    const { query, key, lock } = this.store;
    for (const token of this.marked ?? []) {
      token.classList.remove("query", "key");
      token.setAttribute("aria-pressed", "false");
      token.tabIndex = -1;
    }
    const [first, second] = [this.tokens[query], key === null ? undefined : this.tokens[key]];
    this.marked = [first, second].filter(Boolean);
    first?.classList.add("query");
    second?.classList.add("key");
    if (first) first.tabIndex = 0;
    first?.setAttribute("aria-pressed", String(lock !== null));
    if (first && !this.root.matches(":hover")) reveal(this.root, first);
  }

  /* Shade each token by its weight; one below zero, of a difference, in the other colour. Where only some are shown, the
     others are left out. */
  shade(row, shown = null) {
    const scale = largest(row);
    this.tokens.forEach((token, index) => {
      const weight = row[index];
      const strength = scale > 0 && weight ? Math.abs(weight) / scale : 0;
      token.style.setProperty("--strength", strength.toFixed(3));
      token.classList.toggle("less", weight < 0);
      const leftOut = shown !== null && !shown[index];
      token.classList.toggle("left-out", leftOut);
      const known = Number.isNaN(weight) ? "not among the top keys" : `weight ${formatWeight(weight, scale)}`;
      token.title = `token ${index}, ${leftOut ? "left out" : known}`;
    });
  }

  onKey(event) {
    const step = STEPS[event.target.closest("[dir]").dir][event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.tokens[this.tokens.indexOf(document.activeElement) + step]?.focus();
  }
}
