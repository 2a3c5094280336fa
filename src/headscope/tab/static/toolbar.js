/* The choice of run, text, step and what it is compared with. */

import { page } from "./api.js";
import { Failure, button, chooser, legible } from "./parts.js";
import { Play } from "./history.js";
import { html } from "./preact.js";
import { moveStep } from "./steps.js";
import { t } from "./strings.js";
import { told } from "./told.js";

const STEPS = [
  ["best", t`best step`], ["nearest", t`nearest step`], ["first", t`first step`],
  ["last", t`last step`],
];

export function Toolbar({ store, tools }) {
  const { index, errors } = store;
  const texts = (index?.texts ?? []).map((each, place) => {
    const named = page ? `${place + 1} ${each.label ?? ""}`.trim() : each.name;
    return [String(place), `${named}: ${legible(each.text, 40)}`];
  });
  const title = page ? told(page.title) : t`Heads`;
  const isChosen = page === null || page.texts.length > 1;
  const chooseText = (text) => store.set({ text: Number(text), pair: null, query: 0, key: null });
  return html`<header class="toolbar" aria-label=${t`What is shown`}>
    <div class="line">
      <h1 dir="auto" class=${page ? "" : "unseen"}>${legible(title, 200)}</h1>
      ${page === null && runChoice(store)}
      ${isChosen && labelled("text", t`Text`, String(store.text), texts, chooseText)}
      ${isChosen && compareChoice(store, texts)}
      <div class="tools">${tools}</div>
    </div>
    ${page === null && [slider(store), newRun(store)]}
    <${Failure} message=${errors.runs} />
  </header>`;
}

function labelled(name, label, ...choice) {
  return html`<label><span>${label}</span>${chooser(name, label, ...choice)}</label>`;
}

function runChoice(store) {
  const options = store.runs.map(({ run, error }) => {
    return [run, run + (error ? t` (cannot be read)` : "")];
  });
  const choose = (run) => chooseRun(store, run);
  return labelled("run", t`Run`, store.run ?? "", options, choose);
}

function compareChoice(store, texts) {
  const { runs, run, compare, steps, other, index, place } = store;
  const options = [["", t`nothing`]];
  if (texts.length > 1) options.push(["text", t`another text`]);
  if (!page) options.push([`=${run}`, t`this run, another step`]);
  const others = runs.filter((each) => each.run !== run && !each.error);
  options.push(...others.map((each) => [`=${each.run}`, each.run]));
  const isText = compare !== null && compare.text !== null;
  const chosen = compare === null ? "" : `=${compare.run}`; // a run may have no name
  const change = (changes) => store.set({ compare: { ...compare, ...changes } });
  const choose = (value) => {
    const near = steps[place]?.step === index?.best ? "best" : "nearest"; // best meets best
    const step = value === `=${run}` ? "first" : near;
    if (value === "") store.set({ compare: null });
    else if (value === "text") change({ run, step: "nearest", text: store.text === 0 ? 1 : 0 });
    else change({ run: value.slice(1), step, text: null });
  };
  const chooseText = (text) => change({ text: Number(text) });
  const chooseStep = (step) => change({ step: /^\d+$/.test(step) ? Number(step) : step });
  const numbers = new Set((other?.index ?? { steps }).steps.map(({ step }) => step));
  if (typeof compare?.step === "number") numbers.add(compare.step);
  const all = [...STEPS, ...[...numbers].map((step) => [String(step), t`step ${step}`])];
  const what = [t`Text that is compared with`, t`Step that is compared with`];
  return [
    labelled("other", t`Compare with`, isText ? "text" : chosen, options, choose),
    isText && chooser("other-text", what[0], String(compare.text), texts, chooseText),
    compare && !isText && chooser("other-step", what[1], String(compare.step), all, chooseStep),
  ];
}

/* Another run that trains, which is one click away. */
function newRun(store) {
  const other = store.runs.find(({ run, training }) => training && run !== store.run);
  if (!other) return null;
  const [step, total] = other.training;
  const words = t`● ${other.run} is training, step ${step} of ${total}`;
  return html`<div class="line">${button(words, () => chooseRun(store, other.run))}</div>`;
}

function chooseRun(store, run) {
  const ofRun = { step: null, stepChosen: false, follow: true, pair: null, chosen: null };
  store.set({ run, ...ofRun, key: null });
}

/* That the shown run trains, and a button to show each step as it comes. */
function progress(store) {
  const { training } = store.listed ?? {};
  if (!training) return null;
  const last = store.steps.at(-1).step;
  const follow = () => store.set({ step: last, follow: true, stepChosen: true });
  return [
    html`<span class="training">${t`training, step ${training[0]} of ${training[1]}`}</span>`,
    store.follow || button(t`Follow`, follow, { title: t`show each step as it is recorded` }),
  ];
}

/* One slider for the step, over maps and numbers at once. */
function slider(store) {
  const { steps, place, index, shown } = store;
  const step = steps[place]?.step;
  if (step === undefined) return null;
  const icon = (sign, label, by) => {
    return button(sign, () => moveStep(store, by), { title: label, "aria-label": label });
  };
  const choose = (event) => moveStep(store, Number(event.target.value) - place);
  return html`<div class="line steps">
    ${icon("‹", t`One step back (,)`, -1)}${icon("›", t`One step forward (.)`, 1)}
    <${Play} store=${store} />
    <input
      type="range" min="0" max=${steps.length - 1} value=${place} aria-label=${t`Step`}
      aria-valuetext=${t`step ${step}`} oninput=${choose}
    />
    <output class=${shown === step ? "now" : "now pending"}>${t`step ${step}`}</output>
    ${index.best === step && html`<span class="best">${t`best step`}</span>`}
    <span class="kept">${t`${place + 1} of ${steps.length} recorded steps`}</span>
    ${progress(store)}
  </div>`;
}
