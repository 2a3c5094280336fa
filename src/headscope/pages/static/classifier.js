/* A text in, everything that the views show of it out: the network of model/classifier.py, and the
   exact sums of its logits of heads/contributions.py. Shape letters: T tokens, Q of them that a
   layer computes (the last one [CLS] alone), D width, H heads, E the width of one, K classes whose
   logits are explained. */

import { Evidence } from "./evidence.js";
import {
  dot, gatesOf, layerNorm, normBack, plus, product, rotate, softmax, times, transposed,
} from "./functional.js";
import { arraysOf } from "./maps.js";
import { Tokenizer } from "./tokenizer.js";

const ROWS = 16; // of a product between two pauses
const MOST_CLASSES = 8; // whose logits are explained, the chosen one apart
export const JOIN = " ⏐ ";

export class Classifier {
  static async open(content) {
    const packed = new Blob([Uint8Array.fromBase64(content.blob)]).stream();
    const stream = packed.pipeThrough(new DecompressionStream("gzip"));
    return new Classifier(content, arraysOf(await new Response(stream).arrayBuffer()));
  }

  constructor(content, arrays) {
    const { labels, heads, key_heads: keyHeads, layers } = content;
    Object.assign(this, { content, arrays, labels, heads, keyHeads, layers });
    this.tokenizer = new Tokenizer(content.tokenizer);
    this.classes = labels.length;
    this.d = content.width;
    this.width = this.d / heads;
    const keys = this.get("evidence.keys");
    const ratios = this.get("evidence.ratio");
    this.evidence = keys && new Evidence(keys, ratios, this.classes, this.tokenizer);
    this.blocks = Array.from({ length: layers }, (_, layer) => this.block(layer));
  }

  get(name) {
    return this.arrays.get(name)?.values;
  }

  /* The weights of a block, as they are multiplied forward and backward. */
  block(layer) {
    const { d } = this;
    const own = (name) => this.get(`encoder.blocks.${layer}.${name}`);
    const linear = (weight, bias) => {
      return { weight, bias, back: transposed(weight, weight.length / bias.length) };
    };
    const values = (d + this.keyHeads * this.width) * d; // where those of queries and keys end
    const [inner, innerBias] = ["weight", "bias"].map((part) => own(`attention.in_proj_${part}`));
    const of = (name) => linear(own(`${name}.weight`), own(`${name}.bias`));
    return {
      query: { weight: inner.subarray(0, d * d), bias: innerBias.subarray(0, d) },
      key: { weight: inner.subarray(d * d, values), bias: innerBias.subarray(d, values / d) },
      value: linear(inner.subarray(values), innerBias.subarray(values / d)),
      output: of("attention.out_proj"),
      up: of("feedforward.0"),
      down: of("feedforward.2"),
      evidence: own("evidence.weight"),
      attentionNorm: this.norm(`encoder.blocks.${layer}.attention_norm`),
      feedforwardNorm: this.norm(`encoder.blocks.${layer}.feedforward_norm`),
    };
  }

  norm(name) {
    return { gamma: this.get(`${name}.weight`), beta: this.get(`${name}.bias`) };
  }

  /* x W^T + b in pieces. */
  *linear(x, weight, inner, bias = null) {
    const rows = x.length / inner;
    const target = new Float32Array((rows * weight.length) / inner);
    for (let first = 0; first < rows; first += ROWS) {
      product(x, weight, inner, target, first, Math.min(rows, first + ROWS));
      yield;
    }
    return bias ? plus(target, bias) : target;
  }

