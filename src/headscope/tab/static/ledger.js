/* The bar from 0 to the log-odds: words in the order of size, those for the asked class in a row to
   the right, those against it in a row back, and at its end the other words and the biases. */

import { contributionsOf, sumOf } from "./contributions.js";
import { Panel, classLabel, formatSigned, isolated, legible, pointing } from "./parts.js";
import { html } from "./preact.js";
import { roundedTo } from "./rounding.js";
import { parts, t } from "./strings.js";
import { languageOf } from "./words.js";

const LEAST = 0.025; // share of the bar, below which a word is one of the others
const MOST = 12; // words that have a part of their own

/* The parts of the log-odds, to the hundredth, that add up; and their total. */
function termsOf(found, { units, groups }) {
  const size = sumOf(groups.map(({ value }) => Math.abs(value)));
  const isLarge = ({ value }, at) => at < MOST && Math.abs(value) >= LEAST * size;
  const named = groups.filter(isLarge).map(({ word, places, value }) => {
    const times = places.length > 1 ? ` ×${places.length}` : "";
    const name = `${legible(word)}${times}`;
    return { kind: "word", word, name, value, units: places.map((at) => units[at]) };
  });
  const rest = groups.slice(named.length);
  const terms = [...named];
  if (rest.length > 0) {
    const tokens = rest.flatMap(({ places }) => places.map((at) => units[at]));
    const name = tokens.length === 1 ? t`1 other word` : t`${tokens.length} other words`;
    const value = sumOf(rest.map((group) => group.value));
    terms.push({ kind: "others", name, value, units: tokens });
  }
  const { unseen, biases, missed } = found;
  if (unseen !== 0) terms.push({ kind: "others", name: t`words not shown`, value: unseen });
  terms.push({ kind: "biases", name: t`biases`, value: biases });
  if (missed !== 0) terms.push({ kind: "missed", name: t`not attributed`, value: missed });
  const total = Math.round(100 * found.total);
  const numbers = roundedTo(terms.map(({ value }) => value), total);
  return [terms.map((term, at) => ({ ...term, number: numbers[at] / 100 })), total / 100];
}

/* Parts for the class from 0 to the right, those against it back to the left, in percent. */
function laidOut(terms, total) {
  const most = sumOf(terms.map(({ number }) => Math.max(0, number)));
  const low = Math.min(0, total);
  const place = (value) => (100 * (value - low)) / Math.max(most - low, 0.01);
  let at = 0;
  const lay = (own) => own.map((term) => {
    const before = at;
    at += term.number;
    const [from, to] = [before, at].sort((a, b) => a - b).map(place);
    return { ...term, from, wide: to - from };
  });
  const gains = lay(terms.filter(({ number }) => number > 0));
  return { rows: [gains, lay(terms.filter(({ number }) => number < 0))], place };
}

export function Ledger({ store }) {
  const found = contributionsOf(store);
  if (found === null) return null;
  const { lit } = store;
  const [terms, total] = termsOf(found, found.inWords(store.shownText, store.unit));
  const { rows, place } = laidOut(terms, total);
  const words = terms.map(({ name, number }) => `${name} ${formatSigned(number)}`).join(", ");
  const segmentOf = ({ kind, word, name, number, units = [], from, wide }) => {
    const isLit = lit !== null && units.some(({ start, end }) => lit >= start && lit < end);
    const names = ["segment", kind, number < 0 && "less", isLit && "lit"].filter(Boolean);
    return html`<div
      class=${names.join(" ")} title="${name} ${formatSigned(number)}"
      style=${{ "--from": `${from}%`, "--wide": `${wide}%` }}
      data-token=${kind === "word" ? units[0].start : null}
    >
      <b>${word === undefined ? name : isolated(word)}</b><span>${formatSigned(number)}</span>
    </div>`;
  };
  const label = (value, ...content) => {
    const style = { "--at": `${place(value)}%` };
    return html`<span class=${place(value) > 50 ? "end" : ""} style=${style}>${content}</span>`;
  };
  const filled = rows.filter((row) => row.length > 0);
  const sum = html`<span class="sum">${sumLine(store, found, terms, total)}</span>`;
  const end = [formatSigned(total), " → ", classLabel(store, found.asked)];
  return html`<${Panel} name="adds-up" title=${t`What it adds up to`} about=${sum}>
    <div
      class="ledger" role="img" aria-label="${words} = ${formatSigned(total)}"
      lang=${languageOf(store.shownText.text)} ...${pointing(store)}
    >${filled.map((row) => html`<div class="ledger-row">${row.map(segmentOf)}</div>`)}</div>
    <div class="ledger-axis" aria-hidden="true">${label(0, "0")}${label(total, end)}</div>
  </${Panel}>`;
}

/* The sum in words: all words, and what stands beside them. */
function sumLine(store, { asked, against }, terms, total) {
  const isWord = ({ kind }) => kind === "word" || kind === "others";
  const sums = [{ name: t`words`, number: sumOf(terms.filter(isWord).map((term) => term.number)) }];
  sums.push(...terms.filter((term) => !isWord(term)));
  const shown = sums.map(({ name, number }, at) => {
    return [at === 0 ? "" : " ", html`<strong>${formatSigned(number)}</strong>`, ` ${name}`];
  });
  const toward = against < 0 ? t`its absence` : classLabel(store, against);
  const end = html`<strong>${formatSigned(total)}</strong>`;
  return [shown, " = ", parts`${end} log-odds of ${classLabel(store, asked)} over ${toward}`];
}
