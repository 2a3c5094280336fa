/* One table of heads and words: rows are heads of all layers, the largest first, and add up to what
   each brings; columns add up to the words of the text. */

import { changeWithout } from "./card.js";
import { contributionsOf } from "./contributions.js";
import {
  Panel, SumBar, Term, button, className, formatSigned, isolated, pointing, tint, unfolder,
} from "./parts.js";
import { html, useMemo, useState } from "./preact.js";
import { columnName, rowName } from "./ribbons.js";
import { addedUp } from "./rounding.js";
import { placeOf } from "./store.js";
import { count, parts, t } from "./strings.js";
import { Switch } from "./switch.js";
import { languageOf } from "./words.js";

const FEW = 12; // heads that all have a row
const MOST = 10; // rows of more heads, before all are shown
const WORDS = 8; // that have a column, before all have one

export function Matrix({ store }) {
  const found = contributionsOf(store);
  return found && html`<${Cells} store=${store} found=${found} />`;
}

function Cells({ store, found }) {
  const [isWhole, setWhole] = useState(false);
  const words = found.inWords(store.shownText, store.unit);
  const { shownText, shown, unit } = store;
  // While heads are switched rows and columns stay where they are.
  const asked = [found.asked, found.against].join();
  const [heads, names] = useMemo(() => {
    return [found.heads.map(placeOf), words.groups.map(({ word }) => word)];
  }, [shownText, shown, unit, asked]);
  const groups = inOrder(words.groups, names, ({ word }) => word);
  const table = found.table({ ...words, groups }, isWhole ? Infinity : WORDS);
  const ofHeads = table.rows.filter(({ kind }) => kind === "head");
  const all = inOrder(ofHeads, heads, placeOf);
  const most = isWhole || all.length <= FEW ? all.length : Math.min(MOST, found.enough());
  const others = table.rows.filter(({ kind }) => kind !== "head");
  const together = others.filter(({ kind }) => kind === "heads");
  const past = others.filter(({ kind }) => kind !== "heads");
  const rows = [...all.slice(0, most), ...restOf([...all.slice(most), ...together]), ...past];
  const unfold = (isOpen) => {
    setWhole(isOpen);
    store.set({ isAllAsked: isOpen }); // of heads whose cells take long
  };
  const view = { store, found, words, table, rows };
  const about = t`parts of the sum, not effects of removal; rows and columns add up`;
  const tools = [waitFor(store, together), unfolder(t`All heads and words`, isWhole, unfold)];
  const term = html`<${Term} name="head" />`;
  const title = parts`Which ${term} brings which word`;
  return html`<${Panel} name="heads-words" title=${title} about=${about} tools=${tools}>
    <div class="table-scroll" role="region" aria-label=${t`Heads and words`} tabindex="0">
      <table class="cells-table" lang=${languageOf(shownText.text)} ...${pointing(store)}>
        ${grid(view)}
      </table>
    </div>
  </${Panel}>`;
}

/* How long the words of the heads take whose sums alone are known; `store.pace` is for one. */
function waitFor({ pace }, [others]) {
  const seconds = pace === null || !others ? 0 : others.number * pace;
  return seconds >= 1 && html`<small>${
    t`the words of ${others.number} more heads take about ${count(Math.round(seconds))} s`
  }</small>`;
}

/* Things in an order of names that was kept; new ones at the end. */
function inOrder(things, names, nameOf) {
  const places = new Map(names.map((name, at) => [name, at]));
  const at = (thing) => places.get(nameOf(thing)) ?? names.length;
  return [...things].sort((a, b) => at(a) - at(b));
}

/* The heads without a row of their own, in one. */
function restOf(heads) {
  if (heads.length === 0) return [];
  const cells = heads[0].cells.map((_, at) => addedUp(heads.map((row) => row.cells[at])));
  const sum = addedUp(heads.map((row) => row.sum));
  const number = heads.reduce((all, row) => all + (row.number ?? 1), 0);
  return [{ kind: "heads", number, cells, sum }];
}

function grid(view) {
  const { store, words: { units, scale }, table, rows } = view;
  const { lit } = store;
  const isIn = (at) => lit !== null && lit >= units[at].start && lit < units[at].end;
  const of = ({ kind, places }, name) => {
    if (kind !== "word") return { class: `${name} others` };
    const names = places.some(isIn) ? `${name} lit` : name;
    return { class: names, "data-token": units[places[0]].start };
  };
  const most = rows.reduce((top, { sum }) => Math.max(top, Math.abs(sum)), 0.01);
  const sumOf = (sum) => html`<td class="sum-of">
    <b>${formatSigned(sum)}</b><${SumBar} value=${sum} scale=${most} />
  </td>`;
  const header = table.columns.map((column) => html`<th scope="col" ...${of(column, "")}>
    ${titleOf(column)}
  </th>`);
  const sum = html`<th scope="col" class="sum-of">${t`sum`}</th>`;
  const lines = rows.map((row) => {
    const cells = row.cells.map((number, at) => {
      const own = of(table.columns[at], "cell");
      return html`<td ...${own} ...${tint(number, scale, own.class)}>${formatSigned(number)}</td>`;
    });
    const named = row.kind === "head" ? nameOf(view, row) : rowName(store, row);
    const name = html`<th scope="row">${named}</th>`;
    return html`<tr key=${`${row.kind},${placeOf(row)}`}>${name}${cells}${sumOf(row.sum)}</tr>`;
  });
  const below = table.foot.cells.map((number, at) => {
    return html`<td ...${of(table.columns[at], "")}>${formatSigned(number)}</td>`;
  });
  const dashes = table.columns.map(() => html`<td>–</td>`);
  const end = (name, cells, number) => html`<tr>
    <th scope="row">${name}</th>${cells}<td class="sum-of"><b>${formatSigned(number)}</b></td>
  </tr>`;
  return html`
    <thead><tr><td></td>${header}${sum}</tr></thead>
    <tbody>${lines}</tbody>
    <tfoot>
      ${table.missed !== 0 && end(t`not attributed`, dashes, table.missed)}
      ${end(t`the word`, below, table.foot.sum)}
    </tfoot>`;
}

function titleOf(column) {
  const { kind, word, places } = column;
  if (kind === "ends" || kind === "biases") {
    return html`<${Term} name=${kind} words=${columnName(column)} />`;
  }
  if (kind === "others") return columnName(column);
  return [isolated(word), html`<small>${places.length > 1 && ` ×${places.length}`}</small>`];
}

function isShown(store, { layer, head }) {
  return store.isUnfolded && store.layer === layer && store.head === head;
}

/* A head's switch and name; of a record, what its absence changes. */
function nameOf({ store, found }, row) {
  const { layer, head } = row;
  const change = changeWithout(store, found, row);
  const about = t`points of ${className(store, found.asked)} that it gains or loses with this head
    off`;
  const label = t`show its map`;
  const isOpen = String(isShown(store, row));
  const own = { name: "head-name", title: label, "aria-expanded": isOpen };
  return [
    store.canSwitch && html`<${Switch} store=${store} layer=${layer} head=${head} />`,
    button(store.headName(layer, head), () => store.unfoldHead(layer, head), own),
    change && html`<small class="without" title=${about}>
      ${t`without it ${formatSigned(change.points, 1)}`}
      ${change.isOther && html` <span class="differs">${t`⚠ others take over`}</span>`}
    </small>`,
  ];
}
