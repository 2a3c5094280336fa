/* The choice of run, text, step and what it is compared with. */

import { page } from "./api.js";
import { Chooser, Failure, legible } from "./parts.js";
import { html } from "./preact.js";
import { t } from "./strings.js";

const STEPS = [
  ["best", t`best step`],
  ["nearest", t`nearest step`],
  ["first", t`first step`],
  ["last", t`last step`],
];
const LONGEST = 34; // characters of a run's name in a selector

/* The names of runs without the folders that they share; of a long one both ends. */
function shortNames(runs) {
  const parts = runs.map((run) => run.split("/"));
  const depth = runs.length > 1 ? Math.min(...parts.map((own) => own.length)) - 1 : 0;
  let shared = 0;
  while (shared < depth && parts.every((own) => own[shared] === parts[0][shared])) shared += 1;
  const names = parts.map((own) => own.slice(shared).join("/"));
  const half = Math.floor(LONGEST / 2);
  const cuts = names.map((name) => {
    return name.length > LONGEST ? `${name.slice(0, half)}…${name.slice(-half)}` : name;
  });
  const areApart = new Set(cuts).size === runs.length;
  return new Map(runs.map((run, at) => [run, areApart ? cuts[at] : names[at]]));
}

export function Toolbar({ store, tools }) {
  const { runs, index, errors } = store;
  const names = shortNames(runs.map(({ run }) => run));
  const texts = (index?.texts ?? []).map((each, place) => {
    const named = page ? `${place + 1} ${each.label ?? ""}`.trim() : each.name;
    return [String(place), `${named}: ${legible(each.text, 40)}`];
  });
  const isChosen = page === null || page.texts.length > 1;
  const chooseText = (text) => {
    store.set({ text: Number(text), pair: null, query: 0, key: null });
  };
  return html`<header class="toolbar" aria-label=${t`What is shown`}>
    <div class="line">
      ${page ? html`<h1 dir="auto">${legible(page.title, 200)}</h1>` : runChoice(store, names)}
      ${isChosen && labelled(t`Text`, html`<${Chooser}
        name="text" label=${t`Text`} value=${String(store.text)} options=${texts}
        onchoose=${chooseText}
      />`)}
      ${isChosen && compareChoice(store, names, texts)}
      <div class="tools">${tools}</div>
    </div>
    ${page === null && slider(store)}
    <${Failure} message=${errors.runs} />
  </header>`;
}

function labelled(text, control) {
  return html`<label><span>${text}</span>${control}</label>`;
}

function runChoice(store, names) {
  const options = store.runs.map(({ run, error }) => {
    return [run, names.get(run) + (error ? t` (cannot be read)` : "")];
  });
  const choose = (run) => {
    store.set({ run, step: null, stepChosen: false, follow: true, pair: null, key: null });
  };
  return labelled(t`Run`, html`<${Chooser}
    name="run" label=${t`Run`} value=${store.run ?? ""} options=${options} onchoose=${choose}
  />`);
}

function compareChoice(store, names, texts) {
  const { runs, run, compare, steps, other } = store;
  const options = [["", t`nothing`]];
  if (texts.length > 1) options.push(["text", t`another text`]);
  if (!page) options.push([`=${run}`, t`this run, another step`]);
  const others = runs.filter((each) => each.run !== run && !each.error);
  options.push(...others.map((each) => [`=${each.run}`, names.get(each.run)]));
  const isText = compare !== null && compare.text !== null;
  const chosen = compare === null ? "" : `=${compare.run}`; // a run may have no name
  const change = (changes) => store.set({ compare: { ...compare, ...changes } });
  const numbers = new Set((other?.index ?? { steps }).steps.map(({ step }) => step));
  if (typeof compare?.step === "number") numbers.add(compare.step);
  const numbered = [...numbers].map((step) => [String(step), t`step ${step}`]);
  return [
    labelled(t`Compare with`, html`<${Chooser}
      name="other" label=${t`Compare with`} value=${isText ? "text" : chosen} options=${options}
      onchoose=${(value) => chooseOther(store, value)}
    />`),
    isText && html`<${Chooser}
      name="other-text" label=${t`Text that is compared with`} value=${String(compare.text)}
      options=${texts} onchoose=${(text) => change({ text: Number(text) })}
    />`,
    compare !== null && !isText && html`<${Chooser}
      name="other-step" label=${t`Step that is compared with`} value=${String(compare.step)}
      options=${[...STEPS, ...numbered]}
      onchoose=${(step) => change({ step: /^\d+$/.test(step) ? Number(step) : step })}
    />`,
  ];
}

function chooseOther(store, value) {
  if (value === "text") {
    const text = store.text === 0 ? 1 : 0;
    store.set({ compare: { run: store.run, step: "nearest", text } });
    return;
  }
  const run = value.slice(1);
  const isBest = store.steps[store.place]?.step === store.index?.best;
  const near = isBest ? "best" : "nearest"; // the best step with the best of the other run
  const step = run === store.run ? "first" : near;
  store.set({ compare: value === "" ? null : { run, step, text: null } });
}

/* Show the step a number of steps further on. */
export function moveStep(store, by) {
  const { steps, place } = store;
  const step = steps[Math.min(steps.length - 1, Math.max(0, place + by))];
  if (step) store.chooseStep(step.step);
}

/* One slider for the step, over maps and numbers at once. */
function slider(store) {
  const { steps, place, index, shown } = store;
  const step = steps[place]?.step;
  if (step === undefined) return null;
  const icon = (sign, label, by) => html`<button
    type="button" class="plain" title=${label} aria-label=${label} onclick=${() => moveStep(store, by)}
  >${sign}</button>`;
  const choose = (event) => moveStep(store, Number(event.target.value) - place);
  const { recorded } = index;
  const all = t`${place + 1} of ${steps.length} recorded steps`;
  const thinned = t`${steps.length} of ${recorded} recorded steps kept`;
  return html`<div class="line steps">
    ${icon("‹", t`One step back (,)`, -1)}${icon("›", t`One step forward (.)`, 1)}
    <input
      type="range" min="0" max=${steps.length - 1} value=${place} aria-label=${t`Step`}
      aria-valuetext=${t`step ${step}`} oninput=${choose}
    />
    <output class=${shown === step ? "now" : "now pending"}>${t`step ${step}`}</output>
    ${index.best === step && html`<span class="best">${t`best step`}</span>`}
    <span class="kept">${steps.length < recorded ? thinned : all}</span>
  </div>`;
}
