/* The numbers of every head: a row a head. A click on a column's name sorts. */

import { EFFECTS, rankHeads } from "./answer.js";
import { Panel, button, formatNumber, isolated, legible } from "./parts.js";
import { html, useState } from "./preact.js";
import { t } from "./strings.js";
import { named } from "./told.js";

/* The columns that stand first, by the names of the record. */
const FIRST = [
  "effect", "loss_zeroed", "accuracy_zeroed", "contribution", "role", "entropy_share",
  "mean_distance", "self", "previous", "next", "first", "separator", "crossing",
];
const OF_EXTRA = { effect: "effects", role: "roles" };

/* What is known of a head at a step: [words, what it is sorted by, title, error]. */
function cellOf({ measures, extra }, name, layer, head) {
  if (name === "effect") {
    const state = extra.effects[layer][head];
    return [named(EFFECTS[state] ?? "–"), state];
  }
  if (name === "role") {
    const role = extra.roles[layer]?.[head] || "–";
    const score = formatNumber(extra["roles/score"]?.[layer]?.[head]);
    return [legible(named(role), 40), role, t`score ${score}`];
  }
  const { mean, error } = measures[name];
  const value = mean?.[layer]?.[head] ?? null;
  const wide = error?.[layer]?.[head] ?? null;
  return [formatNumber(value), value, "", wide === null ? "" : ` ±${formatNumber(wide)}`];
}

export function HeadTable({ store }) {
  const [sorted, sort] = useState(null);
  const { index, numbers, errors } = store;
  const title = t`Numbers of every head`;
  const error = errors.numbers && t`The numbers of this step cannot be read.`; // why stands above
  if (error) return html`<${Panel} name="table" title=${title} error=${error} />`;
  if (index === null || numbers === null) return null;
  const { measures, extra } = numbers;
  const known = FIRST.filter((name) => OF_EXTRA[name] in extra || Object.hasOwn(measures, name));
  const columns = [...known, ...Object.keys(measures).filter((name) => !known.includes(name))];
  const heads = rankHeads(store).map(({ layer, head }) => {
    return { layer, head, cells: columns.map((name) => cellOf(numbers, name, layer, head)) };
  });
  const by = sorted && columns.indexOf(sorted.column);
  if (sorted?.column === "head") heads.sort((a, b) => a.layer - b.layer || a.head - b.head);
  else if (by >= 0 && sorted) heads.sort((a, b) => order(a.cells[by][1], b.cells[by][1]));
  if (sorted?.falling) heads.reverse();
  heads.sort((a, b) => (a.cells[by]?.[1] === null) - (b.cells[by]?.[1] === null)); // at the end
  const header = ["head", ...columns].map((name) => {
    const words = name === "head" ? t`head` : named(name);
    const isHere = sorted?.column === name;
    const direction = sorted?.falling ? "descending" : "ascending";
    const falling = isHere ? !sorted.falling : !["head", "role"].includes(name);
    return html`<th scope="col" data-column=${name} aria-sort=${isHere ? direction : "none"}>
      ${button(legible(words, 40), () => sort({ column: name, falling }), { name: "" })}
    </th>`;
  });
  const rows = heads.map(({ layer, head, cells }) => {
    const isChosen = layer === store.layer && head === store.head;
    return html`<tr
      key="${layer},${head}" aria-current=${isChosen ? "true" : null}
      onclick=${() => store.chooseHead(layer, head)}
    ><th scope="row"><button type="button">${isolated(store.headName(layer, head))}</button></th>${
      cells.map(([words, , about = "", error = ""], at) => html`<td
        data-column=${columns[at]} title=${about}
      >${words}<small>${error}</small></td>`)
    }</tr>`;
  });
  const isAway = index.best !== undefined && index.best !== numbers.step;
  return html`<${Panel}
    name="table" title=${title} about=${isAway && t`heads were ablated at step ${index.best}`}
  ><div class="table-scroll" tabindex="0" role="group" aria-label=${title}><table>
    <thead><tr>${header}</tr></thead><tbody>${rows}</tbody>
  </table></div></${Panel}>`;
}

function order(a, b) {
  return typeof a === "string" ? a.localeCompare(b) : a - b;
}
