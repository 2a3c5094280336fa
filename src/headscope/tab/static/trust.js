/* How far to trust the maps: whether they are what the model used, whether the prediction hangs on what the heads point
   at, and what was left out. It says so too where something was not measured. */

import { SMALL } from "./maps.js";
import { barLine, build, element, formatNumber, legible, showError } from "./dom.js";

/* What hiding tokens does, as it is recorded: [comprehensiveness, sufficiency], each a mean or [mean, standard error]. */
function parse(value) {
  if (!Array.isArray(value) || value.length !== 2) return null;
  const [falls, alone] = value.map((part) => (Array.isArray(part) ? part : [part, null]));
  const known = [falls, alone].every(([mean]) => typeof mean === "number");
  return known ? { falls: falls[0], error: falls[1] ?? 0, alone: alone[0] } : null;
}

function withError({ falls, error }) {
  return error > 0 ? `${formatNumber(falls)} ±${formatNumber(error)}` : formatNumber(falls);
}

/* How much more the prediction falls without the tokens that are pointed at than without as many by chance: paired by text
   where that was recorded, so that texts whose prediction falls in any case do not blur it. */
function overChance(extra, held, chance) {
  const [mean, error] = extra["faithfulness/rollout_less_chance"] ?? [];
  if (typeof mean === "number" && typeof error === "number") return { falls: mean, error, paired: true };
  return { falls: held.falls - chance.falls, error: Math.hypot(held.error, chance.error), paired: false };
}

const ADVICE = "Read the maps as where the heads look, not as why the model decides.";

/* The sentence about the prediction, and whether it warns: where it was shown, by more than two standard errors, that the
   tokens that are pointed at count for no more than others. `warns` is null where nothing was measured. */
export function faithfulness(extra, measures) {
  const chosen = (name) => parse(extra[`faithfulness/${name}`]);
  const [chance, rollout, gradient] = [chosen("chance"), chosen("rollout"), chosen("gradient") ?? chosen("gradient_input")];
  const heads = (measures.comprehensiveness?.mean ?? []).flat().filter((value) => value !== null);
  if (chance === null || (rollout === null && heads.length === 0)) {
    return { warns: null, text: `Whether the prediction hangs on what the heads point at was not measured at this step. ${ADVICE}` };
  }
  const held = rollout ?? { falls: Math.max(...heads), error: 0 };
  const what = rollout ? "the tokens that the heads point at together (rollout)" : "the tokens of the best head";
  const parts = [`Without ${what} the prediction falls by ${withError(held)}, against ${withError(chance)} by chance`];
  parts.push(rollout ? `; with them alone by ${formatNumber(rollout.alone)}, against ${formatNumber(chance.alone)}.` : ".");
  const better = heads.filter((value) => value > chance.falls).length;
  if (heads.length > 0) parts.push(` ${better} of ${heads.length} heads alone do better than chance.`);
  if (gradient) parts.push(` Gradient × input: ${withError(gradient)}.`);
  const more = overChance(rollout ? extra : {}, held, chance);
  const [hangs, warns] = [more.falls > 2 * more.error, more.falls < -2 * more.error];
  const by = `${withError(more)} more than by chance${more.paired ? ", paired by text" : ""}`;
  if (hangs) parts.unshift(`The prediction hangs on what the heads point at (${by}). `);
  else if (warns) parts.unshift(`The prediction does not hang on what the heads point at (${by}). `);
  else parts.unshift(`Too few texts to say whether the prediction hangs on what the heads point at (${by}). `);
  if (!hangs) parts.push(` ${ADVICE}`);
  return { warns, text: parts.join("") };
}

const LONGEST_NOTE = 2000; // letters

export class TrustView {
  constructor(section, store, badge) {
    Object.assign(this, { section, store, badge });
    this.list = build("dl", { class: "facts" });
    section.append(this.list);
    store.subscribe(["maps", "numbers", "index", "errors", "text"], () => this.show());
  }

  fact(name, text, kind = "") {
    return build("div", { class: `fact ${kind}` }, build("dt", {}, name), build("dd", {}, text));
  }

  show() {
    const { index, maps, numbers, errors } = this.store;
    showError(this.section.querySelector(".error"), null);
    if (index === null) return;
    const verdict = numbers ? faithfulness(numbers.extra ?? {}, numbers.measures) : null;
    const text = index.texts[this.store.text];
    if (this.store.page) return this.showAbout(text, maps, verdict);
    const facts = [this.check(maps)];
    if (verdict) facts.push(this.fact("Prediction", verdict.text, verdict.warns ? "warns" : ""));
    else if (errors.numbers) facts.push(this.fact("Prediction", "The numbers of this step cannot be read.", "warns"));
    facts.push(this.fact("Maps", this.storage(maps)), this.fact("Steps", this.thinning()));
    facts.push(...this.notes(index.notes));
    this.list.replaceChildren(...facts);
    this.badge.hidden = verdict?.warns !== true;
    this.badge.textContent = "the prediction does not hang on these maps";
    this.badge.title = verdict?.text ?? "";
  }