  /* Read a text, [text], or a pair, in pieces; ablations: "layer,head" -> "zero" or "uniform". Of
     many classes those that are shown and `labels` are explained first, and an answer with them is
     a piece. */
  *steps(parts, { ablations = new Map(), labels = [] } = {}) {
    const found = yield* this.forward(parts, ablations);
    const { tokens, segments, special, unknown, passed, logits } = found;
    const answer = this.answer(logits);
    const ofLayers = passed.map(({ weights }, layer) => [`layer_${layer}/weights`, weights]);
    const arrays = new Map([...ofLayers, ["probabilities", { values: answer.probabilities }]]);
    if (answer.given) arrays.set("given", { values: answer.given });
    // Special tokens are of neither text.
    const ofTexts = segments.map((each, place) => (special.includes(place) ? null : each));
    const own = { name: "text", tokens, text: parts.join(JOIN), special, unknown, readout: 0 };
    const whole = { ...own, label: null, segments: parts.length > 1 ? ofTexts : null };
    const sums = new Map(); // of each class that is explained
    const { shown, ranked } = answer;
    const asked = ranked.filter((c) => labels.includes(c) || shown.includes(c));
    const kept = ranked.filter((c, rank) => rank < MOST_CLASSES || labels.includes(c));
    for (const c of [...asked, ...kept]) {
      if (sums.has(c)) continue;
      if (sums.size === asked.length) yield this.result(whole, logits, answer, arrays, sums);
      sums.set(c, yield* this.explain(c, found));
    }
    return this.result(whole, logits, answer, arrays, sums);
  }

  /* The logits of a text, divided by the temperature, in pieces. */
  *logOdds(parts, ablations) {
    const { logits } = yield* this.forward(parts, ablations);
    return Array.from(logits, (logit) => logit / this.content.temperature);
  }

  /* The network, from a text to its logits, with what every layer has computed. */
  *forward(parts, ablations) {
    const { d } = this;
    const { pieces, ...encoded } = this.tokenizer.encode(parts);
    yield;
    const evidence = this.evidence?.ofTokens(pieces) ?? null;
    yield;
    const start = yield* this.embed(encoded.ids, encoded.segments, evidence);
    const passed = [];
    let x = start;
    for (const layer of this.blocks.keys()) {
      passed.push(yield* this.pass(layer, x, evidence, ablations));
      ({ x } = passed[layer]);
    }
    const [normed, scales] = layerNorm(x, this.norm("encoder.norm"));
    const bias = this.get("head.bias");
    const logits = yield* this.linear(normed, this.get("head.weight"), d, bias);
    return { ...encoded, start, passed, scales, logits };
  }

  result(text, logits, answer, maps, sums) {
    const ofSums = this.arraysOf(answer.shown, answer.ranked.filter((c) => sums.has(c)), sums);
    return { text, logits, ...answer, arrays: new Map([...maps, ...ofSums]) };
  }

  /* The vector of each token: of itself, its place, its text and its evidence. */
  *embed(ids, segments, evidence) {
    const { d } = this;
    const [tokens, position, segment, weight] = [
      "token.weight", "position", "segment.weight", "evidence.weight",
    ].map((name) => this.get(`embedding.${name}`));
    let x = new Float32Array(ids.length * d);
    const rowOf = (table, row) => table.subarray(row * d, (row + 1) * d);
    ids.forEach((id, t) => x.set(rowOf(tokens, id), t * d));
    if (position) x = plus(x, position);
    if (segment) segments.forEach((id, t) => x.set(plus(rowOf(x, t), rowOf(segment, id)), t * d));
    if (weight) x = plus(x, yield* this.linear(evidence, weight, this.classes));
    return x;
  }

  /* x + attention(norm(x)), then x + feedforward(norm(x)), of [CLS] alone in the last layer; and
     what the way back needs: maps, values, the norms' scales and the gates. */
  *pass(layer, x, evidence, ablations) {
    const { d } = this;
    const { value, output, up, down, attentionNorm, feedforwardNorm, ...own } = this.blocks[layer];
    const [normed, scales] = layerNorm(x, attentionNorm);
    let added = null; // by evidence, to the values alone
    if (own.evidence) added = yield* this.linear(evidence, own.evidence, this.classes);
    const source = added ? plus(normed, added) : normed;
    const values = yield* this.linear(source, value.weight, d, value.bias);
    const end = layer + 1 === this.layers ? d : x.length;
    const [weights, maps, heads] = yield* this.attend(layer, normed, values, end / d, ablations);
    const attended = yield* this.linear(heads, output.weight, d, output.bias);
    const sum = plus(x.subarray(0, end), attended);
    const [between, betweenScales] = layerNorm(sum, feedforwardNorm);
    const hidden = yield* this.linear(between, up.weight, d, up.bias);
    const gates = gatesOf(hidden);
    const after = yield* this.linear(times(hidden, gates), down.weight, up.bias.length, down.bias);
    return { added, values, weights, maps, scales, gates, betweenScales, x: plus(sum, after) };
  }

