/* What would change the prediction: words are removed, and the network reads the rest. */

import { contributionsOf } from "./contributions.js";
import {
  Panel, SumBar, button, classLabel, formatSigned, isolated, pointing,
} from "./parts.js";
import { html } from "./preact.js";
import { parts, t } from "./strings.js";
import { unitsOf } from "./words.js";

const REST = 400; // milliseconds without a new text before words are removed
const AT_ONCE = 60; // tokens; of a longer text words are removed when the reader asks for it
const MOST = 60; // words that are removed one by one, those that add most
const TRIED = 12; // of them that are tried together with those removed before
const FEWEST = 6; // removals, at most
const NAMED = 8;
const LEAST = 0.1; // log-odds, of both numbers whose signs differ

/* What store.mind is for a text that was read, before its words are removed: {of, effects, count,
   flip, waits}: {unit, change, logits} of each word that was removed, how many are to be tried, the
   fewest removals found that change the class, and whether the reader is to ask for it. null where
   there is nothing to remove. */
export function mindOf(result) {
  const { text, maps } = result;
  const isFit = wordsOf(text).length > 1 && text.text !== "" && maps.values("given") === null;
  const waits = text.tokens.length > AT_ONCE;
  return isFit ? { of: result, effects: [], count: 0, flip: null, waits } : null;
}

function wordsOf(text) {
  return unitsOf(text, "word").filter(({ from }) => from !== null);
}

/* Remove words once no key came for a while, or at once where the reader asks for it. `run` gives
   the logits of another text. */
export async function changeMind(store, run, isAsked = false) {
  const { of } = store.mind ?? {};
  if (!isAsked) await new Promise((resolve) => setTimeout(resolve, REST));
  const isHere = () => store.mind?.of === of;
  if (!of || !isHere() || (store.mind.waits && !isAsked)) return;
  const { text, logOdds: logits } = of;
  const predicted = largestOf(logits);
  const margin = (own) => own[predicted] - Math.max(...own.filter((_, c) => c !== predicted));
  const sums = contributionsOf(store)?.words ?? [];
  const size = ({ start }) => Math.abs(sums[start] ?? 0);
  const first = wordsOf(text).sort((a, b) => size(b) - size(a)).slice(0, MOST);
  const show = (changes) => {
    store.set({ mind: { of, count: first.length, flip: null, waits: false, ...changes } });
  };
  const effects = [];
  for (const unit of first) {
    const own = await run(cutOut(text.text, [unit]));
    if (own === null || !isHere()) return;
    effects.push({ unit, change: margin(own) - margin(logits), logits: own });
    show({ effects: [...effects] });
  }
  const ranked = [...effects].sort((a, b) => a.change - b.change).slice(0, TRIED);
  const tried = async (own) => {
    const found = await run(cutOut(text.text, own));
    return isHere() ? found : null;
  };
  const flip = await findFlip(ranked, predicted, margin, tried);
  if (flip === null) return;
  const rest = flip.now === predicted ? null : cutOut(text.text, flip.removed);
  show({ effects, flip: { ...flip, rest } });
}

/* Remove the word after which the class leads least, until another leads. */
async function findFlip(left, predicted, margin, run) {
  let { unit, logits } = left.shift();
  const removed = [unit];
  while (largestOf(logits) === predicted && removed.length < FEWEST && left.length > 0) {
    let best = null;
    for (const each of left) {
      const own = await run([...removed, each.unit]);
      if (own === null) return null;
      if (best === null || margin(own) < margin(best.logits)) best = { each, logits: own };
    }
    left.splice(left.indexOf(best.each), 1);
    removed.push(best.each.unit);
    ({ logits } = best);
  }
  return { removed, now: largestOf(logits) };
}

