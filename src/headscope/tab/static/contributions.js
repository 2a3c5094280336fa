/* The log-odds of a class against another as sums: see docs/contributions.md. */

import { addedUp, roundedTo } from "./rounding.js";
import { unitsOf } from "./words.js";

const PREFIX = "contributions/";
const MOST_MISSED = 1e-3; // of sums in float32
const LEAST_SCALE = 1; // log-odds that have the full colour where no word adds more

/* The classes of a text that are held against each other where nobody chooses: [asked, against], as
   places among the classes; against -1 is the absence of the class. null where none is known. */
export function ownPair(maps) {
  const pair = maps?.values(`${PREFIX}shown`) ?? null;
  return pair && [...pair];
}

/* The classes whose sums are known. */
export function knownClasses(maps) {
  return Array.from(maps?.values(`${PREFIX}classes`) ?? []);
}

/* The two classes that are chosen, where their sums are known; else the text's own. */
function pairOf({ maps, pair }) {
  const own = ownPair(maps);
  if (own === null || pair === null) return own;
  const known = knownClasses(maps);
  const against = own[1] === -1 ? -1 : pair[1];
  const isKnown = known.includes(pair[0]) && (against === -1 || known.includes(against));
  return isKnown ? [pair[0], against] : own;
}

class Contributions {
  constructor(maps, [asked, against]) {
    Object.assign(this, { asked, against, byUnit: new Map() });
    const classes = knownClasses(maps);
    const [own, other] = [asked, against].map((place) => classes.indexOf(place));
    // Of an array [..., classes], what is for the one class and not for the other.
    const part = (name) => {
      const values = maps.values(`${PREFIX}${name}`);
      return values && new Float32Array(values.length / classes.length).map((_, at) => {
        const first = at * classes.length;
        return values[first + own] - (other < 0 ? 0 : values[first + other]);
      });
    };
    const [layers, heads, tokens] = maps.arrays.get(`${PREFIX}heads`).shape;
    Object.assign(this, { layers, widest: heads, tokens });
    this.words = part("words"); // [tokens]
    this.unseen = part("rest")?.[0] ?? 0; // of words that are not shown
    this.cells = part("heads"); // [layers, heads, tokens]
    this.rest = part("heads_rest") ?? new Float32Array(layers * heads);
    this.biases = sumOf(part("biases")); // of [layers + 1]
    this.total = part("log_odds")?.[0] ?? sumOf(this.words) + this.unseen + this.biases;
    const missed = this.total - sumOf(this.words) - this.unseen - this.biases;
    this.missed = Math.abs(missed) > MOST_MISSED ? missed : 0; // what is in no part
    // All parts to two decimals, rounded once: they add up, and are the same wherever they stand.
    const all = [this.unseen, this.biases, this.missed, ...this.words];
    const [unseen, biases, notAttributed, ...words] = roundedTo(all, this.total);
    this.shown = { unseen, biases, missed: notAttributed, words, total: addedUp([this.total]) };
  }

  has(layer, head) {
    const first = (layer * this.widest + head) * this.tokens;
    return head < this.widest && layer < this.layers && !Number.isNaN(this.cells[first]);
  }

  /* What passes through a head, a number for each position. */
  ofHead(layer, head) {
    const start = (layer * this.widest + head) * this.tokens;
    return this.cells.subarray(start, start + this.tokens);
  }

  headSum(layer, head) {
    return sumOf(this.ofHead(layer, head)) + this.rest[layer * this.widest + head];
  }

  /* All heads, layer after layer, as [layer, head]. */
  get places() {
    const all = Array.from({ length: this.layers * this.widest }, (_, at) => {
      return [Math.floor(at / this.widest), at % this.widest];
    });
    return all.filter((place) => this.has(...place));
  }

  /* The heads of a layer as [head, sum], the largest first. */
  headsOf(layer) {
    return this.places
      .filter(([own]) => own === layer)
      .map(([, head]) => [head, this.headSum(layer, head)])
      .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  }

  /* The layer whose heads pass most of the sum. */
  get layer() {
    const sums = Array.from({ length: this.layers }, (_, layer) => {
      return sumOf(this.headsOf(layer).map(([, value]) => value)) * Math.sign(this.total);
    });
    return sums.indexOf(Math.max(...sums));
  }

  /* And of it the head that passes most. */
  get first() {
    return this.headsOf(this.layer)[0]?.[0] ?? 0;
  }

  /* What the words of a text add, to two decimals: {units, sums, groups, scale}. A group is of
     equal words, as {word, places, value}, the largest first; `scale` has the full colour. */
  inWords(shownText, unit) {
    const units = unitsOf(shownText, unit);
    if (!this.byUnit.has(units)) {
      const sums = units.map(({ start, end }) => addedUp(this.shown.words.slice(start, end)));
      const scale = sums.reduce((most, value) => Math.max(most, Math.abs(value)), LEAST_SCALE);
      this.byUnit.set(units, { units, sums, groups: groupsOf(units, sums), scale });
    }
    return this.byUnit.get(units);
  }

  /* What passes through a head in each group of words. */
  ofGroups(layer, head, { units, groups }) {
    const cells = this.ofHead(layer, head);
    return groups.map(({ places }) => {
      return sumOf(places.map((at) => sumOf(cells.subarray(units[at].start, units[at].end))));
    });
  }
}

function groupsOf(units, sums) {
  const groups = new Map();
  units.forEach(({ word }, at) => {
    const group = groups.get(word) ?? { word, places: [], value: 0 };
    group.places.push(at);
    group.value = addedUp([group.value, sums[at]]);
    groups.set(word, group);
  });
  return [...groups.values()].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

/* The sum of numbers; those that are not known count for nothing. */
export function sumOf(values) {
  return values.reduce((total, value) => total + (value || 0), 0);
}

const known = new WeakMap(); // of each step's maps: {pair: contributions}

function ofMaps(maps, pair) {
  if (pair === null || !maps?.values(`${PREFIX}heads`)) return null;
  const classes = knownClasses(maps);
  if (!pair.every((place) => place === -1 || classes.includes(place))) return null;
  if (!known.has(maps)) known.set(maps, {});
  return (known.get(maps)[pair] ??= new Contributions(maps, pair));
}

/* The contributions of the shown step. */
export function contributionsOf(store) {
  return ofMaps(store.maps, pairOf(store));
}

/* Those of the step or text that is beside, of the same classes. */
export function otherContributions(store) {
  return ofMaps(store.other?.maps, pairOf(store));
}
