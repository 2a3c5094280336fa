/* All heads as small maps, the most important first; or by their place, a row a layer, a column a head. Beneath each stands
   what it does. One of them is chosen, as in a radio group. */

import { MARKS, MEANS, SAID, importanceOf, labelOf } from "./answer.js";
import { build, element, formatNumber, isolated, showError } from "./dom.js";
import { captionOf, counterpart, isDifference, otherOf, readingOf } from "./reading.js";
import { markBorder } from "./pairs.js";

const [FEW, SOME] = [16, 48]; // maps, which may be large, or of middle size
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Grid {
  constructor(section, store, side) {
    Object.assign(this, { section, store, side, shape: "", maps: [], listed: [] });
    this.root = section.querySelector(".maps");
    this.heading = section.querySelector("h2");
    this.error = section.querySelector(".error");
    this.key = build("p", { class: "key" });
    this.root.before(this.key);
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    store.subscribe(["maps", "other", "compare", "scale", "theme", "index", "part"], () => this.draw());
    store.subscribe(["numbers", "answer", "order", "filter"], () => this.arrange());
    store.subscribe(["layer", "head"], () => this.showChosen());
    store.subscribe(["errors", "compare"], () => this.showErrors());
  }

  /* Heads of each layer; on the other side those stand in the places of this side's heads. */
  get heads() {
    const { maps } = this.store;
    const other = this.side === "other" ? otherOf(this.store) : null;
    return (maps?.layers ?? []).map((_, layer) => Math.max(maps.headsOf(layer), other?.headsOf(layer) ?? 0));
  }

  /* The heads that are listed, in their order: [layer, head]. */
  list(importance) {
    const { order, filter } = this.store;
    const places = this.heads.flatMap((count, layer) => Array.from({ length: count }, (_, head) => [layer, head]));
    const ranks = new Map((importance.ranked ?? []).map(({ layer, head }, rank) => [`${layer} ${head}`, rank]));
    const rank = ([layer, head]) => ranks.get(`${layer} ${head}`) ?? Infinity;
    const matters = ([layer, head]) => importance.heads.some((each) => each.layer === layer && each.head === head && each.verdict === 1);
    const listed = filter === "matter" && importance.judged ? places.filter(matters) : places;
    return order === "importance" && importance.ranked ? listed.sort((left, right) => rank(left) - rank(right) || 0) : listed;
  }

  /* Make the buttons, if there are not the right ones already, and put them where they belong. */
  lay(importance) {
    const { heads } = this;
    const names = this.store.layerNames;
    const listed = this.list(importance);
    const flows = this.store.order === "importance" && importance.ranked !== null;
    const shape = JSON.stringify([heads, names, listed, flows]);
    if (shape === this.shape) return;
    const focused = this.root.contains(document.activeElement);
    Object.assign(this, { shape, listed, flows });
    this.root.classList.toggle("flow", flows);
    this.root.dataset.size = listed.length <= FEW ? "few" : listed.length <= SOME ? "some" : "many";
    this.maps = heads.map((count, layer) => Array.from({ length: count }, (_, head) => this.maps[layer]?.[head] ?? this.createMap(layer, head)));
    if (flows) this.root.replaceChildren(...listed.map(([layer, head]) => this.maps[layer][head]));
    else this.root.replaceChildren(...this.rows(heads, names));
    if (listed.length === 0 && heads.length > 0) this.root.append(element("p", "none-listed", "No head is shown to matter alone."));
    if (focused) this.maps[this.store.layer]?.[this.store.head]?.focus();
  }

  /* A row a layer, of those that have any head to show; what is left out keeps its place free. */
  rows(heads, names) {
    const widest = Math.max(0, ...heads);
    this.root.style.setProperty("--heads", String(widest));
    const shown = new Set(this.listed.map(([layer, head]) => this.maps[layer][head]));
    const header = [element("span", "row-name", "head")];
    for (let head = 0; head < widest; head += 1) header.push(element("span", "column-name", String(head)));
    const rows = this.maps.flatMap((maps, layer) => {
      if (!maps.some((map) => shown.has(map))) return [];
      const cells = Array.from({ length: widest }, (_, head) => (shown.has(maps[head]) ? maps[head] : element("span")));
      return [isolated(names[layer] ?? `layer ${layer}`, "row-name"), ...cells];
    });
    return shown.size === 0 ? [] : [...header, ...rows];
  }

  createMap(layer, head) {
    const frame = build(
      "span", { class: "frame" }, element("canvas"), element("span", "place"), element("span", "answer-row"), element("span", "ticks"),
    ); // prettier-ignore
    const parts = ["name", "mean", "error-of", "role-of"].map((name) => element("span", name));
    const onclick = () => this.choose(layer, head);
    return build("button", { class: "map", type: "button", role: "radio", onclick }, frame, build("span", { class: "under" }, ...parts));
  }

  choose(layer, head) {
    if (head < this.store.maps.headsOf(layer)) this.store.set({ layer, head, headChosen: true });
  }

  draw() {
    if (this.hidden) return;
    const importance = importanceOf(this.store);
    this.lay(importance);
    markBorder(this.root, this.store.segments);
    const [layer, head] = this.listed[0] ?? [0, 0];
    this.width = this.maps[layer]?.[head]?.firstChild.clientWidth ?? 0;
    for (const [layer, head] of this.listed) this.drawMap(this.maps[layer][head], layer, head);
    this.showLabels(importance);
    this.showChosen();
    this.showHeading();
  }

  get hidden() {
    return this.side === "other" && this.store.compare?.view !== "beside";
  }

  /* What became known of the heads: other places, other labels; maps are drawn where they were not before. */
  arrange() {
    if (this.hidden || this.store.maps === null) return;
    const before = new Set(this.listed.map(String));
    const importance = importanceOf(this.store);
    this.lay(importance);
    for (const [layer, head] of this.listed) {
      if (!before.has(String([layer, head]))) this.drawMap(this.maps[layer][head], layer, head);
    }
    this.showLabels(importance);
    this.showChosen();
  }

  /* Beneath each map, what is known of its head; on the other side the heads are others. */
  showLabels(importance) {
    const own = this.side === "main" && !isDifference(this.store);
    const byPlace = new Map(importance.heads.map((each) => [`${each.layer} ${each.head}`, each]));
    const largest = Math.max(...importance.heads.map(({ effect }) => Math.abs(effect ?? 0)), 1e-9);
    for (const [layer, head] of this.listed) {
      const map = this.maps[layer][head];
      const each = byPlace.get(`${layer} ${head}`);
      const caption = captionOf(this.store, this.side, layer, head);
      const label = own && each ? labelOf(importance, each) : { mark: "", mean: "", error: "", role: "", said: [] };
      const there = this.side === "main" ? head : counterpart(this.store, layer, head);
      const name = this.flows && there !== null ? `${layer}·${there}` : "";
      const words = [`${label.mark} ${name}`.trim(), label.mean, label.error, label.role];
      const title = [caption, ...label.said].join("\n");
      const known = JSON.stringify([words, title]);
      map.dataset.verdict = own && importance.here && each?.verdict !== null ? String(each?.verdict) : "";
      map.style.setProperty("--effect", own && importance.here ? String(Math.abs(each?.effect ?? 0) / largest) : "0");
      if (map.known === known) continue;
      map.known = known;
      map.title = title;
      map.setAttribute("aria-label", caption);
      [...map.lastChild.children].forEach((part, at) => (part.textContent = words[at]));
    }
    if (this.side === "main") this.showKey(importance, own);
  }

  /* What the marks and the numbers mean. */
  showKey(importance, own) {
    const parts = [];
    if (own && importance.here && importance.judged) {
      const count = importance.smallest === null ? "" : ` than ${formatNumber(importance.smallest).replace(/0+$/, "")} nats, by 95 % intervals`;
      const beyond = { 1: count && `: surely more${count}`, 0: count && ": surely less", "-1": "" };
      const mark = (verdict) => build("span", { "data-verdict": String(verdict), title: MEANS[verdict] }, `${MARKS[verdict]} ${SAID[verdict]}${beyond[verdict]}`);
      parts.push(...[1, 0, -1].map(mark));
      if (this.store.order === "importance" && importance.by === "nats") parts.push("order: nats for the answer of this text, since no head is shown to matter");
    }
    const effect = own && importance.here && importance.heads.some((each) => each.effect !== null);
    if (effect) parts.push("beneath: rise of the loss without it ± standard error, in nats; its role and the number that tells it");
    else if (own && importance.heads.some((each) => each.nats !== null)) parts.push("beneath: nats that it put for the answer");
    parts.push(build("span", { class: "of-readout" }, "marked row: where the answer is read"));
    parts.push(build("span", { class: "of-special" }, "ticks: special tokens, where a head may rest"));
    this.key.replaceChildren(...parts.map((part) => (typeof part === "string" ? element("span", "", part) : part)));
  }

  drawMap(map, layer, head) {
    const reading = readingOf(this.store, this.side, layer, head);
    const [canvas, place] = map.firstChild.children;
    map.classList.toggle("none", reading === null);
    const matched = this.side === "other" && this.store.compare.order === "matched";
    place.textContent = matched ? (captionOf(this.store, this.side, layer, head).match(/head (\d+)$/)?.[1] ?? "") : "";
    if (reading === null) return;
    canvas.classList.toggle("dense", reading.side > this.width);
    reading.drawSmall(canvas);
  }

  showHeading() {
    const { run, shown, compare, other, page } = this.store;
    if (page) return;
    const step = (of, at) => [isolated(of ?? ""), at === null ? "" : ` · step ${at}`];
    const name = this.side === "other" ? step(other?.run ?? compare.run, other?.step ?? null) : step(run, shown);
    if (this.side === "main" && isDifference(this.store)) name.push(" − ", ...step(other.run, other.step));
    const note = element("span", "caption");
    note.append(...name);
    this.heading.replaceChildren(isDifference(this.store) ? "Differences " : "Heads ", note);
  }

  showChosen() {
    const { layer, head } = this.store;
    const listed = this.maps[layer]?.[head]?.isConnected;
    this.maps.forEach((maps, row) =>
      maps.forEach((map, column) => {
        const chosen = row === layer && column === head;
        map.setAttribute("aria-checked", String(chosen));
        map.tabIndex = chosen || (!listed && map === this.root.querySelector(".map")) ? 0 : -1;
      }),
    );
  }

  showErrors() {
    const { errors, compare } = this.store;
    const differs = this.side === "main" && compare?.view === "difference";
    const message = this.side === "other" ? errors.other : (errors.maps ?? (differs ? errors.other : null));
    showError(this.error, message);
    this.root.hidden = Boolean(message) && !(differs && !errors.maps);
  }

  onKey(event) {
    const arrow = ARROWS[event.key];
    if (!arrow) return;
    event.preventDefault();
    const [layer, head] = this.flows ? this.beside(arrow) : [this.store.layer + arrow[0], this.store.head + arrow[1]];
    const map = this.maps[layer]?.[head];
    if (!map?.isConnected || !this.store.maps?.has(layer, head)) return;
    this.store.set({ layer, head, headChosen: true });
    map.focus();
  }

  /* The head that an arrow leads to where maps flow: the next one, or the one above or below. */
  beside([down, right]) {
    const columns = getComputedStyle(this.root).gridTemplateColumns.split(" ").length;
    const at = this.listed.findIndex(([layer, head]) => layer === this.store.layer && head === this.store.head);
    return this.listed[at + down * columns + right] ?? [];
  }
}
