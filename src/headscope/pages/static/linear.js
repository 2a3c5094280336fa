/* The network as a linear one, as heads/linear.py has it: it runs once, and attention weights, norms'
   scales and gates are kept. With these held fixed a sum of logits goes back to the tokens by plain
   products: `words` once, `cells` once for each point of heads/linear.py and from the outputs of
   heads. `totals` needs no way from each head to the tokens: what a head brings at a point is its
   output there, found on a way forward, times the row that comes back. Shape letters: fixed.js. */

import { FixedBlock, FixedNorm, backThrough, summed } from "./fixed.js";
import { dots, gatesOf, plus, rowDots, times } from "./functional.js";

class FixedEmbedding {
  /* Tokens' vectors: `states` of a frozen encoder, if it reads them, one of each layer. */
  static *of(embedding, { ids, segments, evidence, states = null }) {
    const { W } = embedding;
    let read = null;
    if (states) read = yield* stateVectors(embedding, states);
    let x = read?.slice() ?? embedding.lookedUp(ids);
    if (embedding.position) x = plus(x, embedding.position);
    if (embedding.segment) x = plus(x, embedding.segmentsOf(segments, ids.length));
    if (embedding.evidence) x = plus(x, yield* embedding.evidence.of(evidence));
    const own = read ? x.map((value, at) => value - read[at]) : x;
    const [normed, norm] = FixedNorm.of(embedding.norm, x);
    const made = Object.assign(new FixedEmbedding(), { embedding, own, norm, T: x.length / W });
    const { projection } = embedding;
    return [projection ? yield* projection.of(normed) : normed, made];
  }

  /* What rows [N, T, D] meet: {tokens [N, T], biases [N], read}, the rows at the states. */
  *back(rows, N) {
    const { embedding, T } = this;
    const { projection, states, start, W } = embedding;
    let [own, biases] = [rows, new Float64Array(N)];
    if (projection) {
      biases = dots(rows, projection.bias, N);
      own = yield* projection.back(rows);
    }
    const [before, ofNorm] = backThrough(this.norm, own, N);
    biases = summed(biases, ofNorm);
    const tokens = rowDots(before, this.own, W);
    if (!states) return { tokens, biases, read: null };
    const read = yield* states.back(before);
    for (let n = 0; n < N; n += 1) { // the vector of [CLS] is learned
      const first = before.subarray(n * T * W, n * T * W + W);
      biases[n] += dots(first, start, 1)[0];
      read.fill(0, (n * T * read.length) / N / T, ((n * T + 1) * read.length) / N / T);
    }
    return { tokens, biases, read };
  }
}

/* The vectors of a frozen encoder's states; that of [CLS] is learned. */
function* stateVectors({ states: linear, start, mix }, states) {
  const size = states[0].length;
  const mixed = new Float32Array(size);
  states.forEach((own, layer) => {
    for (let at = 0; at < size; at += 1) mixed[at] += mix[layer] * own[at];
  });
  const vectors = yield* linear.of(mixed);
  vectors.set(start);
  return vectors;
}

/* The frozen layers below our own. */
class FixedFrozen {
  static *of({ embedding, blocks, norm, layers }, input) {
    let [x, fixed] = yield* FixedEmbedding.of(embedding, input);
    const found = [x];
    const made = Object.assign(new FixedFrozen(), { embedding: fixed, blocks: [], norm: null, layers });
    for (const block of blocks) {
      const [after, own] = yield* FixedBlock.of(block, x, null, input.ids.length, []);
      x = after;
      found.push(x);
      made.blocks.push(own);
    }
    if (norm) [found[blocks.length], made.norm] = FixedNorm.of(norm, x);
    return [layers.map((layer) => found[layer]), made];
  }

  /* What tokens and biases add by way of rows at the mix of the states. */
  *back(read, mix, N) {
    let rows = new Float32Array(read.length);
    let biases = new Float64Array(N);
    const ones = new Float64Array(N).fill(1);
    for (let layer = this.blocks.length; layer > 0; layer -= 1) {
      const place = this.layers.indexOf(layer);
      if (place >= 0) rows = rows.map((value, at) => value + mix[place] * read[at]);
      if (layer === this.blocks.length && this.norm) {
        const [before, ofNorm] = this.norm.back(rows, N);
        rows = before;
        biases = summed(biases, ofNorm);
      }
      const [below, above] = yield* this.blocks[layer - 1].back(rows, ones);
      rows = below.rows;
      biases = summed(biases, above, below.biases);
    }
    const leaves = yield* this.embedding.back(rows, N);
    return { tokens: leaves.tokens, biases: summed(biases, leaves.biases) };
  }
}

