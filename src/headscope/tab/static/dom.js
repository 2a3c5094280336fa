/* Elements, and how names and numbers are written. Text is only ever set as textContent: it cannot become markup. */

export function element(tag, className = "", text = null) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== null) node.textContent = text;
  return node;
}

/* An element with attributes and children; strings among the children become text. */
export function build(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const CONTROL = /[\p{Cc}\p{Zl}\p{Zp}\p{Cs}]|[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/gu;
const SIGNS = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡" };
const LONGEST = 80; // characters of a token or name that are ever laid out; its title has more

function signOf(character) {
  if (SIGNS[character]) return SIGNS[character];
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
}

/* A token as it can be read: controls as signs, white space at its ends or alone as ␣, nothing as ∅, the end cut. */
export function legible(token, longest = LONGEST) {
  const cut = token.length > longest ? `${[...token.slice(0, longest)].join("")}…` : token;
  const shown = cut.replace(CONTROL, signOf).replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length));
  return shown || "∅";
}

/* A token or a name whose writing direction does not reach the words around it. */
export function isolated(text, className = "") {
  const node = element("bdi", className, legible(text));
  if (text.length > LONGEST) node.title = legible(text, 600);
  return node;
}

/* A token in a readout: what it is there, and its text. */
export function nameToken(role, index, token) {
  return [element("small", "", `${role} ${index} `), isolated(token, "name")];
}

/* As many decimals as a step of scale / 255 can tell apart: 3 for a row maximum of 1, 5 for one of 0.01. */
export function decimalsOf(scale) {
  return scale > 0 ? Math.min(9, Math.max(3, Math.ceil(-Math.log10(scale / 255)))) : 3;
}

export function formatWeight(value, scale) {
  return value === null || Number.isNaN(value) ? "–" : value.toFixed(decimalsOf(scale));
}

/* A number of a head: three significant digits, but none of them in powers of ten. */
export function formatNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size !== 0 && size < 0.0005) return sign + size.toExponential(1);
  return sign + size.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

export function wordsOf(name) {
  return name.replaceAll("_", " ");
}

/* Scroll a view, and not the page, until the node inside is in sight below the view's first `covered` pixels. */
export function reveal(view, node, covered = 0) {
  const above = node.offsetTop - covered - view.scrollTop;
  const below = node.offsetTop + node.offsetHeight - view.clientHeight - view.scrollTop;
  if (above < 0) view.scrollTop += above;
  else if (below > 0) view.scrollTop += below;
}

/* One line of a bar list: a name, a bar of the given share of the width, a number. */
export function barLine(name, share, number) {
  const line = element("li");
  const bar = element("span", "bar");
  bar.style.setProperty("--share", String(Math.max(0, Math.min(1, share || 0))));
  line.append(isolated(name, "name"), bar, element("span", "number", number));
  return line;
}

/* The options of a select, and the one that is chosen. Nothing is touched where they are as they were. */
export function fillSelect(select, options, chosen) {
  const wanted = options.map(({ value, label }) => `${value}\0${label}`).join("\n");
  if (select.dataset.options !== wanted) {
    select.dataset.options = wanted;
    select.replaceChildren(...options.map(({ value, label }) => build("option", { value }, legible(label))));
  }
  select.value = chosen;
}

/* What went wrong, where the thing would be. */
export function showError(place, message) {
  place.hidden = message === null || message === undefined;
  place.textContent = place.hidden ? "" : legible(message, 400);
}

/* One of a few [value, words, title]: radio buttons that the arrow keys go along. */
export class Choice {
  constructor(name, options, onChoose) {
    this.onChoose = onChoose;
    this.buttons = options.map(([value, words, title]) => {
      const onclick = () => onChoose(value);
      return build("button", { type: "button", role: "radio", "data-value": value, title, onclick }, words);
    });
    const onkeydown = (event) => this.onKey(event);
    this.node = build("span", { class: "choice", role: "radiogroup", "aria-label": name, onkeydown }, ...this.buttons);
    this.show(options[0][0]);
  }

  show(value) {
    for (const button of this.buttons) {
      const chosen = button.dataset.value === value;
      button.setAttribute("aria-checked", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    }
  }

  onKey(event) {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const offered = this.buttons.filter((button) => !button.hidden);
    const next = offered[(offered.indexOf(document.activeElement) + step + offered.length) % offered.length];
    this.onChoose(next.dataset.value);
    next.focus();
  }
}
