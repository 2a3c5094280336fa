/* The parts of the network with weights, scales and gates held fixed: products and constants, as
   heads/fixed_parts.py has them. Each is made while a text runs through it (`of`), takes N rows of
   numbers from its output back to its input (`back`), and N times other vectors forward (`again`).
   What goes back as a row comes back with what the biases add, a number for each of the N.

   Shape letters: T tokens, Q of them that a layer computes (the last one [CLS] alone), D width, H
   heads, G heads of keys and values, E the width of one. Rows are [N, T, D], end to end. */

import {
  dots, gatesOf, layerNorm, normBack, plus, rotate, rowDots, scaled, scaledNorm, softmax, times,
  transposed,
} from "./functional.js";

const ROWS = 16; // of a map between two pauses

export class FixedNorm {
  /* What a norm returns, and the norm as it is; null for none. */
  static of(norm, x) {
    if (norm === null) return [x, null];
    const [result, scales] = layerNorm(x, norm);
    return [result, Object.assign(new FixedNorm(), { norm, scales })];
  }

  back(rows, N) {
    return [normBack(rows, this.norm, this.scales), dots(rows, this.norm.beta, N)];
  }

  again(x) {
    return scaledNorm(x, this.norm, this.scales);
  }
}

export function backThrough(norm, rows, N) {
  return norm === null ? [rows, new Float64Array(N)] : norm.back(rows, N);
}

function againThrough(norm, x) {
  return norm === null ? x : norm.again(x);
}

/* W_2 (g * (W_1 x + b_1)) + b_2. */
class FixedFeedforward {
  static *of({ gate, first, second, activation }, x) {
    let hidden = yield* first.of(x);
    let gates = null;
    if (gate === null) {
      gates = gatesOf(hidden, activation);
    } else {
      const before = yield* gate.of(x);
      gates = times(gatesOf(before, activation), before);
    }
    hidden = times(hidden, gates);
    yield;
    const made = Object.assign(new FixedFeedforward(), { first, second, gates });
    return [yield* second.of(hidden), made];
  }

  *back(rows, N) {
    const { first, second, gates } = this;
    const hidden = times(yield* second.back(rows), gates);
    const biases = summed(dots(rows, second.bias, N), dots(hidden, first.bias, N));
    return [yield* first.back(hidden), biases];
  }

  *again(x) {
    const hidden = times(yield* this.first.of(x), this.gates);
    return yield* this.second.of(hidden);
  }
}

/* W^O [z_1 ... z_H] + b^O, z_hq = sum_k a_hqk (W^V_h x_k + b^V_h). A head that is set to zero has no
   map. */
class FixedAttention {
  /* `kinds`: of each head "zero", "uniform" or undefined. */
  static *of(layer, read, source, Q, kinds) {
    const { D, E, H, G } = layer;
    const T = read.length / D;
    const queries = yield* layer.query.of(read.subarray(0, Q * D));
    const keys = yield* layer.key.of(read);
    const values = yield* layer.value.of(source);
    if (layer.base !== null) {
      rotate(queries, H, E, layer.base);
      rotate(keys, G, E, layer.base);
    }
    const made = Object.assign(new FixedAttention(), { layer, T, Q, values, turned: [] });
    made.weights = new Float32Array(H * Q * T);
    for (let h = 0; h < H; h += 1) yield* made.attend(h, queries, keys, kinds[h]);
    made.maps = Array.from({ length: H }, (_, h) => (kinds[h] === "zero" ? null : made.map(h)));
    made.outputs = yield* made.taken(values, 1);
    return [yield* layer.output.of(made.outputs), made];
  }

  map(h) {
    return this.weights.subarray(h * this.Q * this.T, (h + 1) * this.Q * this.T);
  }

  /* softmax(q k / sqrt(E)) of a head over the keys that it may attend to. */
  *attend(h, queries, keys, kind) {
    const { T, Q } = this;
    const { H, G, E, window, causal, products } = this.layer;
    const scale = 1 / Math.sqrt(E);
    const own = headOf(queries, h, H, E).map((number) => number * scale);
    const map = yield* products.of(own, headOf(keys, this.shared(h), G, E), E);
    const reach = window ?? T; // keys further away are masked
    for (let q = 0; q < Q; q += 1) {
      const [first, last] = [Math.max(0, q - reach), Math.min(T, q + 1 + (causal ? 0 : reach))];
      const row = map.subarray(q * T, (q + 1) * T);
      if (kind === "uniform") row.fill(1 / (last - first), first, last);
      else softmax(row.subarray(first, last));
      row.fill(0, 0, first).fill(0, last);
      if (q % ROWS === 0) yield;
    }
    this.weights.set(map, h * Q * T);
  }

  /* The keys and values that a head has, perhaps with others. */
  shared(h) {
    return Math.floor((h * this.layer.G) / this.layer.H);
  }

