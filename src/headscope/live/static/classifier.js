/* A text in, everything that the views show of it out: the network of model/classifier.py, and the
   split of its logits of heads/contributions.py. */

import { Evidence } from "./evidence.js";
import { attentionRow, gelu, layerNorm, linearRows, rotate } from "./functional.js";
import { Tokenizer } from "./tokenizer.js";

const ROWS = 16; // of a product between two pauses
const MOST_CLASSES = 32; // whose contributions are split
const JOIN = " ⏐ ";

async function bytesOf({ blob, gzip }) {
  const text = atob(blob);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  if (!gzip) return bytes.buffer;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/* Every number of 16 bits as one of 32. */
function halves() {
  const table = new Float32Array(2 ** 16);
  for (let bits = 0; bits < 2 ** 16; bits += 1) {
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    let size = (1024 + fraction) * 2 ** (exponent - 25);
    if (exponent === 0) size = fraction * 2 ** -24;
    if (exponent === 31) size = fraction ? NaN : Infinity;
    table[bits] = bits >> 15 ? -size : size;
  }
  return table;
}

function arraysOf(buffer, places) {
  const table = halves();
  const arrays = new Map();
  for (const [name, { offset, shape, type }] of Object.entries(places)) {
    const count = shape.reduce((product, side) => product * side, 1);
    let values;
    if (type === "uint64") values = new BigUint64Array(buffer, offset, count);
    else if (type === "float32") values = new Float32Array(buffer, offset, count);
    else values = Float32Array.from(new Uint16Array(buffer, offset, count), (bits) => table[bits]);
    arrays.set(name, values);
  }
  return arrays;
}

export class Classifier {
  static async open(content) {
    return new Classifier(content, arraysOf(await bytesOf(content), content.arrays));
  }

  constructor(content, arrays) {
    const { labels, heads, key_heads: keyHeads, layers } = content;
    Object.assign(this, { content, arrays, labels, heads, keyHeads, layers });
    this.tokenizer = new Tokenizer(content.tokenizer);
    this.classes = labels.length;
    this.d = content.width;
    this.width = this.d / heads;
    const keys = arrays.get("evidence.keys");
    this.evidence =
      keys && new Evidence(keys, arrays.get("evidence.ratio"), this.classes, this.tokenizer);
    this.squares = Array.from({ length: layers }, (_, layer) => this.squaresOf(layer));
  }

  own(layer, name) {
    return this.arrays.get(`encoder.blocks.${layer}.${name}`);
  }

  norm(name) {
    const [gamma, beta] = ["weight", "bias"].map((part) => this.arrays.get(`${name}.${part}`));
    return { gamma, beta };
  }

  /* W_h^T W_h of each head's output projection, [H, E, E]: lengths of what a value adds. */
  squaresOf(layer) {
    const { heads, width: E, d } = this;
    const weight = this.own(layer, "attention.out_proj.weight");
    const squares = new Float32Array(heads * E * E);
    for (let h = 0; h < heads; h += 1) {
      for (let row = 0; row < d; row += 1) {
        const own = weight.subarray(row * d + h * E, row * d + (h + 1) * E);
        for (let e = 0; e < E; e += 1) {
          for (let f = 0; f < E; f += 1) squares[(h * E + e) * E + f] += own[e] * own[f];
        }
      }
    }
    return squares;
  }

  read(parts, options = {}) {
    const steps = this.steps(parts, options);
    let step = steps.next();
    while (!step.done) step = steps.next();
    return step.value;
  }

  /* x W^T + b in pieces. */
  *linear(x, weight, bias) {
    const outer = bias.length;
    const inner = weight.length / outer;
    const rows = x.length / inner;
    const target = new Float32Array(rows * outer);
    for (let first = 0; first < rows; first += ROWS) {
      linearRows(x, weight, bias, inner, outer, target, first, Math.min(rows, first + ROWS));
      yield;
    }
    return target;
  }

  /* x += W e, where tokens carry evidence. */
  addEvidence(x, evidence, weight) {
    if (!evidence || !weight) return;
    const { classes, d } = this;
    for (let t = 0; t * d < x.length; t += 1) {
      for (let i = 0; i < d; i += 1) {
        let sum = 0;
        for (let c = 0; c < classes; c += 1) {
          sum += weight[i * classes + c] * evidence[t * classes + c];
        }
        x[t * d + i] += sum;
      }
    }
  }

  /* Read a text, [text], or a pair, in pieces; ablations: "layer,head" -> "zero" or "uniform". */
  *steps(parts, { ablations = new Map() } = {}) {
    const { d, layers, arrays } = this;
    const { ids, tokens, pieces, segments, special } = this.tokenizer.encode(parts);
    yield;
    const evidence = this.evidence?.ofTokens(pieces) ?? null;
    yield;
    const T = ids.length;
    let x = new Float32Array(T * d);
    const table = arrays.get("embedding.token.weight");
    ids.forEach((id, t) => x.set(table.subarray(id * d, (id + 1) * d), t * d));
    const position = arrays.get("embedding.position");
    if (position) x = x.map((value, at) => value + position[at]);
    const segment = arrays.get("embedding.segment.weight");
    if (segment) {
      x = x.map((value, at) => value + segment[segments[Math.floor(at / d)] * d + (at % d)]);
    }
    this.addEvidence(x, evidence, arrays.get("embedding.evidence.weight"));
    const start = x.slice(0, d);
    const passed = [];
    const found = new Map();
    for (let layer = 0; layer < layers; layer += 1) {
      const result = yield* this.block(layer, x, evidence, ablations, found);
      passed.push(result);
      ({ x } = result);
    }
    const [normed, sigma] = layerNorm(x.slice(0, d), this.norm("encoder.norm"));
    const logits = yield* this.linear(normed, arrays.get("head.weight"), arrays.get("head.bias"));
    const answer = this.answer(logits);
    this.put(found, "probabilities", [this.classes], answer.probabilities);
    if (answer.given) this.put(found, "given", [this.classes], answer.given);
    yield;
    yield* this.explain(found, passed, start, sigma, logits, answer, T);
    const text = { name: "text", tokens, text: parts.join(JOIN), special, readout: 0, label: null };
    // Special tokens are of neither text.
    const ofTexts = segments.map((each, place) => (special.includes(place) ? null : each));
    return {
      text: { ...text, segments: parts.length > 1 ? ofTexts : null },
      arrays: found,
      logits,
      ...answer,
    };
  }

  /* x + attention(norm(x)), then x + feedforward(norm(x)); a read-out has neither residual
     connection nor feed-forward block. */
  *block(layer, x, evidence, ablations, found) {
    const name = `encoder.blocks.${layer}`;
    const [normed] = layerNorm(x, this.norm(`${name}.attention_norm`));
    const values = normed.slice();
    this.addEvidence(values, evidence, this.own(layer, "evidence.weight"));
    const attended = yield* this.attend(layer, normed, values, ablations, found);
    if (!this.own(layer, "feedforward.0.weight")) {
      return { ...attended, x: attended.added, feedforward: null };
    }
    const sum = x.map((value, at) => value + attended.added[at]);
    const [before] = layerNorm(sum, this.norm(`${name}.feedforward_norm`));
    const after = yield* this.feedforward(layer, before);
    const feedforward = after.slice(0, this.d);
    return { ...attended, x: sum.map((value, at) => value + after[at]), feedforward };
  }

  *feedforward(layer, x) {
    const own = (name) => this.own(layer, `feedforward.${name}`);
    const hidden = yield* this.linear(x, own("0.weight"), own("0.bias"));
    const activated = hidden.map(gelu);
    return yield* this.linear(activated, own("2.weight"), own("2.bias"));
  }

  put(arrays, name, shape, values) {
    arrays.set(name, { shape, values });
  }

  /* Every head of a layer: its map, the values, and what it takes from them, [T, H E]. */
  *attend(layer, normed, values, ablations, found) {
    const { d, width: E, heads, keyHeads } = this;
    const kv = keyHeads * E;
    const weight = this.own(layer, "attention.in_proj_weight");
    const bias = this.own(layer, "attention.in_proj_bias");
    const some = (x, first, count) => {
      const rows = weight.subarray(first * d, (first + count) * d);
      return this.linear(x, rows, bias.subarray(first, first + count));
    };
    const query = yield* some(normed, 0, d);
    const key = yield* some(normed, d, kv);
    const value = yield* some(values, d + kv, kv);
    if (this.content.rotary) {
      rotate(query, heads, E);
      rotate(key, keyHeads, E);
    }
    const T = normed.length / d;
    const reach = this.content.window ?? T; // keys further away are masked
    const weights = new Float32Array(heads * T * T);
    const outputs = new Float32Array(T * d);
    const norms = new Float32Array(heads * T);
    for (let h = 0; h < heads; h += 1) {
      const ablation = ablations.get(`${layer},${h}`);
      const shared = Math.floor((h * keyHeads) / heads) * E; // the head's keys and values
      for (let q = 0; q < T; q += 1) {
        const start = (h * T + q) * T;
        const first = Math.max(0, q - reach);
        const last = Math.min(T, q + reach + 1);
        const row = weights.subarray(start + first, start + last);
        if (ablation === "uniform") row.fill(1 / row.length);
        else attentionRow(query, key, q * d + h * E, shared + first * kv, E, kv, row);
        if (ablation === "zero") continue;
        const output = q * d + h * E;
        for (let k = first; k < last; k += 1) {
          const share = weights[start + k];
          for (let e = 0; e < E; e += 1) outputs[output + e] += share * value[k * kv + shared + e];
        }
        if (q % ROWS === 0) yield;
      }
      const squares = this.squares[layer].subarray(h * E * E, (h + 1) * E * E);
      for (let k = 0; k < T; k += 1) {
        let sum = 0;
        for (let e = 0; e < E; e += 1) {
          for (let f = 0; f < E; f += 1) {
            sum += value[k * kv + shared + e] * squares[e * E + f] * value[k * kv + shared + f];
          }
        }
        norms[h * T + k] = Math.sqrt(Math.max(0, sum));
      }
      yield;
    }
    this.put(found, `layer_${layer}/weights`, [heads, T, T], weights);
    this.put(found, `layer_${layer}/value_norms`, [heads, T], norms);
    const isZero = [];
    for (let h = 0; h < heads; h += 1) isZero.push(ablations.get(`${layer},${h}`) === "zero");
    const own = (part) => this.own(layer, `attention.out_proj.${part}`);
    const added = yield* this.linear(outputs, own("weight"), own("bias"));
    return { added, weights, value, isZero };
  }

  answer(logits) {
    const { temperature, thresholds } = this.content;
    const scaled = Array.from(logits, (logit) => logit / temperature);
    if (thresholds !== null) {
      const probabilities = Float32Array.from(scaled, (logit) => 1 / (1 + Math.exp(-logit)));
      const given = Uint8Array.from(probabilities, (share, c) => (share >= thresholds[c] ? 1 : 0));
      return { probabilities, given, predicted: [...given.keys()].filter((c) => given[c]) };
    }
    const most = Math.max(...scaled);
    const powers = scaled.map((logit) => Math.exp(logit - most));
    const total = powers.reduce((sum, power) => sum + power, 0);
    const probabilities = Float32Array.from(powers, (power) => power / total);
    return { probabilities, predicted: [powers.indexOf(Math.max(...powers))] };
  }

  /* From the logits back to the first block: what each part adds to each class's logit. */
  *explain(found, passed, start, sigma, logits, { probabilities }, T) {
    const { d, classes, heads, keyHeads, width: E, layers, arrays } = this;
    const { temperature, thresholds } = this.content;
    const order = [...logits.keys()].sort((a, b) => logits[b] - logits[a]);
    const kept = order.slice(0, MOST_CLASSES);
    const K = kept.length;
    const head = arrays.get("head.weight");
    const product = (own, vector) => own.reduce((sum, value, i) => sum + value * vector[i], 0);
    let direction = kept.map((c) =>
      Float64Array.from(head.subarray(c * d, (c + 1) * d), (value) => value / temperature));
    const bias = kept.map((c) => arrays.get("head.bias")[c] / temperature);
    // To before a norm whose scale is held: U = (gamma W - its mean) / sigma; W beta is a bias.
    const passNorm = (name, scale) => {
      const { gamma, beta } = this.norm(name);
      direction.forEach((own, c) => (bias[c] += product(own, beta)));
      direction = direction.map((own) => {
        const scaled = own.map((value, i) => value * gamma[i]);
        const mean = scaled.reduce((sum, value) => sum + value, 0) / d;
        return scaled.map((value) => (value - mean) / scale);
      });
    };
    passNorm("encoder.norm", sigma);
    const cells = new Float32Array(layers * heads * T * K);
    const feedforward = new Float32Array(layers * K);
    for (let layer = layers - 1; layer >= 0; layer -= 1) {
      const { weights, value, isZero, feedforward: added } = passed[layer];
      direction.forEach((own, c) => {
        if (added !== null) feedforward[layer * K + c] = product(own, added);
      });
      const output = this.own(layer, "attention.out_proj.weight");
      const kv = keyHeads * E;
      direction.forEach((own, c) => {
        bias[c] += product(own, this.own(layer, "attention.out_proj.bias"));
      });
      for (let h = 0; h < heads; h += 1) {
        if (isZero[h]) continue;
        const shared = Math.floor((h * keyHeads) / heads) * E;
        direction.forEach((own, c) => {
          const toward = new Float64Array(E); // U_c W^O_h
          for (let i = 0; i < d; i += 1) {
            for (let e = 0; e < E; e += 1) toward[e] += own[i] * output[i * d + h * E + e];
          }
          for (let k = 0; k < T; k += 1) {
            let sum = 0;
            for (let e = 0; e < E; e += 1) sum += toward[e] * value[k * kv + shared + e];
            cells[((layer * heads + h) * T + k) * K + c] = sum * weights[h * T * T + k];
          }
        });
        yield;
      }
      if (added === null) direction = direction.map(() => new Float64Array(d));
    }
    direction.forEach((own, c) => (bias[c] += product(own, start)));
    const ranked = [...probabilities.keys()].sort((a, b) => probabilities[b] - probabilities[a]);
    const against = thresholds === null ? ranked[1] : -1;
    this.put(found, "contributions/classes", [K], Int32Array.from(kept));
    this.put(found, "contributions/shown", [2], Int32Array.from([ranked[0], against]));
    this.put(found, "contributions/tokens", [layers, heads, T, K], cells);
    this.put(found, "contributions/feedforward", [layers, K], feedforward);
    this.put(found, "contributions/bias", [K], Float32Array.from(bias));
  }
}
