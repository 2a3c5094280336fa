/* The text: why it is given its class, one strip for each head under every word; or, where no
   contributions are known, the attention of a query. */

import { largest } from "./colors.js";
import { captionOf, headMap } from "./compare.js";
import { contributionsOf, otherContributions } from "./contributions.js";
import {
  barLine, button, element, formatNumber, formatSigned, isolated, panel, reveal,
} from "./dom.js";
import { blocksOf, directionOf } from "./pairs.js";

const STEPS = { ltr: { ArrowLeft: -1, ArrowRight: 1 }, rtl: { ArrowLeft: 1, ArrowRight: -1 } };
const LISTED = 16; // the largest weights
const ROWS = 6; // how many of them are in sight in any case
const STRIPS = 6; // heads with a strip of their own; the others share one
const NUMBERED = 0.1; // share of the largest sum, from which a word has its number

/* The tokens, each shaded by a number relative to the largest. The row is one stop of the Tab key,
   at the token that has the focus or else at the query. */
export class TokenRow {
  constructor(store, label, onChoose = null) {
    Object.assign(this, { store, tokens: [], texts: null });
    this.onChoose = onChoose ?? ((index) => store.toggle(index, null));
    this.root = element("div", { class: "tokens", role: "group", "aria-label": label });
    const point = (event) => this.onToken(event, (index) => store.pointToken(index));
    this.root.addEventListener("pointerover", point);
    this.root.addEventListener("focusin", point);
    this.root.addEventListener("pointerleave", () => store.leave());
    this.root.addEventListener("click", (event) => this.onToken(event, this.onChoose));
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    store.subscribe(["query", "key", "lock", "word"], () => this.mark());
  }

  onToken(event, act) {
    const token = event.target.closest(".token");
    if (token) act(this.tokens.indexOf(token));
  }

  show({ tokens: texts, text, special }, segments) {
    if (texts === this.texts) return;
    this.texts = texts;
    this.root.dir = segments === null ? directionOf(text) : "ltr"; // a pair has one for each block
    this.root.lang = languageOf(text);
    const attributes = { class: "token", type: "button" };
    this.tokens = texts.map((token) => element("button", attributes, isolated(token)));
    for (const place of special ?? []) this.tokens[place].classList.add("special");
    this.root.replaceChildren(...blocksOf(this.tokens, texts, segments));
    this.mark();
  }

  mark() {
    const { query, key, lock, word } = this.store;
    const focused = this.tokens.indexOf(document.activeElement);
    const stop = focused >= 0 ? focused : query; // of the Tab key
    this.tokens.forEach((token, place) => {
      token.classList.toggle("query", place === query);
      token.classList.toggle("key", place === key);
      token.classList.toggle("word", place === word);
      const isLocked = place === query && lock !== null;
      token.setAttribute("aria-pressed", String(isLocked || place === word));
      token.tabIndex = place === stop ? 0 : -1;
    });
    const first = this.tokens[query];
    if (first && !this.root.matches(":hover")) reveal(this.root, first);
  }

  /* Shade each token by its weight; below zero, of a difference, in the other colour. */
  shade(row) {
    this.root.classList.remove("signed");
    const scale = largest(row);
    this.tokens.forEach((token, index) => {
      const weight = row[index];
      const strength = scale > 0 && weight ? Math.abs(weight) / scale : 0;
      token.style.setProperty("--strength", strength.toFixed(3));
      token.classList.toggle("less", weight < 0);
      const isKnown = !Number.isNaN(weight);
      const words = isKnown ? `weight ${formatNumber(weight)}` : "not among the top keys";
      token.title = `token ${index}, ${words}`;
      token.replaceChildren(token.firstChild);
    });
  }

