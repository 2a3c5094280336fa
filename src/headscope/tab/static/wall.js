/* The maps of all heads side by side, where there are many of them or no sums: a row a layer, the
   border as strong as what the head brings. */

import { contributionsOf } from "./contributions.js";
import { Scale, Thumbnail, mapOf, mostOf } from "./map.js";
import { Panel, formatSigned } from "./parts.js";
import { html } from "./preact.js";
import { t } from "./strings.js";

const FEW = 12; // heads, whose maps are all in the table

export function Wall({ store }) {
  const { maps, index } = store;
  if (maps === null) return null;
  const found = contributionsOf(store);
  const heads = index.layers.map((_, layer) => maps.headsOf(layer));
  const size = heads.reduce((sum, each) => sum + each, 0);
  if (size === 0 || (found !== null && size <= FEW)) return null;
  const most = found?.heads.reduce((top, { sum }) => Math.max(top, Math.abs(sum)), 0.01);
  const title = t`Where all ${size} heads look`;
  const about = found && t`border: what a head brings`;
  const tools = html`<${Scale} most=${mostOf(store)} side=${maps.tokens} />`;
  const rows = heads.map((of, layer) => html`<div class="wall-row" role="group"
    aria-label=${store.layerName(layer)}
  ><span class="wall-name">${store.layerName(layer)}</span>${
    Array.from({ length: of }, (_, head) => cellOf(store, found, most, layer, head))
  }</div>`);
  return html`<${Panel} name="wall" title=${title} about=${about} tools=${tools}>
    <div class="wall-rows" tabindex="0" role="group" aria-label=${title}>${rows}</div>
  </${Panel}>`;
}

function cellOf(store, found, most, layer, head) {
  const sum = found?.has(layer, head) ? found.shownSum(layer, head) : null;
  const name = `${store.headName(layer, head)}${sum === null ? "" : ` ${formatSigned(sum)}`}`;
  const strength = sum === null ? 0 : Math.abs(sum) / most;
  const isChosen = store.layer === layer && store.head === head;
  return html`<button
    type="button" class=${sum < 0 ? "wall-cell less" : "wall-cell"} title=${name} aria-label=${name}
    aria-pressed=${String(isChosen)} style=${{ "--strength": strength.toFixed(3) }}
    onclick=${() => store.chooseHead(layer, head)}
  ><${Thumbnail} map=${mapOf(store, layer, head)} /></button>`;
}