  /* On a page: the text and what is said of it, and what was measured. */
  showAbout(text, maps, verdict) {
    this.section.querySelector("h2").textContent = "About this text";
    const facts = [this.fact("Text", build("bdi", {}, text.text)), ...this.notes({ ...text.notes, ...this.store.index.notes })];
    if (maps !== null && (maps.check !== null || maps.rounded !== null)) facts.push(this.check(maps));
    if (verdict !== null && verdict.warns !== null) facts.push(this.fact("Prediction", verdict.text, verdict.warns ? "warns" : ""));
    this.list.replaceChildren(...facts, this.fact("Maps", this.storage(maps)));
  }

  notes(notes) {
    const told = Object.entries(notes).filter(([name]) => name !== "precision" && name !== "dropout");
    return told.map(([name, value]) => this.fact(legible(name), build("bdi", {}, legible(String(value), LONGEST_NOTE))));
  }

  check(maps) {
    const { precision, dropout } = this.store.index.notes;
    const how = `dropout ${legible(String(dropout ?? "not noted"))}, precision ${legible(String(precision ?? "not noted"))}`;
    const [rounded, sums] = [maps?.rounded, maps?.check].map((value) => (Number.isFinite(value) ? value : null));
    if (rounded === null && sums === null) {
      return this.fact("Check", `Whether the maps are those that the model used: not measured at this step (${how}).`);
    }
    const strong = (value) => element("strong", "", value === 0 ? "0" : value.toExponential(1));
    const text = element("span");
    if (rounded === null) {
      const most = (1.05 * maps.rounding).toExponential(1); // 5 % more: two digits alone may be less than the number
      text.append(`The weights shown are rounded, by at most ${most}. `);
    } else {
      const bits = maps.layers[0]?.weights ? "16 bits or more" : "8 bits";
      const what = `a weight shown, kept in ${bits}, and the softmax recomputed from the model’s parameters`;
      text.append(`Largest difference between ${what}: `, strong(rounded), ". ");
    }
    const pair = "the sums that the kernel gave and the same sums made with these maps, unrounded";
    if (sums === null) text.append(`The kernel was not checked (${how}).`);
    else text.append(`Largest difference between ${pair}: `, strong(sums), ` (${how}).`);
    return this.fact("Check", text, Math.max(rounded, sums) > 1e-2 ? "warns" : "");
  }

  storage(maps) {
    if (maps === null) return "No map is shown.";
    if (maps.long) return "A long text: the 16 largest weights of each query, the mass of all others, and an overview in 64 stretches were kept.";
    if (maps.layers[0]?.weights) return "Each row is a query and sums to 1; weights are kept as they were, in 16 bits or more.";
    const stretched = maps.tokens > SMALL ? ` The small maps show ${SMALL} stretches of the text: queries averaged, keys summed.` : "";
    return "A weight is kept in 255 steps of its row’s largest, so it is up to 1/510 of that off; each row is a query and sums to 1." + stretched;
  }

  thinning() {
    const { index } = this.store;
    const kept = index.steps.length;
    if (kept === index.recorded) return `All ${kept} recorded steps were kept.`;
    return `${kept} of ${index.recorded} recorded steps kept: each ${index.every}th, with the first and the last.`;
  }
}

/* The texts of the validation split where the chosen head stands out: where it looks most sharply, and where it changed
   most since the record before. */

const KINDS = [
  ["focused", "looks most sharply (1 − entropy as a share of its most)"],
  ["changed", "changed most since the record before"],
];

/* The examples of one head: [text, score] pairs, best first; null where the step has none. */
export function examplesOf(extra, kind, layer, head) {
  const rows = extra[`examples/${kind}/rows`]?.[layer]?.[head];
  const scores = extra[`examples/${kind}/scores`]?.[layer]?.[head];
  if (!rows || !scores) return null;
  const texts = new Map((extra["examples/rows"] ?? []).map((row, place) => [row, extra["examples/texts"]?.[place] ?? ""]));
  return rows.flatMap((row, place) => (row < 0 ? [] : [[texts.get(row) ?? `row ${row}`, scores[place]]]));
}

export class ExamplesView {
  constructor(section, store) {
    Object.assign(this, { section, store });
    this.content = build("div", { class: "columns" });
    section.append(this.content);
    store.subscribe(["numbers", "layer", "head", "index"], () => this.show());
    this.show();
  }

  show() {
    const { store } = this;
    const extra = store.numbers?.extra ?? {};
    const lists = KINDS.map(([kind, words]) => this.list(examplesOf(extra, kind, store.layer, store.head), words));
    this.section.hidden = lists.every((list) => list === null);
    const name = `${store.layerNames[store.layer] ?? ""}, head ${store.head}`;
    this.section.querySelector("h2").replaceChildren("Texts where ", element("span", "caption", name), " stands out");
    this.content.replaceChildren(...lists.filter((list) => list !== null));
  }

  list(examples, words) {
    if (examples === null) return null;
    const lines = examples.map(([text, score]) => barLine(text, score ?? 0, score === null ? "–" : score.toFixed(3)));
    return build("div", {}, build("h3", {}, words), build("ol", { class: "bars" }, ...lines));
  }
}
