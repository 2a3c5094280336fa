/* What a head brings over the steps of training, and the steps played one after the other. */

import { contributionsOf } from "./contributions.js";
import { button, formatSigned } from "./parts.js";
import { html, useEffect } from "./preact.js";
import { t } from "./strings.js";
import { moveStep } from "./steps.js";

const [WIDE, HIGH] = [260, 44]; // pixels
const PAUSE = 350; // milliseconds that a step is shown at least

/* The head's sum at each recorded step, with a mark at the shown one. */
export function Sparkline({ store }) {
  const { steps, history, layer, head, shown } = store;
  if (steps.length < 2) return null;
  const sums = steps.flatMap(({ step }, at) => {
    const maps = step === shown ? store.maps : history.get(step);
    const found = maps && contributionsOf({ ...store, maps });
    return found?.has(layer, head) ? [[step, at, found.headSum(layer, head)]] : [];
  });
  if (sums.length === 0) return null;
  const values = sums.map(([, , value]) => value);
  const [low, high] = [Math.min(0, ...values), Math.max(0.01, ...values)];
  const x = (at) => (WIDE * at) / (steps.length - 1);
  const y = (value) => HIGH - (HIGH * (value - low)) / (high - low);
  const line = sums.map(([, at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const now = sums.find(([step]) => step === shown);
  const label = t`What the head brings at each recorded step`;
  return html`<figure class="sparkline">
    <svg viewBox="-4 -4 ${WIDE + 8} ${HIGH + 8}" role="img" aria-label=${label}>
      <path class="zero" d="M0 ${y(0)}H${WIDE}" /><polyline points=${line} />
      ${now && html`<circle cx=${x(now[1])} cy=${y(now[2])} r="4" />`}
    </svg>
    <figcaption>${label}${now && `: ${formatSigned(now[2])} (${t`step ${now[0]}`})`}</figcaption>
  </figure>`;
}

/* A button that shows the steps one after the other, from the first where the last is shown. */
export function Play({ store }) {
  const { steps, place, shown, isPlaying } = store;
  const isLast = place === steps.length - 1;
  useEffect(() => {
    if (!isPlaying || shown !== steps[place]?.step) return undefined;
    const go = () => (isLast ? store.set({ isPlaying: false }) : moveStep(store, 1));
    const timer = setTimeout(go, PAUSE);
    return () => clearTimeout(timer);
  }, [isPlaying, shown, place]);
  const start = () => {
    if (isLast) moveStep(store, -place);
    store.set({ isPlaying: true });
  };
  const stop = () => store.set({ isPlaying: false });
  if (isPlaying) return button("⏸", stop, { title: t`Stop`, "aria-label": t`Stop` });
  return button("▶", start, { title: t`Play the steps`, "aria-label": t`Play the steps` });
}