  /* What the heads take from values [N, T, G E]: [N, Q, H E]. */
  *taken(values, N) {
    const { T, Q, maps } = this;
    const { H, G, E, products } = this.layer;
    const result = new Float32Array(N * Q * H * E);
    for (let h = 0; h < H; h += 1) {
      const map = maps[h];
      if (map === null) continue;
      const own = gathered(values, { N, T, heads: G, h: this.shared(h), E });
      scatter(result, yield* products.back(map, own, N * E), { N, T: Q, heads: H, h, E });
    }
    return result;
  }

  /* The first queries of a map, transposed: [T, Q]. */
  toKeys(h) {
    this.turned[h] ??= transposed(this.maps[h], this.T);
    return this.turned[h];
  }

  /* Rows at the outputs of the heads, [N, Q, H E]. */
  *atHeads(rows) {
    return yield* this.layer.output.back(rows);
  }

  /* Rows at the values, [N, T, G E], from those at the outputs of the heads. */
  *atValues(ofHeads, N) {
    const { T } = this;
    const { H, G, E } = this.layer;
    const result = new Float32Array(N * T * G * E);
    for (let h = 0; h < H; h += 1) {
      const own = yield* this.atValuesOf(h, ofHeads, N);
      if (own !== null) scatter(result, own, { N, T, heads: G, h: this.shared(h), E });
    }
    return result;
  }

  /* Those of one head, [T, N, E]; null where it is set to zero. */
  *atValuesOf(h, ofHeads, N) {
    const { Q } = this;
    const { H, E, products } = this.layer;
    if (this.maps[h] === null) return null;
    const own = gathered(ofHeads, { N, T: Q, heads: H, h, E });
    return yield* products.back(this.toKeys(h), own, N * E);
  }

  /* Rows at what values are computed from, and what their bias adds. */
  *back(values, N) {
    const { value } = this.layer;
    return [yield* value.back(values), dots(values, value.bias, N)];
  }

  /* The same from the output of one head: [N, T, D]. */
  *backOf(h, ofHeads, N) {
    const { T } = this;
    const { D, E, value, products } = this.layer;
    const own = yield* this.atValuesOf(h, ofHeads, N);
    if (own === null) return [new Float32Array(N * T * D), new Float64Array(N)];
    const rows = new Float32Array(N * T * E);
    scatter(rows, own, { N, T, heads: 1, h: 0, E });
    const at = this.shared(h) * E;
    const bias = value.bias && value.bias.subarray(at, at + E);
    const weight = value.weight.subarray(at * D, (at + E) * D);
    return [yield* products.back(rows, weight, D), dots(rows, bias, N)];
  }

  /* What passes through a head from each key at each query: a_qt v_t . g_q, [Q, T]. */
  *passed(h, ofHeads) {
    const { H, G, E, products } = this.layer;
    if (this.maps[h] === null) return null;
    const own = headOf(ofHeads, h, H, E);
    const passed = yield* products.of(own, headOf(this.values, this.shared(h), G, E), E);
    return times(passed, this.maps[h]);
  }
}

/* A block: its attention, its feed-forward network, and a norm before or after each. */
export class FixedBlock {
  static *of(block, x, evidence, Q, kinds) {
    const made = Object.assign(new FixedBlock(), { block, x, T: x.length / block.D, Q, first: null });
    let read = x;
    if (!block.isAfter) [read, made.first] = FixedNorm.of(block.attentionNorm, x);
    made.evidence = block.evidence && (yield* block.evidence.of(evidence));
    const source = made.evidence ? plus(read.slice(), made.evidence) : read;
    const attended = yield* made.attention(FixedAttention.of(block.attention, read, source, Q, kinds));
    let after = plus(attended, x);
    if (block.isAfter) {
      [after, made.first] = FixedNorm.of(block.attentionNorm, after);
      const sum = plus(yield* made.feedforward(after), after);
      const [output, norm] = FixedNorm.of(block.feedforwardNorm, sum);
      made.second = norm;
      return [output, made];
    }
    const [normed, norm] = FixedNorm.of(block.feedforwardNorm, after);
    made.second = norm;
    return [plus(yield* made.feedforward(normed), after), made];
  }

  *attention(work) {
    const [attended, heads] = yield* work;
    this.heads = heads;
    return attended;
  }

  *feedforward(x) {
    const [added, branch] = yield* FixedFeedforward.of(this.block.feedforward, x);
    this.branch = branch;
    return added;
  }

