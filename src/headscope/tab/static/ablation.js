/* Which heads matter: the effect of ablating each, at the best step, and its contribution. */

import { contributionsOf } from "./contributions.js";
import { button, element, legible } from "./dom.js";
import { t } from "./strings.js";

/* The effect of ablating a head, by its number in the record. */
export const EFFECTS = { 1: "matters", 0: "no effect", "-1": "inconclusive" };
export const NO_PATTERN = "no clear pattern"; // the role of a head that no rule fits

/* The ablation of the shown step or else of the best one; null where there is none. */
export function studyOf({ numbers, bestNumbers, shown }) {
  const isStudy = (step) => step?.extra.effects || step?.measures.loss_zeroed;
  const found = [numbers, bestNumbers].find(isStudy);
  if (!found) return null;
  const { extra, measures, step } = found;
  return {
    step,
    isShown: step === shown,
    effects: extra.effects ?? null,
    increase: measures.loss_zeroed ?? null,
    answer: extra.answer ?? "",
    details: extra["answer/details"] ?? "",
    order: extra["sets/heads"] ?? null,
  };
}

/* What is known of every head. */
export function headsOf(store) {
  const study = studyOf(store);
  const counts = store.index?.heads ?? [];
  const contributions = contributionsOf(store);
  const contribution = (layer, head) => {
    return contributions?.has(layer, head) ? contributions.headSum(layer, head) : null;
  };
  const places = new Map(study?.order?.map((own, place) => [own.join(" "), place]));
  return counts.flatMap((count, layer) =>
    Array.from({ length: count }, (_, head) => ({
      layer,
      head,
      place: places.get(`${layer} ${head}`) ?? null,
      increase: study?.increase?.mean?.[layer]?.[head] ?? null,
      contribution: contribution(layer, head),
    })),
  );
}

function has(heads, key) {
  return heads.some((head) => head[key] !== null);
}

/* The heads, the most important first: in the order of the answer, in which they were selected into
   sets; else by their contribution in this text, else by the loss when ablated; null where nothing
   tells them apart. The table has this order. */
export function rankHeads(heads) {
  if (has(heads, "place")) {
    return [...heads].sort((a, b) => (a.place ?? Infinity) - (b.place ?? Infinity));
  }
  const key = has(heads, "contribution") ? "contribution" : "increase";
  if (!has(heads, key)) return null;
  const size = (head) => Math.abs(head[key] ?? 0);
  return [...heads].sort((a, b) => size(b) - size(a));
}

/* The run, as a command takes it: a name of other letters is quoted for the shell and for Hydra. */
export function runOf({ logdir, run }) {
  const folder = `${logdir.replace(/\/$/, "")}/${run}`.replace(/\/\.$/, "");
  if (!logdir || !run || !/^[\p{L}\p{M}\p{N}\w ./@+-]+$/u.test(folder)) return "run=<run>";
  return /^[\w./@+-]+$/.test(folder) ? `run=${folder}` : `'run="${folder}"'`;
}

const MEASURED = t`Labelled texts are classified again with heads set to zero, or with plain
  averages over the tokens in place of all maps. Differences are paired by text, with 95 %
  intervals.`;

/* The answer: what each head is worth, and whether it matters where they look. */
export class Headline {
  constructor(store) {
    this.store = store;
    this.answer = element("p", "answer-line matters");
    this.details = element("p", "answer-line details");
    const summary = element("summary", {}, t`How this was measured`);
    this.fold = element("details", "how", summary, this.details, MEASURED);
    const heading = element("h2", { id: "answer-heading" }, t`The run, not this text`);
    this.root = element(
      "section", { class: "panel answer", "aria-labelledby": heading.id },
      heading, this.answer, this.fold,
    );
    const shown = ["index", "shown", "numbers", "bestNumbers", "text"];
    store.subscribe([...shown, "run", "runs", "logdir", "errors"], () => this.show());
    this.show();
  }

  show() {
    const { store } = this;
    const study = studyOf(store);
    this.root.hidden = store.steps.length === 0 || (store.page && study === null);
    if (this.root.hidden) return;
    this.answer.replaceChildren(...this.answerLine(study));
    const details = study?.isShown ? study.details : "";
    this.details.hidden = details === "";
    this.fold.hidden = !study?.isShown;
    this.details.textContent = signed(legible(details, 2000));
  }

  answerLine(study) {
    const { store } = this;
    if (study === null) return this.unknown();
    if (!study.isShown) {
      const go = button(`Go to step ${study.step}`, "", () => store.chooseStep(study.step));
      return [`Heads were ablated at step ${study.step}, the best step. `, go];
    }
    return [signed(legible(study.answer, 2000))];
  }

  unknown() {
    const { store } = this;
    if (store.errors.numbers) return ["The numbers of this step cannot be read."];
    if (!store.isTrained) return ["Heads were not ablated in this record."];
    const command = element("code", {}, `headscope inspect ${runOf(store)}`);
    return ["Heads are ablated when a run ends. To do it now: ", command];
  }
}

/* Python's minus signs, as the numbers here have them. */
function signed(sentence) {
  return sentence.replace(/(^|[\s(])-(?=\d)/g, "$1−");
}
