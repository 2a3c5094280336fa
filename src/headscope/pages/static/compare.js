/* Two runs side by side over texts: scores, heads, words, and the texts on which they differ. */

import { page } from "./api.js";
import { show } from "./app.js";
import { followTheme } from "./host.js";
import { Panel, chooser, formatNumber, formatSigned, isolated, rounded } from "./parts.js";
import { html, useState } from "./preact.js";
import { count, t } from "./strings.js";
import { told } from "./told.js";

function tableOf(header, rows) {
  const cells = (row) => row.map((cell, at) => {
    return at === 0 ? html`<th scope="row">${cell}</th>` : html`<td>${cell}</td>`;
  });
  return html`<div class="table-scroll" tabindex="0"><table>
    <thead><tr>${header.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${cells(row)}</tr>`)}</tbody>
  </table></div>`;
}

function intervalOf([middle, low, high]) {
  const [own, ...ends] = [middle, low, high].map((each) => formatSigned(100 * each, 1));
  return [html`<b>${own}</b>`, ` ${t`(${ends[0]} to ${ends[1]})`}`];
}

function Scores({ comparison }) {
  const { names, scores, intervals, size } = comparison;
  if (scores.length === 0) return null;
  const titles = { accuracy: t`accuracy`, macro_f1: t`macro-F1` };
  const rows = scores.map(([name, ...values]) => {
    const own = values.slice(0, 2).map((value, run) => {
      const ends = name === "accuracy" ? intervals[run].map(rounded) : null;
      return [html`<b>${rounded(value)}</b>`, ends && ` ${t`(${ends[0]} to ${ends[1]})`}`];
    });
    return [titles[name], ...own, values[2] === null ? "–" : intervalOf(values[2])];
  });
  const about = t`${count(size)} labelled texts`;
  return html`<${Panel} name="report-scores" title=${t`Scores of these texts`} about=${about}>
    ${tableOf(["", ...names.map((name) => isolated(name)), t`difference in points`], rows)}
  </${Panel}>`;
}

function Heads({ names, heads }) {
  const note = t`What ablating a head adds to the loss over each run’s own validation texts, with its
    95 % interval; the largest first.`;
  const own = heads.map((rows, run) => {
    const cells = rows.map(([name, loss, ...ends]) => {
      const [low, high] = ends.map(formatNumber);
      return [told(name), html`<b>${formatNumber(loss)}</b>`, t`(${low} to ${high})`];
    });
    const table = tableOf([t`head`, t`loss change`, t`95 % interval`], cells);
    return html`<div><h3>${isolated(names[run])}</h3>
      ${rows.length > 0 ? table : html`<p>${t`not measured`}</p>`}
    </div>`;
  });
  return html`<${Panel} name="compared-heads" title=${t`Heads of each run`}>
    <div class="word-lists">${own}</div><p class="key">${note}</p>
  </${Panel}>`;
}

function Words({ names, words }) {
  const classes = Object.keys(words);
  const [label, choose] = useState(classes[0]);
  const options = classes.map((each) => [each, each]);
  const rows = (words[label] ?? []).map(([, word, first, second, difference, interval, n]) => [
    isolated(word), formatSigned(first), formatSigned(second),
    [html`<b>${formatSigned(difference)}</b>`, interval === null ? "" : ` ±${interval.toFixed(2)}`],
    count(n),
  ]);
  const header = [t`word`, ...names.map((name) => isolated(name)), t`difference`, t`texts`];
  const note = t`Mean log-odds over the texts with the word. Words whose interval excludes 0, the
    surest difference first.`;
  return html`<${Panel}
    name="compared-words" title=${t`Words that differ most`}
    tools=${chooser("word-class", t`Class`, label, options, choose)}
  >${tableOf(header, rows)}<p class="key">${note}</p></${Panel}>`;
}

function Texts({ names, texts, differing, size }) {
  const rows = texts.map(([text, ...labels]) => [
    html`<bdi dir="auto">${text}</bdi>`, ...labels.map((label) => isolated(label)),
  ]);
  const header = [t`Text`, t`label`, ...names.map((name) => isolated(name))];
  const about = t`${count(differing)} of ${count(size)}`;
  return html`<${Panel}
    name="compared-texts" title=${t`Texts on which they differ`} about=${about}
  >${tableOf(header, rows)}</${Panel}>`;
}

export function render() {
  followTheme();
  const { comparison, title } = page;
  show(() => html`
    <header class="toolbar"><h1 dir="auto">${told(title)}</h1></header>
    <main>
      <${Scores} comparison=${comparison} /><${Texts} ...${comparison} />
      <${Words} ...${comparison} /><${Heads} ...${comparison} />
    </main>`);
}
