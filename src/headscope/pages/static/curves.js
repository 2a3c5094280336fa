/* Scores of the texts, alone by confidence, and where only the surer ones get a label. */

import { Fold, Panel, button, chooser, formatSigned, percent } from "./parts.js";
import { html, useMemo, useState } from "./preact.js";
import { count, t } from "./strings.js";

const BINS = 10; // of confidence
const SIDE = 220; // of a plot
const POINTS = 400; // of a curve
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

/* A square from 0 to 1 on both sides; lines of points, and points with their sizes. */
function plot(name, [across, up], low, lines, points = []) {
  const x = (value) => (SIDE * (value - low[0])) / (1 - low[0]);
  const y = (value) => SIDE - (SIDE * (value - low[1])) / (1 - low[1]);
  const path = (line) => line.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ");
  const box = `-52 -4 ${SIDE + 60} ${SIDE + 42}`;
  return html`<svg viewBox=${box} role="img" aria-label=${name} class="plot">
    <rect width=${SIDE} height=${SIDE} class="plot-frame" />
    ${lines.map(([kind, line]) => html`<polyline class=${kind} points=${path(line)} />`)}
    ${points.map(([a, b, size]) => html`<circle cx=${x(a)} cy=${y(b)} r=${size} />`)}
    <text x="0" y=${SIDE + 16}>${100 * low[0]} %</text>
    <text x=${SIDE} y=${SIDE + 16} text-anchor="end">100 %</text>
    <text x=${SIDE / 2} y=${SIDE + 32} text-anchor="middle">${across}</text>
    <text x="-6" y=${SIDE} text-anchor="end">${Math.round(100 * low[1])} %</text>
    <text x="-6" y="12" text-anchor="end">100 %</text>
    <text x="6" y="16">${up}</text>
  </svg>`;
}

/* `texts`: {given, predicted, confidence, answers, baseline, isRight} of those that are scored;
   `children` stand beside the scores. */
export function Scores({ texts, children }) {
  const [order, rows] = useMemo(() => {
    const known = [...texts.given.keys()].filter((at) => texts.given[at] >= 0);
    const sorted = known.sort((a, b) => texts.confidence[b] - texts.confidence[a]);
    return [sorted, scoresOf(texts, sorted)];
  }, [texts]);
  const curves = () => html`<div class="plots">
    ${reliability(texts, order)}<${Coverage} texts=${texts} order=${order} />
  </div>`;
  const about = t`${count(order.length)} labelled texts`;
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
    <${Fold} title=${t`Accuracy by confidence`}>${curves}</${Fold}>
  </${Panel}>`;
}

/* Rows of [name, accuracy, macro-F1]: of the run, of TF-IDF beside it, and their difference. */
function scoresOf(texts, order) {
  const right = order.filter((at) => texts.isRight(at)).length;
  const [low, high] = interval(right, order.length).map(percent);
  const pairs = order.map((at) => [texts.given[at], texts.predicted[at]]);
  const accuracy = [html`<b>${percent(right / order.length)}</b>`, ` ${t`(${low} to ${high})`}`];
  const rows = [[t`this run`, accuracy, percent(macroF1(pairs, texts.answers.length))]];
  const { baseline } = texts;
  if (baseline) {
    rows.push([baseline.name, percent(baseline.accuracy), percent(baseline.macro_f1)]);
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

/* Of texts with such a confidence, how many are right: on the diagonal, as many as it says. */
function reliability(texts, order) {
  const bins = Array.from({ length: BINS }, () => [0, 0, 0]);
  for (const at of order) {
    const bin = bins[Math.min(BINS - 1, Math.floor(BINS * texts.confidence[at]))];
    bin[0] += texts.confidence[at];
    bin[1] += texts.isRight(at) ? 1 : 0;
    bin[2] += 1;
  }
  const filled = bins.filter(([, , size]) => size > 0);
  const points = filled.map(([sum, right, size]) => {
    return [sum / size, right / size, 3 + 9 * Math.sqrt(size / order.length)];
  });
  const lines = [["diagonal", [[0, 0], [1, 1]]], ["curve", points]];
  const axes = [t`confidence`, t`accuracy`];
  return html`<figure>
    ${plot(t`Accuracy by confidence`, axes, [0, 0], lines, points)}
    <figcaption>${t`On the diagonal probabilities are right as often as they say; larger dots have
      more texts.`}</figcaption>
  </figure>`;
}

/* Where only texts from a confidence on get a label: how many do, and how many are right; of all
   texts, or of those predicted to be one class. */
function Coverage({ texts, order }) {
  const [chosen, choose] = useState(0.9);
  const [answer, chooseAnswer] = useState("");
  const predicted = new Set(order.map((at) => texts.predicted[at]));
  const classes = [...texts.answers.entries()].filter(([at]) => predicted.has(at));
  const own = order.filter((at) => answer === "" || texts.predicted[at] === Number(answer));
  let right = 0;
  const points = own.map((at, place) => {
    right += texts.isRight(at) ? 1 : 0;
    return [(place + 1) / own.length, right / (place + 1)];
  });
  const every = Math.ceil(points.length / POINTS);
  const drawn = points.filter((_, at) => (at + 1) % every === 0 || at === points.length - 1);
  const least = drawn.reduce((low, [, share]) => Math.min(low, share), 1);
  const low = [0, Math.max(0, Math.floor(10 * least - 0.5) / 10)];
  const place = Math.max(1, Math.round(chosen * own.length)) - 1;
  const target = `{${JSON.stringify(texts.answers[answer])}:${points[place][1].toFixed(4)}}`;
  const command = answer === ""
    ? `min_confidence=${texts.confidence[own[place]].toFixed(4)}` : `'target_precision=${target}'`;
  const [share, accuracy] = points[place].map(percent);
  const name = t`Accuracy by share of texts that get a label`;
  const options = [["", t`all predictions`], ...classes];
  return html`<figure>
    ${chooser("answer", t`Predicted class`, answer, options, chooseAnswer)}
    ${plot(name, [t`share of texts with a label`, t`accuracy`], low, [["curve", drawn]])}
    <input
      type="range" min="0.01" max="1" step="0.01" value=${chosen}
      aria-label=${t`Share of texts that get a label`}
      oninput=${(event) => choose(Number(event.target.value))}
    />
    <figcaption>
      <span role="status">${t`${share} of the texts get a label, ${accuracy} of those are right:`}
      </span>${" "}<code>${command}</code>${" "}
      ${button(t`Copy`, () => navigator.clipboard?.writeText(command))}
    </figcaption>
  </figure>`;
}
