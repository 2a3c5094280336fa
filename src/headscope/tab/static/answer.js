/* The run's answer: which heads matter over many texts. */

import { page } from "./api.js";
import { contributionsOf } from "./contributions.js";
import { button, formatSigned, legible, percentOf } from "./parts.js";
import { html } from "./preact.js";
import { count, t } from "./strings.js";
import { told } from "./told.js";

/* The effect of ablating a head, by its number in the record. */
export const EFFECTS = { 1: "matters", 0: "no effect", "-1": "inconclusive" };

const CHIPS = 8; // heads that are named
const ORDER = [2, 1, 3, 0]; // of the bars: all, the few, averages, none
const SMALL = 0.02; // a change of accuracy within two points has no effect

/* The ablation of the shown step or else of the best one; null where there is none. */
function studyOf({ numbers, bestNumbers }) {
  const isStudy = (step) => step?.extra.effects || step?.measures.loss_zeroed;
  return [numbers, bestNumbers].find(isStudy) ?? null;
}

/* The heads, the most important first: in the order in which the answer selected them into sets,
   else by their contribution in this text, else by the loss when ablated. */
export function rankHeads(store) {
  const study = studyOf(store);
  const found = contributionsOf(store);
  const order = study?.extra["sets/heads"]?.map((place) => place.join());
  const losses = study?.measures.loss_zeroed?.mean;
  const rankOf = ({ layer, head }) => {
    if (order) return order.indexOf(`${layer},${head}`);
    if (found?.has(layer, head)) return -Math.abs(found.headSum(layer, head));
    return -Math.abs(losses?.[layer][head] ?? 0);
  };
  return allHeads(store).sort((a, b) => rankOf(a) - rankOf(b));
}

export function allHeads({ index }) {
  return (index?.heads ?? []).flatMap((count, layer) => {
    return Array.from({ length: count }, (_, head) => ({ layer, head }));
  });
}

/* The run that a command continues: a name of other letters is quoted for the shell and Hydra. */
function resumeOf({ logdir, run }) {
  const folder = `${logdir.replace(/\/$/, "")}/${run}`.replace(/\/\.$/, "");
  if (!logdir || !run || !/^[\p{L}\p{M}\p{N}\w ./@+-]+$/u.test(folder)) return "resume=<run>";
  return /^[\w./@+-]+$/.test(folder) ? `resume=${folder}` : `'resume="${folder}"'`;
}

const MEASURED = t`Labelled texts are classified again with heads set to zero, or with plain
  averages over the tokens in place of all maps. Differences are paired by text, with 95 %
  intervals.`;

/* What each head is worth over many texts, and whether it matters where they look. */
export function Answer({ store }) {
  const study = studyOf(store);
  if (store.steps.length === 0 || (page && study === null)) return null;
  const isShown = study !== null && study.step === store.shown;
  const details = legible(study?.extra["answer/details"] ?? "", 2000);
  const isDrawn = isShown && study.extra["sets/changes"] !== undefined;
  const how = () => html`<details class="how">
    <summary>${t`How this was measured`}</summary>
    ${isDrawn && html`<p class="answer-line matters">${lineOf(store, study, true)}</p>`}
    ${details !== "∅" && html`<p class="answer-line details">${signed(told(details))}</p>`}${MEASURED}
  </details>`;
  return html`<section class="panel answer" aria-labelledby="answer-heading">
    <h2 id="answer-heading">${t`The run, not this text`}</h2>
    ${isDrawn
      ? drawingOf(store, study.extra)
      : html`<p class="answer-line matters">${lineOf(store, study, isShown)}</p>`}
    ${isShown && how()}
  </section>`;
}

/* What the run has shown of the few heads, and the accuracies as bars, each with the interval of
   its change. */
function drawingOf(store, extra) {
  const all = extra["sets/heads"].length;
  const size = extra["sets/size"];
  const texts = extra["sets/texts"];
  const names = [
    t`without heads`, size === 1 ? t`this one alone` : t`these ${size} alone`,
    t`all ${all} heads`, t`plain averages as maps`,
  ];
  const rows = ORDER.filter((at) => at !== 1 || size > 0).map((at) => {
    const right = Math.round(extra["sets/accuracy"][at] * texts); // of a count, in float32
    const change = at !== 2 && t`${intervalOf(extra["sets/changes"][at])} points`;
    const bar = html`<span class="bar" style=${{ "--share": String(right / texts) }}></span>`;
    return html`<li>
      <span>${names[at]}</span>${bar}
      <span class="number">${percentOf(right, texts)}</span><small>${change}</small>
    </li>`;
  });
  const chips = extra["sets/heads"].slice(0, Math.min(size, CHIPS)).map(([layer, head]) => {
    return button(store.headName(layer, head), () => store.chooseHead(layer, head));
  });
  const more = size > CHIPS && t` and ${size - CHIPS} more`;
  const note = t`Accuracy on ${count(texts)} other texts; 95 % intervals of the change.`;
  return html`<p class="answer-line matters">${verdictOf(extra, all, size)} ${chips} ${more}</p>
    <ul class="bars study">${rows}</ul>
    <p class="key">${note}</p>`;
}

function intervalOf(change) {
  const [low, high] = change.map((end) => formatSigned(100 * end, 1));
  return t`${low} to ${high}`;
}

/* What heads/answer.py says of these numbers. */
function verdictOf({ "sets/changes": [none, few], "sets/accuracy": [, own, every] }, all, size) {
  const isSmall = ([low, high]) => Math.max(-low, high) <= SMALL;
  if (none[0] > 0) return t`Heads lower the accuracy.`;
  if (none[1] >= 0) {
    return isSmall(none) ? t`Heads are not shown to help.`
      : t`Too few texts to tell whether heads help.`;
  }
  const some = size === 0 ? t`The network without heads` : t`${size} of ${all} heads alone`;
  const change = `${formatSigned(100 * (own - every), 1)}`;
  if (few[0] > 0 || few[1] < 0) return t`${some}: ${change} points (${intervalOf(few)}).`;
  return isSmall(few) ? t`${some} lose nothing measurable.`
    : t`${some}: too few texts to tell what they lose.`;
}

function lineOf(store, study, isShown) {
  if (isShown) return signed(told(legible(study.extra.answer ?? "", 2000)));
  if (study !== null) {
    const words = t`Heads were ablated at step ${study.step}, the best step. `;
    return [words, button(t`Go to step ${study.step}`, () => store.chooseStep(study.step))];
  }
  if (store.errors.numbers) return t`The numbers of this step cannot be read.`;
  if (store.listed?.training) return t`Heads are ablated when the run ends: it still trains.`;
  if (!store.listed?.trained) return t`Heads were not ablated in this record.`;
  const words = `headscope train ${resumeOf(store)} inspection.ablation_texts=800`;
  return [t`Heads were not ablated. To do it now: `, html`<code>${words}</code>`];
}

/* Python's minus signs, as the numbers here have them. */
function signed(sentence) {
  return sentence.replace(/(^|[\s(])-(?=\d)/g, "$1−");
}
