/* Heads and the words that decide, of one layer: what passes through each head at each of them.
   Where the network runs here, each head is on, an average, or off. */

import { allHeads } from "./answer.js";
import { contributionsOf, sumOf } from "./contributions.js";
import {
  Panel, SumBar, button, formatSigned, isolated, percent, pointing, tint, unfolder, useWidth,
} from "./parts.js";
import { html, useMemo, useState } from "./preact.js";
import { addedUp, roundedTo } from "./rounding.js";
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
  const layer = Math.min(store.layer, found.layers - 1);
  const words = found.inWords(store.shownText, store.unit);
  const room = Math.max(2, Math.floor((width - 430) / (layer > 0 ? 110 : 86)) || 8);
  const { shownText, shown, unit, pair } = store;
  // While heads are switched rows and columns stay where they are.
  const [heads, names] = useMemo(() => {
    const groups = isWhole ? words.groups : words.groups.slice(0, room);
    return [found.headsOf(layer).map(([head]) => head), groups.map(({ word }) => word)];
  }, [shownText, shown, unit, pair?.join(), layer, isWhole, room]);
  const columns = names.map((name) => words.groups.findIndex((group) => group.word === name));
  const table = numbersOf(found, layer, words, heads, columns);
  const about = found.layers > 1 && layersOf(store, found, layer);
  const tools = [
    store.canSwitch && switches(store),
    unfolder(t`All heads and words`, isWhole, setWhole),
  ];
  const title = t`What passes through each head`;
  return html`<${Panel} name="heads-words" title=${title} about=${about} tools=${tools}>
    <div
      class="table-scroll" role="region" aria-label=${t`Heads and words`} tabindex="0" ref=${node}
    ><table class="cells-table" lang=${languageOf(shownText.text)} ...${pointing(store)}>
      ${grid(store, found, layer, words, heads, columns, table)}
    </table></div>
    ${sumsOf(found, layer, table)}
  </${Panel}>`;
}

/* A button for each layer, which shows of it the head that passes most. */
function layersOf(store, found, layer) {
  const buttons = store.index.layers.map((_, at) => {
    const own = { title: store.layerName(at), "aria-pressed": String(at === layer) };
    const choose = () => store.chooseHead(at, found.headsOf(at)[0]?.[0]);
    return button(String(at), choose, { name: "state", ...own });
  });
  const group = { class: "switch", role: "group", "aria-label": t`Layer` };
  return [t`Layer`, html`<span ...${group}>${buttons}</span>`];
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

/* All numbers, to two decimals, which add up. */
function numbersOf(found, layer, words, heads, columns) {
  const hasRest = columns.length < words.groups.length || found.unseen !== 0;
  const lineOf = (head) => {
    const all = found.ofGroups(layer, head, words);
    const cells = columns.map((at) => all[at]);
    return hasRest ? [...cells, found.headSum(layer, head) - sumOf(cells)] : cells;
  };
  const lines = heads.map(lineOf);
  const rows = lines.map(addedUp);
  const cells = lines.map((line, at) => roundedTo(line, rows[at]));
  const bottom = (cells[0] ?? []).map((_, at) => addedUp(cells.map((line) => line[at])));
  const all = addedUp(rows);
  // What does not pass through these heads takes what rounding leaves.
  const past = addedUp([found.shown.total, -found.shown.missed, -all]);
  return { cells, rows, bottom, all, past, hasRest };
}

function grid(store, found, layer, words, heads, columns, table) {
  const { units, groups, scale } = words;
  const { lit } = store;
  const shown = columns.map((at) => groups[at]);
  const isIn = (at) => lit >= units[at].start && lit < units[at].end;
  const of = ({ places }, name) => {
    const isLit = lit !== null && places.some(isIn);
    return { class: isLit ? `${name} lit` : name, "data-token": units[places[0]].start };
  };
  const header = shown.map((group) => {
    const times = group.places.length > 1 ? ` ×${group.places.length}` : "";
    return html`<th scope="col" ...${of(group, "")}>
      ${layer > 0 && html`<small>${t`at `}</small>`}${isolated(group.word)}<small>${times}</small>
    </th>`;
  });
  const counted = (all) => sumOf(all.map(({ places }) => places.length));
  const rest = t`${counted(groups) - counted(shown)} others`;
  if (table.hasRest) header.push(html`<th scope="col" class="others">${rest}</th>`);
  const most = table.rows.reduce((top, sum) => Math.max(top, Math.abs(sum)), scale);
  const rows = heads.map((head, at) => {
    const cells = table.cells[at].map((number, column) => {
      const own = shown[column] ? of(shown[column], "cell") : { class: "cell others" };
      const color = tint(number, scale, own.class);
      return html`<td ...${own} ...${color}>${formatSigned(number)}</td>`;
    });
    return html`<tr key=${head}>
      <th scope="row">${nameOf(store, found, layer, head)}</th>${cells}<td class="sum-of">
        <b>${formatSigned(table.rows[at])}</b><${SumBar} value=${table.rows[at]} scale=${most} />
      </td>
    </tr>`;
  });
  const foot = table.bottom.map((number, at) => {
    return html`<td ...${shown[at] ? of(shown[at], "") : {}}>${formatSigned(number)}</td>`;
  });
  return html`
    <thead><tr><td></td>${header}<th scope="col">${t`sum`}</th></tr></thead>
    <tbody>${rows}</tbody>
    <tfoot>
      <tr><th scope="row">${t`these heads`}</th>${foot}<td>${formatSigned(table.all)}</td></tr>
    </tfoot>`;
}

/* What passes through these heads and what does not, and why a column is not its word's sum. */
function sumsOf({ missed, shown }, layer, { all, past }) {
  const ends = [
    t`${formatSigned(all)} through these heads`,
    t`${formatSigned(past)} not through them (the residual connection, biases)`,
  ];
  if (missed !== 0) ends.push(`${formatSigned(shown.missed)} ${t`not attributed`}`);
  const differs = layer === 0
    ? t`A word’s own number also has what does not pass through these heads.`
    : t`A position holds what it collected from other words: its sum is not its word’s number.`;
  return html`<p class="through">
    ${ends.join(", ")} = <strong>${formatSigned(shown.total)}</strong>. ${differs}
  </p>`;
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