/* logits = W p(sum_j a_j n(x_j)) + b. */
class FixedReadOut {
  static *of({ norm, isMean, pooler, head, D }, x) {
    const [normed, fixed] = FixedNorm.of(norm, x);
    const Q = x.length / D;
    let text = normed.slice(0, D);
    for (let q = 1; isMean && q < Q; q += 1) text = plus(text, normed.subarray(q * D, (q + 1) * D));
    if (isMean) text = text.map((value) => value / Q);
    const made = { norm: fixed, isMean, Q, pooler, head, gates: null, poolerNorm: null };
    if (pooler) {
      const hidden = yield* pooler.dense.of(text);
      made.gates = gatesOf(hidden, pooler.activation);
      [text, made.poolerNorm] = FixedNorm.of(pooler.norm, times(hidden, made.gates));
    }
    return [yield* head.of(text), Object.assign(new FixedReadOut(), made)];
  }

  /* A row [Q, D] of a direction [C], and what biases add. */
  *back(direction) {
    const { norm, isMean, Q, pooler, head, gates } = this;
    let biases = dots(direction, head.bias, 1);
    let text = yield* head.back(direction);
    if (pooler) {
      const [before, ofNorm] = backThrough(this.poolerNorm, text, 1);
      const hidden = times(before, gates);
      biases = summed(biases, ofNorm, dots(hidden, pooler.dense.bias, 1));
      text = yield* pooler.dense.back(hidden);
    }
    const share = isMean ? 1 / Q : 1;
    const rows = new Float32Array(Q * text.length);
    for (let at = 0; at < (isMean ? rows.length : text.length); at += 1) {
      rows[at] = share * text[at % text.length];
    }
    const [own, ofNorm] = backThrough(norm, rows, 1);
    return [own, summed(biases, ofNorm)];
  }
}

/* One network: all of it, or one of several whose mean answers. */
class FixedMember {
  static *of(member, input, kindsOf) {
    const [embedded, embedding] = yield* FixedEmbedding.of(member.embedding, input);
    const blocks = [];
    let x = embedded;
    for (const [layer, block] of member.blocks.entries()) {
      const isLast = layer + 1 === member.blocks.length;
      const Q = isLast && !member.readOut.isMean ? 1 : input.ids.length;
      const [after, fixed] = yield* FixedBlock.of(block, x, input.evidence, Q, kindsOf(layer));
      x = after;
      blocks.push(fixed);
    }
    const [logits, readOut] = yield* FixedReadOut.of(member.readOut, x);
    return [logits, Object.assign(new FixedMember(), { embedded, embedding, blocks, readOut })];
  }
}

export class FixedNetwork {
  /* `input`: {ids, segments, evidence: of each member}; `kindsOf` a layer of all: how its heads are
     ablated. */
  static *of(network, { evidence, ...input }, kindsOf) {
    const made = Object.assign(new FixedNetwork(), { network, members: [], frozen: null });
    made.T = input.ids.length;
    let states = null;
    if (network.frozen) [states, made.frozen] = yield* FixedFrozen.of(network.frozen, input);
    const all = [];
    let first = 0;
    for (const [place, member] of network.members.entries()) {
      const own = { ...input, states, evidence: evidence?.[place] ?? null };
      const start = first;
      const [logits, fixed] = yield* FixedMember.of(member, own, (at) => kindsOf(start + at));
      all.push(logits);
      made.members.push(fixed);
      first += member.blocks.length;
    }
    const mean = (_, c) => all.reduce((sum, logits) => sum + logits[c], 0) / all.length;
    made.logits = all[0].map(mean);
    return made;
  }

  /* All blocks that have heads of our own, in the order in which they ran. */
  get blocks() {
    return this.members.flatMap((member) => member.blocks);
  }

  *start(member, direction) {
    return yield* member.readOut.back(direction.map((value) => value / this.members.length));
  }

