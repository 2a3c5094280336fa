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

/* The sentence about the prediction, and whether it warns: unless it falls by more than two standard errors more without
   the tokens that are pointed at than without as many by chance. Null where that was not measured. */
export function faithfulness(extra, measures) {
  const chosen = (name) => parse(extra[`faithfulness/${name}`]);
  const [chance, rollout, gradient] = [chosen("chance"), chosen("rollout"), chosen("gradient") ?? chosen("gradient_input")];
  const heads = (measures.comprehensiveness?.mean ?? []).flat().filter((value) => value !== null);
  if (chance === null || (rollout === null && heads.length === 0)) {
    const advice = "read the maps as where the heads look, not as why the model decides.";
    return { warns: null, text: `Whether the prediction hangs on what the heads point at was not measured at this step: ${advice}` };
  }
  const held = rollout ?? { falls: Math.max(...heads), error: 0 };
  const what = rollout ? "the tokens that the heads point at together (rollout)" : "the tokens of the best head";
  const parts = [`Without ${what} the prediction falls by ${withError(held)}, against ${withError(chance)} by chance`];
  parts.push(rollout ? `; with them alone by ${formatNumber(rollout.alone)}, against ${formatNumber(chance.alone)}.` : ".");
  const better = heads.filter((value) => value > chance.falls).length;
  if (heads.length > 0) parts.push(` ${better} of ${heads.length} heads alone do better than chance.`);
  if (gradient) parts.push(` Gradient × input: ${withError(gradient)}.`);
  const warns = held.falls - chance.falls <= 2 * Math.hypot(held.error, chance.error);
  if (!warns) return { warns, text: parts.join("") };
  parts.unshift("It was not shown that the prediction hangs on what the heads point at: the difference to chance is within two standard errors. ");
  parts.push(" Read the maps as where the heads look, not as why the model decides.");
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
    this.badge.textContent = "heads not shown to matter";
    this.badge.title = verdict?.text ?? "";
  }

  /* On a page: the text and what is said of it, and what was measured. */
  showAbout(text, maps, verdict) {
    this.section.querySelector("h2").textContent = "About this text";
    const facts = [this.fact("Text", build("bdi", {}, text.text)), ...this.notes({ ...text.notes, ...this.store.index.notes })];
    if (maps !== null && maps.check !== null) facts.push(this.check(maps));
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
    if (maps === null || maps.check === null || Number.isNaN(maps.check)) {
      return this.fact("Check", `Whether the maps are those that the model used: not measured at this step (${how}).`);
    }
    const shown = maps.check === 0 ? "0" : maps.check.toExponential(1);
    const text = element("span");
    // 5 % more: two digits alone may be less than the number.
    text.append("Largest difference between the sums that the heads went on with and the same sums made with these maps: ",
      element("strong", "", shown), ` (${how}). The weights shown are rounded, by at most ${(1.05 * maps.rounding).toExponential(1)}.`); // prettier-ignore
    return this.fact("Check", text, maps.check > 1e-2 ? "warns" : "");
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
