/* Which heads matter, by how much, and what they put for the class of the chosen text: the answer that the page opens
   with, and the order of heads that follows from it. Heads are switched off at the step whose weights were kept. */

import { build, element, formatNumber, isolated, legible } from "./dom.js";

const [NAMED, VERDICTS] = [3, { matters: 1, nothing: 0, unsaid: -1 }];
const ERROR = "± is the standard error over the texts";

/* A verdict without its colour: a mark, its words wherever it is said, and what they mean. */
export const MARKS = { 1: "●", 0: "○", "-1": "?" };
export const SAID = { 1: "matters", 0: "does nothing", "-1": "cannot be said" };
export const MEANS = { 1: "it matters", 0: "it does nothing that counts", "-1": "whether it matters cannot be said: too few texts" };

/* The numbers that tell which heads matter: those of the shown step if it has them, else of the step whose weights were
   kept; null where there are none. */
function known(store) {
  const tells = (numbers) => Boolean(numbers && (numbers.extra?.verdicts || numbers.measures?.loss_zeroed));
  return [store.numbers, store.answer].find(tells) ?? null;
}

/* What is known of every head. `here` tells whether that is of the shown step; `ranked` are [layer, head], the most
   important first, or null where nothing tells them apart. */
export function importanceOf(store) {
  const numbers = known(store);
  const here = numbers !== null && numbers.step === store.shown;
  const at = (table, layer, head) => table?.[layer]?.[head] ?? null;
  const effect = numbers?.measures?.loss_zeroed;
  const verdicts = numbers?.extra?.verdicts ?? null;
  const { extra } = store.numbers ?? {};
  const heads = (store.index?.heads ?? []).flatMap((count, layer) => Array.from({ length: count }, (_, head) => {
    const verdict = at(verdicts, layer, head);
    return {
      layer, head, verdict: verdict in MARKS ? verdict : null, effect: at(effect?.mean, layer, head), error: at(effect?.error, layer, head),
      nats: store.maps?.natsOf(layer, head) ?? null, role: at(extra?.roles, layer, head), score: at(extra?.["roles/score"], layer, head),
    }; // prettier-ignore
  }));
  const some = (name) => heads.some((each) => each[name] !== null);
  const surely = heads.some(({ verdict }) => verdict === VERDICTS.matters);
  const by = some("effect") && (surely || !some("nats")) ? "effect" : some("nats") ? "nats" : null;
  const first = ({ verdict }) => (surely ? [VERDICTS.matters, VERDICTS.unsaid, null, VERDICTS.nothing].indexOf(verdict) : 0);
  const size = (each) => Math.abs(each[by] ?? 0);
  const ranked = by && [...heads].sort((left, right) => first(left) - first(right) || size(right) - size(left));
  const count = (verdict) => heads.filter((each) => each.verdict === verdict).length;
  const smallest = numbers?.extra?.["verdicts/smallest"] ?? null;
  return { step: numbers?.step ?? null, here, heads, ranked, by, judged: some("verdict"), count, smallest, studied: numbers?.extra?.studied ?? null };
}

/* A mean and its standard error, to the digit at which the error begins. */
export function withError(mean, error, most = 4) {
  if (!(error > 0)) return mean.toFixed(2).replace("-", "−");
  const digits = Math.min(most, Math.max(2, Math.ceil(-Math.log10(1.05 * error))));
  return `${mean.toFixed(digits)} ± ${error.toFixed(digits)}`.replace("-", "−");
}

/* Nats with their sign, as record.py writes them: to two digits where they are few. */
export function nats(value) {
  const digits = Math.abs(value) >= 0.995 ? 1 : 2;
  const text = Math.abs(value).toFixed(digits);
  return (value < 0 && Number(text) !== 0 ? "−" : "+") + text;
}

