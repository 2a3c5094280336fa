/* Words that add most to each class over many texts, and through each head. */

import { isTurned } from "./pair.js";
import { Panel, SumBar, button, chooser, formatSigned, isolated, unfolder } from "./parts.js";
import { html, useState } from "./preact.js";
import { headName } from "./store.js";
import { count, parts, t } from "./strings.js";
import { languageOf } from "./words.js";

const MOST = 12; // words of each list, before it is unfolded
const AROUND = 70; // characters before what is looked for
const SHOWN = 300; // characters of a text in one line

/* A column of words.csv, such as layer 0 head 1, as it is called here. */
export function headOf(layers, name) {
  const [layer, head] = name.match(/\d+/g).map(Number);
  return headName(layers, layer, head);
}

/* A text around a word, in one line. */
export function snippet(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word.toLowerCase()));
  const start = Math.max(0, at - AROUND);
  const cut = text.slice(start, start + SHOWN).replaceAll(/\s+/g, " ");
  const found = word === "" ? -1 : cut.toLowerCase().indexOf(word.toLowerCase());
  const end = found + word.length;
  const marked = [cut.slice(0, found), html`<mark>${cut.slice(found, end)}</mark>`, cut.slice(end)];
  return html`<bdi dir="auto" lang=${languageOf(cut)}>
    ${start > 0 && "…"}${found < 0 ? cut : marked}
  </bdi>`;
}

/* `words` has for each source ("mean" or a head) and class the words for it and those against it:
   [word, mean, interval, texts, example]. `open` shows an example, `search` the texts of a word, if
   any. */
export function Learned({ words, index, predicted, note, textOf, open, search }) {
  const { layers } = index;
  const classes = Object.keys(words.mean);
  const [label, chooseLabel] = useState(classes.includes(predicted) ? predicted : classes[0]);
  const isTurnedHere = isTurned(index, index.classes.indexOf(label));
  const [source, chooseSource] = useState("mean");
  const [isWhole, setWhole] = useState(false);
  const sources = Object.keys(words).map((name) => {
    return [name, name === "mean" ? t`all of the network` : headOf(layers, name)];
  });
  const [own, against] = words[source][label];
  const most = [...own, ...against].reduce((top, [, mean]) => Math.max(top, Math.abs(mean)), 1);
  const labels = classes.map((each) => [each, each]);
  const tools = [
    chooser("word-class", t`Class`, label, labels, chooseLabel),
    chooser("word-source", t`What passes through`, source, sources, chooseSource),
    unfolder(t`More words`, isWhole, setWhole),
  ];
  const named = { name: "head-name", title: t`texts with this word` };
  const opened = { name: "snippet", title: t`show what decides in this text` };
  const rowOf = ([word, mean, interval, texts, example]) => {
    const text = snippet(textOf(example), word);
    const name = isolated(word);
    return html`<tr>
      <th scope="row">${search ? button(name, () => search(word), named) : name}</th>
      <td><b>${formatSigned(mean)}</b><${SumBar} value=${mean} scale=${most} /></td>
      <td>${interval === null ? "" : `±${interval.toFixed(2)}`}</td><td>${count(texts)}</td>
      <td>${open ? button(text, () => open(example), opened) : text}</td>
    </tr>`;
  };
  const header = [t`word`, t`mean`, t`95 % interval`, t`texts`, t`example`].map((name) => {
    return html`<th scope="col">${name}</th>`;
  });
  const table = (caption, rows) => html`<table>
    <caption>${caption}</caption>
    <thead><tr>${header}</tr></thead>
    <tbody>${rows.slice(0, isWhole ? Infinity : MOST).map(rowOf)}</tbody>
  </table>`;
  return html`<${Panel} name="report-words" title=${t`Words that the run learned`} tools=${tools}>
    <div class=${isTurnedHere ? "word-lists turned" : "word-lists straight"}>
      ${table(parts`For ${isolated(label)}`, own)}
      ${table(parts`Against ${isolated(label)}`, against)}
    </div>
    <p class="key">${note}</p>
  </${Panel}>`;
}
