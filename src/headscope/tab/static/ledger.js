/* The bar from 0 to the log-odds: words in the order of size, those for the asked class in a row to
   the right, those against it in a row back, and at its end the other words and the biases. */

import { contributionsOf, sumOf } from "./contributions.js";
import { classLabel, element, formatSigned, isolated, legible, panel } from "./dom.js";
import { roundedTo } from "./rounding.js";
import { parts, t } from "./strings.js";

const LEAST = 0.025; // share of the bar, below which a word is one of the others
const MOST = 12; // words that have a part of their own

/* The parts of the log-odds: words {word, tokens, value}, others, biases, and what is missing. */
function termsOf(contributions, { units, groups }) {
  const size = sumOf(groups.map(({ value }) => Math.abs(value)));
  const isLarge = ({ value }, at) => at < MOST && Math.abs(value) >= LEAST * size;
  const named = groups.filter(isLarge).map(({ word, places, value }) => {
    const own = { word, times: places.length, units: places.map((at) => units[at]) };
    return { kind: "word", value, ...own };
  });
  const rest = groups.slice(named.length);
  const parts = [...named];
  if (rest.length > 0) {
    const tokens = rest.flatMap(({ places }) => places.map((at) => units[at]));
    const value = sumOf(rest.map((group) => group.value));
    const name = tokens.length === 1 ? t`1 other word` : t`${tokens.length} other words`;
    parts.push({ kind: "others", name, value, units: tokens });
  }
  const { unseen, biases, missed } = contributions;
  if (unseen !== 0) parts.push({ kind: "others", name: t`words not shown`, value: unseen });
  parts.push({ kind: "biases", name: t`biases`, value: biases });
  if (missed !== 0) parts.push({ kind: "missed", name: t`not attributed`, value: missed });
  return parts;
}

export class LedgerView {
  constructor(store) {
    this.store = store;
    this.sum = element("small", "sum");
    this.bar = element("div", { class: "ledger", role: "img" });
    this.axis = element("div", { class: "ledger-axis", "aria-hidden": "true" });
    this.panel = panel("adds-up", t`What it adds up to`, this.bar, this.axis);
    this.root = this.panel.root;
    this.panel.title.append(this.sum);
    const point = (event) => {
      const token = event.target.closest("[data-token]")?.dataset.token;
      if (token !== undefined) store.pointWord(Number(token));
    };
    this.bar.addEventListener("pointerover", point);
    this.bar.addEventListener("pointerleave", () => store.leave());
    const shown = ["maps", "index", "text", "other", "compare", "pair", "unit"];
    store.subscribe(shown, () => this.show());
    store.subscribe(["lit"], () => this.mark());
    this.show();
  }

  show() {
    const { store } = this;
    const contributions = contributionsOf(store);
    this.root.hidden = contributions === null || store.shownText === null;
    if (this.root.hidden) return;
    const terms = termsOf(contributions, contributions.inWords(store.shownText, store.unit));
    const total = Math.round(100 * contributions.total);
    const numbers = roundedTo(terms.map(({ value }) => value), total);
    terms.forEach((part, at) => (part.number = numbers[at] / 100));
    this.lay(terms, total / 100);
    const words = terms.map(({ word, name, number }) => {
      return `${word === undefined ? name : legible(word)} ${formatSigned(number, 2)}`;
    });
    const sum = `= ${formatSigned(total / 100, 2)}`;
    this.bar.setAttribute("aria-label", `${words.join(", ")} ${sum}`);
    this.showSum(contributions, terms, total);
  }

  /* Parts for the class from 0 to the right, then those against it from there to the left. */
  lay(parts, total) {
    const gains = parts.filter(({ number }) => number > 0);
    const losses = parts.filter(({ number }) => number < 0);
    const most = sumOf(gains.map(({ number }) => number));
    const low = Math.min(0, total);
    const span = Math.max(most - low, 0.01);
    const place = (value) => (100 * (value - low)) / span;
    let at = 0;
    const right = gains.map((part) => {
      at += part.number;
      return this.segment(part, place(at - part.number), place(at));
    });
    const left = losses.map((part) => {
      at += part.number;
      return this.segment(part, place(at), place(at - part.number));
    });
    this.segments = [...right, ...left];
    const rows = [right, left].filter((row) => row.length > 0);
    const rowOf = (row) => element("div", "ledger-row", ...row.map(({ node }) => node));
    this.bar.replaceChildren(...rows.map(rowOf));
    const { store } = this;
    const { asked } = contributionsOf(store);
    const label = (value, ...words) => {
      const node = element("span", place(value) > 50 ? "end" : "", ...words);
      node.style.setProperty("--at", `${place(value)}%`);
      return node;
    };
    const end = [formatSigned(total, 2), " → ", classLabel(store, asked)];
    this.axis.replaceChildren(label(0, "0"), label(total, ...end));
    this.mark();
  }

  segment(part, from, to) {
    const { kind, word, name, times, number, units = [] } = part;
    const less = number < 0 ? " less" : "";
    const title = word === undefined ? name : legible(word);
    const label = word === undefined ? element("b", {}, name) : element("b", {}, isolated(word));
    const value = element("span", {}, formatSigned(number, 2));
    const node = element("span", `segment ${kind}${less}`, label, value);
    node.title = `${title}${times > 1 ? ` ×${times}` : ""} ${formatSigned(number, 2)}`;
    if (kind === "word") node.dataset.token = units[0].start;
    node.style.setProperty("--from", `${from}%`);
    node.style.setProperty("--wide", `${to - from}%`);
    return { node, units };
  }

  mark() {
    const { lit } = this.store;
    for (const { node, units } of this.segments ?? []) {
      const isLit = lit !== null && units.some(({ start, end }) => lit >= start && lit < end);
      node.classList.toggle("lit", isLit);
    }
  }

  /* The sum in words: all words, and what stands beside them. */
  showSum({ asked, against }, terms, total) {
    const { store } = this;
    const words = terms.filter(({ kind }) => kind === "word" || kind === "others");
    const sums = [[t`words`, sumOf(words.map(({ number }) => number))]];
    sums.push(...terms.slice(words.length).map(({ name, number }) => [name, number]));
    const shown = sums.flatMap(([name, number], at) => {
      return [at === 0 ? "" : " ", element("strong", {}, formatSigned(number, 2)), ` ${name}`];
    });
    const toward = against < 0 ? t`its absence` : classLabel(store, against);
    const end = element("strong", {}, formatSigned(total / 100, 2));
    const sum = parts`${end} log-odds of ${classLabel(store, asked)} over ${toward}`;
    this.sum.replaceChildren(...shown, " = ", ...sum);
  }
}
