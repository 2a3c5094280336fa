/* Heads and words: what each head brings of each word. Where the network runs here, each head is
   on, an average, or off. */

import { allHeads } from "./answer.js";
import { contributionsOf } from "./contributions.js";
import {
  Panel, SumBar, button, formatSigned, isolated, percent, pointing, tint, unfolder, useWidth,
} from "./parts.js";
import { html, useState } from "./preact.js";
import { t } from "./strings.js";
import { languageOf } from "./words.js";

const STATES = [
  ["on", t`on`, t`as it is`],
  ["uniform", t`average`, t`a plain average over the tokens in place of its map`],
  ["zero", t`off`, t`its output set to zero`],
];
const ENOUGH = t`the fewest that are enough over many texts; all others off`;

export function Matrix({ store }) {
  const found = contributionsOf(store);
  return found && html`<${Cells} store=${store} found=${found} />`;
}

function Cells({ store, found }) {
  const [node, width] = useWidth();
  const [isWhole, setWhole] = useState(false);
  const words = found.inWords(store.shownText, store.unit);
  const room = Math.max(2, Math.floor((width - 430) / 86) || 8);
  const table = found.table(words, isWhole ? Infinity : room);
  const tools = [
    store.canSwitch && switches(store),
    unfolder(t`All heads and words`, isWhole, setWhole),
  ];
  const title = t`What each head brings`;
  return html`<${Panel} name="heads-words" title=${title} tools=${tools}>
    <div
      class="table-scroll" role="region" aria-label=${t`Heads and words`} tabindex="0" ref=${node}
    ><table class="cells-table" lang=${languageOf(store.shownText.text)} ...${pointing(store)}>
      ${grid(store, found, words, table)}
    </table></div>
  </${Panel}>`;
}

/* All heads on, and only those that are enough over many texts, where these are fewer than all. */
function switches(store) {
  const { numbers, ablated } = store;
  const heads = numbers?.extra["sets/heads"] ?? [];
  const count = numbers?.extra["sets/enough"] ?? 0;
  const kept = heads.slice(0, count).map((place) => place.join());
  const keepOnly = () => {
    const all = allHeads(store).map(({ layer, head }) => `${layer},${head}`);
    const others = all.filter((place) => !kept.includes(place));
    store.set({ ablated: new Map(others.map((place) => [place, "zero"])), isChoice: true });
  };
  const words = t`Only the best ${count} heads`;
  const allOn = () => store.set({ ablated: new Map(), isChoice: true });
  return [
    count > 0 && count < heads.length && button(words, keepOnly, { title: ENOUGH }),
    button(t`All heads on`, allOn, { title: t`undo (a)`, disabled: ablated.size === 0 }),
  ];
}

function grid(store, found, { units, scale }, { columns, rows, foot, missed }) {
  const { lit } = store;
  const isIn = (at) => lit !== null && lit >= units[at].start && lit < units[at].end;
  const of = ({ kind, places }, name) => {
    if (kind !== "word") return { class: `${name} others` };
    const names = places.some(isIn) ? `${name} lit` : name;
    return { class: names, "data-token": units[places[0]].start };
  };
  const header = columns.map((column) => html`<th scope="col" ...${of(column, "")}>
    ${titleOf(column)}
  </th>`);
  const most = rows.reduce((top, { sum }) => Math.max(top, Math.abs(sum)), scale);
  const others = { past: t`past every head`, rest: t`not shared out` };
  const lines = rows.map(({ kind, layer, head, cells, sum }) => {
    const name = others[kind] ?? nameOf(store, found, layer, head);
    const all = cells.map((number, at) => {
      const own = of(columns[at], "cell");
      return html`<td ...${own} ...${tint(number, scale, own.class)}>${formatSigned(number)}</td>`;
    });
    return html`<tr key="${kind},${layer},${head}"><th scope="row">${name}</th>${all}
      <td class="sum-of"><b>${formatSigned(sum)}</b><${SumBar} value=${sum} scale=${most} /></td>
    </tr>`;
  });
  const below = foot.cells.map((number, at) => {
    return html`<td ...${of(columns[at], "")}>${formatSigned(number)}</td>`;
  });
  const dashes = columns.map(() => html`<td>–</td>`);
  return html`
    <thead><tr><td></td>${header}<th scope="col">${t`sum`}</th></tr></thead>
    <tbody>${lines}</tbody>
    <tfoot>
      ${missed !== 0 && html`<tr>
        <th scope="row">${t`not attributed`}</th>${dashes}<td>${formatSigned(missed)}</td>
      </tr>`}
      <tr><th scope="row">${t`the word`}</th>${below}<td>${formatSigned(foot.sum)}</td></tr>
    </tfoot>`;
}

function titleOf({ kind, word, places, count }) {
  if (kind === "others") return t`${count} others`;
  if (kind === "ends") return t`start and end of the text`;
  if (kind === "biases") return t`biases`;
  const times = places.length > 1 ? ` ×${places.length}` : "";
  return [isolated(word), html`<small>${times}</small>`];
}

/* A head's switch and name; of a record, what the asked class would have without it. */
function nameOf(store, found, layer, head) {
  const { ablated, canSwitch, maps } = store;
  const own = ablated.get(`${layer},${head}`) ?? "on";
  const states = STATES.map(([state, words, title]) => {
    const pressed = { "data-state": state, "aria-pressed": String(state === own) };
    const put = () => store.switchHead(layer, head, state);
    return button(words, put, { name: "state", title, ...pressed });
  });
  const name = store.headName(layer, head);
  const without = maps.ablated(layer, head)?.[found.asked];
  return [
    canSwitch && html`<span class="switch" role="group" aria-label=${name}>${states}</span>`,
    button(name, () => store.chooseHead(layer, head), {
      name: "head-name",
      title: t`show where it looks`,
      "aria-pressed": String(store.layer === layer && store.head === head),
    }),
    without !== undefined && html`<small class="without">${t`off: ${percent(without)}`}</small>`,
  ];
}