  /* What tokens [N, T] and biases [N] add by way of a member's embedded vectors. */
  *leaves(member, rows, N) {
    const { read, ...own } = yield* member.embedding.back(rows, N);
    if (read === null) return own;
    const of = yield* this.frozen.back(read, member.embedding.embedding.mix, N);
    return { tokens: summed(own.tokens, of.tokens), biases: summed(own.biases, of.biases) };
  }

  /* Split a sum of the logits: {tokens [T], bias, rows, heads}, the rows at the output of each layer
     and at the outputs of its heads. */
  *words(direction) {
    const found = { tokens: new Float64Array(this.T), bias: 0, rows: [], heads: [] };
    const add = ({ tokens, biases: [bias] }) => {
      found.tokens = summed(found.tokens, tokens);
      found.bias += bias;
    };
    for (const member of this.members) {
      let [rows, [bias]] = yield* this.start(member, direction);
      found.bias += bias;
      const [passed, heads] = [[], []];
      for (const block of member.blocks.toReversed()) {
        passed.unshift(rows);
        const [below, [above], ofHeads] = yield* block.back(rows, [1]);
        found.bias += above;
        add(below);
        heads.unshift(ofHeads);
        rows = below.rows;
      }
      add(yield* this.leaves(member, rows, 1));
      found.rows.push(...passed);
      found.heads.push(...heads);
    }
    return found;
  }

  /* The same through no head. */
  *past(direction) {
    const found = { tokens: new Float64Array(this.T), bias: 0, rows: [], heads: [] };
    for (const member of this.members) {
      let [rows, [ofReadOut]] = yield* this.start(member, direction);
      found.bias += ofReadOut;
      const [passed, heads] = [[], []];
      for (const block of member.blocks.toReversed()) {
        passed.unshift(rows);
        const [own, ofHeads, [above]] = yield* block.toHeads(rows, 1);
        found.bias += above;
        heads.unshift(ofHeads);
        rows = block.past(own, null, 1);
      }
      const leaves = yield* this.leaves(member, rows, 1);
      found.tokens = summed(found.tokens, leaves.tokens);
      found.bias += leaves.biases[0];
      found.rows.push(...passed);
      found.heads.push(...heads);
    }
    return found;
  }

  /* All that each head shares, of all layers, tokens and biases together: at each point the outputs
     of the heads there times the rows that come back to them. Both are polynomials of the point, of
     a degree that grows by one with each layer: few values of them are computed anew. At 1 they are
     those of `words`, at 0 the rows are those `past` the heads. */
  *totals(words, past) {
    const found = [];
    const { pointsWithEnds } = this.network;
    const points = pointsWithEnds.map(([point]) => point);
    for (const { blocks } of this.members) {
      const outputs = yield* outputsAt(blocks, points.slice(0, -1));
      const first = found.length;
      const ends = [past, words].map(({ rows, heads }) => ({
        rows: rows.slice(first, first + blocks.length), heads: heads.slice(first),
      }));
      const rows = yield* rowsAt(blocks, ends, points.slice(1, -1));
      blocks.forEach((block, at) => {
        found.push(headSums(outputs[at], rows[at], block, pointsWithEnds));
      });
    }
    return Float64Array.from(found.flatMap((own) => [...own]));
  }

  /* What heads share of each token and of the biases: of those that `isChosen` of (layer, head) has,
     a Map of layer * H + h to {tokens [T], bias}. */
  *cells(direction, isChosen = () => true) {
    const found = new Map();
    let first = 0;
    for (const member of this.members) {
      const { points } = this.network;
      const scales = points.map(([x]) => x);
      const [row] = yield* this.start(member, direction);
      let rows = repeated(row, points.length);
      let pending = []; // of heads above
      for (const [layer, block] of [...member.blocks.entries()].reverse()) {
        const onward = [];
        for (const own of pending) onward.push(yield* through(block, own, scales));
        pending = onward;
        const [below, , ofHeads] = yield* block.back(rows, scales);
        rows = below.rows;
        for (let h = 0; h < this.network.heads; h += 1) {
          if (!isChosen(first + layer, h)) continue;
          const [own, biases] = yield* block.heads.backOf(h, ofHeads, points.length);
          const parts = block.belowHeads(own, biases, points.length);
          pending.push({ ...parts, at: (first + layer) * this.network.heads + h });
        }
      }
      for (const own of pending) {
        const leaves = yield* this.leaves(member, own.rows, points.length);
        found.set(own.at, weighted(own, leaves, points));
      }
      first += member.blocks.length;
    }
    return found;
  }
}

