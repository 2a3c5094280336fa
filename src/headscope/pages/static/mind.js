/* What would change the prediction: words are removed, and the network reads the rest. */

import { contributionsOf } from "./contributions.js";
import { Panel, button, classLabel, formatSigned, isolated } from "./parts.js";
import { html } from "./preact.js";
import { parts, t } from "./strings.js";
import { unitsOf } from "./words.js";

const REST = 400; // milliseconds without a new text before words are removed
const MOST = 60; // words that are removed one by one, those that add most
const TRIED = 12; // of them that are tried together with those removed before
const FEWEST = 6; // removals, at most
const NAMED = 8;

/* Fill store.mind for a text: the change of the lead without each word, how many words there are to
   try, and the fewest removals found that change the class. `run` gives the logits of other texts,
   null where the reader has gone on. */
export async function changeMind(store, { text, logOdds: logits }, run) {
  const units = unitsOf(text, "word").filter(({ from }) => from !== null);
  const isFit = units.length > 1 && text.text !== "" && store.maps.values("given") === null;
  store.set({ mind: isFit ? { effects: [], count: 0, flip: null } : null });
  const { mind } = store;
  await new Promise((resolve) => setTimeout(resolve, REST));
  if (!isFit || store.mind !== mind) return;
  const predicted = largestOf(logits);
  const margin = (own) => own[predicted] - Math.max(...own.filter((_, c) => c !== predicted));
  const sums = contributionsOf(store)?.words ?? [];
  const size = ({ start }) => Math.abs(sums[start] ?? 0);
  const first = [...units].sort((a, b) => size(b) - size(a)).slice(0, MOST);
  const effects = [];
  for (const unit of first) {
    const own = await run(cutOut(text.text, [unit]));
    if (own === null) return;
    effects.push({ unit, change: margin(own) - margin(logits), logits: own });
    store.set({ mind: { effects, count: first.length, flip: null } });
  }
  const ranked = [...effects].sort((a, b) => a.change - b.change).slice(0, TRIED);
  const flip = await findFlip(ranked, predicted, margin, (own) => run(cutOut(text.text, own)));
  if (flip === null) return;
  const rest = flip.now === predicted ? null : cutOut(text.text, flip.removed);
  store.set({ mind: { effects, count: first.length, flip: { ...flip, rest } } });
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

export function Mind({ store, open }) {
  if (!store.mind) return null;
  const { effects, count, flip } = store.mind;
  const ranked = [...effects].sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
  const named = ranked.slice(0, NAMED).map(({ unit, change }, at) => {
    return [at === 0 ? t`without ` : " · ", isolated(unit.word), ` ${formatSigned(change)}`];
  });
  const progress = effects.length < count ? t` (${effects.length} of ${count} words)` : "";
  return html`<${Panel} name="mind" title=${t`What would change its mind`}>
    <p class="flip">${flip && flipLine(store, flip, open)}</p>
    <p class="effects">${t`Change of its lead in log-odds `}${named}${progress}</p>
    <p class="key">${t`Measured by removal: the network reads the text without the word. The bar
      above is the exact sum for the text as it stands.`}</p>
  </${Panel}>`;
}

function flipLine(store, { removed, now, rest }, open) {
  if (rest === null) {
    return t`No removal of up to ${removed.length} words was found that changes it.`;
  }
  const names = removed.map(({ word }, at) => [at === 0 ? "" : t`, `, "“", isolated(word), "”"]);
  const name = html`<strong>${classLabel(store, now)}</strong>`;
  return parts`Without ${names} it is ${name}. ${button(t`Remove them`, () => open(rest))}`;
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
