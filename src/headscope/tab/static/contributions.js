/* What each head adds from each token to the log-odds of a class against another, in nats: a table
   of heads x tokens that with feed-forward blocks and bias sums to the log-odds of the shown
   probabilities (docs/contributions.md). */

import { isDifference, otherMaps } from "./compare.js";

const PREFIX = "contributions/";

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
    const [layers, heads, tokens] = maps.arrays.get(`${PREFIX}tokens`).shape;
    Object.assign(this, { layers, widest: heads, tokens });
    this.cells = this.toward(maps.values(`${PREFIX}tokens`)); // [layers, heads, tokens]
    this.feedForward = sumOf(this.toward(maps.values(`${PREFIX}feedforward`)));
    this.hasFeedForward = maps.values(`${PREFIX}feedforward`).some((value) => value !== 0);
    this.bias = this.toward(maps.values(`${PREFIX}bias`))[0];
    this.error = maps.number(`${PREFIX}error`); // of integrated gradients; null where it is exact
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

  /* All heads as [layer, head, nats], the largest first. */
  get ranked() {
    this.byHead ??= Array.from({ length: this.layers * this.widest }, (_, at) => {
      return [Math.floor(at / this.widest), at % this.widest];
    })
      .filter(([layer, head]) => this.has(layer, head))
      .map(([layer, head]) => [layer, head, this.headSum(layer, head)])
      .sort((a, b) => Math.abs(b[2]) - Math.abs(a[2]));
    return this.byHead;
  }

  /* What each token adds through some heads, [[layer, head], ...]. */
  ofTokens(heads = this.ranked) {
    const sums = new Float32Array(this.tokens);
    for (const [layer, head] of heads) {
      this.ofHead(layer, head).forEach((value, token) => (sums[token] += value));
    }
    return sums;
  }

  get total() {
    return sumOf(this.ranked.map(([, , nats]) => nats)) + this.feedForward + this.bias;
  }

  /* These less others of the same heads, tokens and classes. */
  less(other) {
    const difference = Object.create(Contributions.prototype);
    const minus = (values, others) => values.map((value, at) => value - others[at]);
    return Object.assign(difference, this, {
      byHead: undefined,
      cells: minus(this.cells, other.cells),
      feedForward: this.feedForward - other.feedForward,
      bias: this.bias - other.bias,
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
