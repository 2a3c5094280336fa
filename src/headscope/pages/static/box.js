/* The box in which a text is typed, of a run on pairs two; and examples. */

import { Failure, button, isolated } from "./parts.js";
import { html, useRef, useState } from "./preact.js";
import { count, t } from "./strings.js";
import { languageOf } from "./words.js";

const LONGEST = 100_000; // characters; no run reads as many
const KINDS = {
  right: [t`surely right`, t`the next text that is classified rightly and surely`],
  wrong: [t`wrong`, t`the next text that is classified wrongly`],
  unsure: [t`least sure`, t`the next text that it is least sure of`],
};

/* `live` reads what is typed: store.typed, a text or the two of a pair. */
export function Box({ store, live, weights }) {
  const isComposing = useRef(false);
  const { typed, kept, errors, seconds, tokens } = store;
  const change = (event, at) => {
    const parts = store.typed.map((part, place) => (place === at ? event.target.value : part));
    store.typed = parts; // the box shows it already: all is drawn once, with the answer
    if (!isComposing.current) live.read(parts.map((part) => part.slice(0, LONGEST)));
  };
  const end = (event, at) => {
    isComposing.current = false;
    change(event, at);
  };
  const names = typed.length > 1 ? [t`Text A`, t`Text B`] : [t`Your text`];
  const areas = names.map((name, at) => html`<textarea
    rows="1" dir="auto" spellcheck="false" lang=${languageOf(typed[at])} aria-label=${name}
    placeholder=${t`${name}: type, and see what decides`} value=${typed[at]}
    oninput=${(event) => change(event, at)} oncompositionend=${(event) => end(event, at)}
    oncompositionstart=${() => (isComposing.current = true)}
  />`);
  const long = Math.max(...typed.map(({ length }) => length));
  const cut = t`The first ${count(LONGEST)} of ${count(long)} characters are read.`;
  const words = t`${tokens.length} tokens · ${(1000 * seconds).toFixed(0)} ms`;
  return html`<div class="box">
    <div class="inputs">${areas}</div>
    <${Failure} message=${errors.box ?? (long > LONGEST && cut)} />
    ${kept && html`<p class="kept-text" lang=${languageOf(kept.parts[0])}>
      ${t`Compared with `}${isolated(kept.parts.join(" ⏐ "), "name")}
      ${button(t`Back to it`, () => live.open(kept.parts), { title: t`put it into the box` })}
      ${button(t`Stop comparing`, () => live.keep(null), { title: "(k)" })}
    </p>`}
    <p class="notes">
      <span>${seconds === null ? t`unpacking the network …` : words}</span>
      ${changeOf(weights)}
    </p>
  </div>`;
}

/* What the type of the stored weights, and a vocabulary that is cut, change. */
function changeOf({ dtype, change }) {
  const bits = { int8: 8, float16: 16 }[dtype];
  if (!bits) return null;
  if (!change) return t`weights in ${bits} bits, not measured`;
  const most = (100 * change.most).toFixed(1);
  const title = t`how far probabilities of validation texts change, and how many classes`;
  return html`<span title=${title}>
    ${t`weights in ${bits} bits changed ${count(change.labels)} of ${count(change.texts)} validation
      answers, shares by ≤ ${most} points`}
  </span>`;
}

/* A button for each kind of examples, of which each click shows the next; and one to compare. */
export function BoxTools({ store, live, examples }) {
  const [shown, show] = useState({});
  const chips = Object.entries(KINDS).map(([kind, [words, title]]) => {
    const own = examples.filter((example) => example.kind === kind);
    const next = () => {
      const at = ((shown[kind] ?? -1) + 1) % own.length;
      show({ ...shown, [kind]: at });
      live.open(own[at].parts);
    };
    return own.length > 0 && button(words, next, { name: "plain example", title });
  });
  const title = t`keep this text, and compare the next with it (k)`;
  const shelf = examples.length > 0 && html`<span class="tools">
    ${t`Texts it gets:`} ${chips}
  </span>`;
  return [shelf, button(t`Compare`, () => live.keep(live.result ?? null), { title })];
}
