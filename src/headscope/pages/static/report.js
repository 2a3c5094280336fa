/* What the run learned over many texts: words, every text in a list, scores. */

import { page } from "./api.js";
import { Headline, Scores } from "./curves.js";
import { Learned, headOf, snippet } from "./learned.js";
import { Panel, button, chooser, isolated, percent } from "./parts.js";
import { html, useLayoutEffect, useMemo, useRef, useState } from "./preact.js";
import { count, parts, t } from "./strings.js";
import { JOIN } from "./tokenizer.js";

const ROW = 44; // pixels of a text in the list
const SPARE = 8; // rows above what is seen
const ROWS = 30; // that are nodes
const MOST_CLASSES = 16; // of a confusion matrix
const UNSURE = 0.1; // share of the texts that are least sure

/* The given label of each labelled text of a report, by the text. */
export function givenLabels({ texts, given, answers }) {
  return new Map(texts.map((text, at) => [text.join(JOIN), answers[given[at]] ?? null]));
}

/* The texts of the report, ready to be searched. */
class Texts {
  constructor(report) {
    Object.assign(this, report);
    this.parts = report.texts; // of each row one text, or the two of a pair
    this.texts = report.texts.map((own) => own.join(JOIN));
    this.lower = this.texts.map((text) => text.toLowerCase());
    const sorted = [...report.confidence].sort((a, b) => a - b);
    this.unsure = sorted[Math.floor(UNSURE * (sorted.length - 1))] ?? 1;
    this.opened = report.answers[report.predicted[0]]; // the class of the text that is opened
    this.places = new Map(report.rows.map((row, at) => [row, at])); // of those that are listed
  }

  /* Those that are scored: all, or of very many a sample. */
  get scores() {
    const { scored, answers, baseline } = this;
    const isRight = (at) => scored.given[at] === scored.predicted[at];
    return { ...scored, answers, baseline, isRight };
  }

  /* A text by its row in the data; null where it is not listed. */
  textOf(row) {
    return this.places.has(row) ? this.texts[this.places.get(row)] : null;
  }

  isRight(at) {
    return this.given[at] === this.predicted[at];
  }

  get isLabelled() {
    return this.given.some((label) => label >= 0);
  }

  /* Whether a text is of a kind. */
  is(kind, at) {
    if (kind === "right") return this.isRight(at);
    if (kind === "wrong") return this.given[at] >= 0 && !this.isRight(at);
    if (kind === "unsure") return this.confidence[at] <= this.unsure;
    return kind === "all" || this.unfamiliar[at];
  }

  /* The texts that are asked for, in order. */
  find({ query, kind, cell, sort }) {
    const looked = query.toLowerCase();
    const found = [];
    for (let at = 0; at < this.texts.length; at += 1) {
      const own = [this.given[at], this.predicted[at]];
      const isCell = cell === null || own.join() === cell.join();
      if (isCell && this.is(kind, at) && this.lower[at].includes(looked)) found.push(at);
    }
    const [name, sign] = sort.split(" ");
    const valueOf = (at) => {
      if (name === "wrong") return (this.is("wrong", at) ? 2 : -1) * this.confidence[at];
      if (name === "head") return this.heads[at]?.[Number(sign)] ?? -Infinity;
      const value = name === "size" ? this.texts[at].length : this[name][at];
      return value * (sign === "up" ? -1 : 1);
    };
    return found.sort((a, b) => valueOf(b) - valueOf(a));
  }
}

/* Every text: a window over the list, in which only the rows that are seen are nodes. */
function List({ texts, open, query, search, cell, chooseCell }) {
  const [kind, chooseKind] = useState("all");
  const [sort, chooseSort] = useState(texts.isLabelled ? "wrong first" : "confidence up");
  const [top, scrollTo] = useState(0);
  const list = useRef(null);
  const looked = query.trim();
  const asked = [looked, kind, cell, sort];
  const found = useMemo(() => texts.find({ query: looked, kind, cell, sort }), asked);
  useLayoutEffect(() => {
    list.current.scrollTop = 0;
    scrollTo(0);
  }, asked);
  const ofLabels = texts.isLabelled ? [["right", t`right`], ["wrong", t`wrong`]] : [];
  const others = [["unsure", t`the least sure tenth`], ["unfamiliar", t`unfamiliar`]];
  const kinds = [["all", t`all texts`], ...ofLabels, ...others];
  const sorts = [
    ...(texts.isLabelled ? [["wrong first", t`most surely wrong first`]] : []),
    ["confidence up", t`least sure first`], ["confidence down", t`surest first`],
    ["size down", t`longest first`], ["size up", t`shortest first`],
    ...texts.names.map((name, at) => {
      return [`head ${at}`, t`most through ${headOf(page.index.layers, name)}`];
    }),
  ];
  const label = t`Search the texts`;
  const tools = [
    html`<input
      type="search" placeholder=${label} aria-label=${label} value=${query}
      oninput=${(event) => search(event.target.value)}
    />`,
    chooser("kind", t`Which texts`, kind, kinds, chooseKind),
    chooser("sort", t`Order`, sort, sorts, chooseSort),
    cell && button(t`All cells`, () => chooseCell(null)),
    html`<span role="status">${t`${count(found.length)} of ${count(texts.texts.length)}`}</span>`,
  ];
  const first = Math.max(0, Math.floor(top / ROW) - SPARE);
  const rows = found.slice(first, first + ROWS).map((at, place) => {
    return rowOf(texts, at, first + place, found.length, looked, open);
  });
  const isSample = texts.texts.length < texts.size;
  const about = [
    isSample && t`${count(texts.texts.length)} of ${count(texts.size)} texts, wrong ones first, the
      others drawn at random: more would make this file too large. `,
    open && t`a click shows what decides in it`,
  ];
  const title = t`Every text`;
  return html`<${Panel} name="report-texts" title=${title} about=${about} tools=${tools}>
    <div
      class="texts" role="region" aria-label=${t`Texts`} tabindex="0" ref=${list}
      onscroll=${() => scrollTo(list.current.scrollTop)}
    >
      <div class="space" role="list" style=${{ height: `${ROW * found.length}px` }}>${rows}</div>
    </div>
  </${Panel}>`;
}

