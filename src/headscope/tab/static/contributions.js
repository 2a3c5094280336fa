/* The log-odds of a class against another as one table (docs/contributions.md): rows are the heads
   of all layers and what passes none of them, columns the words and the biases.

   For a view:

     found = contributionsOf(store)      // null where sums are not known
     words = found.inWords(store.shownText, store.unit)
     table = found.table(words, 8)       // the first 8 groups of words, the rest as "others"

   table.columns   [{kind: "word", group} ..., {kind: "others", count}?, {kind: "ends"}?,
                   {kind: "biases"}]; "ends": the start and the end of the text, its special tokens
   table.rows      [{kind: "head", layer, head, cells, sum} ..., the largest first;
                   {kind: "heads", number, cells, sum}?: those of which the sums alone are known;
                   {kind: "past", cells, sum}?: what passes no head, where that is not 0;
                   {kind: "rest", cells, sum}?]: of heads that are not known
   table.foot      {cells, sum}: the words, their numbers those of the text; sum: the log-odds
   table.missed    of `foot.sum` what is in no row, 0 where all is
   found.enough()  how many of the first rows make nine tenths of what heads bring
   found.passed(layer, head)  {values [rows * tokens], rows}: what passes from each key at each
                   query; null where it is not known for these two classes
   found.through(layer, head) all that passes through a head: the sum of `passed`

   All numbers of a table have two decimals and are rounded once: each row adds up to its sum, each
   column to its number in `foot`. What is not known is no head of `places`, and never a 0. */

import { largestSize } from "./maps.js";
import { knownClasses, shownPair } from "./pair.js";
import { addedUp, roundedTable, roundedTo } from "./rounding.js";
import { unitsOf } from "./words.js";

const PREFIX = "contributions/";
const MOST_MISSED = 1e-3; // of sums in float32
const LEAST_SCALE = 1; // log-odds that have the full colour where no word adds more
const ENOUGH = 0.9; // of what heads bring, by size

class Contributions {
  constructor(arrays, [asked, against]) {
    Object.assign(this, { asked, against, arrays, byUnit: new Map(), maps: new Map() });
    const valuesOf = (name) => arrays.get(`${PREFIX}${name}`).values;
    const classes = Array.from(valuesOf("classes"));
    const [own, other] = [asked, against].map((place) => classes.indexOf(place));
    // Of an array [..., classes], what is for the one class and not for the other.
    const part = (name) => {
      const values = valuesOf(name);
      return new Float32Array(values.length / classes.length).map((_, at) => {
        const first = at * classes.length;
        return values[first + own] - (other < 0 ? 0 : values[first + other]);
      });
    };
    const [layers, heads, tokens] = arrays.get(`${PREFIX}heads`).shape;
    Object.assign(this, { layers, widest: heads, tokens });
    this.words = part("words"); // [tokens]
    this.cells = part("heads"); // [layers, heads, tokens]
    this.headBiases = part("head_biases"); // [layers, heads]
    this.sums = arrays.has(`${PREFIX}sums`) ? part("sums") : null; // where cells may not be known
    this.past = part("past"); // [tokens]
    this.throughs = part("through"); // [layers, heads]
    [this.pastBiases] = part("past_biases");
    [this.biases] = part("biases");
    [this.total] = part("log_odds");
    const missed = this.total - sumOf(this.words) - this.biases;
    this.missed = Math.abs(missed) > MOST_MISSED ? missed : 0; // what is in no part
    // All parts to two decimals, rounded once: they add up, and are the same wherever they stand.
    const all = [this.biases, this.missed, ...this.words];
    const [biases, notAttributed, ...words] = roundedTo(all, this.total);
    this.shown = { biases, missed: notAttributed, words, total: addedUp([this.total]) };
    this.heads = this.places
      .map(([layer, head]) => ({ layer, head, sum: this.headSum(layer, head) }))
      .sort((a, b) => Math.abs(b.sum) - Math.abs(a.sum)); // the largest first
    const past = sumOf(this.past) + this.pastBiases;
    const sums = [...this.heads.map(({ sum }) => sum), past];
    const rest = this.total - this.missed - sumOf(sums);
    const exact = addedUp([this.shown.total, -notAttributed]);
    const ofRows = roundedTo([...sums, Math.abs(rest) > MOST_MISSED ? rest : 0], exact);
    this.heads.forEach((own, at) => (own.shown = ofRows[at]));
    this.shown.past = ofRows[this.heads.length];
  }

