/* A text in, everything that the views show of it out: tokens, the network (network.js, linear.js),
   its answer, and the sums of shares.js. */

import { Evidence } from "./evidence.js";
import { softmax } from "./functional.js";
import { FixedNetwork } from "./linear.js";
import { Maps, arraysOf } from "./maps.js";
import { Network } from "./network.js";
import { Shares, withCells } from "./shares.js";
import { JOIN, Tokenizer } from "./tokenizer.js";

const REST = "the rest of the text"; // as data/tokenizer.py calls it

export class Classifier {
  static async open(content) {
    const bytes = Uint8Array.fromBase64(content.blob);
    if (!content.is_gzipped) return new Classifier(content, arraysOf(bytes.buffer));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Classifier(content, arraysOf(await new Response(stream).arrayBuffer()));
  }

  constructor(content, arrays) {
    const { labels } = content;
    Object.assign(this, { content, arrays, labels });
    this.tokenizer = new Tokenizer(content.tokenizer);
    this.network = new Network(content, arrays);
    const keys = arrays.get("evidence.keys")?.values;
    this.evidence = keys && this.network.members.map(({ prefix }) => {
      const { values } = arrays.get(`${prefix}evidence.ratio`);
      return new Evidence(keys, values, labels.length, this.tokenizer);
    });
  }

  /* Read a text, [text], or a pair, in pieces; ablations: "layer,head" -> "zero" or "uniform".
     `choose` gives the two classes that are explained first, by the likeliest two. */
  *steps(parts, { ablations = new Map(), choose = (own) => own } = {}) {
    const found = yield* this.forward(parts, ablations);
    const { tokens, sides, special, unknown, words, places, fixed } = found;
    const { logits } = fixed;
    const { shown, ...answer } = this.answer(logits);
    const ofLayers = fixed.blocks.map(({ heads: { layer, weights, Q, T } }, at) => {
      return [`layer_${at}/weights`, { shape: [layer.H, Q, T], values: weights }];
    });
    const arrays = new Map([...ofLayers, ["probabilities", { values: answer.probabilities }]]);
    if (answer.given) arrays.set("given", { values: answer.given });
    const own = { name: "text", tokens, text: parts.join(JOIN), special, unknown };
    own.readout = this.network.members[0].readOut.isMean ? null : 0;
    const segments = parts.length > 1 ? sides : null;
    const text = { ...own, words, places, label: null, segments };
    const pair = choose(shown);
    const sharesOf = (other) => new Shares(fixed, this.content.temperature, other).run();
    const known = { [pair]: yield* sharesOf(pair) };
    const sumsOf = (other) => (known[other] ??= finished(sharesOf(other)));
    const maps = new Maps(new Map([...arrays, ...known[pair]]));
    Object.assign(maps, { known, own: shown, classes: [...this.labels.keys()], sumsOf });
    return { text, logits, ...answer, maps };
  }

  /* The cells of some heads: layer * H + h -> {tokens, bias}. */
  *cells(parts, ablations, pair, places) {
    const { fixed } = yield* this.forward(parts, ablations);
    return yield* new Shares(fixed, this.content.temperature, pair).some(places);
  }

  /* The logits of a text, divided by the temperature, in pieces. */
  *logOdds(parts, ablations) {
    const { fixed: { logits } } = yield* this.forward(parts, ablations);
    return Array.from(logits, (logit) => logit / this.content.temperature);
  }

  /* The network as a text leaves it, beside its tokens. */
  *forward(parts, ablations) {
    const { pieces, rest, ...encoded } = this.tokenizer.encode(parts, Boolean(this.evidence));
    yield;
    const evidence = this.evidence?.map((own) => own.ofTokens(pieces, rest)) ?? null;
    if (evidence && rest.length > 0) {
      encoded.special.pop();
      encoded.words.push([REST, pieces.indexOf(null, 1), pieces.length]);
    }
    yield;
    const { ids } = encoded;
    const input = { ids, segments: parts.length > 1 ? encoded.segments : null, evidence };
    const { heads } = this.network;
    const kindsOf = (layer) => Array.from({ length: heads }, (_, h) => ablations.get(`${layer},${h}`));
    const fixed = yield* FixedNetwork.of(this.network, input, kindsOf);
    return { ...encoded, fixed };
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

/* The maps of a text with the cells of more heads, for two classes. */
export function filled(maps, pair, cells) {
  maps.known[pair] = withCells(maps.known[pair], cells);
  const isOwn = maps.values("contributions/shown").join() === pair.join();
  const made = new Maps(isOwn ? new Map([...maps.arrays, ...maps.known[pair]]) : maps.arrays);
  const { arrays, ...kept } = maps;
  return Object.assign(made, kept);
}

/* What comes of work in pieces, without a pause. */
export function finished(work) {
  let step = work.next();
  while (!step.done) step = work.next();
  return step.value;
}