  /* Head h of [T, heads, E]: [T, E]. */
  headOf(x, h, heads) {
    const E = this.width;
    const result = new Float32Array(x.length / heads);
    for (let t = 0; t * E < result.length; t += 1) {
      const at = (t * heads + h) * E;
      result.set(x.subarray(at, at + E), t * E);
    }
    return result;
  }

  /* The keys and values that a head has, perhaps with others. */
  shared(h) {
    return Math.floor((h * this.keyHeads) / this.heads);
  }

  /* The maps [H, Q, T] of a layer, each head's own map or null where it is set to zero, and what
     the heads take from the values, [Q, H E]. */
  *attend(layer, normed, values, Q, ablations) {
    const { d, width: E, heads, keyHeads } = this;
    const { query, key } = this.blocks[layer];
    const queries = yield* this.linear(normed.subarray(0, Q * d), query.weight, d, query.bias);
    const keys = yield* this.linear(normed, key.weight, d, key.bias);
    if (this.content.rotary) {
      rotate(queries, heads, E);
      rotate(keys, keyHeads, E);
    }
    const T = normed.length / d;
    const reach = this.content.window ?? T; // keys further away are masked
    const weights = new Float32Array(heads * Q * T);
    const outputs = new Float32Array(Q * heads * E);
    const maps = [];
    for (let h = 0; h < heads; h += 1) {
      const ablation = ablations.get(`${layer},${h}`);
      const own = this.headOf(queries, h, heads).map((number) => number / Math.sqrt(E));
      const map = yield* this.linear(own, this.headOf(keys, this.shared(h), keyHeads), E);
      for (let q = 0; q < Q; q += 1) {
        const [first, last] = [Math.max(0, q - reach), Math.min(T, q + reach + 1)];
        const row = map.subarray(q * T, (q + 1) * T);
        if (ablation === "uniform") row.fill(1 / (last - first), first, last);
        else softmax(row.subarray(first, last));
        row.fill(0, 0, first).fill(0, last);
        if (q % ROWS === 0) yield;
      }
      weights.set(map, h * Q * T);
      maps.push(ablation === "zero" ? null : map);
      if (ablation === "zero") continue;
      const ofHead = transposed(this.headOf(values, this.shared(h), keyHeads), E);
      const taken = yield* this.linear(map, ofHead, T);
      for (let q = 0; q < Q; q += 1) {
        outputs.set(taken.subarray(q * E, (q + 1) * E), (q * heads + h) * E);
      }
    }
    return [{ shape: [heads, Q, T], values: weights }, maps, outputs];
  }

  /* Probabilities, classes by them, and the two that are held against each other. */
  answer(logits) {
    const { temperature, thresholds } = this.content;
    const scaled = Array.from(logits, (logit) => logit / temperature);
    const ranked = [...scaled.keys()].sort((a, b) => scaled[b] - scaled[a]);
    if (thresholds !== null) {
      const probabilities = Float32Array.from(scaled, (logit) => 1 / (1 + Math.exp(-logit)));
      const given = Uint8Array.from(probabilities, (share, c) => (share >= thresholds[c] ? 1 : 0));
      const predicted = [...given.keys()].filter((c) => given[c]);
      return { probabilities, given, predicted, ranked, shown: [ranked[0], -1] };
    }
    const probabilities = Float32Array.from(scaled);
    softmax(probabilities);
    return { probabilities, predicted: [ranked[0]], ranked, shown: ranked.slice(0, 2) };
  }