  has(layer, head) {
    if (head >= this.widest || layer >= this.layers) return false;
    return !Number.isNaN(this.headSum(layer, head));
  }

  /* A head's share of each token; heads share alike what passes several of them. */
  ofHead(layer, head) {
    const start = (layer * this.widest + head) * this.tokens;
    return this.cells.subarray(start, start + this.tokens);
  }

  headBias(layer, head) {
    return this.headBiases[layer * this.widest + head];
  }

  /* What a head brings: its shares of all tokens and of the biases. */
  headSum(layer, head) {
    if (this.sums) return this.sums[layer * this.widest + head];
    return sumOf(this.ofHead(layer, head)) + this.headBias(layer, head);
  }

  /* The same to two decimals. */
  shownSum(layer, head) {
    return this.heads.find((own) => own.layer === layer && own.head === head).shown;
  }

  /* Whether a head's shares of the tokens are known, not its sum alone. */
  knows({ layer, head }) {
    return !Number.isNaN(this.headBias(layer, head));
  }

  through(layer, head) {
    return this.throughs[layer * this.widest + head];
  }

  /* All heads that are known, layer after layer, as [layer, head]. */
  get places() {
    const all = Array.from({ length: this.layers * this.widest }, (_, at) => {
      return [Math.floor(at / this.widest), at % this.widest];
    });
    return all.filter((place) => this.has(...place));
  }

  enough() {
    const sizes = this.heads.map(({ sum }) => Math.abs(sum));
    const least = ENOUGH * sumOf(sizes);
    let made = 0;
    return sizes.findIndex((size) => (made += size) >= least) + 1;
  }

  passed(layer, head) {
    const maps = this.arrays.get(`${PREFIX}maps`);
    const [asked, against] = this.arrays.get(`${PREFIX}shown`).values;
    if (!maps || !this.has(layer, head)) return null;
    if (this.asked !== asked || this.against !== against) return null;
    const [, heads, rows, keys] = maps.shape;
    const start = (layer * heads + head) * rows * keys;
    const kept = this.maps.get(start) ?? maps.values.subarray(start, start + rows * keys);
    this.maps.set(start, kept); // what is drawn of it stays
    return { values: kept, rows };
  }

  /* The largest size of what passes from a key at a query, of all heads. */
  get mostPassed() {
    const { values = [] } = this.arrays.get(`${PREFIX}maps`) ?? {};
    this.largest ??= largestSize(values);
    return this.largest;
  }

  /* What the words of a text add, to two decimals: {units, sums, groups, ends, scale}. A group is
     of equal words, as {word, places, value}, the largest first; `ends` are the start and the end
     of the text, as {places, value}; `scale` has the full colour. */
  inWords(shownText, unit) {
    const units = unitsOf(shownText, unit);
    if (!this.byUnit.has(units)) {
      const sums = units.map(({ start, end }) => addedUp(this.shown.words.slice(start, end)));
      const scale = sums.reduce((most, value) => Math.max(most, Math.abs(value)), LEAST_SCALE);
      const grouped = groupsOf(units, sums, new Set(shownText.special ?? []));
      this.byUnit.set(units, { units, sums, scale, ...grouped });
    }
    return this.byUnit.get(units);
  }

  /* The table with the first `count` groups of words in a column each; see above. */
  table(words, count) {
    const columns = this.columnsOf(words, count);
    const rows = this.linesIn(words).map((own) => {
      return { ...own, cells: columns.map((column) => cellIn(own.shown, column)) };
    });
    const { total, missed } = this.shown;
    return { columns, rows, foot: { cells: columns.map(({ value }) => value), sum: total }, missed };
  }