  /* Shade each token by its sum, blue for the class and red against it, with a strip for each of
     [name, numbers] beneath, and the sum itself where it is large. */
  explain(sums, strips) {
    this.root.classList.add("signed");
    const most = largest(sums);
    const mostOfStrips = Math.max(1e-9, ...strips.map(([, values]) => largest(values)));
    this.tokens.forEach((token, index) => {
      const value = sums[index];
      tint(token, value, most);
      const lines = strips.map(([name, values]) => `${name}: ${formatSigned(values[index])}`);
      token.title = [`token ${index}: ${formatSigned(value)} nats`, ...lines].join("\n");
      const parts = strips.map(([, values]) => tint(element("i"), values[index], mostOfStrips));
      const isLarge = most > 0 && Math.abs(value) >= NUMBERED * most;
      const number = element("small", {}, isLarge ? formatSigned(value) : "");
      token.replaceChildren(token.firstChild, ...parts, number);
    });
    return most;
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

/* How strong a number is drawn: the square root of its share, so that small ones can be seen. */
function tint(node, value, most) {
  const strength = most > 0 && value ? Math.sqrt(Math.abs(value) / most) : 0;
  node.style.setProperty("--strength", strength.toFixed(3));
  node.classList.toggle("less", value < 0);
  return node;
}

/* The language whose shapes a text needs: Japanese, Korean or Chinese by its letters, else none. */
function languageOf(text) {
  if (/[\u3040-\u30ff]/.test(text)) return "ja";
  if (/[\uac00-\ud7af]/.test(text)) return "ko";
  return /[\u4e00-\u9fff]/.test(text) ? "zh" : "";
}

/* The name of a class as the index has it. */
function className(store, place) {
  return isolated(store.index.classes[place] ?? `class ${place}`, "class-name");
}

/* A head as people call it: without its layer where there is one layer. */
function headName(store, layer, head) {
  return store.index.layers.length > 1 ? `${store.layerName(layer)} head ${head}` : `head ${head}`;
}

export class TextView {
  constructor(store) {
    this.store = store;
    const choose = (index) => this.choose(index);
    this.row = new TokenRow(store, "Words; arrow keys move, Enter lists the heads of one", choose);
    this.other = new TokenRow(store, "The same words in what is compared with");
    this.pooled = new TokenRow(store, "Tokens by pooling weight");
    const heading = element("h3", {}, "Pooling weights of the tokens");
    this.pooling = element("div", { class: "pooling", hidden: true }, heading, this.pooled.root);
    this.otherTitle = element("h3");
    this.beside = element("div", "beside", this.otherTitle, this.other.root);
    this.sum = element("p", "sum");
    this.word = element("p", { class: "of-word", "aria-live": "polite" });
    this.rankingTitle = element("h3");
    this.ranking = element("ol", "bars");
    this.ranked = element("div", "ranking", this.rankingTitle, this.ranking);
    const content = [this.row.root, this.beside, this.sum, this.word, this.ranked, this.pooling];
    this.panel = panel("text", "Text", ...content);
    this.root = this.panel.root;
    this.legend = element("span", "scale");
    this.release = button("Unlock (Esc)", "", () => store.release());
    this.panel.tools.append(this.legend, this.release);
    const shown = ["maps", "index", "text", "layer", "head", "other", "compare", "label", "only"];
    store.subscribe([...shown, "query", "key", "lock", "by"], () => this.show());
    store.subscribe(["maps", "index", "text", "word", "label"], () => this.showWord());
    store.subscribe(["maps", "index", "text"], () => this.showPooling());
    this.show();
  }

  /* With contributions a click on a word lists its heads; else it locks the query. */
  choose(index) {
    const { store } = this;
    if (contributionsOf(store) === null) store.toggle(index, null);
    else store.set({ word: store.word === index ? null : index });
  }

  show() {
    const { store } = this;
    const { shownText, segments, maps } = store;
    this.release.hidden = store.lock === null;
    if (shownText === null) return;
    this.row.show(shownText, segments);
    const contributions = contributionsOf(store);
    const isExplained = contributions !== null;
    this.sum.hidden = !isExplained;
    this.legend.hidden = !isExplained;
    this.ranked.hidden = isExplained || maps === null;
    if (isExplained) this.explain(contributions);
    else this.showAttention();
    this.showBeside();
  }

  /* Only what changed is drawn again: pointing at a token leaves the strips as they are. */
  explain(contributions) {
    const { store } = this;
    const { only } = store;
    const key = [contributions, only?.join(" ")];
    if (this.drawn?.every((part, at) => part === key[at]) && this.row.root.matches(".signed")) return;
    this.drawn = key;
    const heads = only ?? null;
    const most = drawStrips(store, this.row, contributions, heads);
    const { shown, against } = contributions;
    const name = className(store, shown);
    const question = contributions.isDifference ? ["What changes for ", name] : ["Why ", name, "?"];
    const of = only === null ? "a strip for each head under every word" : headName(store, ...only);
    this.panel.title.replaceChildren(...question, " ", element("span", "caption", of));
    const end = formatSigned(most);
    this.legend.replaceChildren(
      element("span", {}, `${end.replace("+", "−")} against`), element("span", "ramp"),
      element("span", {}, `${end} for `, className(store, shown)),
    );
    const parts = [["heads × words", contributions.ranked.reduce((all, head) => all + head[2], 0)]];
    if (contributions.hasFeedForward) parts.push(["feed-forward", contributions.feedForward]);
    parts.push(["bias", contributions.bias]);
    const terms = parts.flatMap(([words, value], at) => {
      return [at === 0 ? "" : " ", element("strong", {}, formatSigned(value, 2)), ` ${words}`];
    });
    const toward = against < 0 ? ["its absence"] : [className(store, against)];
    const total = element("strong", {}, formatSigned(contributions.total, 2));
    const kind = contributions.error === null
      ? ". Nothing is left out."
      : `, by integrated gradients, exact to ${formatNumber(contributions.error)}.`;
    const what = contributions.isDifference ? " change of the log-odds of " : " log-odds of ";
    this.sum.replaceChildren(
      ...terms, " = ", total, what, className(store, shown), " against ", ...toward, kind,
    );
  }

  /* The heads of the word that is clicked, the largest first. */
  showWord() {
    const { word, tokens } = this.store;
    const contributions = contributionsOf(this.store);
    this.word.hidden = word === null || contributions === null || word >= tokens.length;
    if (this.word.hidden) return;
    const cells = contributions.ranked.map(([layer, head]) => {
      return [layer, head, contributions.cell(layer, head, word)];
    });
    cells.sort((a, b) => Math.abs(b[2]) - Math.abs(a[2]));
    const named = cells.slice(0, STRIPS).flatMap(([layer, head, value], at) => {
      const onChoose = () => this.store.chooseHead(layer, head);
      const node = button(headName(this.store, layer, head), "", onChoose, "head-name");
      return [at === 0 ? ": " : " · ", node, ` ${formatSigned(value)}`];
    });
    this.word.replaceChildren(isolated(tokens[word], "name"), ...named);
  }

  /* The same text in the step or the run beside. */
  showBeside() {
    const { store } = this;
    const contributions = otherContributions(store);
    this.beside.hidden = contributions === null || store.segments !== null;
    if (this.beside.hidden) return;
    this.other.show(store.shownText, store.segments);
    drawStrips(store, this.other, contributions, store.only);
    const total = formatSigned(contributions.total, 2);
    const name = isolated(store.other.run, "name");
    this.otherTitle.replaceChildren(name, ` step ${store.other.step}: ${total} log-odds`);
  }

  /* What the query attends to; or of a key, what attends to it. */
  showAttention() {
    const { store } = this;
    const { layer, head, query, key, by, tokens } = store;
    this.drawn = null;
    const caption = isolated(captionOf(store, "main", layer, head));
    this.panel.title.replaceChildren("Text ", element("span", "caption", caption));
    const map = headMap(store, "main", layer, head);
    if (map === null || query >= tokens.length) return;
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
}

/* Draw the strips of the largest heads in the order of their numbers, and of all others as one; or
   those of one head alone. Returns the largest sum of a word. */
function drawStrips(store, row, contributions, only) {
  if (only !== null) {
    const cells = contributions.ofHead(...only);
    return row.explain(cells, []);
  }
  const ranked = contributions.ranked;
  const own = ranked.slice(0, STRIPS).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const strips = own.map(([layer, head]) => {
    return [headName(store, layer, head), contributions.ofHead(layer, head)];
  });
  const others = ranked.slice(STRIPS);
  if (others.length > 0) {
    strips.push([`${others.length} other heads`, contributions.ofTokens(others)]);
  }
  return row.explain(contributions.ofTokens(), strips);
}
