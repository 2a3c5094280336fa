/* The map of a head in this run, in the run that it is compared with, or their difference. */

import { drawDifferences, drawWeights } from "./colors.js";
import { SMALL } from "./maps.js";
import { shownCells } from "./pairs.js";

/* The maps that are compared with, or null. */
export function otherMaps(store) {
  return store.compare ? (store.other?.maps ?? null) : null;
}

export function isDifference(store) {
  return store.compare?.view === "difference" && otherMaps(store) !== null;
}

/* The head of the other maps that stands in the place of `head`, or null. */
export function counterpart(store, layer, head) {
  const other = otherMaps(store);
  if (other === null || !store.maps || layer >= other.layers.length) return null;
  const isMatched = store.compare.order === "matched";
  const there = isMatched ? (matchOf(store.maps, other, layer)[head] ?? null) : head;
  return other.has(layer, there) ? there : null;
}

/* How a head is called on one side, "main" or "other". */
export function captionOf(store, side, layer, head) {
  const own = `${store.layerName(layer)}, head ${head}`;
  if (side === "main" && !isDifference(store)) return own;
  const there = counterpart(store, layer, head);
  if (side === "main") {
    const place = there === head ? "the same head" : `head ${there ?? "none"}`;
    return `${own} − ${place} there`;
  }
  if (there === null) return "none";
  return `${store.other.index.layers[layer]}, head ${there}`;
}

/* The map of a head on one side, or null if it has none there. */
export function headMap(store, side, layer, head) {
  const { maps } = store;
  const other = otherMaps(store);
  const there = counterpart(store, layer, head);
  if (side === "other") return there === null ? null : new HeadMap(store, other, layer, there);
  if (!maps?.has(layer, head)) return null;
  const own = new HeadMap(store, maps, layer, head);
  if (!isDifference(store)) return own;
  if (there === null || other.places !== maps.places) return null;
  return new Difference(store, own, new HeadMap(store, other, layer, there));
}

/* One head of one run. */
class HeadMap {
  constructor(store, maps, layer, head) {
    Object.assign(this, { store, maps, at: [layer, head], side: maps.places, isDifference: false });
  }

  draw(canvas) {
    drawWeights(canvas, this.picture(), this.store.scale, shownCells(this.store, this.side));
  }

  drawSmall(canvas) {
    const small = this.small();
    drawWeights(canvas, small, this.store.scale, shownCells(this.store, small.side));
  }

  small() {
    return this.maps.small(...this.at, shownCells(this.store, this.side));
  }

  picture() {
    return this.maps.picture(...this.at);
  }

  cells() {
    return this.maps.cells(...this.at);
  }

  quadrants() {
    return this.maps.quadrants(...this.at);
  }

  row(query) {
    return this.maps.row(...this.at, query);
  }

  column(key) {
    return this.maps.column(...this.at, key);
  }

  rest(query) {
    return this.maps.rest(...this.at, query);
  }
}

/* One head less another: `own` and `other` are HeadMaps of the same side. */
class Difference {
  constructor(store, own, other) {
    const { maps, side } = own;
    Object.assign(this, { store, own, other, maps, side, isDifference: true });
  }

  draw(canvas) {
    const { store, own, other, side } = this;
    const shown = shownCells(store, side);
    drawDifferences(canvas, side, own.cells(), other.cells(), store, shown);
  }

  drawSmall(canvas) {
    const { store, own, other, side, maps } = this;
    if (side <= SMALL || maps.isLong) {
      this.draw(canvas);
      return;
    }
    const shown = shownCells(store, SMALL);
    drawDifferences(canvas, SMALL, own.small().weights, other.small().weights, store, shown);
  }

  minus(own, other) {
    return own && other && own.map((value, place) => value - other[place]);
  }

  cells() {
    return this.minus(this.own.cells(), this.other.cells());
  }

  quadrants() {
    return this.minus(this.own.quadrants(), this.other.quadrants());
  }

  row(query) {
    return this.minus(this.own.row(query), this.other.row(query));
  }

  column(key) {
    return this.minus(this.own.column(key), this.other.column(key));
  }

  rest() {
    return null;
  }
}

const STEPS = 2 ** 16 - 1;
/* -p log2 p of half steps from 0 to 1: a logarithm for each cell would take seconds. */
const ENTROPY = Float64Array.from({ length: 2 * STEPS + 1 }, (_, at) => {
  const share = at / 2 / STEPS;
  return share === 0 ? 0 : -share * Math.log2(share);
});

/* A map in whole steps, and the entropy of each of its rows; null if it holds a NaN. */
export function stepped(cells, side) {
  const steps = new Uint16Array(side * side);
  const entropies = new Float64Array(side);
  for (let cell = 0; cell < side * side; cell += 1) {
    if (Number.isNaN(cells[cell])) return null;
    steps[cell] = Math.round(Math.min(1, Math.max(0, cells[cell])) * STEPS);
    entropies[Math.floor(cell / side)] += ENTROPY[2 * steps[cell]];
  }
  return { steps, entropies, side };
}

/* The Jensen-Shannon distance of two maps' rows, mean over the rows: the square root of H((p + q) /
   2) - (H(p) + H(q)) / 2, in bits. 0 for equal maps, 1 for maps that never look at the same key. */
export function distance(left, right) {
  if (!left || left.side !== right?.side) return 1;
  const { side } = left;
  let sum = 0;
  for (let row = 0; row < side; row += 1) {
    let mixed = 0;
    const end = (row + 1) * side;
    for (let cell = row * side; cell < end; cell += 1) {
      mixed += ENTROPY[left.steps[cell] + right.steps[cell]];
    }
    const apart = (left.entropies[row] + right.entropies[row]) / 2;
    sum += Math.sqrt(Math.max(0, mixed - apart));
  }
  return sum / side;
}

/* How far the head on the other side is from the one beside it; null if there is none. */
export function distanceOf(store, layer, head) {
  const there = counterpart(store, layer, head);
  const other = otherMaps(store);
  if (there === null || !store.maps.has(layer, head)) return null;
  const own = stepped(store.maps.cells(layer, head), store.maps.places);
  return distance(own, stepped(other.cells(layer, there), other.places));
}

/* For each head of `left` the head of `right` that is to stand beside it, or null; left over heads
   of `right` follow. The nearest pair of those that are left is taken each time. */
export function matchLayer(left, right, layer) {
  const [lefts, rights] = [left, right].map((maps) =>
    Array.from({ length: maps.headsOf(layer) }, (_, head) =>
      stepped(maps.cells(layer, head), maps.places),
    ),
  );
  const pairs = lefts.flatMap((one, head) =>
    rights.map((other, there) => ({ head, there, apart: distance(one, other) })),
  );
  pairs.sort((one, other) => one.apart - other.apart);
  const match = new Array(lefts.length).fill(null);
  const free = new Set(rights.keys());
  for (const { head, there } of pairs) {
    if (match[head] === null && free.delete(there)) match[head] = there;
  }
  return [...match, ...free];
}

const matches = new WeakMap(); // maps -> {other maps, heads of each layer}

function matchOf(maps, other, layer) {
  if (matches.get(maps)?.other !== other) matches.set(maps, { other, layers: [] });
  const { layers } = matches.get(maps);
  layers[layer] ??= matchLayer(maps, other, layer);
  return layers[layer];
}

/* The largest weight of a row, against which its text is shaded. */
export function largest(row) {
  return row.reduce((most, weight) => Math.max(most, Math.abs(weight) || 0), 0);
}