  /* The rows of the table with `shown`, their numbers of each unit and of the biases. These are
     rounded once, and added up where units share a column: a cell is the same wherever it stands. */
  linesIn({ units }) {
    const own = this.byUnit.get(units);
    if (!own.lines) {
      const lines = this.lines();
      const exact = lines.map(({ line, bias }) => {
        return [...units.map((_, at) => sumIn(line, [at], units)), bias];
      });
      const sums = lines.map(({ sum }) => sum);
      const shown = roundedTable(exact, sums, [...own.sums, this.shown.biases]);
      own.lines = lines.map((line, at) => ({ ...line, shown: shown[at] }));
    }
    return own.lines;
  }

  columnsOf({ groups, ends }, count) {
    const columns = groups.slice(0, count).map((group) => ({ kind: "word", group, ...group }));
    const rest = groups.slice(count);
    const places = rest.flatMap((group) => group.places);
    const value = addedUp(rest.map((group) => group.value));
    if (rest.length > 0) columns.push({ kind: "others", count: places.length, places, value });
    if (ends.places.length > 0) columns.push({ kind: "ends", ...ends });
    return [...columns, { kind: "biases", places: [], value: this.shown.biases }];
  }

  /* The rows of the table, each of tokens and of biases; their sums have two decimals. */
  lines() {
    const lines = this.heads.filter((own) => this.knows(own)).map(({ layer, head, shown }) => {
      const bias = this.headBias(layer, head);
      return { kind: "head", layer, head, sum: shown, line: this.ofHead(layer, head), bias };
    });
    const ownHeads = lines.length;
    const number = this.heads.length - ownHeads; // of which the sums alone are known
    const past = { kind: "past", line: this.past, bias: this.pastBiases, sum: this.shown.past };
    const isThere = ({ line, bias }, least) => {
      return [...line, bias].some((value) => Math.abs(value) > least);
    };
    if (isThere(past, 0)) lines.push(past);
    const { total, missed } = this.shown;
    const left = { // of the words; of heads where there are such
      kind: number > 0 ? "heads" : "rest", number,
      line: this.words.map((word, at) => word - sumOf(lines.map(({ line }) => line[at]))),
      bias: this.biases - sumOf(lines.map(({ bias }) => bias)),
      sum: addedUp([total, -missed, ...lines.map(({ sum }) => -sum)]),
    };
    if (number > 0) return [...lines.slice(0, ownHeads), left, ...lines.slice(ownHeads)];
    return isThere(left, MOST_MISSED) ? [...lines, left] : lines;
  }
}

/* The sum of a line of tokens over some units. */
export function sumIn(line, places, units) {
  return sumOf(places.map((at) => sumOf(line.subarray(units[at].start, units[at].end))));
}

/* Of a line's numbers of units and of the biases that of a column. */
export function cellIn(shown, { kind, places }) {
  return kind === "biases" ? shown.at(-1) : addedUp(places.map((at) => shown[at]));
}

function groupsOf(units, sums, special) {
  const groups = new Map();
  const ends = { places: [], value: 0 };
  units.forEach(({ word, start }, at) => {
    const group = special.has(start) ? ends : groups.get(word) ?? { word, places: [], value: 0 };
    group.places.push(at);
    group.value = addedUp([group.value, sums[at]]);
    if (group !== ends) groups.set(word, group);
  });
  const sorted = [...groups.values()].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  return { groups: sorted, ends };
}

/* The sum of numbers, not a number where one is not. */
export function sumOf(values) {
  return values.reduce((total, value) => total + value, 0);
}

const known = new WeakMap(); // of each step's maps: {pair: contributions}

/* Maps of a network that runs here compute the sums of the two classes that are asked for. */
function ofMaps(maps, pair) {
  if (pair === null || !maps?.values(`${PREFIX}heads`)) return null;
  const classes = knownClasses(maps);
  if (!pair.every((place) => place === -1 || classes.includes(place))) return null;
  if (!known.has(maps)) known.set(maps, {});
  const arrays = () => maps.sumsOf?.(pair) ?? maps.arrays;
  return (known.get(maps)[pair] ??= new Contributions(arrays(), pair));
}

/* The contributions of the shown step. */
export function contributionsOf(store) {
  return ofMaps(store.maps, shownPair(store));
}

/* Those of the step or text that is beside, of the same classes. */
export function otherContributions(store) {
  return ofMaps(store.other?.maps, shownPair(store));
}