export function Mind({ store, open, ask }) {
  const found = contributionsOf(store);
  if (!store.mind || found === null) return null;
  const { effects, count, flip, waits } = store.mind;
  const title = t`What would change its mind`;
  if (waits) {
    return html`<${Panel} name="mind" title=${title}>
      ${button(t`Remove each word and see`, ask)}
    </${Panel}>`;
  }
  const rows = rowsOf(store, found, effects);
  const most = rows.reduce((top, { sum, lost }) => Math.max(top, Math.abs(sum), Math.abs(lost)), 1);
  const [first, second] = [found.asked, found.against].map((place) => classLabel(store, place));
  const progress = effects.length < count && t` (${effects.length} of ${count} words)`;
  const cell = (value) => html`<td class="sum-of">
    <b>${formatSigned(value)}</b><${SumBar} value=${value} scale=${most} />
  </td>`;
  const lines = rows.slice(0, NAMED).map(({ unit, place, sum, lost, isOther }) => html`<tr
    data-token=${unit.start}
  >
    <th scope="row">${isolated(unit.word)}<small>${place}</small></th>${cell(sum)}${cell(lost)}
    <td>${isOther && html`<span class="differs">${t`⚠ others take over`}</span>`}</td>
  </tr>`);
  const isMarked = rows.slice(0, NAMED).some(({ isOther }) => isOther);
  const about = parts`log-odds of ${first} over ${second}`;
  return html`<${Panel} name="mind" title=${title} about=${[about, progress]}>
    <p class="flip">${flip && flipLine(store, flip, open)}</p>
    <div class="table-scroll" tabindex="0" role="group" aria-label=${title}>
      <table class="effects" ...${pointing(store)}>
        <thead><tr>
          <td></td><th scope="col">${t`its sum`}</th>
          <th scope="col">${t`lost without it`}</th><td></td>
        </tr></thead>
        <tbody>${lines}</tbody>
      </table>
    </div>
    <p class="key">${t`The sum is exact for the text as it stands. What is lost is measured: the
      network reads the text without the word.`} ${isMarked && t`Where the signs differ, other words
      take over what the word brought.`}</p>
  </${Panel}>`;
}

/* Each word that was removed, for the two classes that are shown: what it adds, and what is lost
   without it. Equal words have their place. */
function rowsOf({ shownText }, found, effects) {
  const { units, sums } = found.inWords(shownText, "word");
  const { asked, against } = found;
  const rows = effects.filter(({ unit }) => units.includes(unit)).map(({ unit, logits }) => {
    const lost = found.total - (logits[asked] - logits[against]);
    const sum = sums[units.indexOf(unit)];
    const same = units.filter(({ word }) => word === unit.word);
    const place = same.length > 1 ? t` (${same.indexOf(unit) + 1} of ${same.length})` : "";
    const isOther = Math.min(Math.abs(sum), Math.abs(lost)) >= LEAST && sum * lost < 0;
    return { unit, place, sum, lost, isOther };
  });
  const sizeOf = ({ sum, lost }) => Math.max(Math.abs(sum), Math.abs(lost));
  return rows.sort((a, b) => sizeOf(b) - sizeOf(a));
}

function flipLine(store, { removed, now, rest }, open) {
  if (rest === null) {
    if (removed.length === 1) return t`Removing a single word does not change it.`;
    return t`No removal of up to ${removed.length} words was found that changes it.`;
  }
  const names = removed.map(({ word }, at) => [at === 0 ? "" : t`, `, "“", isolated(word), "”"]);
  const name = html`<strong>${classLabel(store, now)}</strong>`;
  const words = removed.length === 1 ? t`Remove it` : t`Remove them`;
  return parts`Without ${names} it is ${name}. ${button(words, () => open(rest))}`;
}

function largestOf(logits) {
  return logits.reduce((best, value, at) => (value > logits[best] ? at : best), 0);
}

/* A text without some of its words, and without the space after each. */
function cutOut(text, units) {
  const sorted = [...units].sort((a, b) => b.from - a.from);
  return sorted.reduce((rest, { from, to }) => {
    const end = /\s/.test(rest[from - 1] ?? " ") && /\s/.test(rest[to] ?? "") ? to + 1 : to;
    return rest.slice(0, from) + rest.slice(end);
  }, text);
}