  /* A class's logit as an exact sum, attention weights, norms' scales and gates held fixed: from it
     back to the first block by transposed products. */
  *explain(c, { logits, passed, start, scales }) {
    const { d, width: E, heads, keyHeads, layers } = this;
    const { temperature } = this.content;
    const T = start.length / d;
    const norm = this.norm("encoder.norm");
    const words = new Float64Array(T);
    const cells = new Float64Array(layers * heads * T);
    const biases = new Float64Array(layers + 1);
    const logit = logits[c] / temperature;
    let gradient = this.get("head.weight").slice(c * d, (c + 1) * d); // of the logit, [Q, D]
    gradient = gradient.map((number) => number / temperature);
    biases[layers] = this.get("head.bias")[c] / temperature + dot(gradient, norm.beta);
    gradient = normBack(gradient, norm, scales);
    const addWords = (vectors, gradients) => {
      for (let at = 0; at < gradients.length; at += 1) {
        words[Math.floor(at / d)] += vectors[at] * gradients[at];
      }
    };
    for (let layer = layers - 1; layer >= 0; layer -= 1) {
      const { value, output, up, down, attentionNorm, feedforwardNorm } = this.blocks[layer];
      const { added, values, maps, gates, ...own } = passed[layer];
      const Q = gradient.length / d;
      const after = yield* this.linear(gradient, down.back, d);
      const hidden = times(after, gates);
      const between = yield* this.linear(hidden, up.back, up.bias.length);
      biases[layer + 1] += dot(gradient, down.bias) + dot(hidden, up.bias);
      biases[layer + 1] += dot(between, feedforwardNorm.beta);
      gradient = plus(gradient, normBack(between, feedforwardNorm, own.betweenScales));
      biases[layer + 1] += dot(gradient, output.bias);
      const ofHeads = yield* this.linear(gradient, output.back, d);
      const ofValues = new Float32Array(values.length);
      for (const [h, map] of maps.entries()) {
        if (map === null) continue;
        const toKeys = transposed(map, T);
        const ofHead = transposed(this.headOf(ofHeads, h, heads), E);
        const taken = yield* this.linear(toKeys, ofHead, Q); // sum_q a_hqt dlogit/dz_hq, [T, E]
        for (let at = 0; at < taken.length; at += 1) {
          const t = Math.floor(at / E);
          const place = (t * keyHeads + this.shared(h)) * E + (at % E);
          ofValues[place] += taken[at];
          cells[(layer * heads + h) * T + t] += taken[at] * values[place];
        }
      }
      biases[layer] += dot(ofValues, value.bias);
      const before = yield* this.linear(ofValues, value.back, keyHeads * E);
      biases[layer] += dot(before, attentionNorm.beta);
      if (added) addWords(added, before);
      const past = gradient;
      gradient = normBack(before, attentionNorm, own.scales);
      for (let at = 0; at < past.length; at += 1) gradient[at] += past[at];
    }
    addWords(start, gradient);
    return { words, heads: cells, biases, log_odds: [logit] };
  }

  /* The sums of some classes as a record has them. */
  arraysOf(shown, classes, sums) {
    const { heads, layers } = this;
    const K = classes.length;
    const T = sums.get(classes[0]).words.length;
    const shapes = { words: [T], heads: [layers, heads, T], biases: [layers + 1], log_odds: [] };
    const arrays = Object.entries(shapes).map(([name, shape]) => {
      const ofClasses = classes.map((c) => sums.get(c)[name]);
      const values = new Float32Array(K * ofClasses[0].length).map((_, at) => {
        return ofClasses[at % K][Math.floor(at / K)];
      });
      return [`contributions/${name}`, { shape: [...shape, K], values }];
    });
    const ofPair = { classes: Int32Array.from(classes), shown: Int32Array.from(shown) };
    for (const [name, values] of Object.entries(ofPair)) {
      arrays.push([`contributions/${name}`, { shape: [values.length], values }]);
    }
    return arrays;
  }
}
