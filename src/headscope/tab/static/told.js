/* What Python wrote, in the reader's language: its names one by one, its sentences by patterns. */

import { language, pattern, t } from "./strings.js";

const p = pattern;

const NAMES = {
  effect: t`effect`,
  matters: t`matters`,
  "no effect": t`no effect`,
  inconclusive: t`inconclusive`,
  loss_zeroed: t`loss change`,
  accuracy_zeroed: t`accuracy change`,
  contribution: t`contribution`,
  role: t`role`,
  entropy_share: t`entropy share`,
  mean_distance: t`mean distance`,
  self: t`self`,
  previous: t`previous`,
  next: t`next`,
  first: t`first`,
  separator: t`separator`,
  crossing: t`crossing`,
  "first-token sink": t`first-token sink`,
  "separator sink": t`separator sink`,
  "previous token": t`previous token`,
  "next token": t`next token`,
  itself: t`itself`,
  "across texts": t`across texts`,
  broad: t`broad`,
  focused: t`focused`,
  "no clear pattern": t`no clear pattern`,
  // of notes
  run: t`run`,
  model: t`model`,
  weights: t`weights`,
  numbers: t`numbers`,
  precision: t`precision`,
  dropout: t`dropout`,
  "trained in": t`trained in`,
  ablation: t`ablation`,
  temperature: t`temperature`,
  step: t`step`,
  shown: t`shown`,
  attention: t`attention`,
  heads: t`heads`,
  unobserved: t`unobserved`,
  unknown: t`unknown`,
  contributions: t`contributions`,
  logits: t`logits`,
};

const [a, b, c, d, e, f, g] = [0, 1, 2, 3, 4, 5, 6];
const SENTENCES = [
  // heads/answer.py
  p`Heads lower the accuracy: on ${a} other texts accuracy is ${b} % with all and ${c} % without any
    (${d} to ${e} points).`,
  p`Heads are not shown to help: on ${a} other texts accuracy is ${b} % with all and ${c} % without
    any (${d} to ${e} points).`,
  p`Too few texts to tell how many heads are enough: on ${a} other texts accuracy is ${b} % with all
    and ${c} % without any (${d} to ${e} points).`,
  p`Too few texts to tell whether heads help: on ${a} other texts accuracy is ${b} % with all and
    ${c} % without any (${d} to ${e} points).`,
  p`On ${a} other texts the network without heads keeps ${b} of ${c} % (${d} to ${e} points).`,
  p`On ${a} other texts ${b} alone keeps ${c} of ${d} % (${e} to ${f} points), without heads
    ${g} %.`,
  p`On ${a} other texts ${b} alone keep ${c} of ${d} % (${e} to ${f} points), without heads
    ${g} %.`,
  p`Too few texts to tell what replacing attention by plain averages costs (${a} to ${b} points).`,
  p`Replacing attention by plain averages costs nothing measurable (${a} to ${b} points).`,
  p`Replacing attention by plain averages costs ${a} points (${b} to ${c}).`,
  p`${a} texts, ${b} of which chose the order of the heads; accuracy on all ${c} % (${d} to ${e});
    intervals are 95 %, paired over the texts; an ablated head gives zero, an average weighs all
    keys alike, nothing is retrained`,
  // notes of a record and of a text
  p`off`,
  p`heads of each layer: ${a}`,
  p`of heads: over validation texts, as the run has recorded them`,
  p`over all ${a} validation texts`,
  p`over ${a} of ${b} validation texts, drawn at random`,
  p`measured at step ${a}, the best checkpoint, on ${b} texts`,
  p`logits of every step are divided by ${a}, the run's temperature`,
  p`max_tokens=${a} cuts the text: the run reads ${b} tokens of it`,
  p`the first ${a} tokens, which are all that the model was given`,
  p`the last ${a} tokens, which are all that the model was given`,
  p`${a} of the tokens are unknown to the tokenizer`,
  p`parts of the log-odds are no finite numbers`,
  p`differ by ${a} from those that the model gives by itself`,
  p`not shown, since its maps are not of these tokens: ${a}`,
  p`is not observed: ${a}`,
  p`what passes through those of ${a} is unknown`,
  p`${a} passes through attention that is not observed`,
  // titles
  p`Run ${a} on ${b} texts: test, ${c} classes`,
  p`Run ${a} on ${b} texts: validation, ${c} classes`,
  p`Run ${a} on ${b} texts: train, ${c} classes`,
  p`Run ${a} on ${b} texts: ${c}, ${d} classes`,
  p`Run ${a} on ${b} texts: test`,
  p`Run ${a} on ${b} texts: ${c}`,
  p`Type a text, see every head decide · run ${a}: ${b} heads, ${c} classes`,
  p`Compared: ${a} and ${b} on ${c} texts`,
  p`layer ${a} head ${b}`,
  p`network ${a} head ${b}`,
  p`Attention heads`,
  // results/baseline.py, and why a network does not run in a page
  p`TF-IDF (words ${a}-${b}, characters ${c}-${d}) + logistic regression`,
  p`TF-IDF (words ${a}-${b}) + logistic regression`,
  p`TF-IDF (characters ${a}-${b}) + logistic regression`,
  p`TF-IDF (${a}) + logistic regression on ${b} of ${c} training texts`,
  p`its network takes ${a} MB, more than ${b}; headscope page max_mb=${c} writes it`,
  p`model.path: expected a checkpoint that opens into headscope's own network: ${a}`,
  p`tokenizer: ${a}: expected ${b}, got ${c}`,
  p`${a}: expected ${b}, got ${c}`,
];
const HEADS = [
  p`${a} and ${b} more`,
  p`${a} and ${b}`,
  p`${a}, ${b}`,
  p`layer ${a} head ${b}`,
  p`network ${a} head ${b}`,
  p`heads ${a}`,
  p`head ${a}`,
];
const ARE_HEADS = /\bheads? \d/;

/* A name of Python's; one that is not known is shown without underscores. */
export function named(name) {
  return Object.hasOwn(NAMES, name) ? NAMES[name] : name.replaceAll("_", " ");
}

/* Sentences of Python's; what is none of the known is shown as it is. */
export function told(text) {
  if (language === "en") return text;
  // One by one first: what stands in the place of a number could else reach into the next sentence.
  const sentences = text.split(/(?<=\.) /);
  const each = sentences.map((sentence) => matched(SENTENCES, sentence));
  const whole = each.includes(null) ? matched(SENTENCES, text) : null;
  return whole ?? each.map((known, at) => known ?? sentences[at]).join("");
}

function matched(patterns, text) {
  for (const [shape, words] of patterns) {
    const found = shape.exec(text)?.slice(1);
    if (!found) continue;
    return words.replaceAll(/\{(\d)\}/g, (_, at) => {
      return ARE_HEADS.test(found[at]) ? (matched(HEADS, found[at]) ?? found[at]) : found[at];
    });
  }
  return null;
}
