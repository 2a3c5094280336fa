/* The run's answer: which heads matter over many texts. */

import { page } from "./api.js";
import { contributionsOf } from "./contributions.js";
import { button, legible, percent } from "./parts.js";
import { html } from "./preact.js";
import { count, t } from "./strings.js";

/* The effect of ablating a head, by its number in the record. */
export const EFFECTS = { 1: "matters", 0: "no effect", "-1": "inconclusive" };

const CHIPS = 8; // heads that are named
const NEARLY = 0.8; // of all heads

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
  const isDrawn = isShown && study.extra["sets/accuracy"] !== undefined;
  const how = () => html`<details class="how">
    <summary>${t`How this was measured`}</summary>
    ${isDrawn && html`<p class="answer-line matters">${lineOf(store, study, true)}</p>`}
    ${details !== "∅" && html`<p class="answer-line details">${signed(details)}</p>`}${MEASURED}
  </details>`;
  return html`<section class="panel answer" aria-labelledby="answer-heading">
    <h2 id="answer-heading">${t`The run, not this text`}</h2>
    ${isDrawn
      ? drawingOf(store, study.extra)
      : html`<p class="answer-line matters">${lineOf(store, study, isShown)}</p>`}
    ${isShown && how()}
  </section>`;
}

/* The heads that are enough as chips, and what they keep of the accuracy as bars. */
function drawingOf(store, extra) {
  const [none, few, every, averages] = extra["sets/accuracy"];
  const all = extra["sets/heads"].length;
  const size = extra["sets/enough"];
  const chips = extra["sets/heads"].slice(0, Math.min(size, CHIPS)).map(([layer, head]) => {
    return button(store.headName(layer, head), () => store.chooseHead(layer, head));
  });
  const lines = [
    [t`all ${all} heads`, every], [size === 1 ? t`this one alone` : t`these ${size} alone`, few],
    [t`plain averages as maps`, averages], [t`without heads`, none],
  ];
  const bars = lines.filter(([, share], at) => share !== null && (at !== 1 || size < all));
  const rows = bars.map(([name, share]) => html`<li>
    <span>${name}</span><span class="bar" style=${{ "--share": String(share) }}></span>
    <span class="number">${percent(share)}</span>
  </li>`);
  let lead = t`Heads that are enough on other texts:`;
  if (size > NEARLY * all) lead = t`Nearly all heads are needed:`;
  if (size === all) lead = t`All heads are needed.`;
  if (size === 0) lead = t`The network is as good without heads.`;
  const more = size > CHIPS && size < all && t` and ${size - CHIPS} more`;
  return html`<p class="answer-line matters">${lead} ${size < all && chips} ${more}</p>
    <ul class="bars study">${rows}</ul>
    <p class="key">${t`Accuracy on ${count(extra["sets/texts"])} other texts.`}</p>`;
}

function lineOf(store, study, isShown) {
  if (isShown) return signed(legible(study.extra.answer ?? "", 2000));
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
