/* Whether the maps are what the model used, and whether the prediction depends on what they point
   at; and the texts where the chosen head stands out. */

import { barLine, element, formatNumber, legible, panel } from "./dom.js";

/* [mean, standard error] of comprehensiveness, the first row of a faithfulness array; or null. */
function comprehensivenessOf(value) {
  const [mean, error = 0] = Array.isArray(value?.[0]) ? value[0] : [value?.[0]];
  return typeof mean === "number" ? { mean, error } : null;
}

function withError({ mean, error }) {
  return error > 0 ? `${formatNumber(mean)} ±${formatNumber(error)}` : formatNumber(mean);
}

function moves({ mean, error }) {
  return `${mean < 0 ? "rises" : "falls"} by ${withError({ mean: Math.abs(mean), error })}`;
}

/* How much more the prediction falls without the tokens that are pointed at than without random
   ones: paired by text where that was recorded. */
function overChance(extra, rollout, chance) {
  const [mean, error] = extra["faithfulness/rollout_less_chance"] ?? [];
  if (typeof mean === "number") return { mean, error };
  const both = Math.hypot(rollout.error, chance.error);
  return { mean: rollout.mean - chance.mean, error: both };
}

/* The sentence on the prediction. It warns where the tokens that are pointed at count less than
   random ones by more than two standard errors. Null where nothing was measured. */
export function faithfulness(extra) {
  const rollout = comprehensivenessOf(extra["faithfulness/rollout"]);
  const chance = comprehensivenessOf(extra["faithfulness/chance"]);
  if (chance === null || rollout === null) return null;
  const more = overChance(extra, rollout, chance);
  const warns = more.mean < -2 * more.error;
  let verdict = "It is inconclusive whether the prediction depends";
  if (more.mean > 2 * more.error) verdict = "The prediction depends";
  if (warns) verdict = "The prediction does not depend";
  const text =
    `${verdict} on the tokens that the heads point at: without them (attention rollout) it ` +
    `${moves(rollout)}, without random ones it ${moves(chance)} (difference ${withError(more)}).`;
  return { warns, text };
}

const LONGEST_NOTE = 2000; // letters
const TRUSTED = 1e-2; // a larger difference is warned of

export class TrustView {
  constructor(store) {
    this.store = store;
    this.list = element("dl", "facts");
    const title = store.page ? "About this text" : "How far to trust these maps";
    this.root = panel("trust", title, this.list).root;
    store.subscribe(["maps", "numbers", "index", "errors", "text"], () => this.show());
  }

  fact(name, text, warns = false) {
    const kind = warns ? "fact warns" : "fact";
    return element("div", kind, element("dt", {}, name), element("dd", {}, text));
  }

  show() {
    const { index, maps, numbers, errors, shownText, page } = this.store;
    if (index === null) return;
    const facts = [];
    if (page) {
      facts.push(this.fact("Text", element("bdi", {}, shownText.text)));
      facts.push(...this.notes(shownText.notes));
    }
    if (maps !== null && !(page && maps.number("check") === null)) facts.push(this.check(maps));
    const verdict = numbers && faithfulness(numbers.extra);
    if (verdict !== null) facts.push(this.fact("Prediction", verdict.text, verdict.warns));
    if (errors.numbers) {
      facts.push(this.fact("Prediction", "The numbers of this step cannot be read.", true));
    }
    facts.push(...this.notes(index.notes));
    this.list.replaceChildren(...facts);
  }

  notes(notes) {
    return Object.entries(notes).map(([name, value]) => {
      return this.fact(legible(name), element("bdi", {}, legible(String(value), LONGEST_NOTE)));
    });
  }

  /* How far the maps are from what the model computed. */
  check(maps) {
    const rounding = maps.number("rounding");
    const check = maps.number("check");
    const known = (value) => (value ? value.toExponential(1) : String(value ?? "not measured"));
    const text =
      `Largest difference between the weights shown and the softmax recomputed: ` +
      `${known(rounding)}; between the heads’ outputs and these maps times the values: ` +
      `${known(check)}.`;
    return this.fact("Check", text, Math.max(rounding, check) > TRUSTED);
  }
}

/* The validation texts where the chosen head stands out. */
const KINDS = [
  ["focused", "lowest entropy (1 − its share of the largest possible)"],
  ["changed", "changed most since the step before"],
];

/* The examples of one head: [text, score] pairs, best first; null where the step has none. */
function examplesOf(extra, kind, layer, head) {
  const rows = extra[`examples/${kind}/rows`]?.[layer]?.[head];
  const scores = extra[`examples/${kind}/scores`]?.[layer]?.[head];
  if (!rows || !scores) return null;
  const known = extra["examples/rows"] ?? [];
  const texts = new Map(known.map((row, at) => [row, extra["examples/texts"]?.[at]]));
  const listed = rows.map((row, at) => [texts.get(row) ?? `row ${row}`, scores[at]]);
  return listed.filter((_, at) => rows[at] >= 0);
}

export class ExamplesView {
  constructor(store) {
    this.store = store;
    this.content = element("div", "columns");
    this.panel = panel("examples", "", this.content);
    this.root = this.panel.root;
    store.subscribe(["numbers", "layer", "head", "index"], () => this.show());
    this.show();
  }

  show() {
    const { layer, head, numbers } = this.store;
    const lists = KINDS.map(([kind, words]) => {
      const examples = examplesOf(numbers?.extra ?? {}, kind, layer, head);
      return examples === null ? null : this.list(examples, words);
    });
    const shown = lists.filter((list) => list !== null);
    this.root.hidden = shown.length === 0;
    const name = `${this.store.layerName(layer)}, head ${head}`;
    const caption = element("span", "caption", name);
    this.panel.title.replaceChildren("Texts where ", caption, " stands out");
    this.content.replaceChildren(...shown);
  }

  list(examples, words) {
    const lines = examples.map(([text, score]) => barLine(text, score, formatNumber(score)));
    return element("div", {}, element("h3", {}, words), element("ol", "bars", ...lines));
  }
}
