/* What the run learned over many texts: the words of each class and head, every text in a list, the
   scores. A click on a text puts it into the network above. */

import { page } from "./api.js";
import { button, chooser, element, formatSigned, isolated, panel, percent } from "./dom.js";
import { curves } from "./curves.js";
import { headName } from "./store.js";
import { count, parts, t } from "./strings.js";
import { tint } from "./text.js";
import { languageOf } from "./words.js";

const ROW = 44; // pixels of a text in the list
const SPARE = 8; // rows beyond what is seen
const AROUND = 70; // characters before what is looked for
const SHOWN = 300; // characters of a text in the list
const MOST_CLASSES = 16; // of a confusion matrix
const UNSURE = 0.1; // share of the texts that are least sure
const MOST_WORDS = 12; // of each list, before it is unfolded

/* The texts of the report, ready to be searched. */
class Texts {
  constructor(report) {
    Object.assign(this, report, { size: report.texts.length });
    this.lower = report.texts.map((text) => text.toLowerCase());
    const sorted = [...report.confidence].sort((a, b) => a - b);
    this.unsure = sorted[Math.floor(UNSURE * (this.size - 1))] ?? 1;
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
    for (let at = 0; at < this.size; at += 1) {
      const own = [this.given[at], this.predicted[at]];
      const isCell = cell === null || own.join() === cell.join();
      if (isCell && this.is(kind, at) && this.lower[at].includes(looked)) found.push(at);
    }
    const [name, sign] = sort.split(" ");
    const valueOf = (at) => {
      if (name === "head") return this.heads[at]?.[Number(sign)] ?? -Infinity;
      const value = name === "size" ? this.texts[at].length : this[name][at];
      return value * (sign === "up" ? -1 : 1);
    };
    return found.sort((a, b) => valueOf(b) - valueOf(a));
  }
}

/* The words that add most to a class, in all or through one head, and those against it. */
class WordsView {
  constructor({ words, names, answers, texts, heads }, { open, search }) {
    Object.assign(this, { words, texts, open, search, isWhole: false });
    const classes = Object.keys(words.sum);
    const sources = [["sum", t`all of the network`], ...names.map((name) => [name, headOf(name)])];
    const show = () => this.show();
    this.label = chooser("word-class", t`Class`, show, classes.map((each) => [each, each]));
    this.source = chooser("word-source", t`What passes through`, show, sources);
    this.whole = button(t`More words`, "", () => {
      this.isWhole = !this.isWhole;
      this.show();
    }, "plain fold");
    this.lists = element("div", "word-lists");
    const known = heads.filter((each) => each !== null).length;
    const note = t`Sums of log-odds over ${count(known)} of ${count(heads.length)} texts, each for
      its likeliest class over the runner-up.`;
    const title = t`Words that the run learned`;
    this.panel = panel("report-words", title, this.lists, element("p", "key", note));
    this.panel.tools.append(this.label, this.source, this.whole);
    this.show();
  }

  show() {
    const [own, against] = this.words[this.source.value][this.label.value];
    const name = isolated(this.label.value);
    const most = [...own, ...against].reduce((top, [, sum]) => Math.max(top, Math.abs(sum)), 1);
    this.whole.setAttribute("aria-expanded", String(this.isWhole));
    this.lists.replaceChildren(
      this.table(parts`For ${name}`, own, most),
      this.table(parts`Against ${name.cloneNode(true)}`, against, most),
    );
  }