  /* Rows at the sum of tokens and heads, [N, Q, D], and what biases from there on add. */
  *aboveHeads(rows, N) {
    const { first, second, branch, block } = this;
    let [own, biases] = [rows, null];
    if (block.isAfter) {
      [own, biases] = backThrough(second, rows, N);
      const [back, ofBranch] = yield* branch.back(own, N);
      const [below, ofNorm] = backThrough(first, plus(back, own), N);
      own = below;
      biases = summed(biases, ofBranch, ofNorm);
    } else {
      const [back, ofBranch] = yield* branch.back(rows, N);
      const [below, ofNorm] = backThrough(second, back, N);
      own = plus(below, rows);
      biases = summed(ofBranch, ofNorm);
    }
    return [own, summed(biases, dots(own, block.attention.output.bias, N))];
  }

  /* From rows at what values are computed from {rows, tokens, biases} at the block's input; tokens
     are what evidence adds, [N, T]. */
  belowHeads(rows, biases, N) {
    const { evidence, block, first } = this;
    const tokens = evidence
      ? rowDots(rows, evidence, block.D) : new Float64Array(rows.length / block.D);
    if (block.isAfter) return { rows, tokens, biases };
    const [before, ofNorm] = backThrough(first, rows, N);
    return { rows: before, tokens, biases: summed(biases, ofNorm) };
  }

  /* To the heads: rows at the sum of tokens and heads, those at the outputs of the heads, [N, Q, H E],
     and what biases above add. */
  *toHeads(rows, N) {
    const [own, above] = yield* this.aboveHeads(rows, N);
    return [own, yield* this.heads.atHeads(own), above];
  }

  /* On from there, with the heads times a number for each of the N: {rows, tokens, biases}. */
  *fromHeads(own, ofHeads, scales) {
    const N = scales.length;
    const values = yield* this.heads.atValues(scaled(ofHeads, scales), N);
    const below = this.belowHeads(...(yield* this.heads.back(values, N)), N);
    return { ...below, rows: this.past(own, below.rows, N) };
  }

  /* Through the block: what is below, what biases above the heads add, and the rows at the outputs
     of the heads. */
  *back(rows, scales) {
    const [own, ofHeads, above] = yield* this.toHeads(rows, scales.length);
    return [yield* this.fromHeads(own, ofHeads, scales), above, ofHeads];
  }

  /* Rows of all tokens: those past the heads, of the first Q, and those of the heads. */
  past(own, ofHeads, N) {
    const size = this.T * this.block.D;
    const part = own.length / N;
    const result = ofHeads ?? new Float32Array(N * size);
    for (let n = 0; n < N; n += 1) {
      for (let at = 0; at < part; at += 1) result[n * size + at] += own[n * part + at];
    }
    return result;
  }

  /* Of [N, T, D] the first Q rows of each. */
  firsts(x, N) {
    const [whole, size] = [this.T * this.block.D, this.Q * this.block.D];
    const result = new Float32Array(N * size);
    for (let n = 0; n < N; n += 1) result.set(x.subarray(n * whole, n * whole + size), n * size);
    return result;
  }

  /* The heads' outputs, [N, Q, H E], on N times other vectors of the tokens. */
  *outputs(x, N) {
    const { block, first, evidence } = this;
    const read = block.isAfter ? x : againThrough(first, x);
    const values = yield* block.attention.value.of(evidence ? plus(read.slice(), evidence) : read);
    return yield* this.heads.taken(values, N);
  }

  /* The new vectors of the tokens, with these outputs times a number for each of the N. */
  *again(x, outputs, scales) {
    const { block, first, second, branch } = this;
    const attended = yield* block.attention.output.of(scaled(outputs, scales));
    const after = plus(attended, this.firsts(x, scales.length));
    if (!block.isAfter) {
      return plus(yield* branch.again(againThrough(second, after)), after);
    }
    const normed = againThrough(first, after);
    return againThrough(second, plus(yield* branch.again(normed), normed));
  }
}

// Numbers of N

export function summed(...parts) {
  return parts.reduce((sum, part) => sum.map((value, n) => value + part[n]));
}

// Heads beside one another

/* Head h of [T, heads, E]: [T, E]. */
function headOf(x, h, heads, E) {
  return gathered(x, { N: 1, T: x.length / heads / E, heads, h, E });
}

/* Head h of [N, T, heads, E]: [T, N, E]. */
function gathered(x, { N, T, heads, h, E }) {
  const result = new Float32Array(N * T * E);
  for (let n = 0; n < N; n += 1) {
    for (let t = 0; t < T; t += 1) {
      const [from, to] = [((n * T + t) * heads + h) * E, (t * N + n) * E];
      for (let e = 0; e < E; e += 1) result[to + e] = x[from + e];
    }
  }
  return result;
}

/* Add [T, N, E] to head h of [N, T, heads, E]: heads may share it. */
function scatter(target, x, { N, T, heads, h, E }) {
  for (let n = 0; n < N; n += 1) {
    for (let t = 0; t < T; t += 1) {
      const [from, to] = [(t * N + n) * E, ((n * T + t) * heads + h) * E];
      for (let e = 0; e < E; e += 1) target[to + e] += x[from + e];
    }
  }
}
