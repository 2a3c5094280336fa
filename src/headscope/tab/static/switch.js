/* Heads on, averages or off, where the network runs here. */

import { allHeads } from "./answer.js";
import { button } from "./parts.js";
import { html } from "./preact.js";
import { t } from "./strings.js";

const STATES = [
  ["on", t`on`, t`as it is`],
  ["uniform", t`average`, t`a plain average over the tokens in place of its map`],
  ["zero", t`off`, t`its output set to zero`],
];
const ENOUGH = t`those that came first over many texts; all others off`;
const NAMED = 4; // heads

/* The three states of a head, a radio group. */
export function Switch({ store, layer, head }) {
  const own = store.ablated.get(`${layer},${head}`) ?? "on";
  const put = (state) => store.switchHead(layer, head, state);
  const states = STATES.map(([state, words, title]) => {
    const isOwn = state === own;
    const about = { role: "radio", "aria-checked": String(isOwn), tabindex: isOwn ? 0 : -1 };
    return button(words, () => put(state), { name: "state", title, "data-state": state, ...about });
  });
  // One stop of the Tab key: arrow keys choose.
  const onkeydown = (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: 2, ArrowUp: 2 }[event.key];
    if (!by) return;
    event.preventDefault();
    const at = (STATES.findIndex(([state]) => state === own) + by) % STATES.length;
    event.currentTarget.children[at].focus();
    put(STATES[at][0]);
  };
  return html`<span
    class="switch" role="radiogroup" aria-label=${store.headName(layer, head)}
    onkeydown=${onkeydown}
  >${states}</span>`;
}

/* All heads on, or those alone that are enough over many texts; and which are not on. */
export function switches(store) {
  const { numbers, ablated } = store;
  const heads = numbers?.extra["sets/heads"] ?? [];
  const size = numbers?.extra["sets/enough"] ?? 0;
  const kept = new Set(heads.slice(0, size).map((place) => place.join()));
  const keepOnly = () => {
    const all = allHeads(store).map(({ layer, head }) => `${layer},${head}`);
    const others = all.filter((place) => !kept.has(place));
    store.set({ ablated: new Map(others.map((place) => [place, "zero"])), isChoice: true });
  };
  const words = size === 1 ? t`Only the best head` : t`Only the best ${size} heads`;
  const allOn = () => store.set({ ablated: new Map(), isChoice: true });
  return [
    ablated.size > 0 && html`<span class="changed-heads" role="status">${changedOf(store)}</span>`,
    size > 0 && size < heads.length && button(words, keepOnly, { title: ENOUGH }),
    ablated.size > 0 && button(t`All heads on`, allOn, { title: t`undo (a)` }),
  ];
}

/* How many heads are off or averages, and which. */
function changedOf(store) {
  const all = allHeads(store).length;
  return STATES.slice(1).flatMap(([state, words]) => {
    const own = [...store.ablated].filter(([, each]) => each === state);
    if (own.length === 0) return [];
    const places = own.slice(0, NAMED).map(([place]) => place.split(",").map(Number));
    const names = places.map((place) => store.headName(...place));
    const more = own.length > NAMED ? t` and ${own.length - NAMED} more` : "";
    return [t`${own.length} of ${all} heads ${words}: ${names.join(t`, `)}${more}. `];
  });
}
