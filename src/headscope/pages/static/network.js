/* The network of a run as its weights have it (model/classifier.py): an embedding, blocks and a
   read-out of each member, perhaps above a frozen encoder. Matrices lie in the memory of the kernel,
   once; tables are read a row at a time. */

import { Products } from "./kernel.js";

const SHIFT = 6;
const BLOCK = 1 << SHIFT; // numbers of a row that share a scale, of weights in int8

/* The arrays of a bundle: in int8 beside their scales. */
class Weights {
  constructor(arrays, isMatrix) {
    this.arrays = arrays;
    const matrices = [...arrays].filter(([name, { shape }]) => shape.length === 2 && isMatrix(name));
    const room = ({ values }) => values.length + 4;
    this.products = new Products(matrices.reduce((sum, [, array]) => sum + room(array), 0));
  }

  has(name) {
    return this.arrays.has(name);
  }

  /* Numbers from a place on, in float32; of a matrix whole rows. */
  numbers(name, from, target) {
    const { values, shape } = this.arrays.get(name);
    if (!(values instanceof Int8Array)) {
      target.set(values.subarray(from, from + target.length));
      return target;
    }
    const { values: scales } = this.arrays.get(`${name}.scale`);
    const inner = shape[1];
    const blocks = Math.ceil(inner / BLOCK);
    for (let start = 0; start < target.length; start += inner) {
      const first = ((from + start) / inner) * blocks;
      for (let at = 0; at < inner; at += 1) {
        target[start + at] = values[from + start + at] * scales[first + (at >> SHIFT)];
      }
    }
    return target;
  }

  vector(name) {
    if (!this.has(name)) return null;
    return this.numbers(name, 0, new Float32Array(this.arrays.get(name).values.length));
  }

  /* Some rows of a matrix and of its bias: {of, back}, x W^T + b and x W in pieces. */
  linear(name, { bias = name.replace(/weight$/, "bias"), from = 0, to = null } = {}) {
    const { shape: [outer, inner] } = this.arrays.get(name);
    const end = to ?? outer;
    const weight = this.products.room((end - from) * inner, inner);
    this.numbers(name, from * inner, weight);
    const { products } = this;
    const added = this.vector(bias)?.subarray(from, end) ?? null;
    return {
      weight, bias: added,
      of: (x) => products.of(x, weight, inner, added),
      back: (rows) => products.back(rows, weight, inner),
    };
  }

  norm(name, eps) {
    const gamma = this.vector(`${name}.weight`);
    return gamma && { gamma, beta: this.vector(`${name}.bias`), eps };
  }
}

function embeddingOf(weights, prefix, shape) {
  const own = (name) => `${prefix}embedding.${name}`;
  const W = shape.token_width;
  const readsStates = weights.has(own("start"));
  const types = weights.vector(own("segment.weight"));
  const mix = weights.vector(own("mix"));
  return {
    W,
    states: readsStates ? weights.linear(own("token.weight")) : null,
    start: weights.vector(own("start")),
    mix: mix ? sharesOf(mix) : [1],
    position: weights.vector(own("position")),
    segment: types,
    evidence: weights.has(own("evidence.weight")) ? weights.linear(own("evidence.weight")) : null,
    norm: weights.norm(own("norm"), shape.norm_eps),
    projection: weights.has(own("projection.weight"))
      ? weights.linear(own("projection.weight")) : null,
    lookedUp(ids) {
      const x = new Float32Array(ids.length * W);
      const table = own("token.weight");
      ids.forEach((id, t) => weights.numbers(table, id * W, x.subarray(t * W, (t + 1) * W)));
      return x;
    },
    segmentsOf(segments, T) {
      const x = new Float32Array(T * W);
      for (let t = 0; t < T; t += 1) {
        const type = types.length > W && segments ? segments[t] : 0;
        x.set(types.subarray(type * W, (type + 1) * W), t * W);
      }
      return x;
    },
  };
}

/* softmax of a few numbers. */
function sharesOf(numbers) {
  const most = Math.max(...numbers);
  const powers = Array.from(numbers, (value) => Math.exp(value - most));
  const sum = powers.reduce((all, value) => all + value, 0);
  return powers.map((value) => value / sum);
}

