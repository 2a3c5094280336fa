/* The text, token by token, shaded by what the query in question attends to; what it attends to most; how much each
   token counts in the pooling; and what the model predicts. */

import { barLine, build, element, formatWeight, isolated, nameToken, reveal } from "./dom.js";
import { captionOf, largest, readingOf, shownBeside } from "./reading.js";
import { blocksOf, directionOf } from "./pairs.js";

/* The tokens in their order, each shaded by a weight, and the largest weights ranked. Shades are relative to the row's
   largest weight, since weights of a long text are too small to be seen on a scale that ends at 1. */

const STEPS = { ltr: { ArrowLeft: -1, ArrowRight: 1 }, rtl: { ArrowLeft: 1, ArrowRight: -1 } };

/* The row is one stop of the Tab key, at the token that has the focus or else at the query; keys go on from there. */

class TokenRow {
  constructor(root, store) {
    Object.assign(this, { root, store, tokens: [], texts: null, marked: [], stop: null });
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

  show({ tokens: texts, text: whole, special }, segments) {
    if (texts === this.texts) return;
    this.texts = texts;
    this.root.dir = segments === null ? directionOf(whole) : "ltr"; // a pair has a direction for each block
    const shared = { class: "token", type: "button", tabindex: "-1", "aria-pressed": "false" };
    this.tokens = texts.map((text, index) => build("button", { ...shared, "data-index": String(index) }, isolated(text)));
    for (const place of special ?? []) this.tokens[place]?.classList.add("special");
    Object.assign(this, { marked: [], stop: null });
    this.root.replaceChildren(...blocksOf(this.tokens, texts, segments));
    this.mark();
  }

  mark() {
    const { query, key, lock } = this.store;
    for (const token of this.marked) {
      token.classList.remove("query", "key");
      token.setAttribute("aria-pressed", "false");
    }
    const [first, second] = [this.tokens[query], key === null ? undefined : this.tokens[key]];
    this.marked = [first, second].filter(Boolean);
    first?.classList.add("query");
    second?.classList.add("key");
    this.stopAt(this.tokens.includes(document.activeElement) ? document.activeElement : first);
    first?.setAttribute("aria-pressed", String(lock !== null));
    if (first && !this.root.matches(":hover")) reveal(this.root, first);
  }

  stopAt(token) {
    if (!token || token === this.stop) return;
    if (this.stop) this.stop.tabIndex = -1;
    this.stop = token;
    token.tabIndex = 0;
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
    const place = { Home: 0, End: this.tokens.length - 1 }[event.key] ?? this.tokens.indexOf(document.activeElement) + step;
    if (Number.isNaN(place)) return;
    event.preventDefault();
    this.tokens[place]?.focus();
  }
}

const [RANKED, SHOWN] = [16, 6]; // the largest weights, and how many of them show in any case

/* What a query gives to the keys of a long text that are not kept one by one. */
function restOf(rest) {
  return rest === null ? "" : `the other ${rest.count} keys together: ${rest.mass.toFixed(3)}`;
}

/* What a head put for the answer of the shown text, and the tokens that it has most of it from: the parts of a sentence,
   or null where that is not known. */
export function putOf({ maps, index, text: place }, layer, head) {
  const put = maps?.putBy(layer, head) ?? null;
  const text = index?.texts[place];
  if (put === null || !text) return null;
  const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
  const answer = isolated(text.answer ?? index.classes[maps.answer] ?? "", "name");
  const tokens = put.tokens.map(([key, value]) => [isolated(text.tokens[key] ?? "", "name"), ` ${signed(value)}`]);
  return [`put ${signed(put.value)} nats for `, answer, ...tokens.flatMap((token, at) => [at === 0 ? ": " : ", ", ...token])];
}

export class TextView {
  constructor(section, store) {
    Object.assign(this, { section, store });
    const [tokens, pooled] = section.querySelectorAll(".tokens");
    this.row = new TokenRow(tokens, store);
    this.pooled = new TokenRow(pooled, store);
    this.release = element("button", "plain", "Unlock (Esc)");
    this.release.type = "button";
    this.release.addEventListener("click", () => store.release());
    section.querySelector(".tools").append(this.release);
    const all = ["maps", "index", "text", "layer", "head", "other", "compare", "query", "key", "lock", "by", "part"];
    store.subscribe(all, () => this.show());
    store.subscribe(["maps", "index", "text"], () => this.showPrediction());
    this.show();
  }

