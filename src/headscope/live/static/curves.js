/* The scores of the texts, how far probabilities can be believed, and how many texts are right
   where only the surer ones get a label. */

import { button, element, panel, percent } from "./dom.js";
import { count, t } from "./strings.js";

const BINS = 10; // of confidence
const SIDE = 220; // of a plot
const Z = 1.96; // standard errors of a 95 % interval
const DRAWS = 1000; // of the bootstrap

function draw(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

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

/* Macro-F1 with its interval, by a bootstrap over the texts with a fixed seed. */
function f1Interval(pairs, classes) {
  let state = 1;
  const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
  const draws = Array.from({ length: DRAWS }, () => {
    return macroF1(pairs.map(() => pairs[Math.floor(random() * pairs.length)]), classes);
  }).sort((a, b) => a - b);
  return [macroF1(pairs, classes), draws[0.025 * DRAWS], draws[0.975 * DRAWS]];
}

/* A square from 0 to 1 on both sides; lines of points, and points with their sizes. */
function plot(name, [across, up], low, lines, points = []) {
  const x = (value) => (SIDE * (value - low[0])) / (1 - low[0]);
  const y = (value) => SIDE - (SIDE * (value - low[1])) / (1 - low[1]);
  const path = (line) => line.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ");
  const drawn = lines.map(([kind, line]) => draw("polyline", { class: kind, points: path(line) }));
  const dots = points.map(([a, b, size]) => draw("circle", { cx: x(a), cy: y(b), r: size }));
  const frame = draw("rect", { width: SIDE, height: SIDE, class: "plot-frame" });
  const words = [
    draw("text", { x: 0, y: SIDE + 16 }, `${100 * low[0]} %`),
    draw("text", { x: SIDE, y: SIDE + 16, "text-anchor": "end" }, "100 %"),
    draw("text", { x: SIDE / 2, y: SIDE + 32, "text-anchor": "middle" }, across),
    draw("text", { x: -6, y: SIDE, "text-anchor": "end" }, `${Math.round(100 * low[1])} %`),
    draw("text", { x: -6, y: 12, "text-anchor": "end" }, "100 %"),
    draw("text", { x: 6, y: 16 }, up),
  ];
  const box = `-52 -4 ${SIDE + 60} ${SIDE + 42}`;
  const attributes = { viewBox: box, role: "img", "aria-label": name, class: "plot" };
  return draw("svg", attributes, frame, ...drawn, ...dots, ...words);
}

export function curves(texts) {
  if (!texts.isLabelled) return [];
  const known = [...texts.given.keys()].filter((at) => texts.given[at] >= 0);
  const order = known.sort((a, b) => texts.confidence[b] - texts.confidence[a]);
  const plots = element("div", "plots", reliability(texts, order), coverage(texts, order));
  return [panel("report-scores", t`Scores of these texts`, scoresOf(texts, order), plots).root];
}

function scoresOf(texts, order) {
  const right = order.filter((at) => texts.isRight(at)).length;
  const range = (low, high) => t`95 % interval ${percent(low)} to ${percent(high)}`;
  const share = percent(right / order.length);
  const lines = [`${t`Accuracy`} ${share} (${range(...interval(right, order.length))})`];
  const pairs = order.map((at) => [texts.given[at], texts.predicted[at]]);
  const [f1, low, high] = f1Interval(pairs, texts.answers.length);
  lines.push(`${t`Macro-F1`} ${percent(f1)} (${range(low, high)})`);
  const { baseline } = texts;
  if (baseline) {
    const scores = [baseline.accuracy, baseline.macro_f1].map(percent);
    const points = baseline.differences.accuracy.map((each) => (100 * each).toFixed(1));
    const words = t`accuracy ${scores[0]}, macro-F1 ${scores[1]}; the run is ${points[0]} points
      above (${points[1]} to ${points[2]})`;
    lines.push(`${baseline.name}: ${words}`);
  }
  return element("ul", "score-lines", ...lines.map((line) => element("li", {}, line)));
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
  const name = t`Accuracy by confidence`;
  const figure = plot(name, [t`confidence`, t`accuracy`], [0, 0], lines, points);
  const words = t`On the diagonal probabilities are right as often as they say; larger dots have
    more texts.`;
  return element("figure", {}, figure, element("figcaption", {}, words));
}

/* Where only texts from a confidence on get a label: how many do, and how many are right. */
function coverage(texts, order) {
  let right = 0;
  const points = order.map((at, place) => {
    right += texts.isRight(at) ? 1 : 0;
    return [(place + 1) / order.length, right / (place + 1)];
  });
  const least = Math.min(...points.map(([, share]) => share));
  const low = [0, Math.max(0, Math.floor(10 * least - 0.5) / 10)];
  const words = element("span", { role: "status" });
  const command = element("code");
  const copy = button(t`Copy`, "", () => navigator.clipboard?.writeText(command.textContent));
  const show = () => {
    const place = Math.max(1, Math.round(range.value * order.length)) - 1;
    command.textContent = `min_confidence=${texts.confidence[order[place]].toFixed(4)}`;
    const [share, accuracy] = points[place];
    words.textContent = t`${percent(share)} of the texts get a label, ${percent(accuracy)} of
      those are right:`;
  };
  const name = t`Share of texts that get a label`;
  const limits = { type: "range", min: "0.01", max: "1", step: "0.01", value: "0.9" };
  const range = element("input", { ...limits, "aria-label": name, oninput: show });
  show();
  const some = Math.ceil(points.length / 400);
  const line = points.filter((_, place) => place % some === 0 || place === points.length - 1);
  const label = t`Accuracy by share of texts that get a label`;
  const figure = plot(label, [t`share of texts with a label`, t`accuracy`], low, [["curve", line]]);
  const caption = element("figcaption", {}, words, " ", command, " ", copy);
  return element("figure", {}, figure, range, caption);
}
