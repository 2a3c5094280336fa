/* The text, each word coloured by what it adds to the log-odds; plain where that is not known. */

import { largest } from "./colors.js";
import { contributionsOf, otherContributions, sumOf } from "./contributions.js";
import {
  button, chooser, classLabel, element, formatNumber, formatSigned, isolated, legible, panel,
  reveal,
} from "./dom.js";
import { blocksOf, directionOf } from "./pairs.js";
import { languageOf, unitsOf } from "./words.js";
import { t } from "./strings.js";

const STEPS = { ltr: { ArrowLeft: -1, ArrowRight: 1 }, rtl: { ArrowLeft: 1, ArrowRight: -1 } };
const UNITS = [["word", t`by word`], ["token", t`by token`]];
const NUMBERED = 0.12; // share of the scale, from which a word has its number
const CHANGED = 8; // words of another text that are named

/* The tokens, each shaded by a number. The row is one stop of the Tab key, at the token that has
   the focus or else at the query. */
export class TokenRow {
  constructor(store, label, onChoose = null) {
    Object.assign(this, { store, tokens: [], units: [], shown: null });
    this.onChoose = onChoose ?? ((index) => store.toggle(index, null));
    this.root = element("div", { class: "tokens", role: "group", "aria-label": label });
    const point = (event) => this.onToken(event, (index) => this.point(index));
    this.root.addEventListener("pointerover", point);
    this.root.addEventListener("focusin", point);
    this.root.addEventListener("pointerleave", () => store.leave());
    this.root.addEventListener("focusout", () => store.leave());
    this.root.addEventListener("click", (event) => this.onToken(event, this.onChoose));
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    store.subscribe(["query", "key", "lock", "word", "lit"], () => this.mark());
  }

  get isSigned() {
    return this.root.matches(".signed");
  }

  point(token) {
    if (this.isSigned) this.store.pointWord(token);
    else this.store.pointToken(token);
  }

  onToken(event, act) {
    const place = this.tokens.indexOf(event.target.closest(".token"));
    if (place >= 0) act(this.units[place].start);
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
    this.place(blocksOf(this.tokens, words, owners));
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
    const [query, key, word, lit] = ["query", "key", "word", "lit"].map((name) => {
      return this.placeOf(this.shown === shownText ? this.store[name] : null); // else of another
    });
    const focused = this.tokens.indexOf(document.activeElement);
    const stop = focused >= 0 ? focused : Math.max(0, query); // of the Tab key
    this.tokens.forEach((token, place) => {
      token.classList.toggle("query", place === query);
      token.classList.toggle("key", place === key);
      token.classList.toggle("lit", place === lit);
      const isLocked = place === query && lock !== null && !this.isSigned;
      token.setAttribute("aria-pressed", String(isLocked || place === word));
      token.tabIndex = place === stop ? 0 : -1;
    });
    const first = this.tokens[this.isSigned ? lit : query];
    if (first && !this.root.matches(":hover")) reveal(this.root, first);
  }

  /* Shade each token by its weight. */
  shade(row) {
    this.root.classList.remove("signed");
    const scale = largest(row);
    this.tokens.forEach((token, index) => {
      const weight = row[index];
      const strength = scale > 0 && weight ? weight / scale : 0;
      token.style.setProperty("--strength", strength.toFixed(3));
      const words = Number.isNaN(weight) ? t`not among the top keys` : formatNumber(weight);
      token.title = t`token ${index}, weight ${words}`;
      token.removeAttribute("aria-label");
      if (token.children.length > 1) token.replaceChildren(token.firstChild);
    });
  }

