/* The views of a text, and where they stand. */

import { Answer } from "./answer.js";
import { askPage, page } from "./api.js";
import { Card } from "./card.js";
import { contributionsOf } from "./contributions.js";
import { Learned } from "./learned.js";
import { ChosenMap } from "./map.js";
import { Matrix } from "./matrix.js";
import { isTurned } from "./pair.js";
import { Failure, Fold, POINTED, Panel, Still, button, legible } from "./parts.js";
import { html, render } from "./preact.js";
import { Prediction } from "./prediction.js";
import { SaveMenu } from "./save.js";
import { choose, language, t } from "./strings.js";
import { HeadTable } from "./table.js";
import { named, told } from "./told.js";
import { TextView } from "./text.js";
import { Toolbar } from "./toolbar.js";
import { Wall } from "./wall.js";

const LONGEST_NOTE = 2000; // letters
const TRUSTED = 1e-2; // a larger difference of the maps from what the model used is warned of

const KEYS = [[t`Arrows`, t`move along the text; move query and key in the map`]];
const STEP_KEYS = [[t`, and .`, t`one step back and forward`]];

/* Draw what `view` returns in place of what the page had; the result draws it again. */
export function show(view) {
  document.documentElement.lang = language;
  document.title = page ? told(page.title) : t`Heads`;
  document.body.classList.toggle("page", page !== null);
  document.body.replaceChildren();
  const draw = () => render(view(), document.body);
  draw();
  return draw;
}

/* Draw the views, and again after each change. A page in which the network runs has its box above
   the words, `tools` above all, and more views: {box, tools, keys, mind, report}, functions. */
export function mount(store, slots = {}) {
  const draw = show(() => html`<${App} store=${store} slots=${slots} />`);
  let isWaiting = false;
  store.draw = () => {
    if (isWaiting) return;
    isWaiting = true;
    queueMicrotask(() => {
      isWaiting = false;
      draw();
    });
  };
}

function App({ store, slots }) {
  const { index, errors } = store;
  const menu = html`<${SaveMenu} store=${store} askPage=${page ? null : askPage} />`;
  const tools = [slots.tools?.(), menu, otherLanguage()];
  const isThere = index !== null && !errors.index;
  return html`
    <${Still} store=${store} view=${() => html`<${Toolbar} store=${store} tools=${tools} />`} />
    <${Failure} message=${errors.index} name="whole" />
    <main class=${isTurned(index, contributionsOf(store)?.asked) ? "turned" : ""}>
      ${(isThere || slots.box) && views(store, slots)}
    </main>
    <footer>${footer(slots.keys ?? [])}</footer>`;
}

function views(store, slots) {
  const { shownText, learned, index } = store;
  const each = (View) => html`<${View} store=${store} />`;
  const still = (view, others) => html`<${Still} store=${store} view=${view} others=${others} />`;
  const lit = (View) => still(() => each(View), ["mind"]);
  const note = t`Mean log-odds over the test texts with the word, at the best step, the surest
    first; words.csv has all.`;
  const words = () => html`<${Learned}
    words=${learned} index=${index} predicted=${predictedOf(store)} note=${note}
    textOf=${(text) => text}
  />`;
  const box = slots.box?.();
  if (shownText === null) {
    return html`${slots.report?.()}<${Panel} name="text" title=${t`Text`}>${box}</${Panel}>`;
  }
  return html`
    ${slots.report?.()}
    ${still(() => html`<${Prediction} store=${store}>${box}</${Prediction}>`)}
    ${lit(TextView)}${still(() => html`<${Card} store=${store} ask=${slots.without} />`)}
    <${Fold} title=${t`The sum as a table`}>${() => lit(Matrix)}</${Fold}>
    ${lit(Wall)}${lit(ChosenMap)}
    ${still(() => slots.mind?.(), POINTED)}${still(() => each(Answer))}
    <${Fold} title=${t`Numbers of every head`}>${() => each(HeadTable)}</${Fold}>
    ${learned && !slots.report && html`<${Fold} title=${t`Words that the run learned`}>
      ${words}
    </${Fold}>`}
    <${Fold} title=${t`Checks and notes`}>${() => notes(store)}</${Fold}>`;
}

function predictedOf({ index, maps }) {
  return maps?.prediction(index.classes).predicted;
}

/* Whether the maps are what the model used, and what the record notes. */
function notes({ index, maps, shownText }) {
  const ofRecord = (of) => Object.entries(of).map(([name, words]) => {
    return [legible(named(name)), legible(told(String(words)), LONGEST_NOTE)];
  });
  const facts = page ? [[t`Text`, shownText.text], ...ofRecord(shownText.notes)] : [];
  const check = maps?.values("check")?.[0] ?? null;
  const known = check ? check.toExponential(1) : String(check ?? t`not measured`);
  const words = t`Largest difference between the heads’ outputs and these maps times the values:
    ${known}.`;
  if (!page || check !== null) facts.push([t`Check`, words, check > TRUSTED]);
  const title = page ? t`About this text` : t`How far to trust these maps`;
  return html`<${Panel} name="trust" title=${title}><dl class="facts">
    ${[...facts, ...ofRecord(index.notes)].map(([name, own, warns]) => {
      return html`<div class=${warns ? "fact warns" : "fact"}>
        <dt>${name}</dt><dd><bdi>${own}</bdi></dd>
      </div>`;
    })}
  </dl></${Panel}>`;
}

/* The other language; a notebook's frame cannot keep a choice. */
function otherLanguage() {
  if (location.protocol === "about:") return null;
  const [other, name] = language === "ja" ? ["en", "English"] : ["ja", "日本語"];
  return button(name, () => choose(other), { lang: other });
}

function footer(others) {
  const keys = [...(page ? [] : STEP_KEYS), ...others, ...KEYS];
  return html`<details class="help">
    <summary>${t`Keys`}</summary>
    <dl>${keys.map(([key, words]) => html`<dt>${key}</dt><dd>${words}</dd>`)}</dl>
  </details>`;
}
