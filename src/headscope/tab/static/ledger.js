/* The bar from 0 to the log-odds: words in the order of size, those for the asked class in a row to
   the right, those against it in a row back, and at its end the other words and the biases. */

import { contributionsOf, sumOf } from "./contributions.js";
import {
  Panel, Term, classLabel, formatSigned, isolated, legible, pointing, useRow,
} from "./parts.js";
import { html, useState } from "./preact.js";
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
    terms.push({ kind: "biases", name: t`start and end`, number: ends.value });
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
  const gains = terms.filter(({ number }) => number > 0);
  const losses = terms.filter(({ number }) => number < 0);
  const rows = [gains, losses].map(lay).filter((row) => row.length > 0);
  rows.flat().forEach((term, number) => (term.at = number));
  return rows;
}

export function Ledger({ store }) {
  const found = contributionsOf(store);
  return found && html`<${Bar} store=${store} found=${found} />`;
}

function Bar({ store, found }) {
  const [named, nameIt] = useState(null);
  const { lit } = store;
  const { total } = found.shown;
  const terms = termsOf(found, found.inWords(store.shownText, store.unit));
  const rows = laidOut(terms, total);
  const { tabOf, focusOn, onkeydown } = useRow(terms.length);
  const segmentOf = ({ kind, word, times, name, number, units = [], from, wide, at }) => {
    const isLit = lit !== null && units.some(({ start, end }) => lit >= start && lit < end);
    const names = ["segment", kind, number < 0 && "less", isLit && "lit"].filter(Boolean);
    const label = `${name} ${formatSigned(number)}`;
    return html`<button
      type="button" class=${names.join(" ")} title=${label} aria-label=${label}
      style=${{ "--from": `${from}%`, "--wide": `${wide}%` }} data-place=${at}
      tabindex=${tabOf(at)} data-token=${kind === "word" ? units[0].start : null}
    >
      <b>${word ? isolated(word) : name}${times}</b><span>${formatSigned(number)}</span>
    </button>`;
  };
  const listeners = pointing(store);
  // The part that is pointed at, tapped or reached by a key has its name in sight.
  const point = (event) => {
    nameIt(event.target.closest(".segment")?.title ?? null);
    listeners.onfocusin(event);
  };
  const onfocusin = (event) => {
    focusOn(event);
    point(event);
  };
  const sum = html`<span class="sum">${sumLine(store, found)}</span>`;
  const pointed = named && html`<span class="pointed" aria-hidden="true">${legible(named)}</span>`;
  return html`<${Panel} name="adds-up" title=${t`What it adds up to`} about=${sum} tools=${pointed}>
    <div
      class="ledger" role="group" aria-label=${t`Parts; arrow keys move`}
      lang=${languageOf(store.shownText.text)} ...${listeners} onkeydown=${onkeydown}
      onpointerover=${point} onfocusin=${onfocusin}
    >${rows.map((row) => html`<div class="ledger-row">${row.map(segmentOf)}</div>`)}</div>
  </${Panel}>`;
}

/* The sum in words: all words, and what stands beside them. */
function sumLine(store, found) {
  const { asked, against, missed, shown } = found;
  const { total, biases } = shown;
  const { ends } = found.inWords(store.shownText, store.unit);
  const words = addedUp([total, -biases, -ends.value, -(missed === 0 ? 0 : shown.missed)]);
  const sums = [[words, t`words`]];
  if (ends.places.length > 0) sums.push([ends.value, html`<${Term} name="ends" />`]);
  sums.push([biases, html`<${Term} name="biases" />`]);
  if (missed !== 0) sums.push([shown.missed, t`not attributed`]);
  const all = sums.map(([number, name]) => {
    return [html`<strong>${formatSigned(number)}</strong>`, " ", name, " "];
  });
  const end = html`<strong>${formatSigned(total)}</strong>`;
  const [first, second] = [asked, against].map((place) => classLabel(store, place));
  const term = html`<${Term} name="log-odds" />`;
  return [all, "= ", parts`${end} ${term} of ${first} over ${second}`];
}
