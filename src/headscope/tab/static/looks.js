/* Where a head looks, in words: of one map the row of the answer, and all other rows. */

import { sumOf } from "./contributions.js";
import { isolated } from "./parts.js";
import { isFirstLayer } from "./store.js";
import { parts, t } from "./strings.js";

const EVEN = 0.9; // of the entropy of even weights, from which a row has no words
const NAMED = 2; // words
const NEAR = 0.5; // of the weight of the first word, that the next has at least
const TWICE = 2; // an even share, over all other rows
const known = new WeakMap(); // of the cells of a map, by the words of its text

/* Of a map as map.js has it: {answer, others}, each {words, share, times} of a row or of several:
   the words that have most of the weight, their share, and that as a multiple of an even share.
   Without words all weights are nearly even, or of several rows each has others. null where there
   is no such row. */
export function looksOf(map, units) {
  if (!known.has(map.cells)) known.set(map.cells, new Map());
  const own = known.get(map.cells);
  if (!own.has(units)) own.set(units, findLooks(map, units));
  return own.get(units);
}

function findLooks({ cells, side, text, first }, units) {
  const rows = Array.from({ length: cells.length / side }, (_, at) => {
    return cells.subarray(at * side, (at + 1) * side);
  });
  const read = (text.readout ?? null) === null ? -1 : text.readout - first;
  const others = rows.filter((_, at) => at !== read);
  return { answer: rows[read] ? rowOf(rows[read], units) : null, others: ofAll(others, units) };
}

/* Of one row of weights, [tokens]. */
function rowOf(row, units) {
  if (entropyShare(row) >= EVEN) return { words: [], share: 1, times: 1 };
  const groups = grouped(row, units);
  const named = groups.slice(0, NAMED).filter(({ weight }) => weight >= NEAR * groups[0].weight);
  const [share, tokens] = ["weight", "tokens"].map((name) => sumOf(named.map((it) => it[name])));
  return { words: named.map(({ word }) => word), share, times: (share * row.length) / tokens };
}

/* Of several rows: the words that have twice an even share or more of all. */
function ofAll(rows, units) {
  if (rows.length === 0) return null;
  const mean = rows[0].map((_, at) => sumOf(rows.map((row) => row[at])) / rows.length);
  const isEven = sumOf(rows.map(entropyShare)) / rows.length >= EVEN;
  const even = (tokens) => (TWICE * tokens) / mean.length;
  const most = grouped(mean, units).filter(({ weight, tokens }) => weight >= even(tokens));
  return { words: isEven ? [] : most.slice(0, NAMED).map(({ word }) => word), isEven };
}

/* Equal words as one, those with most weight first. */
function grouped(row, units) {
  const groups = new Map();
  for (const { word, start, end } of units) {
    const own = groups.get(word) ?? { word, weight: 0, tokens: 0 };
    own.weight += sumOf(row.subarray(start, end));
    own.tokens += end - start;
    groups.set(word, own);
  }
  return [...groups.values()].sort((a, b) => b.weight - a.weight);
}

/* The entropy of weights, of that of even ones. */
function entropyShare(row) {
  const bits = row.map((weight) => (weight > 0 ? -weight * Math.log(weight) : 0));
  return row.length > 1 ? sumOf(bits) / Math.log(row.length) : 1;
}

/* Words in one line; above the first layer these are places, whose vectors hold what was found
   there. */
export function namesOf(words, layers, layer) {
  const names = words.map((word, at) => [at > 0 && t`, `, isolated(word)]);
  return isFirstLayer(layers, layer) ? names : parts`the place of ${names}`;
}

/* What stands below a map: of the answer's row, and of the others where they are shown. */
export function captionOf({ answer, others }, layers, layer) {
  const named = (row, rest) => (row.words.length > 0 ? namesOf(row.words, layers, layer) : rest);
  const ofOthers = others && named(others, others.isEven ? t`evenly` : t`each elsewhere`);
  if (answer === null) return ofOthers;
  const own = named(answer, t`evenly`);
  return others ? parts`for the answer: ${own}; else: ${ofOthers}` : own;
}
