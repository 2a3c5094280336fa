/* The chosen head in sentences, and all heads as strips of the answer's row. */

import { allHeads } from "./answer.js";
import { cellIn, contributionsOf } from "./contributions.js";
import { looksOf, namesOf } from "./looks.js";
import { Thumbnail, Scale, mapOf, mostOf } from "./map.js";
import { Panel, button, classLabel, formatSigned, isolated, legible, percent } from "./parts.js";
import { html, useEffect } from "./preact.js";
import { shortName } from "./ribbons.js";
import { headKey, isFirstLayer, placeOf } from "./store.js";
import { parts, t } from "./strings.js";
import { Switch, switches } from "./switch.js";
import { named } from "./told.js";
import { unitsOf } from "./words.js";

const NAMED = 2; // words that a head brings most from
const WORDS = 4; // over many texts
const STRIPS = 12; // heads at most; all maps of more stand in a panel of their own
const LEAST = [0.1, 0.5]; // log-odds and points, of a sum and a change that are at odds

/* `ask` computes what the network says without a head, where it runs here. */
export function Card({ store, ask }) {
  const { layer, head, maps } = store;
  const found = contributionsOf(store);
  const isKnown = found?.has(layer, head) ?? false;
  useEffect(() => isKnown && ask?.(layer, head), [maps, layer, head, store.ablated]);
  if (!isKnown || !maps.has(layer, head)) return null;
  const sentences = [looksLine, addsLine, overLine].map((line) => line(store, found));
  const role = store.numbers?.extra.roles?.[layer]?.[head];
  const open = () => store.chooseHead(layer, head);
  return html`<${Panel}
    name="card" title=${store.headName(layer, head)} about=${role && legible(named(role), 40)}
    tools=${button(t`Its map`, open, { title: t`show its map` })}
  >
    ${sentences.map((sentence) => sentence && html`<p>${sentence}</p>`)}
    ${offLine(store, found)}
    ${stripsOf(store, found)}
  </${Panel}>`;
}

/* Where it looks, from the position of the answer or on average. */
function looksLine(store) {
  const { layer, head, shownText, index } = store;
  const map = mapOf(store, layer, head, { isRow: true });
  const { answer, others } = looksOf(map, unitsOf(shownText, "word"));
  const isOff = store.ablated.get(placeOf(store));
  if (isOff === "uniform") return t`It is an average now: it looks at all tokens alike.`;
  if (isOff === "zero") return t`It is off now: its output is zero.`;
  const row = answer ?? others;
  if (row.words.length === 0) {
    return row === answer || row.isEven ? t`It looks at all tokens nearly alike.`
      : t`It looks elsewhere from each token.`;
  }
  const names = html`<b>${namesOf(row.words, index.layers, layer)}</b>`;
  if (answer === null) return parts`On average it looks most at ${names}.`;
  const share = percent(row.share);
  return parts`For its answer the network asks this head where to look. It looks at ${names}:
    ${share} of its attention, ${row.times.toFixed(1)} times an even share.`;
}

/* What that adds, and from which words. */
function addsLine(store, found) {
  const { layer, head } = store;
  const words = found.inWords(store.shownText, store.unit);
  const line = found.linesIn(words).find((own) => own.layer === layer && own.head === head);
  const cells = words.groups.map((group) => [group.word, line ? cellIn(line.shown, group) : 0]);
  const ranked = cells.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, NAMED);
  const most = ranked.filter(([, cell]) => cell !== 0).map(([word, cell], at) => {
    return [at > 0 && t`, `, "“", isolated(word), `” ${formatSigned(cell)}`];
  });
  const sum = found.shownSum(layer, head);
  const number = html`<b class=${sum < 0 ? "less" : "more"}>${formatSigned(sum)}</b>`;
  const total = formatSigned(found.shown.total);
  const [first, second] = [found.asked, found.against].map((place) => classLabel(store, place));
  const said = parts`What it finds adds ${number} of ${total} for ${first} over ${second}`;
  if (most.length === 0) return [said, "."];
  // It may look at [CLS] alone: the places hold what lower layers have brought there.
  return isFirstLayer(store.index.layers, layer) ? [said, parts`, most through ${most}.`]
    : [said, parts`, most through ${most}, which lower layers have brought to where it looks.`];
}