  get text() {
    return this.store.index?.texts[this.store.text] ?? null;
  }

  show() {
    const { store, text } = this;
    this.release.hidden = store.lock === null;
    const heading = this.section.querySelector("h2");
    heading.replaceChildren("Text ", element("span", "caption", ""));
    if (text === null) return;
    heading.lastChild.append(isolated(captionOf(store, "main", store.layer, store.head)));
    this.row.show(text, store.segments);
    const reading = readingOf(store, "main", store.layer, store.head);
    if (reading !== null && store.query < text.tokens.length) this.showWeights(reading);
    this.showPut();
    this.showPooling();
  }

  showPut() {
    const said = putOf(this.store, this.store.layer, this.store.head);
    const place = this.section.querySelector(".put");
    place.hidden = said === null;
    place.replaceChildren(...(said ?? []));
  }

  showWeights(reading) {
    const { query, key, by, tokens } = this.store;
    const byKey = by === "key" && key !== null;
    const whole = byKey ? reading.column(key) : reading.row(query);
    const shown = shownBeside(this.store, byKey ? key : query);
    const row = shown === null ? whole : whole.map((weight, index) => (shown[index] ? weight : NaN));
    this.row.shade(row, shown);
    const [heading, list] = this.section.querySelectorAll(".ranking h3, .ranking ol");
    const verb = reading.difference ? " differs most at" : " attends most to";
    if (byKey) heading.replaceChildren(isolated(tokens[key], "name"), " is attended to most by");
    else heading.replaceChildren(isolated(tokens[query], "name"), verb);
    const scale = largest(row);
    const size = (index) => (Number.isNaN(row[index]) ? -1 : Math.abs(row[index]));
    const order = [...row.keys()].filter((index) => size(index) >= 0).sort((a, b) => size(b) - size(a) || a - b);
    const ranked = order.slice(0, RANKED);
    list.style.setProperty("--rows", String(Math.min(SHOWN, tokens.length)));
    list.replaceChildren(...ranked.map((index) => {
      const line = barLine(tokens[index], size(index) / scale, formatWeight(row[index], scale).replace("-", "−"));
      line.title = `token ${index}`;
      return line;
    }));
    const place = this.section.querySelector(".rest");
    if (shown === null) place.textContent = byKey ? "" : restOf(reading.rest(query));
    else place.textContent = shown.includes(true) ? "" : "a special token is of neither text";
  }

  showPooling() {
    const { store, text } = this;
    const pooling = store.maps?.pooling ?? null;
    const place = this.section.querySelector(".pooling");
    place.hidden = pooling === null || pooling.length !== text.tokens.length;
    if (place.hidden) return;
    this.pooled.show(text, store.segments);
    if (this.shaded !== pooling || this.shadedTokens !== text.tokens) this.pooled.shade(pooling);
    Object.assign(this, { shaded: pooling, shadedTokens: text.tokens });
    const index = store.key ?? store.query;
    const weight = element("strong", "", formatWeight(pooling[index], largest(pooling)));
    place.querySelector(".readout").replaceChildren(...nameToken("token", index, text.tokens[index] ?? ""), weight);
  }

  showPrediction() {
    const { index, maps } = this.store;
    const place = this.section.querySelector(".prediction");
    const { ranked, predicted } = maps?.verdict(index.classes) ?? { ranked: [] };
    place.hidden = ranked.length === 0 || this.text === null;
    if (place.hidden) return;
    const { label } = this.text;
    const verdict = element("span", "known");
    if (label !== null) {
      const right = predicted === label;
      verdict.classList.toggle("wrong", !right);
      verdict.append(right ? " ✓ true label " : " ✗ true label ", isolated(label));
    }
    place.querySelector("h3").replaceChildren("predicted ", isolated(predicted, "name"), verdict);
    place.querySelector("ul").replaceChildren(...ranked.slice(0, 8).map(([name, share]) => barLine(name, share, share.toFixed(3))));
  }
}