function blockOf(weights, prefix, shape, layer) {
  const { d_model: D, num_heads: H, norm_eps: eps, activation } = shape;
  const [E, G] = [D / H, shape.num_kv_heads ?? H];
  const own = (name) => `${prefix}encoder.blocks.${layer}.${name}`;
  const packed = (from, to) => weights.linear(own("attention.in_proj_weight"), { from, to });
  const upName = own("feedforward.0.weight");
  const size = shape.feedforward_size;
  const [from, gate] = shape.is_gated ? [size, weights.linear(upName, { to: size })] : [0, null];
  const { window, rotary_base: base } = shape.layers[layer];
  const { products } = weights;
  return {
    D,
    isAfter: shape.norm === "after",
    attentionNorm: weights.norm(own("attention_norm"), eps),
    feedforwardNorm: weights.norm(own("feedforward_norm"), eps),
    evidence: weights.has(own("evidence.weight")) ? weights.linear(own("evidence.weight")) : null,
    attention: {
      D, E, H, G, window, base, causal: shape.causal, products,
      query: packed(0, D), key: packed(D, D + G * E), value: packed(D + G * E, D + 2 * G * E),
      output: weights.linear(own("attention.out_proj.weight")),
    },
    feedforward: {
      gate, activation,
      first: weights.linear(upName, { from }),
      second: weights.linear(own("feedforward.2.weight")),
    },
  };
}

function blocksOf(weights, prefix, shape) {
  return shape.layers.map((_, layer) => blockOf(weights, prefix, shape, layer));
}

function readOutOf(weights, prefix, shape) {
  const pooler = shape.pooler && {
    dense: weights.linear(`${prefix}pooler.dense.weight`),
    activation: shape.pooler.activation,
    norm: weights.norm(`${prefix}pooler.norm`, shape.norm_eps),
  };
  return {
    D: shape.d_model,
    norm: weights.norm(`${prefix}encoder.norm`, shape.norm_eps),
    isMean: shape.pooling === "mean",
    pooler,
    head: weights.linear(`${prefix}head.weight`),
  };
}

export class Network {
  /* `content` as pages/pack.py writes it: {architecture, members, frozen, points,
     points_with_ends, most_at_once}. */
  constructor(content, arrays) {
    const { architecture: shape, members, frozen, points } = content;
    const { points_with_ends: pointsWithEnds, most_at_once: mostAtOnce } = content;
    const isTable = (name) => name.endsWith("token.weight") && !arrays.has(startOf(name));
    const weights = new Weights(arrays, (name) => !isTable(name));
    const prefixes = members === null ? [""] : [...Array(members).keys()].map((m) => `members.${m}.`);
    this.heads = shape.num_heads;
    this.layers = prefixes.length * shape.layers.length;
    this.members = prefixes.map((prefix) => ({
      prefix, embedding: embeddingOf(weights, prefix, shape),
      blocks: blocksOf(weights, prefix, shape), readOut: readOutOf(weights, prefix, shape),
    }));
    this.frozen = frozen && {
      layers: frozen.layers_read,
      embedding: embeddingOf(weights, "features.", frozen),
      blocks: blocksOf(weights, "features.", frozen),
      norm: weights.norm("features.encoder.norm", frozen.norm_eps),
    };
    Object.assign(this, { points, pointsWithEnds, mostAtOnce });
  }

  /* Multiplications of the way from all heads to the tokens, for each token. */
  get costOfCells() {
    const sizeOf = ({ attention, feedforward }) => {
      const { query, key, value, output } = attention;
      const { first, second } = feedforward;
      const parts = [query, key, value, output, first, second];
      return parts.reduce((sum, { weight }) => sum + weight.length, 0);
    };
    const below = (this.frozen?.blocks ?? []).reduce((sum, block) => sum + sizeOf(block), 0);
    let cost = 0;
    for (const { blocks } of this.members) {
      let passed = below;
      for (const block of blocks) {
        cost += this.heads * this.points.length * passed;
        passed += sizeOf(block);
      }
    }
    return cost;
  }
}

function startOf(name) {
  return name.replace(/token\.weight$/, "start");
}