/* What it brings over many texts. */
function overLine({ learned, layer, head, index }, { asked }) {
  const words = learned?.[headKey(index.layers, layer, head)]?.[index.classes[asked]]?.[0] ?? [];
  if (words.length === 0) return null;
  const names = words.slice(0, WORDS).map(([word], at) => [at > 0 && t`, `, isolated(word)]);
  const name = isolated(index.classes[asked]);
  return parts`Over many texts it brings most for ${name} from ${html`<b>${names}</b>`}.`;
}

/* How many points the asked class has more with a head off, and whether its sum says otherwise;
   null where that is not known. */
export function changeWithout(store, found, { layer, head }) {
  const { maps, without } = store;
  const shares = without?.of === maps ? without.heads.get(`${layer},${head}`) : null;
  const other = (shares ?? maps.ablated(layer, head))?.[found.asked];
  if (other === undefined) return null;
  const now = maps.values("probabilities")[found.asked];
  const points = 100 * (other - now);
  const isLarge = Math.abs(found.headSum(layer, head)) >= LEAST[0] && Math.abs(points) >= LEAST[1];
  return { points, now, other, isOther: isLarge && found.headSum(layer, head) * points > 0 };
}

/* Its switch, and what happens without it. */
function offLine(store, found) {
  const { layer, head } = store;
  const change = changeWithout(store, found, store);
  const own = store.canSwitch && html`<${Switch} store=${store} layer=${layer} head=${head} />`;
  if (!own && change === null) return null;
  const name = classLabel(store, found.asked);
  const isOn = !store.ablated.has(placeOf(store));
  const shares = change && [change.now, change.other].map(percent);
  const words = isOn && change && parts`Off: ${name} ${shares[0]} → ${shares[1]}.`;
  const isOther = isOn && change?.isOther;
  return html`<p class="off">${own} ${words} ${isOther
    ? html`<span class="differs">${t`⚠ others take over`}</span>`
    : t`Its sum is a part, not what is lost without it.`}
  </p>`;
}

/* The answer's row of each head, or its map where no row is known. */
function stripsOf(store, found) {
  const { maps, layer, head } = store;
  const heads = found.heads.slice(0, STRIPS);
  const all = allHeads(store).length;
  const strips = heads.map((each) => {
    const isChosen = each.layer === layer && each.head === head;
    const name = store.headName(each.layer, each.head);
    const short = shortName(store, each.layer, each.head);
    const sum = formatSigned(each.shown);
    const choose = () => store.set({ layer: each.layer, head: each.head, headChosen: true });
    const words = [
      html`<${Thumbnail} map=${mapOf(store, each.layer, each.head, { isRow: true })} />`,
      html`<small>${short} <b class=${each.sum < 0 ? "less" : "more"}>${sum}</b></small>`,
    ];
    const own = { title: `${name} ${sum}`, "aria-label": `${short} ${sum}, ${name}` };
    const pressed = { "aria-pressed": String(isChosen) };
    return button(words, choose, { name: "strip-of", ...own, ...pressed });
  });
  const some = t`${heads.length} of ${all} heads: where the answer’s row looks`;
  const title = heads.length < all ? some : t`All ${all} heads: where the answer’s row looks`;
  return html`<h3 class="strips-title">${title}</h3>
    <div class="strips">${strips}</div>
    <${Scale} most=${mostOf(store)} side=${maps.tokens} />
    ${store.canSwitch && html`<p class="tools">${switches(store)}</p>`}`;
}
