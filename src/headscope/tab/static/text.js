/* The text, shaded by the attention of a query; its pooling; and the prediction. */

import { largest } from "./colors.js";
import { captionOf, headMap } from "./compare.js";
import {
  barLine, button, element, formatNumber, formatSigned, isolated, panel, reveal,
} from "./dom.js";
import { blocksOf, directionOf } from "./pairs.js";

const STEPS = { ltr: { ArrowLeft: -1, ArrowRight: 1 }, rtl: { ArrowLeft: 1, ArrowRight: -1 } };
const LISTED = 16; // the largest weights
const ROWS = 6; // how many of them are in sight in any case
const CLASSES = 8; // of the prediction

/* The tokens, each shaded by a weight relative to the largest. The row is one stop of the Tab key,
   at the token that has the focus or else at the query. */
class TokenRow {
  constructor(store, label) {
    Object.assign(this, { store, tokens: [], texts: null });
    this.root = element("div", { class: "tokens", role: "group", "aria-label": label });
    const point = (event) => this.onToken(event, (index) => store.pointToken(index));
    this.root.addEventListener("pointerover", point);
    this.root.addEventListener("focusin", point);
    this.root.addEventListener("pointerleave", () => store.leave());
    this.root.addEventListener("click", (event) => {
      this.onToken(event, (index) => store.toggle(index, null));
    });
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    store.subscribe(["query", "key", "lock"], () => this.mark());
  }

  onToken(event, act) {
    const token = event.target.closest(".token");
    if (token) act(this.tokens.indexOf(token));
  }

  show({ tokens: texts, text, special }, segments) {
    if (texts === this.texts) return;
    this.texts = texts;
    this.root.dir = segments === null ? directionOf(text) : "ltr"; // a pair has one for each block
    const attributes = { class: "token", type: "button" };
    this.tokens = texts.map((token) => element("button", attributes, isolated(token)));
    for (const place of special ?? []) this.tokens[place].classList.add("special");
    this.root.replaceChildren(...blocksOf(this.tokens, texts, segments));
    this.mark();
  }

  mark() {
    const { query, key, lock } = this.store;
    const focused = this.tokens.indexOf(document.activeElement);
    const stop = focused >= 0 ? focused : query; // of the Tab key
    this.tokens.forEach((token, place) => {
      token.classList.toggle("query", place === query);
      token.classList.toggle("key", place === key);
      token.setAttribute("aria-pressed", String(place === query && lock !== null));
      token.tabIndex = place === stop ? 0 : -1;
    });
    const first = this.tokens[query];
    if (first && !this.root.matches(":hover")) reveal(this.root, first);
  }

  /* Shade each token by its weight; below zero, of a difference, in the other colour. */
  shade(row) {
    const scale = largest(row);
    this.tokens.forEach((token, index) => {
      const weight = row[index];
      const strength = scale > 0 && weight ? Math.abs(weight) / scale : 0;
      token.style.setProperty("--strength", strength.toFixed(3));
      token.classList.toggle("less", weight < 0);
      const isKnown = !Number.isNaN(weight);
      const words = isKnown ? `weight ${formatNumber(weight)}` : "not among the top keys";
      token.title = `token ${index}, ${words}`;
    });
  }

  onKey(event) {
    const step = STEPS[event.target.closest("[dir]").dir][event.key];
    const ends = { Home: 0, End: this.tokens.length - 1 };
    const place = ends[event.key] ?? this.tokens.indexOf(document.activeElement) + step;
    if (Number.isNaN(place)) return;
    event.preventDefault();
    this.tokens[place]?.focus();
  }
}