/* What stands beneath a small map, and what its title adds. */
export function labelOf(importance, each) {
  const effect = importance.here && each.effect !== null;
  const said = [];
  const way = each.effect < 0 ? "falls" : "rises";
  if (effect) said.push(`without it the loss ${way} by ${withError(Math.abs(each.effect), each.error)} nats (${ERROR})`);
  if (importance.here && each.verdict !== null) said.push(MEANS[each.verdict]);
  if (each.nats !== null) said.push(`it put ${nats(each.nats)} nats for the answer of this text`);
  if (each.role !== null) said.push(`role: ${legible(each.role)}${each.score === null ? "" : `, score ${formatNumber(each.score)}`}`);
  const byRule = each.role !== "no clear pattern";
  const sign = each.effect < 0 ? "" : "+";
  const [mean, error] = effect ? withError(each.effect, each.error, 3).split(" ").filter((part) => part !== "±") : [null, null];
  return {
    mark: importance.here && each.verdict !== null ? MARKS[each.verdict] : "",
    mean: effect ? sign + mean : each.nats === null ? "" : nats(each.nats),
    error: error ? `±${error}` : "",
    role: each.role === null ? "" : legible(each.role) + (byRule && each.score !== null ? ` ${each.score.toFixed(2)}` : ""),
    said,
  };
}

/* The folder of the run, as a command takes it. */
export function folderOf(store) {
  const folder = `${store.logdir.replace(/\/$/, "")}/${store.run}`.replace(/\/\.$/, "");
  return store.logdir && store.run && /^[\w./@+-]+$/.test(folder) ? folder : "<run>";
}

/* Where the answer is read and which tokens are no words, as lengths that the style sheet draws over every map. */
function markPlaces(root, store) {
  const { special = null, readout = null, tokens = [] } = store.index?.texts[store.text] ?? {};
  const count = tokens.length;
  const inside = (place) => Number.isInteger(place) && place >= 0 && place < count;
  const ticks = (special ?? []).filter(inside).slice(0, 64);
  const tick = (place) => `linear-gradient(var(--ink), var(--ink)) ${(100 * (place + 0.5)) / count}% 0 / 2px 4px no-repeat`;
  root.setProperty("--ticks", ticks.map(tick).join(", ") || "none");
  const read = inside(readout) && store.maps?.tokens === count ? store.maps.stretchOf(readout) : null;
  root.setProperty("--readout", String(read ?? -1));
  root.setProperty("--readout-share", String(inside(readout) ? readout / count : -1));
  root.setProperty("--row-share", String(1 / Math.max(1, count)));
  return { ticks: ticks.length > 0, read: inside(readout) };
}

export class AnswerView {
  constructor(section, store) {
    Object.assign(this, { section, store });
    this.lines = ["matters", "spoken"].map((name) => build("p", { class: `answer-line ${name}` }));
    section.append(...this.lines);
    store.subscribe(["index", "maps", "shown", "numbers", "answer", "text", "run", "logdir", "errors"], () => this.show());
    store.subscribe(["index", "maps", "text"], () => this.mark());
    this.show();
  }

  mark() {
    const marked = markPlaces(document.documentElement.style, this.store);
    document.body.classList.toggle("has-readout", marked.read);
    document.body.classList.toggle("has-special", marked.ticks);
  }

  show() {
    const { store } = this;
    this.section.hidden = store.index === null || store.steps.length === 0;
    if (this.section.hidden) return;
    const importance = importanceOf(store);
    this.lines[0].replaceChildren(...this.verdict(importance));
    const said = this.sentence(importance);
    this.lines[1].hidden = said === null;
    if (said !== null) this.lines[1].replaceChildren("In this text ", ...said);
  }

  /* A head as a button that chooses it. */
  name({ layer, head }) {
    const choose = () => this.store.set({ layer, head, headChosen: true });
    const name = isolated(this.store.layerNames[layer] ?? `layer ${layer}`);
    return build("button", { class: "head-name", type: "button", onclick: choose }, name, ` head ${head}`);
  }

