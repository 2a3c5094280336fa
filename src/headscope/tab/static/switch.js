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

/* The three states of a head. */
export function Switch({ store, layer, head }) {
  const own = store.ablated.get(`${layer},${head}`) ?? "on";
  const states = STATES.map(([state, words, title]) => {
    const pressed = { "data-state": state, "aria-pressed": String(state === own) };
    const put = () => store.switchHead(layer, head, state);
    return button(words, put, { name: "state", title, ...pressed });
  });
  const name = store.headName(layer, head);
  return html`<span class="switch" role="group" aria-label=${name}>${states}</span>`;
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
