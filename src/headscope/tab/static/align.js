/* Two texts beside each other: which word of the one stands for which of the other, and the maps
   of one with its tokens put where those of the other are. */

import { Maps } from "./maps.js";

const MOST = 2 ** 22; // comparisons of words; longer texts pair up in order

/* Pairs [own, other] of places in order: a longest common subsequence, and of the words between,
   the first with the first; null where one has none left. */
export function pairsOf(words, others) {
  const pairs = [];
  let [own, other] = [0, 0];
  const upTo = (ownEnd, otherEnd) => {
    for (; own < ownEnd || other < otherEnd; own += 1, other += 1) {
      pairs.push([own < ownEnd ? own : null, other < otherEnd ? other : null]);
    }
    [own, other] = [ownEnd, otherEnd];
  };
  for (const [at, there] of commonOf(words, others)) {
    upTo(at, there);
    upTo(at + 1, there + 1);
  }
  upTo(words.length, others.length);
  return pairs;
}

/* The places of a longest common subsequence. */
function commonOf(words, others) {
  const wide = others.length + 1;
  if (words.length * others.length > MOST) return [];
  const lengths = new Uint16Array((words.length + 1) * wide); // of what is left from here
  for (let at = lengths.length - wide - 2; at >= 0; at -= 1) {
    const [own, other] = [Math.floor(at / wide), at % wide];
    if (other === others.length) continue;
    const isSame = words[own] === others[other];
    const without = Math.max(lengths[at + 1], lengths[at + wide]);
    lengths[at] = isSame ? lengths[at + wide + 1] + 1 : without;
  }
  const pairs = [];
  for (let own = 0, other = 0; own < words.length && other < others.length;) {
    const at = own * wide + other;
    const isSame = words[own] === others[other];
    if (isSame) pairs.push([own, other]);
    const isOther = lengths[at + 1] >= lengths[at + wide];
    if (isSame || !isOther) own += 1;
    if (isSame || isOther) other += 1;
  }
  return pairs;
}

/* For each token of one text, the token of another that stands for it; what has none of its own
   shares that of the token before. */
function placesIn(tokens, others) {
  const places = [];
  let last = 0;
  for (const [own, other] of pairsOf(tokens, others)) {
    last = other ?? last;
    if (own !== null) places.push(last);
  }
  return places;
}

/* A table with the tokens of some axes moved; what meets in one place is added up. */
function moved({ shape, values }, axes, places, length) {
  const target = shape.map((side, axis) => (axes.includes(axis) ? length : side));
  const result = new Float32Array(target.reduce((product, side) => product * side, 1));
  const at = shape.map(() => 0);
  for (const value of values) {
    let to = 0;
    at.forEach((place, axis) => {
      to = to * target[axis] + (axes.includes(axis) ? places[place] : place);
    });
    result[to] += value;
    for (let axis = at.length - 1; axis >= 0; axis -= 1) {
      at[axis] += 1;
      if (at[axis] < shape[axis]) break;
      at[axis] = 0;
    }
  }
  return { shape: target, values: result };
}

/* The maps of a text's tokens, put where the tokens of another are. */
export function alignedTo(maps, tokens, others) {
  if (maps.isLong) throw new Error("texts this long stand side by side only");
  const places = placesIn(tokens, others);
  const { length } = others;
  const arrays = new Map();
  for (const [name, array] of maps.arrays) {
    if (name === "contributions/heads") arrays.set(name, moved(array, [2], places, length));
    else if (name === "contributions/words") arrays.set(name, moved(array, [0], places, length));
    else if (!/^layer_|pooling/.test(name)) arrays.set(name, array);
  }
  maps.layers.forEach((_, layer) => {
    arrays.set(`layer_${layer}/weights`, alignedWeights(maps, layer, places, length));
  });
  return new Maps(arrays);
}

/* Weights on keys that meet are added, rows of queries that meet are averaged. */
function alignedWeights(maps, layer, places, length) {
  const { tokens } = maps;
  const heads = Array.from({ length: maps.headsOf(layer) }, (_, head) => maps.cells(layer, head));
  const values = heads.flatMap((cells) => Array.from(cells));
  const shape = [heads.length, tokens, tokens];
  const map = moved({ shape, values }, [1, 2], places, length);
  const counts = new Float32Array(length);
  for (const place of places) counts[place] += 1;
  map.values.forEach((value, cell) => {
    map.values[cell] = value / Math.max(1, counts[Math.floor(cell / length) % length]);
  });
  return map;
}