  table(caption, rows, most) {
    const head = [t`word`, t`sum`, t`mean`, t`texts`, t`example`];
    const header = head.map((words) => element("th", { scope: "col" }, words));
    const shown = this.isWhole ? rows : rows.slice(0, MOST_WORDS);
    const lines = shown.map(([word, sum, texts, example]) => {
      const find = button("", t`texts with this word`, () => this.search(word), "head-name");
      find.append(isolated(word));
      const bar = tint(element("span", { class: "sum-bar", "aria-hidden": "true" }), sum, most);
      const text = snippet(this.texts[example], word);
      const show = t`show what decides in this text`;
      const open = button("", show, () => this.open(example), "snippet");
      open.append(text);
      return element(
        "tr", {}, element("th", { scope: "row" }, find),
        element("td", {}, element("b", {}, formatSigned(sum, 2)), bar),
        element("td", {}, formatSigned(sum / texts, 2)), element("td", {}, count(texts)),
        element("td", {}, open),
      );
    });
    const title = element("caption", {}, ...caption);
    const table = [title, element("thead", {}, element("tr", {}, ...header))];
    return element("table", {}, ...table, element("tbody", {}, ...lines));
  }
}

/* A column of words.csv, such as layer 0 head 1, as it is called here. */
function headOf(name) {
  const [layer, head] = name.match(/\d+/g).map(Number);
  return headName(page.index.layers, layer, head);
}

/* A text around a word, in one line. */
function snippet(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word.toLowerCase()));
  const start = Math.max(0, at - AROUND);
  const cut = text.slice(start, start + SHOWN).replaceAll(/\s+/g, " ");
  const found = cut.toLowerCase().indexOf(word.toLowerCase());
  const node = element("bdi", { dir: "auto", lang: languageOf(cut) });
  if (word === "" || found < 0) node.append(cut);
  else {
    const end = found + word.length;
    node.append(cut.slice(0, found), element("mark", {}, cut.slice(found, end)), cut.slice(end));
  }
  if (start > 0) node.prepend("…");
  return node;
}

/* Every text: a window over the list, in which only the rows that are seen are nodes. */
class ListView {
  constructor(texts, open) {
    Object.assign(this, { texts, open, cell: null, found: [], rows: new Map() });
    const update = () => this.update();
    const label = t`Search the texts`;
    this.query = element("input", {
      type: "search", placeholder: label, "aria-label": label, oninput: update,
    });
    const kinds = [["all", t`all texts`]];
    if (texts.isLabelled) kinds.push(["right", t`right`], ["wrong", t`wrong`]);
    kinds.push(["unsure", t`the least sure tenth`], ["unfamiliar", t`unfamiliar`]);
    this.kind = chooser("kind", t`Which texts`, update, kinds);
    const sorts = [
      ["confidence up", t`least sure first`], ["confidence down", t`surest first`],
      ["size down", t`longest first`], ["size up", t`shortest first`],
      ...texts.names.map((name, at) => [`head ${at}`, t`most through ${headOf(name)}`]),
    ];
    this.sort = chooser("sort", t`Order`, update, sorts);
    this.status = element("span", { class: "count", role: "status" });
    this.clear = button(t`All cells`, "", () => this.choose(null));
    this.space = element("div", { class: "space", role: "list" });
    const region = { class: "texts", role: "region", "aria-label": t`Texts`, tabindex: "0" };
    this.scroll = element("div", region, this.space);
    this.scroll.addEventListener("scroll", () => this.draw());
    this.scroll.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(this.scroll);
    const content = [this.matrix(), this.scroll];
    this.panel = panel("report-texts", t`Every text`, ...content.filter((node) => node !== null));
    this.panel.title.append(element("small", {}, t`a click shows what decides in it`));
    this.panel.tools.append(this.query, this.kind, this.sort, this.clear, this.status);
    this.update();
  }

  search(word) {
    this.query.value = word;
    this.cell = null;
    this.update();
    this.panel.root.scrollIntoView({ block: "start" });
  }

  choose(cell) {
    this.cell = cell;
    this.update();
  }

  update() {
    const { query, kind, sort, cell, texts } = this;
    const wanted = { query: query.value.trim(), kind: kind.value, sort: sort.value, cell };
    this.found = texts.find(wanted);
    this.status.textContent = t`${count(this.found.length)} of ${count(texts.size)}`;
    this.clear.hidden = cell === null;
    this.space.style.height = `${ROW * this.found.length}px`;
    this.space.replaceChildren();
    this.rows.clear();
    this.scroll.scrollTop = 0;
    for (const node of this.cells ?? []) {
      node.setAttribute("aria-pressed", String(node.dataset.cell === cell?.join()));
    }
    this.draw();
  }

