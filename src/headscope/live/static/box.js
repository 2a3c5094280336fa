/* The box in which a text is typed; of a run on pairs, two. Examples, the text that is compared
   with, and the link that holds all of it. */

import { linkOf } from "./host.js";
import { Button, Failure, isolated } from "./parts.js";
import { html, useRef, useState } from "./preact.js";
import { count, t } from "./strings.js";
import { languageOf } from "./words.js";

const LONGEST = 100_000; // characters; no run reads as many
const KINDS = {
  right: [t`✓ sure`, t`the next text that is classified rightly and surely`],
  wrong: [t`✗ wrong`, t`the next text that is classified wrongly`],
  unsure: [t`≈ unsure`, t`the next text that it is least sure of`],
};

/* `live` reads what is typed: store.typed, a text or the two of a pair. */
export function Box({ store, live, pair, dtype }) {
  const isComposing = useRef(false);
  const { typed, kept, errors } = store;
  const change = (at) => (event) => {
    const parts = typed.map((part, place) => (place === at ? event.target.value : part));
    store.set({ typed: parts });
    if (!isComposing.current) live.read(parts.map((part) => part.slice(0, LONGEST)));
  };
  const areas = (pair ? [t`Text A`, t`Text B`] : [t`Your text`]).map((name, at) => html`<textarea
    rows="2" dir="auto" spellcheck="false" lang=${languageOf(typed[at] ?? "")} aria-label=${name}
    placeholder=${t`${name}: type, and see what decides`} value=${typed[at] ?? ""}
    oninput=${change(at)} oncompositionstart=${() => (isComposing.current = true)}
    oncompositionend=${(event) => {
      isComposing.current = false;
      change(at)(event);
    }}
  />`);
  const long = Math.max(...typed.map(({ length }) => length));
  const cut = t`The first ${count(LONGEST)} of ${count(long)} characters are read.`;
  const halves = dtype === "float16" && t`weights in float16: logits within about 0.001`;
  const words = kept && isolated(kept.parts.join(" ⏐ "), "name");
  return html`<div class="box">
    <div class="inputs">${areas}</div>
    <${Failure} message=${errors.box ?? (long > LONGEST ? cut : null)} />
    ${kept && html`<p class="kept-text" lang=${languageOf(kept.parts[0])}>
      ${t`Compared with `}${words}
      <${Button}
        words=${t`Back to it`} title=${t`put it into the box`}
        onclick=${() => live.open(kept.parts)}
      />
      <${Button} words=${t`Stop comparing`} title="(k)" onclick=${() => live.keep(null)} />
    </p>`}
    <p class="notes">
      <span class="count">${store.seconds === null ? t`unpacking the network …` : countOf(store)}</span>
      ${halves && html`<span>${halves}</span>`}
    </p>
  </div>`;
}

/* How much was read, and how fast. */
function countOf({ tokens, seconds }) {
  return t`${tokens.length} tokens · ${(1000 * seconds).toFixed(0)} ms`;
}

/* A button for each kind of examples, of which each click shows the next; and the link. */
export function BoxTools({ store, live, examples }) {
  const [shown, show] = useState({});
  const [link, showLink] = useState(null);
  const chips = Object.entries(KINDS).map(([kind, [words, title]]) => {
    const own = examples.filter((example) => example.kind === kind);
    const next = () => {
      const at = ((shown[kind] ?? -1) + 1) % own.length;
      show({ ...shown, [kind]: at });
      live.open(own[at].parts);
    };
    return own.length > 0 && html`<${Button}
      words=${words} title=${title} name="plain example" onclick=${next}
    />`;
  });
  const copy = async () => {
    const address = linkOf(store);
    try {
      if (address !== null) await navigator.clipboard.writeText(address);
      showLink(address === null ? t`this text is too long for a link` : t`link copied`);
    } catch {
      showLink(address); // a browser that does not let pages copy
    }
  };
  return html`${chips}
    <${Button}
      words=${store.kept === null ? t`Compare` : t`Compare with this`}
      title=${t`keep this text, and compare the next with it (k)`}
      onclick=${() => live.keep(live.result ?? null)}
    />
    ${location.protocol !== "about:" && html`<${Button}
      words=${t`Copy link`} title=${t`a link to this text and view; it is sent nowhere`}
      onclick=${copy}
    />`}
    <span class="link" role="status">${link}</span>`;
}
