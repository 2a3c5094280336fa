/* A text in, everything that the views show of it out: the network of model/classifier.py, and the
   sums of shares.js. Shape letters: T tokens, Q of them that a layer computes (the last one [CLS]
   alone), D width, H heads, E the width of one. */

import { Evidence } from "./evidence.js";
import { dot, gatesOf, layerNorm, plus, rotate, softmax, times, transposed } from "./functional.js";
import { Products } from "./kernel.js";
import { Maps, arraysOf } from "./maps.js";
import { Shares } from "./shares.js";
import { JOIN, Tokenizer } from "./tokenizer.js";

const REST = "the rest of the text"; // as data/tokenizer.py calls it
const ROWS = 16; // of a map between two pauses

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
    const ofBlocks = [...arrays].filter(([name]) => name.startsWith("encoder.blocks."));
    const size = ofBlocks.reduce((sum, [, { values }]) => sum + values.length, 0);
    this.products = new Products(2 * size); // forward and backward
    this.blocks = Array.from({ length: layers }, (_, layer) => this.block(layer));
  }

  get(name) {
    return this.arrays.get(name)?.values;
  }

  /* The weights of a block, as they are multiplied forward and backward. */
  block(layer) {
    const { d, width, products } = this;
    const own = (name) => this.get(`encoder.blocks.${layer}.${name}`);
    const linear = (weight, bias) => {
      const [outer, inner] = [bias.length, weight.length / bias.length];
      const back = products.stay(transposed(weight, inner), outer);
      return { weight: products.stay(weight, inner), bias, back };
    };
    const values = (d + this.keyHeads * width) * d; // where those of queries and keys end
    const [inner, innerBias] = ["weight", "bias"].map((part) => own(`attention.in_proj_${part}`));
    const of = (name) => linear(own(`${name}.weight`), own(`${name}.bias`));
    const norm = this.norm(`encoder.blocks.${layer}.attention_norm`);
    return {
      query: { weight: products.stay(inner.subarray(0, d * d), d), bias: innerBias.subarray(0, d) },
      key: {
        weight: products.stay(inner.subarray(d * d, values), d),
        bias: innerBias.subarray(d, values / d),
      },
      value: this.valuesOf(inner.subarray(values), innerBias.subarray(values / d), norm),
      output: of("attention.out_proj"),
      up: of("feedforward.0"),
      down: of("feedforward.2"),
      evidence: own("evidence.weight"),
      attentionNorm: norm,
      feedforwardNorm: this.norm(`encoder.blocks.${layer}.feedforward_norm`),
    };
  }

  /* The projection to the values; by heads also the way back, and what of the values is of no word:
     the biases of the norm and of the projection. */
  valuesOf(weight, bias, { beta }) {
    const { d, width, keyHeads, products } = this;
    const rowsOf = (head) => weight.subarray(head * width * d, (head + 1) * width * d);
    const heads = [...Array(keyHeads).keys()];
    const ofHeads = heads.map((head) => bias.slice(head * width, (head + 1) * width));
    return {
      weight: products.stay(weight, d),
      bias,
      ofHeads,
      backs: heads.map((head) => products.stay(transposed(rowsOf(head), d), width)),
      biases: heads.map((head) => {
        return ofHeads[head].map((value, at) => {
          return value + dot(rowsOf(head).subarray(at * d, (at + 1) * d), beta);
        });
      }),
    };
  }

  norm(name) {
    return { gamma: this.get(`${name}.weight`), beta: this.get(`${name}.bias`) };
  }

  /* x W^T + b in pieces. */
  *linear(x, weight, inner, bias = null) {
    const target = yield* this.products.of(x, weight, inner);
    return bias ? plus(target, bias) : target;
  }

  /* Read a text, [text], or a pair, in pieces; ablations: "layer,head" -> "zero" or "uniform".
     `choose` gives the two classes that are explained first, by the likeliest two. */
  *steps(parts, { ablations = new Map(), choose = (own) => own } = {}) {
    const found = yield* this.forward(parts, ablations);
    const { tokens, sides, special, unknown, words, places, passed, logits } = found;
    const { shown, ...answer } = this.answer(logits);
    const ofLayers = passed.map(({ weights }, layer) => [`layer_${layer}/weights`, weights]);
    const arrays = new Map([...ofLayers, ["probabilities", { values: answer.probabilities }]]);
    if (answer.given) arrays.set("given", { values: answer.given });
    const own = { name: "text", tokens, text: parts.join(JOIN), special, unknown, readout: 0 };
    const segments = parts.length > 1 ? sides : null;
    const text = { ...own, words, places, label: null, segments };
    const pair = choose(shown);
    const sums = yield* new Shares(this, found, pair).run();
    const maps = new Maps(new Map([...arrays, ...sums]));
    const known = { [pair]: sums };
    const sumsOf = (other) => (known[other] ??= finished(new Shares(this, found, other).run()));
    Object.assign(maps, { own: shown, classes: [...this.labels.keys()], sumsOf });
    return { text, logits, ...answer, maps };
  }

  /* The logits of a text, divided by the temperature, in pieces. */
  *logOdds(parts, ablations) {
    const { logits } = yield* this.forward(parts, ablations);
    return Array.from(logits, (logit) => logit / this.content.temperature);
  }

  /* The network, from a text to its logits, with what every layer has computed. */
  *forward(parts, ablations) {
    const { d } = this;
    const { pieces, rest, ...encoded } = this.tokenizer.encode(parts, Boolean(this.evidence));
    yield;
    const evidence = this.evidence?.ofTokens(pieces, rest) ?? null;
    if (evidence && rest.length > 0) {
      encoded.special.pop();
      encoded.words.push([REST, pieces.indexOf(null, 1), pieces.length]);
    }
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
}

/* What comes of work in pieces, without a pause. */
export function finished(work) {
  let step = work.next();
  while (!step.done) step = work.next();
  return step.value;
}
