/* The text: why it is given its class, one strip for each head under every word; or, where no
   contributions are known, the attention of a query. */

import { largest } from "./colors.js";
import { pairsOf } from "./align.js";
import { captionOf, headMap } from "./compare.js";
import { contributionsOf, otherContributions, sumOf } from "./contributions.js";
import {
  barLine, button, chooser, element, formatNumber, formatSigned, isolated, legible, panel, reveal,
} from "./dom.js";
import { blocksOf, directionOf } from "./pairs.js";
import { languageOf, unitsOf } from "./words.js";

const STEPS = { ltr: { ArrowLeft: -1, ArrowRight: 1 }, rtl: { ArrowLeft: 1, ArrowRight: -1 } };
const LISTED = 16; // the largest weights
const ROWS = 6; // how many of them are in sight in any case
const STRIPS = 6; // heads with a strip of their own; the others share one
const UNITS = [["word", "by word"], ["token", "by token"]];
const NUMBERED = 0.1; // share of the largest sum, from which a word has its number

/* The tokens, each shaded by a number relative to the largest. The row is one stop of the Tab key,
   at the token that has the focus or else at the query. */
export class TokenRow {
  constructor(store, label, onChoose = null) {
    Object.assign(this, { store, tokens: [], units: [], shown: null });
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
    const place = this.tokens.indexOf(event.target.closest(".token"));
    if (place >= 0) act(this.units[place].start, event);
  }

  /* One button for each token; or for each word, where `unit` says so. */
  show(shownText, unit = "token") {
    if (shownText === this.shown && unit === this.unit) return;
    const former = this.units;
    Object.assign(this, { shown: shownText, unit, units: unitsOf(shownText, unit) });
    const { tokens: texts, text, special, segments } = shownText;
    this.root.dir = segments ? "ltr" : directionOf(text); // a pair has one for each block
    this.root.lang = languageOf(text);
    const resting = new Set(special ?? []);
    this.tokens = this.units.map(({ word, isGlued, start }, at) => {
      const token = this.tokens[at] ?? element("button", { type: "button" }, element("bdi"));
      if (word !== former[at]?.word) token.firstChild.replaceWith(isolated(word));
      token.className = isGlued ? "token glued" : "token";
      token.classList.toggle("special", resting.has(start));
      return token;
    });
    const words = this.units.map(({ start }) => texts[start]);
    const owners = segments ? this.units.map(({ start }) => segments[start]) : null;
    this.nodes = blocksOf(this.tokens, words, owners);
    this.place(this.nodes);
    this.mark();
  }

  /* What stands in the row; nodes that stand there already stay: most keystrokes change one. */
  place(nodes) {
    const { children } = this.root;
    nodes.forEach((node, at) => {
      if (children[at] !== node) this.root.insertBefore(node, children[at] ?? null);
    });
    while (children.length > nodes.length) this.root.lastChild.remove();
  }

  /* The button that a token is in. */
  placeOf(token) {
    if (token === null) return -1;
    return this.units.findIndex(({ start, end }) => token >= start && token < end);
  }

