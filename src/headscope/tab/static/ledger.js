/* The bar from 0 to the log-odds: words in the order of size, those for the asked class in a row to
   the right, those against it in a row back, and at its end the other words and the biases. */

import { contributionsOf, sumOf } from "./contributions.js";
import { Panel, classLabel, formatSigned, isolated, legible, pointing } from "./parts.js";
import { html } from "./preact.js";
import { addedUp } from "./rounding.js";
import { parts, t } from "./strings.js";
import { languageOf } from "./words.js";

const LEAST = 0.025; // share of the bar, below which a word is one of the others
const MOST = 12; // words that have a part of their own

/* The parts of the log-odds. */
function termsOf({ missed, shown }, { units, groups, ends }) {
  const size = sumOf(groups.map(({ value }) => Math.abs(value)));
  const isLarge = ({ value }, at) => at < MOST && Math.abs(value) >= LEAST * size;
  const terms = groups.filter(isLarge).map(({ word, places, value }) => {
    const times = places.length > 1 ? ` ×${places.length}` : "";
    const name = `${legible(word)}${times}`;
    return { kind: "word", word, times, name, number: value, units: places.map((at) => units[at]) };
  });
  const rest = groups.slice(terms.length);
  if (rest.length > 0) {
    const tokens = rest.flatMap(({ places }) => places.map((at) => units[at]));
    const name = tokens.length === 1 ? t`1 other word` : t`${tokens.length} other words`;
    const number = addedUp(rest.map(({ value }) => value));
    terms.push({ kind: "others", name, number, units: tokens });
  }
  const { biases } = shown;
  if (ends.places.length > 0) {
    terms.push({ kind: "biases", name: t`start and end of the text`, number: ends.value });
  }
  terms.push({ kind: "biases", name: t`biases`, number: biases });
  if (missed !== 0) terms.push({ kind: "missed", name: t`not attributed`, number: shown.missed });
  return terms;
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
  const { total } = found.shown;
  const terms = termsOf(found, found.inWords(store.shownText, store.unit));
  const { rows, place } = laidOut(terms, total);
  const words = terms.map(({ name, number }) => `${name} ${formatSigned(number)}`).join(", ");
  const segmentOf = ({ kind, word, times, name, number, units = [], from, wide }) => {
    const isLit = lit !== null && units.some(({ start, end }) => lit >= start && lit < end);
    const names = ["segment", kind, number < 0 && "less", isLit && "lit"].filter(Boolean);
    return html`<div
      class=${names.join(" ")} title="${name} ${formatSigned(number)}"
      style=${{ "--from": `${from}%`, "--wide": `${wide}%` }}
      data-token=${kind === "word" ? units[0].start : null}
    >
      <b>${word ? isolated(word) : name}${times}</b><span>${formatSigned(number)}</span>
    </div>`;
  };
  const label = (value, ...content) => {
    const style = { "--at": `${place(value)}%` };
    return html`<span class=${place(value) > 50 ? "end" : ""} style=${style}>${content}</span>`;
  };
  const filled = rows.filter((row) => row.length > 0);
  const sum = html`<span class="sum">${sumLine(store, found)}</span>`;
  const name = classLabel(store, total < 0 ? found.against : found.asked);
  const sized = [name, ` ${formatSigned(total)}`];
  const end = total < 0 ? ["← ", sized] : [sized, " →"]; // to where the bar runs
  return html`<${Panel} name="adds-up" title=${t`What it adds up to`} about=${sum}>
    <div
      class="ledger" role="img" aria-label="${words} = ${formatSigned(total)}"
      lang=${languageOf(store.shownText.text)} ...${pointing(store)}
    >${filled.map((row) => html`<div class="ledger-row">${row.map(segmentOf)}</div>`)}</div>
    <div class="ledger-axis" aria-hidden="true">${label(0, "0")}${label(total, end)}</div>
  </${Panel}>`;
}

/* The sum in words: all words, and what stands beside them. */
function sumLine(store, { asked, against, missed, shown }) {
  const { total, biases } = shown;
  const sums = [[addedUp([total, -biases, -shown.missed]), t`words`], [biases, t`biases`]];
  if (missed !== 0) sums.push([shown.missed, t`not attributed`]);
  const all = sums.map(([number, name]) => {
    return [html`<strong>${formatSigned(number)}</strong>`, ` ${name} `];
  });
  const end = html`<strong>${formatSigned(total)}</strong>`;
  const [first, second] = [asked, against].map((place) => classLabel(store, place));
  return [all, "= ", parts`${end} log-odds of ${first} over ${second}`];
}
