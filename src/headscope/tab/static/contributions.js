/* The log-odds of a class against another as a sum: over words and biases; and for each layer over
   what passes through its heads, what goes past them and the biases above (docs/contributions.md). */

import { isDifference, otherMaps } from "./compare.js";

const PREFIX = "contributions/";
const MOST_MISSED = 1e-3; // of sums in float32

/* The classes that are held against each other, [shown, against], as places among the classes;
   against -1 stands for the absence of the class. null where nothing is known. */
function pairOf(maps, label) {
  const pair = maps?.values(`${PREFIX}shown`) ?? null;
  if (pair === null) return null;
  const [shown, against] = pair;
  if (label === null || label === shown) return [shown, against];
  return [label, against === -1 ? -1 : likeliest(maps, label)];
}

/* The likeliest class whose contributions are known, but for one. */
function likeliest(maps, but) {
  const shares = maps.values("probabilities");
  const known = Array.from(maps.values(`${PREFIX}classes`)).filter((place) => place !== but);
  return known.reduce((best, place) => (shares[place] > shares[best] ? place : best));
}

class Contributions {
  constructor(maps, [shown, against]) {
    Object.assign(this, { shown, against });
    this.classes = Array.from(maps.values(`${PREFIX}classes`));
    const [layers, heads, tokens] = maps.arrays.get(`${PREFIX}heads`).shape;
    Object.assign(this, { layers, widest: heads, tokens });
    const part = (name) => {
      const values = maps.values(`${PREFIX}${name}`);
      return values ? this.toward(values) : null;
    };
    this.words = part("words"); // [tokens]
    this.cells = part("heads"); // [layers, heads, tokens]
    this.past = part("past");
    this.biasesOf = part("biases"); // [layers + 1]
    this.bias = sumOf(this.biasesOf);
    this.total = part("log_odds")[0];
  }

  /* Of an array [..., classes], what is for the one class and not for the other. */
  toward(values) {
    const count = this.classes.length;
    const own = this.classes.indexOf(this.shown);
    const other = this.classes.indexOf(this.against);
    const result = new Float32Array(values.length / count);
    for (let at = 0; at < result.length; at += 1) {
      const against = other < 0 ? 0 : values[at * count + other];
      result[at] = values[at * count + own] - against;
    }
    return result;
  }

  /* What passes through a head from a position. */
  cell(layer, head, token) {
    return this.cells[(layer * this.widest + head) * this.tokens + token];
  }

  has(layer, head) {
    return head < this.widest && layer < this.layers && !Number.isNaN(this.cell(layer, head, 0));
  }

  /* The cells of one head, a number for each token. */
  ofHead(layer, head) {
    const start = (layer * this.widest + head) * this.tokens;
    return this.cells.subarray(start, start + this.tokens);
  }

  headSum(layer, head) {
    return sumOf(this.ofHead(layer, head));
  }

  /* The heads of a layer as [layer, head, sum], the largest first. */
  headsOf(layer) {
    return Array.from({ length: this.widest }, (_, head) => [layer, head])
      .filter((own) => this.has(...own))
      .map((own) => [...own, this.headSum(...own)])
      .sort((a, b) => Math.abs(b[2]) - Math.abs(a[2]));
  }

  /* The layer whose heads pass most. */
  get layer() {
    const size = (layer) => sumOf(this.headsOf(layer).map(([, , value]) => Math.abs(value)));
    const layers = Array.from({ length: this.layers }, (_, layer) => layer);
    return layers.reduce((best, layer) => (size(layer) > size(best) ? layer : best), 0);
  }

  get ranked() {
    this.byHead ??= this.headsOf(this.layer);
    return this.byHead;
  }

  biasesAbove(layer) {
    return sumOf(this.biasesOf.slice(layer + 1));
  }

  /* What is in no part. */
  get missed() {
    const missed = this.total - sumOf(this.words)  - this.bias;
    return Math.abs(missed) > MOST_MISSED ? missed : 0;
  }

  /* These less others of the same heads, tokens and classes. */
  less(other) {
    const difference = Object.create(Contributions.prototype);
    const minus = (values, others) => values.map((value, at) => value - others[at]);
    const lists = ["words", "cells", "past", "biasesOf"];
    return Object.assign(difference, this, {
      ...Object.fromEntries(lists.map((name) => [name, minus(this[name], other[name])])),
      byHead: undefined,
      bias: this.bias - other.bias,
      total: this.total - other.total,
      isDifference: true,
    });
  }
}

/* The sum of numbers; those that are not known count for nothing. */
export function sumOf(values) {
  return values.reduce((total, value) => total + (value || 0), 0);
}

const known = new WeakMap(); // of each step's maps: label -> contributions

function ofMaps(maps, pair) {
  if (pair === null || !maps?.values(`${PREFIX}classes`)) return null;
  const classes = Array.from(maps.values(`${PREFIX}classes`));
  if (!classes.includes(pair[0]) || (pair[1] >= 0 && !classes.includes(pair[1]))) return null;
  if (!known.has(maps)) known.set(maps, new Map());
  const key = pair.join(" ");
  if (!known.get(maps).has(key)) known.get(maps).set(key, new Contributions(maps, pair));
  return known.get(maps).get(key);
}

/* The contributions of the shown step; with a difference, less those that it is compared with. */
export function contributionsOf(store) {
  const pair = pairOf(store.maps, store.label);
  const own = ofMaps(store.maps, pair);
  if (own === null || !isDifference(store)) return own;
  const other = ofMaps(otherMaps(store), pair);
  return other?.cells.length === own.cells.length ? own.less(other) : null;
}

/* Those of the step that is beside, to the same class. */
export function otherContributions(store) {
  if (store.compare?.view !== "beside") return null;
  return ofMaps(otherMaps(store), pairOf(store.maps, store.label));
}