  verdict(importance) {
    const { store } = this;
    if (importance.step === null) return this.unknown();
    if (!importance.here) {
      const go = () => store.set({ step: importance.step, stepChosen: true, follow: false });
      const button = build("button", { class: "plain", type: "button", onclick: go }, `Go to step ${importance.step}`);
      return [`Which heads matter is known at step ${importance.step}, whose weights were kept. `, button];
    }
    const { count, heads, studied, smallest } = importance;
    const total = heads.filter(({ verdict }) => verdict !== null).length;
    const [matter, nothing, unsaid] = Object.values(VERDICTS).map(count);
    const parts = [];
    const verbOf = ({ effect }) => ` the loss ${effect < 0 ? "falls" : "rises"} by `;
    if (!importance.judged) parts.push("The largest effects: ");
    else if (matter === 0) parts.push(`Of ${total} heads none is shown to matter alone`);
    else parts.push(element("strong", "", `${matter} of ${total} heads ${matter === 1 ? "matters" : "matter"}`), ": ");
    const named = importance.judged ? heads.filter(({ verdict }) => verdict === VERDICTS.matters) : heads;
    const largest = named.filter(({ effect }) => effect !== null).sort((left, right) => Math.abs(right.effect) - Math.abs(left.effect));
    largest.slice(0, NAMED).forEach((each, place) => {
      const verb = place > 0 && verbOf(each) === verbOf(largest[place - 1]) ? " by " : verbOf(each); // said once
      const amount = element("span", "amount", withError(Math.abs(each.effect), each.error));
      amount.title = ERROR;
      parts.push(place === 0 ? "without " : ", without ", this.name(each), verb, amount, place === 0 ? " nats" : "");
    });
    const tail = [];
    const reason = (text, title) => Object.assign(element("span", "amount", text), { title });
    const least = smallest === null ? "" : `surely less than ${formatNumber(smallest)} nats`;
    if (nothing > 0) tail.push(reason(`${nothing} ${nothing === 1 ? "does" : "do"} nothing`, least));
    if (unsaid > 0) {
      const texts = studied === null ? "so few texts" : `${studied} texts`;
      tail.push(reason(`of ${unsaid} it cannot be said with ${texts}`, "the error is too large to tell the effect from none; more texts would tell"));
    }
    if (!importance.judged) tail.push("whether they matter was not tested");
    parts.push(...tail.flatMap((words) => ["; ", words]), ".");
    return parts;
  }

  unknown() {
    const { store } = this;
    if (store.page) return ["Which heads matter was not measured for this page."];
    const kept = store.index.kept ?? null;
    const lead = store.errors.numbers ? "Which heads matter cannot be read here. "
      : kept === null ? "Which heads matter is measured when a run ends, on the weights that are kept. If it has ended without: "
      : "Which heads matter was not measured. To measure it: "; // prettier-ignore
    return store.errors.numbers ? [lead] : [lead, build("code", {}, `headscope inspect run=${folderOf(store)}`)];
  }

  /* What the heads put for the answer about the text, the exact sum; null where it cannot be said. */
  sentence({ heads }) {
    const { store } = this;
    const { maps, index } = store;
    const parts = maps?.spoken ?? null;
    const text = index.texts[store.text];
    if (parts === null || text === undefined) return null;
    const spoke = heads.filter((each) => each.nats !== null).sort((left, right) => Math.abs(right.nats) - Math.abs(left.nats));
    if (spoke.length === 0) return null;
    const answer = text.answer ?? index.classes[maps.answer] ?? "the answer";
    const sum = (values) => values.reduce((total, value) => total + value, 0);
    const said = spoke.slice(0, NAMED).flatMap((each, place) => {
      const verb = place === 0 ? " put " : " ";
      const what = place === 0 ? [" nats for ", isolated(answer, "class-name")] : [];
      return [place === 0 ? "" : "; ", this.name(each), verb, element("span", "amount", nats(each.nats)), ...what, ...this.source(each, text)];
    });
    const others = spoke.slice(NAMED);
    if (others.length > 0) said.push(`; the other ${others.length > 1 ? `${others.length} heads` : "head"} ${nats(sum(others.map((each) => each.nats)))}`);
    const all = sum(spoke.map((each) => each.nats)) + sum(parts.feedforward) + parts.constant;
    // Of a model of transformers, by gates, it is known of heads alone.
    const isSplit = maps.putBy(spoke[0].layer, spoke[0].head).tokens.length > 0;
    said.push(isSplit ? `; the feed-forward blocks ${nats(sum(parts.feedforward))}; whatever the text says (constant) ${nats(parts.constant)}`
      : `; all that is not attention ${nats(parts.constant)}`, `; together ${nats(all)}`); // prettier-ignore
    return said;
  }

  /* The token that a head has most of it from, if one pulled the way that the head did. */
  source({ layer, head, nats: value }, text) {
    const { tokens } = this.store.maps.putBy(layer, head);
    if (tokens.length === 0) return []; // it is not known from which
    const sign = Math.sign(value);
    const [key, share] = tokens.reduce((best, token) => (token[1] * sign > best[1] * sign ? token : best));
    if (!(share * sign > 0)) return [];
    const name = ["“", isolated(text.tokens[key] ?? ""), "”"];
    return share * sign > Math.abs(value) / 2 ? [", most of it from ", ...name] : [`, ${nats(share)} from `, ...name];
  }
}