  /* Rows that came into sight are made, those that left it go. */
  draw() {
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW) - SPARE);
    const seen = Math.ceil(this.scroll.clientHeight / ROW) + 2 * SPARE;
    const last = Math.min(this.found.length, first + seen);
    for (const [place, node] of this.rows) {
      if (place >= first && place < last) continue;
      node.remove();
      this.rows.delete(place);
    }
    for (let place = first; place < last; place += 1) {
      if (!this.rows.has(place)) this.rows.set(place, this.row(place));
    }
  }

  row(place) {
    const at = this.found[place];
    const { texts, query } = this;
    const isWrong = texts.is("wrong", at);
    const label = isolated(texts.answers[texts.predicted[at]], "name");
    const given = isWrong ? parts` (given ${isolated(texts.answers[texts.given[at]])})` : [];
    const mark = texts.given[at] < 0 ? "" : "✓ ";
    const names = element("span", "labels", isWrong ? "✗ " : mark, label, ...given);
    const share = element("span", "share", percent(texts.confidence[at]));
    const node = button("", "", () => this.open(at), isWrong ? "listed wrong" : "listed");
    node.dataset.place = String(place);
    const text = snippet(texts.texts[at], query.value.trim());
    node.append(share, names, text);
    const place1 = { "aria-setsize": this.found.length, "aria-posinset": place + 1 };
    const item = element("div", { class: "item", role: "listitem", ...place1 }, node);
    item.style.top = `${ROW * place}px`;
    this.space.append(item);
    return item;
  }

  onKey(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const { place } = document.activeElement.dataset;
    const next = place === undefined ? Math.floor(this.scroll.scrollTop / ROW) : Number(place) + by;
    const top = Math.max(0, ROW * next);
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    const end = top + ROW - this.scroll.clientHeight;
    if (end > this.scroll.scrollTop) this.scroll.scrollTop = end;
    this.draw();
    this.rows.get(next)?.firstChild.focus({ preventScroll: true });
  }

  /* Given labels down, predictions across: a cell opens its texts. */
  matrix() {
    const { answers, given, predicted, isLabelled } = this.texts;
    if (!isLabelled || answers.length > MOST_CLASSES) return null;
    const counts = answers.map(() => answers.map(() => 0));
    given.forEach((label, at) => label >= 0 && (counts[label][predicted[at]] += 1));
    this.cells = [];
    const rows = answers.map((name, label) => {
      const cells = counts[label].map((number, answer) => {
        if (number === 0) return element("td", {}, "·");
        const cell = [label, answer];
        const title = t`given ${name}, predicted ${answers[answer]}`;
        const node = button(count(number), title, () => this.choose(cell), "confused");
        node.dataset.cell = cell.join();
        node.setAttribute("aria-label", `${title}: ${number}`);
        this.cells.push(node);
        return element("td", label === answer ? "right" : "wrong", node);
      });
      return element("tr", {}, element("th", { scope: "row" }, isolated(name)), ...cells);
    });
    const header = answers.map((name) => element("th", { scope: "col" }, isolated(name)));
    const corner = element("td", {}, t`given ↓ predicted →`);
    const table = element(
      "table", {}, element("thead", {}, element("tr", {}, corner, ...header)),
      element("tbody", {}, ...rows),
    );
    const region = { role: "region", "aria-label": t`Confusion matrix`, tabindex: "0" };
    return element("div", { class: "table-scroll confusion", ...region }, table);
  }
}

/* The parts of the report; `open` puts a text into the network, null where it does not run here. */
export function reportViews(open) {
  const texts = new Texts(page.report);
  const show = (at) => open?.(texts.texts[at]);
  const list = new ListView(texts, show);
  const words = new WordsView(page.report, { open: show, search: (word) => list.search(word) });
  return [words.panel.root, list.panel.root, ...curves(texts)];
}
