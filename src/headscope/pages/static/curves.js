/* Scores of the texts, and of validation where only the surer ones get a label. */

import { page } from "./api.js";
import { Fold, Panel, button, formatSigned, percentOf, rounded } from "./parts.js";
import { html, useMemo, useState } from "./preact.js";
import { count, t } from "./strings.js";
import { told } from "./told.js";

const SIDE = 220; // of a plot
const Z = 1.96; // standard errors of a 95 % interval

/* The interval of a share (Wilson 1927). */
function interval(right, all) {
  const share = right / all;
  const middle = share + (Z * Z) / (2 * all);
  const width = Z * Math.sqrt((share * (1 - share)) / all + (Z * Z) / (4 * all * all));
  return [middle - width, middle + width].map((end) => end / (1 + (Z * Z) / all));
}

function macroF1(pairs, classes) {
  const hits = new Float64Array(classes);
  const sizes = new Float64Array(classes); // of those given and those predicted
  for (const [given, predicted] of pairs) {
    sizes[given] += 1;
    sizes[predicted] += 1;
    if (given === predicted) hits[given] += 1;
  }
  const scores = [...sizes.keys()].filter((c) => sizes[c] > 0).map((c) => (2 * hits[c]) / sizes[c]);
  return scores.reduce((sum, score) => sum + score, 0) / scores.length;
}

/* A line of points in a square, up to 1 on both sides. */
function plot(name, [across, up], low, points) {
  const x = (value) => (SIDE * (value - low[0])) / (1 - low[0]);
  const y = (value) => SIDE - (SIDE * (value - low[1])) / (1 - low[1]);
  const path = points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ");
  const box = `-52 -4 ${SIDE + 60} ${SIDE + 42}`;
  return html`<svg viewBox=${box} role="img" aria-label=${name} class="plot">
    <rect width=${SIDE} height=${SIDE} class="plot-frame" />
    <polyline points=${path} />
    <text x="0" y=${SIDE + 16}>${100 * low[0]} %</text>
    <text x=${SIDE} y=${SIDE + 16} text-anchor="end">100 %</text>
    <text x=${SIDE / 2} y=${SIDE + 32} text-anchor="middle">${across}</text>
    <text x="-6" y=${SIDE} text-anchor="end">${Math.round(100 * low[1])} %</text>
    <text x="-6" y="12" text-anchor="end">100 %</text>
    <text x="6" y="16">${up}</text>
  </svg>`;
}

/* `texts`: {given, predicted, answers, baseline, isRight} of those that are scored;
   `children` stand beside the scores. */
export function Scores({ texts, children }) {
  const [known, rows] = useMemo(() => {
    const labelled = [...texts.given.keys()].filter((at) => texts.given[at] >= 0);
    return [labelled, scoresOf(texts, labelled)];
  }, [texts]);
  const { curve } = page.index; // null where a text may have several labels
  const drawn = () => html`<div class="plots"><${Coverage} curve=${curve} /></div>`;
  const about = t`${count(known.length)} labelled texts`;
  return html`<${Panel} name="report-scores" title=${t`Scores of these texts`} about=${about}>
    <div class="scores">
      <table class="score-table">
        <thead><tr>
          <td></td><th scope="col">${t`accuracy`}</th><th scope="col">${t`macro-F1`}</th>
        </tr></thead>
        <tbody>${rows.map(([name, ...cells]) => html`<tr>
          <th scope="row">${name}</th>${cells.map((cell) => html`<td>${cell}</td>`)}
        </tr>`)}</tbody>
      </table>
      ${children}
    </div>
    ${curve && html`<${Fold} title=${t`Accuracy by confidence`}>${drawn}</${Fold}>`}
  </${Panel}>`;
}

/* What it does with 100 new texts: how many it answers, and how many of these answers are right.
   Nothing of texts that the run was trained or chosen on. */
export function Headline({ texts, name }) {
  const known = [...texts.given.keys()].filter((at) => texts.given[at] >= 0);
  const answered = known.filter((at) => !texts.unfamiliar[at]);
  if (answered.length === 0 || ["train", "validation"].includes(name)) return null;
  const right = answered.filter((at) => texts.isRight(at)).length;
  const all = Math.round((100 * answered.length) / known.length);
  const ends = interval(right, answered.length).map((end) => Math.round(all * end));
  const good = Math.round((all * right) / answered.length);
  return html`<p class="headline">${t`Of 100 new texts it answers ${all}; ${good} of these are right
    (95 % interval ${ends[0]} to ${ends[1]}), measured on ${count(known.length)}.`} ${all < 100
      && t`The others are unlike those of training.`}</p>`;
}

/* Rows of [name, accuracy, macro-F1]: of the run, of TF-IDF beside it, and their difference. */
function scoresOf(texts, known) {
  const right = known.filter((at) => texts.isRight(at)).length;
  const [low, high] = interval(right, known.length).map(rounded);
  const pairs = known.map((at) => [texts.given[at], texts.predicted[at]]);
  const accuracy = [html`<b>${percentOf(right, known.length)}</b>`, ` ${t`(${low} to ${high})`}`];
  const rows = [[t`this run`, accuracy, percentOf(macroF1(pairs, texts.answers.length), 1)]];
  const { baseline } = texts;
  if (baseline) {
    const scores = [baseline.accuracy, baseline.macro_f1].map((score) => percentOf(score, 1));
    rows.push([told(baseline.name), ...scores]);
    const { accuracy: points, macro_f1: ofF1 } = baseline.differences;
    rows.push([t`difference in points`, ...[points, ofF1].map(differenceOf)]);
  }
  return rows;
}

function differenceOf(difference) {
  if (!difference) return "–";
  const [middle, low, high] = difference.map((each) => formatSigned(100 * each, 1));
  return [html`<b>${middle}</b>`, ` ${t`(${low} to ${high})`}`];
}

/* Where only texts from a confidence on get a label: how many validation texts do, and how many of
   those are right. The curve is that of metrics.json: [least confidence, texts that reach it, right
   ones], the surest first. */
function Coverage({ curve }) {
  const [chosen, choose] = useState(0.9);
  const [, all] = curve.at(-1);
  const points = curve.map(([, texts, right]) => [texts / all, right / texts]);
  const least = points.reduce((low, [, share]) => Math.min(low, share), 1);
  const low = [0, Math.max(0, Math.floor(10 * least - 0.5) / 10)];
  const place = points.findIndex(([share]) => share >= chosen);
  const command = `min_confidence=${(Math.floor(1e4 * curve[place][0]) / 1e4).toFixed(4)}`;
  const [, reached, right] = curve[place];
  const [share, accuracy] = [percentOf(reached, all), percentOf(right, reached)];
  const name = t`Accuracy by share of texts that get a label`;
  return html`<figure>
    ${plot(name, [t`share of texts with a label`, t`accuracy`], low, points)}
    <input
      type="range" min="0.01" max="1" step="0.01" value=${chosen}
      aria-label=${t`Share of texts that get a label`}
      oninput=${(event) => choose(Number(event.target.value))}
    />
    <figcaption>
      <span role="status">${t`${share} of the validation texts get a label, ${accuracy} of those are
        right:`}</span>${" "}<code>${command}</code>${" "}
      ${button(t`Copy`, () => navigator.clipboard?.writeText(command))}
    </figcaption>
  </figure>`;
}