function rowOf(texts, at, place, size, query, open) {
  const isWrong = texts.is("wrong", at);
  const label = isolated(texts.answers[texts.predicted[at]], "name");
  const given = isWrong ? parts` (given ${isolated(texts.answers[texts.given[at]])})` : "";
  const right = texts.given[at] < 0 ? "" : "✓ ";
  return html`<div
    class="item" role="listitem" key=${place} style=${{ top: `${ROW * place}px` }}
    aria-setsize=${size} aria-posinset=${place + 1}
  ><button
    type="button" class=${isWrong ? "listed wrong" : "listed"} data-place=${place}
    onclick=${() => open?.(texts.parts[at])}
  >
    <span class="share">${percent(texts.confidence[at])}</span>
    <span class="labels">${isWrong ? "✗ " : right}${label}${given}</span>
    ${snippet(texts.texts[at], query)}
  </button></div>`;
}

/* Given labels down, predictions across: a cell opens its texts. */
function Confusion({ texts, cell, choose }) {
  const { answers, given, predicted } = texts.scores;
  if (answers.length > MOST_CLASSES) return null;
  const counts = answers.map(() => answers.map(() => 0));
  given.forEach((label, at) => label >= 0 && (counts[label][predicted[at]] += 1));
  const cellOf = (label, answer) => {
    const number = counts[label][answer];
    if (number === 0) return html`<td>·</td>`;
    const title = t`given ${answers[label]}, predicted ${answers[answer]}`;
    const pressed = String(cell?.join() === `${label},${answer}`);
    const named = { name: "confused", title, "aria-label": `${title}: ${number}` };
    const own = () => choose([label, answer]);
    return html`<td class=${label === answer ? "right" : "wrong"}>
      ${button(count(number), own, { ...named, "aria-pressed": pressed })}
    </td>`;
  };
  const header = answers.map((name) => html`<th scope="col">${isolated(name)}</th>`);
  const rows = answers.map((name, label) => html`<tr>
    <th scope="row">${isolated(name)}</th>${answers.map((_, answer) => cellOf(label, answer))}
  </tr>`);
  return html`<div
    class="table-scroll confusion" role="region" aria-label=${t`Confusion matrix`} tabindex="0"
  ><table>
    <thead><tr><td>${t`given ↓ predicted →`}</td>${header}</tr></thead><tbody>${rows}</tbody>
  </table></div>`;
}

/* The parts of the report; `open` puts a text into the network, null where it does not run here. */
export function Report({ open }) {
  const texts = useMemo(() => new Texts(page.report), []);
  const scores = useMemo(() => texts.scores, []);
  const [query, search] = useState("");
  const [cell, chooseCell] = useState(null);
  const split = count(texts.split);
  const note = t`Mean log-odds over the texts with the word, of ${split} texts, each for its
    likeliest class over the runner-up. Words in 3 texts or more, the surest first.`;
  const look = () => document.querySelector(".report-texts").scrollIntoView({ block: "start" });
  const find = (word) => {
    search(word);
    look();
  };
  const choose = (chosen) => {
    chooseCell(chosen);
    look();
  };
  const confusion = html`<${Confusion} texts=${texts} cell=${cell} choose=${choose} />`;
  return html`
    ${texts.isLabelled && html`<${Headline} texts=${scores} name=${texts.name} />`}
    ${texts.isLabelled && html`<${Scores} texts=${scores}>${confusion}</${Scores}>`}
    <${Learned}
      words=${texts.words} index=${page.index} predicted=${texts.opened} note=${note}
      search=${find}
      textOf=${(row) => texts.textOf(row) ?? ""}
      open=${open && ((row) => texts.places.has(row) && open(texts.parts[texts.places.get(row)]))}
    />
    <${List}
      texts=${texts} open=${open} query=${query} search=${search} cell=${cell}
      chooseCell=${chooseCell}
    />`;
}