/* Rows that a head has below it, taken back through a block, beside what they have met. */
function* through(block, { rows, tokens, biases, at }, scales) {
  const [below, above] = yield* block.back(rows, scales);
  return {
    at, rows: below.rows, tokens: summed(tokens, below.tokens),
    biases: summed(biases, above, below.biases),
  };
}

/* The integral over the points: {tokens [T], bias}. */
function weighted(own, leaves, points) {
  const all = summed(own.tokens, leaves.tokens);
  const T = all.length / points.length;
  const tokens = new Float64Array(T);
  let bias = 0;
  points.forEach(([, weight], n) => {
    for (let t = 0; t < T; t += 1) tokens[t] += weight * all[n * T + t];
    bias += weight * (own.biases[n] + leaves.biases[n]);
  });
  return { tokens, bias };
}

/* Of each layer its heads' outputs by points, [[point, outputs] ...], as many as their degree needs;
   `points` are those below 1. */
function* outputsAt(blocks, points) {
  const found = [];
  let known = []; // vectors of the tokens
  for (const [layer, block] of blocks.entries()) {
    known.push([1, block.x]);
    const asked = points.slice(0, layer + 1);
    const x = valuesAt(known, asked);
    const outputs = yield* block.outputs(x, asked.length);
    found.push([...parted(outputs, asked), [1, block.heads.outputs]]);
    if (layer + 1 < blocks.length) known = parted(yield* block.again(x, outputs, asked), asked);
  }
  return found;
}

/* Of each layer the rows at its heads' outputs by points. `ends` has those at 0 and 1, and the rows at
   the outputs of layers there; `points` are those between. */
function* rowsAt(blocks, ends, points) {
  const found = [];
  let known = []; // rows at the output of a layer
  for (const [layer, block] of [...blocks.entries()].reverse()) {
    const heads = ends.map((end, point) => [point, end.heads[layer]]);
    const asked = points.slice(0, blocks.length - 1 - layer);
    known.push(...ends.map((end, point) => [point, end.rows[layer]]));
    const rows = valuesAt(known, asked);
    known = [];
    if (asked.length > 0) {
      const [own, ofHeads] = yield* block.toHeads(rows, asked.length);
      heads.push(...parted(ofHeads, asked));
      if (layer > 0) known = parted((yield* block.fromHeads(own, ofHeads, asked)).rows, asked);
    }
    found.unshift(heads);
  }
  return found;
}

/* The value of a polynomial at a point, from others of it, [[point, numbers] ...] (Lagrange). */
function valueAt(known, point) {
  const own = known.find(([at]) => at === point);
  if (own) return own[1];
  const result = new Float32Array(known[0][1].length);
  for (const [at, values] of known) {
    const others = known.filter(([other]) => other !== at);
    const share = others.reduce((all, [other]) => (all * (point - other)) / (at - other), 1);
    for (let i = 0; i < result.length; i += 1) result[i] += share * values[i];
  }
  return result;
}

/* The same at several points, end to end. */
function valuesAt(known, points) {
  const size = known[0][1].length;
  const result = new Float32Array(points.length * size);
  points.forEach((point, n) => result.set(valueAt(known, point), n * size));
  return result;
}

/* Numbers end to end, by their points. */
function parted(x, points) {
  const size = x.length / points.length;
  return points.map((point, n) => [point, x.subarray(n * size, (n + 1) * size)]);
}

/* Of each head the integral of its outputs [Q, H E] times the rows there. */
function headSums(outputs, rows, { block }, points) {
  const { H, E } = block.attention;
  const sums = new Float64Array(H);
  for (const [point, weight] of points) {
    const [own, other] = [outputs, rows].map((known) => valueAt(known, point));
    for (let at = 0; at < own.length; at += E) {
      let sum = 0;
      for (let e = at; e < at + E; e += 1) sum += own[e] * other[e];
      sums[(at / E) % H] += weight * sum;
    }
  }
  return sums;
}

function repeated(x, N) {
  const result = new Float32Array(N * x.length);
  for (let n = 0; n < N; n += 1) result.set(x, n * x.length);
  return result;
}