  /* Colour each word by its sum, with the number beneath where it is large. */
  explain({ sums, scale }) {
    this.root.classList.add("signed");
    this.tokens.forEach((token, index) => {
      const value = sums[index];
      tint(token, value, scale);
      const words = `${legible(this.units[index].word)} ${formatSigned(value, 2)}`;
      token.setAttribute("aria-label", words);
      token.title = words;
      if (token.children.length === 1) token.append(element("small", { dir: "ltr" }));
      const number = Math.abs(value) >= NUMBERED * scale ? formatSigned(value, 2) : "";
      if (token.lastChild.textContent !== number) token.lastChild.textContent = number;
    });
    this.mark();
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

/* Colour a node by a number on a linear scale: for the asked class, or against it. */
export function tint(node, value, scale) {
  const strength = value ? Math.min(1, Math.abs(value) / scale) : 0;
  node.style.setProperty("--strength", strength.toFixed(3));
  node.classList.toggle("less", value < 0);
  return node;
}

export class TextView {
  constructor(store, top = null) {
    this.store = store;
    this.row = new TokenRow(store, t`Words; arrow keys move`, (index) => this.choose(index));
    this.other = new TokenRow(store, t`Words of what is compared with`);
    this.pooled = new TokenRow(store, t`Tokens by pooling weight`);
    const heading = element("h3", {}, t`Pooling weights of the tokens`);
    this.pooling = element("div", { class: "pooling", hidden: true }, heading, this.pooled.root);
    this.otherTitle = element("h3");
    this.changes = element("p", "changes");
    this.beside = element("div", "beside", this.otherTitle, this.other.root, this.changes);
    const content = [this.row.root, this.beside, this.pooling];
    this.panel = panel("text", t`Text`, ...(top === null ? [] : [top]), ...content);
    this.root = this.panel.root;
    this.legend = element("span", "scale");
    this.release = button(t`Unlock (Esc)`, "", () => store.release());
    this.unit = chooser("unit", t`Sums`, (unit) => store.set({ unit }), UNITS);
    this.panel.tools.append(this.legend, this.unit, this.release);
    const shown = ["maps", "index", "text", "other", "compare", "pair", "unit", "lock"];
    store.subscribe(shown, () => this.show());
    store.subscribe(["maps", "index", "text"], () => this.showPooling());
    this.show();
  }

  /* With contributions a click on a word gives it a column in the matrix; else it locks the
     query. */
  choose(index) {
    const { store } = this;
    if (contributionsOf(store) === null) store.toggle(index, null);
    else store.set({ word: store.word === index ? null : index });
  }

  show() {
    const { store } = this;
    const { shownText, unit } = store;
    this.release.hidden = store.lock === null;
    if (shownText === null) return;
    const contributions = contributionsOf(store);
    const isExplained = contributions !== null;
    this.row.show(shownText, isExplained ? unit : "token");
    this.unit.value = unit;
    this.unit.hidden = !isExplained;
    this.legend.hidden = !isExplained;
    this.beside.hidden = true;
    if (isExplained) this.explain(contributions);
    else this.row.shade([]);
  }

  /* Only what changed is drawn again: pointing at a token leaves the colours as they are. */
  explain(contributions) {
    const { store } = this;
    const other = otherContributions(store);
    const key = [contributions, other, this.row.units];
    this.beside.hidden = other === null;
    const isSame = this.drawn?.every((part, at) => part === key[at]) ?? false;
    if (isSame && this.row.isSigned) return;
    this.drawn = key;
    const words = contributions.inWords(store.shownText, store.unit);
    this.row.explain(words);
    this.showBeside(other, words.scale);
    const { asked, against } = contributions;
    const end = `±${words.scale.toFixed(2)}`;
    const far = against < 0 ? t`against` : classLabel(store, against);
    this.legend.replaceChildren(
      far, element("span", { class: "ramp", "aria-hidden": "true" }), classLabel(store, asked),
      element("small", {}, t`linear; full colour: ${end}`),
    );
  }

  /* What is compared with, on the same scale, and the words by which another text differs. */
  showBeside(other, scale) {
    const { store } = this;
    if (other === null) return;
    const text = store.other.text ?? store.shownText;
    this.other.show(text, store.unit);
    const words = other.inWords(text, store.unit);
    this.other.explain({ ...words, scale });
    const name = isolated(store.other.run, "name");
    const step = store.other.text ? "" : ` step ${store.other.step}`;
    const { predicted } = store.other.maps.prediction(store.index.classes);
    const total = t`, ${formatSigned(other.total, 2)} log-odds`;
    this.otherTitle.replaceChildren(name, `${step}: `, isolated(predicted), total);
    this.changes.hidden = !store.other.text;
    if (!this.changes.hidden) this.changes.replaceChildren(...this.changesTo(words));
  }

  /* The words that add most more or less here than in the other text; equal words as one. */
  changesTo(others) {
    const { store } = this;
    const own = contributionsOf(store).inWords(store.shownText, store.unit);
    const changes = new Map(own.groups.map(({ word, value }) => [word, value]));
    for (const { word, value } of others.groups) {
      changes.set(word, (changes.get(word) ?? 0) - value);
    }
    const ranked = [...changes].filter(([, value]) => Math.abs(value) >= 0.005);
    ranked.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    const named = ranked.slice(0, CHANGED).flatMap(([word, value], at) => {
      return [at === 0 ? "“" : ", “", isolated(word), `” ${formatSigned(value, 2)}`];
    });
    const rest = sumOf(ranked.slice(CHANGED).map(([, value]) => value));
    const more = ranked.length > CHANGED ? [t`, others ${formatSigned(rest, 2)}`] : [];
    return [t`From that text to this one: `, ...named, ...more];
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