  mark() {
    const { lock, shownText } = this.store;
    const [query, key, word] = ["query", "key", "word"].map((name) => {
      return this.placeOf(this.shown === shownText ? this.store[name] : null); // else of another
    });
    const focused = this.tokens.indexOf(document.activeElement);
    const stop = focused >= 0 ? focused : Math.max(0, query); // of the Tab key
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
      if (token.children.length > 1) token.replaceChildren(token.firstChild);
    });
  }

  /* Shade each word by its sum, blue for the class and red against it, with a strip for each of
     [name, numbers] beneath, and the sum itself where it is large; all on a scale up to `most`. */
  explain({ sums, strips }, most) {
    this.root.classList.add("signed");
    this.tokens.forEach((token, index) => {
      const value = sums[index];
      tint(token, value, most);
      const lines = strips.map(([name, values]) => `${name}: ${formatSigned(values[index], 2)}`);
      const word = legible(this.units[index].word);
      token.title = [`${word}: ${formatSigned(value, 2)}`, ...lines].join("\n");
      if (token.children.length !== strips.length + 2) {
        const parts = strips.map((_, at) => element("i", { "data-strip": String(at) }));
        token.replaceChildren(token.firstChild, ...parts, element("small"));
      }
      strips.forEach(([, values], at) => tint(token.children[at + 1], values[index], most));
      const isLarge = Math.abs(value) >= Math.max(0.005, NUMBERED * most);
      const number = isLarge ? formatSigned(value) : "";
      if (token.lastChild.textContent !== number) token.lastChild.textContent = number;
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

/* How strong a number is drawn: the square root of its share, so that small ones can be seen. */
function tint(node, value, most) {
  const strength = most > 0 && value ? Math.sqrt(Math.abs(value) / most) : 0;
  node.style.setProperty("--strength", strength.toFixed(3));
  node.classList.toggle("less", value < 0);
  return node;
}

/* The name of a class as the index has it. */
function className(store, place) {
  return isolated(store.index.classes[place] ?? `class ${place}`, "class-name");
}

export class TextView {
  constructor(store) {
    this.store = store;
    const choose = (index, event) => this.choose(index, event);
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
    const content = [this.row.root, this.sum, this.word, this.beside, this.pooling, this.ranked];
    this.panel = panel("text", "Text", ...content);
    this.root = this.panel.root;
    this.legend = element("span", "scale");
    this.release = button("Unlock (Esc)", "", () => store.release());
    this.unit = chooser("unit", "Sums", (unit) => store.set({ unit }), UNITS);
    this.panel.tools.append(this.unit, this.legend, this.release);
    const shown = ["maps", "index", "text", "layer", "head", "other", "compare", "label", "only"];
    store.subscribe([...shown, "query", "key", "lock", "by", "unit"], () => this.show());
    store.subscribe(["maps", "index", "text", "word", "label", "unit"], () => this.showWord());
    store.subscribe(["maps", "index", "text"], () => this.showPooling());
    this.show();
  }

  /* With contributions a click on a word lists its heads; else it locks the query. */
  choose(index, event) {
    const { store } = this;
    const strip = this.strips?.[event.target.dataset.strip];
    if (strip) store.toggleOnly(...strip);
    else if (contributionsOf(store) === null) store.toggle(index, null);
    else store.set({ word: store.word === index ? null : index });
  }

  show() {
    const { store } = this;
    const { shownText, maps, unit } = store;
    this.release.hidden = store.lock === null;
    if (shownText === null) return;
    const contributions = contributionsOf(store);
    const isExplained = contributions !== null;
    this.row.show(shownText, isExplained ? unit : "token");
    this.unit.value = unit;
    this.unit.hidden = !isExplained;
    this.sum.hidden = !isExplained;
    this.legend.hidden = !isExplained;
    this.ranked.hidden = isExplained || maps === null;
    if (isExplained) {
      this.explain(contributions, otherContributions(store));
      return;
    }
    this.showBeside(null);
    this.showAttention();
  }

  /* Only what changed is drawn again: pointing at a token leaves the strips as they are. */
  explain(contributions, other) {
    const { store } = this;
    const { only } = store;
    const key = [contributions, other, only?.join(" "), this.row.units];
    const isSame = this.drawn?.every((part, at) => part === key[at]) ?? false;
    if (isSame && this.row.root.matches(".signed")) return;
    this.drawn = key;
    this.strips = only === null ? stripsOf(contributions) : [];
    const sides = [contributions, other].filter((side) => side !== null);
    const otherText = store.other?.text ?? store.shownText;
    const units = [this.row.units, unitsOf(otherText, store.unit)];
    const parts = sides.map((side, at) => partsOf(store, units[at], side, this.strips));
    const most = Math.max(...parts.flatMap(({ sums, strips }) => {
      return [largest(sums), ...strips.map(([, values]) => largest(values))];
    }));
    this.row.explain(parts[0], most);
    this.showBeside(other, parts[1], most);
    const { shown, against } = contributions;
    const question = contributions.isDifference ? ["What changes for ", ""] : ["Why ", "?"];
    const of = only === null ? this.namesOfStrips(contributions) : store.headName(...only);
    const caption = element("small", {}, of);
    this.panel.title.replaceChildren(question[0], className(store, shown), question[1], caption);
    const ticks = [-1, -0.25, 0, 0.25, 1].map((share) => {
      return element("span", {}, share === 0 ? "0" : formatSigned(share * most));
    });
    const ramp = element("span", {}, element("span", "ramp"), element("span", "ticks", ...ticks));
    const end = against < 0 ? "against" : className(store, against);
    this.legend.replaceChildren(element("span", {}, end), ramp, className(store, shown));
    const { bias, missed, words: ofWords } = contributions;
    const terms = [["words", sumOf(ofWords)]];
    terms.push(["biases", bias]);
    if (missed !== 0) terms.push(["not attributed", missed]);
    const rounded = roundedAlike(terms.map(([, value]) => value), contributions.total);
    const words = terms.flatMap(([name], at) => {
      return [at === 0 ? "" : " ", element("strong", {}, formatSigned(rounded[at], 2)), ` ${name}`];
    });
    const toward = against < 0 ? ["its absence"] : [className(store, against)];
    const total = element("strong", {}, formatSigned(contributions.total, 2));
    const kindOf = contributions.isDifference ? "change of the log-odds" : "log-odds";
    const what = `, the ${kindOf} of `;
    this.sum.replaceChildren(
      ...words, " = ", total, what, className(store, shown), " against ", ...toward, ".",
    );
  }

  /* Which strip is of which head. */
  namesOfStrips({ ranked }) {
    const isOne = this.store.index.layers.length === 1;
    const names = this.strips.map(([layer, head]) => (isOne ? head : `${layer}·${head}`));
    const others = ranked.length - names.length;
    if (others > 0) names.push(`${others} others as one`);
    const kind = isOne ? "head" : "layer·head";
    const layer = isOne ? "" : ` of layer ${this.strips[0]?.[0]}`;
    const strips = `what passes through each head${layer} at the word`;
    return `a word's contribution, and in a strip ${strips}, from the top: ${kind} ${names.join(", ")}`;
  }

  /* The heads of the word that is clicked, the largest first. */
  showWord() {
    const { word, tokens } = this.store;
    const contributions = contributionsOf(this.store);
    this.word.hidden = word === null || contributions === null || word >= tokens.length;
    if (this.word.hidden) return;
    const { start, end, word: name } = this.row.units[this.row.placeOf(word)];
    const cells = contributions.ranked.map(([layer, head]) => {
      return [layer, head, sumOf(contributions.ofHead(layer, head).subarray(start, end))];
    });
    cells.sort((a, b) => Math.abs(b[2]) - Math.abs(a[2]));
    const named = cells.slice(0, STRIPS).flatMap(([layer, head, value], at) => {
      const onChoose = () => this.store.chooseHead(layer, head);
      const node = button(this.store.headName(layer, head), "", onChoose, "head-name");
      return [at === 0 ? ": " : " · ", node, ` ${formatSigned(value)}`];
    });
    this.word.replaceChildren(isolated(name, "name"), ...named);
  }

  /* What is compared with, strips of the same heads: each word beneath the one that it stands for;
     of pairs of texts as a whole beneath the other. */
  showBeside(other, parts, most) {
    const { store } = this;
    this.beside.hidden = other === null;
    const isAligned = other !== null && store.segments === null;
    this.row.root.classList.toggle("aligned", isAligned);
    if (!isAligned) this.row.place(this.row.nodes);
    if (other === null) return;
    this.other.show(store.other.text ?? store.shownText, store.unit);
    this.other.explain(parts, most);
    if (isAligned) this.row.place(this.columns());
    const total = formatSigned(other.total, 2);
    const name = isolated(store.other.run, "name");
    const step = store.other.text ? "" : ` step ${store.other.step}`;
    const where = isAligned ? "Beneath, " : "";
    this.otherTitle.replaceChildren(where, name, `${step}: ${total} log-odds`);
  }

  /* Each word of the text over the one of the other that stands for it. */
  columns() {
    const { row, other } = this;
    const [own, others] = [row, other].map(({ units }) => units.map(({ word }) => word));
    return pairsOf(own, others).map(([place, there]) => {
      const below = other.tokens[there] ?? "";
      const gap = { class: "gap", "aria-hidden": "true" };
      const above = row.tokens[place] ?? element("span", gap, below.cloneNode(true));
      return element("span", "pair-of", above, below);
    });
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
    const { maps, shownText } = this.store;
    const pooling = maps?.values("pooling") ?? null;
    this.pooling.hidden = pooling === null || shownText === null;
    if (this.pooling.hidden) return;
    this.pooled.show(shownText);
    this.pooled.shade(pooling);
  }
}

/* Numbers to two digits that add up to their total as it is shown: the largest takes the rest. */
function roundedAlike(values, total) {
  const hundredths = values.map((value) => Math.round(100 * value));
  const rest = Math.round(100 * total) - hundredths.reduce((sum, value) => sum + value, 0);
  const sizes = values.map(Math.abs);
  hundredths[sizes.indexOf(Math.max(...sizes))] += rest;
  return hundredths.map((value) => value / 100);
}

/* What each word adds: through each of some heads, and through all others as one; or, of a head
   that is shown alone, through that. */
function partsOf(store, units, contributions, heads) {
  const inWords = (values) => {
    return units.map(({ start, end }) => sumOf(values.subarray(start, end)));
  };
  const ofHead = ([layer, head]) => {
    const isKnown = contributions.has(layer, head); // a run beside may have fewer
    const none = new Float32Array(contributions.tokens);
    return inWords(isKnown ? contributions.ofHead(layer, head) : none);
  };
  if (store.only !== null) return { sums: ofHead(store.only), strips: [] };
  const strips = heads.map((own) => [store.headName(own[0], own[1]), ofHead(own)]);
  const isOther = ([layer, head]) => !heads.some((own) => own[0] === layer && own[1] === head);
  const others = contributions.ranked.filter(isOther);
  if (others.length > 0) {
    const sums = new Float32Array(contributions.tokens);
    for (const [layer, head] of others) {
      contributions.ofHead(layer, head).forEach((value, token) => (sums[token] += value));
    }
    strips.push([`${others.length} other heads`, inWords(sums)]);
  }
  return { sums: inWords(contributions.words), strips };
}

/* The heads that have a strip of their own, in the order of the model. */
function stripsOf({ ranked }) {
  return ranked.slice(0, STRIPS).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
}