export class TextView {
  constructor(store) {
    this.store = store;
    this.row = new TokenRow(store, "Tokens; arrow keys move the query, Enter locks it");
    this.pooled = new TokenRow(store, "Tokens by pooling weight");
    const heading = element("h3", {}, "Pooling weights of the tokens");
    this.pooling = element("div", { class: "pooling", hidden: true }, heading, this.pooled.root);
    this.rankingTitle = element("h3");
    this.ranking = element("ol", "bars");
    this.contribution = element("p", "contribution");
    const ranked = [this.rankingTitle, this.ranking, this.contribution];
    this.predictionTitle = element("h3");
    this.classes = element("ul", "bars");
    this.prediction = element("div", "prediction", this.predictionTitle, this.classes);
    const columns = [
      element("div", "words", this.row.root, this.pooling),
      element("div", "ranking", ...ranked),
      this.prediction,
    ];
    this.panel = panel("text", "Text", element("div", "columns", ...columns));
    this.root = this.panel.root;
    this.release = button("Unlock (Esc)", "", () => store.release());
    this.panel.tools.append(this.release);
    const shown = ["maps", "index", "text", "layer", "head", "other", "compare"];
    store.subscribe([...shown, "query", "key", "lock", "by"], () => this.show());
    store.subscribe(["maps", "index", "text"], () => {
      this.showPooling();
      this.showPrediction();
    });
    this.show();
  }

  show() {
    const { store } = this;
    const { shownText, layer, head, segments } = store;
    this.release.hidden = store.lock === null;
    const caption = shownText === null ? "" : isolated(captionOf(store, "main", layer, head));
    this.panel.title.replaceChildren("Text ", element("span", "caption", caption));
    if (shownText === null) return;
    this.row.show(shownText, segments);
    const map = headMap(store, "main", layer, head);
    if (map !== null && store.query < shownText.tokens.length) this.showWeights(map);
    this.showContribution();
  }

  /* What the chosen head contributes to the answer, and the tokens that it is mostly from. */
  showContribution() {
    const { maps, layer, head, index, shownText } = this.store;
    const value = maps?.contributionOf(layer, head) ?? null;
    this.contribution.hidden = value === null;
    if (value === null) return;
    const answer = shownText.answer ?? index.classes[maps.number("nats/class")] ?? "";
    const tokens = maps.contributionsByToken(layer, head).flatMap(([key, nats], place) => {
      const token = isolated(shownText.tokens[key] ?? "", "name");
      return [place === 0 ? ": " : ", ", token, ` ${formatSigned(nats, 2)}`];
    });
    const lead = `contributes ${formatSigned(value, 2)} nats to `;
    this.contribution.replaceChildren(lead, isolated(answer, "name"), ...tokens);
  }

  /* What the query attends to; or of a key, what attends to it. */
  showWeights(map) {
    const { query, key, by, tokens } = this.store;
    const isKey = by === "key" && key !== null;
    const row = isKey ? map.column(key) : map.row(query);
    this.row.shade(row);
    let verb = map.isDifference ? " differs most at" : " attends most to";
    if (isKey) verb = " is attended to most by";
    const token = tokens[isKey ? key : query];
    this.rankingTitle.replaceChildren(isolated(token, "name"), verb);
    const scale = largest(row);
    const known = [...row.keys()].filter((index) => !Number.isNaN(row[index]));
    const size = (index) => Math.abs(row[index]);
    const ranked = known.sort((a, b) => size(b) - size(a) || a - b).slice(0, LISTED);
    this.ranking.style.setProperty("--rows", String(Math.min(ROWS, tokens.length)));
    const lines = ranked.map((index) => {
      const line = barLine(tokens[index], size(index) / scale, formatNumber(row[index]));
      line.title = `token ${index}`;
      return line;
    });
    this.ranking.replaceChildren(...lines);
  }

  showPooling() {
    const { maps, shownText, segments } = this.store;
    const pooling = maps?.values("pooling") ?? null;
    this.pooling.hidden = pooling === null || shownText === null;
    if (this.pooling.hidden) return;
    this.pooled.show(shownText, segments);
    this.pooled.shade(pooling);
  }

  showPrediction() {
    const { index, maps, shownText } = this.store;
    const { ranked, predicted } = maps?.prediction(index.classes) ?? { ranked: [] };
    this.prediction.hidden = ranked.length === 0 || shownText === null;
    if (this.prediction.hidden) return;
    const { label } = shownText;
    const isRight = predicted === label;
    const words = isRight ? " ✓ true label " : " ✗ true label ";
    const truth = element("span", isRight ? "known" : "known wrong", words, isolated(label ?? ""));
    const title = ["predicted ", isolated(predicted, "name")];
    this.predictionTitle.replaceChildren(...title, ...(label === null ? [] : [truth]));
    const lineOf = ([name, share]) => barLine(name, share, share.toFixed(3));
    this.classes.replaceChildren(...ranked.slice(0, CLASSES).map(lineOf));
  }
}
