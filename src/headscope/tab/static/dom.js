/* Elements, names and numbers. Text is set as text content alone: it cannot become markup. */

/* An element with attributes (or its class) and children, which may be strings. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  const named = typeof attributes === "string" ? { class: attributes } : attributes;
  for (const [name, value] of Object.entries(named)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/* A part of the page: heading, room for controls, a place for errors, and content. */
export function panel(name, heading, ...content) {
  const title = element("h2", { id: `${name}-heading` }, heading);
  const tools = element("div", "tools");
  const error = element("p", { class: "error", role: "alert", hidden: true });
  const root = element(
    "section", { class: `panel ${name}`, "aria-labelledby": title.id },
    element("div", "heading", title, tools), error, ...content,
  );
  return { root, title, tools, error };
}

export function button(words, title, onclick, className = "plain") {
  return element("button", { class: className, type: "button", title, onclick }, words);
}

const CONTROL = new RegExp(
  "[\\p{Cc}\\p{Zl}\\p{Zp}\\p{Cs}]|" +
    "[\\u061c\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]",
  "gu",
);
const SIGNS = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\x7f": "␡" };
const LONGEST = 80; // characters of a token or name that are laid out; its title has more

function signOf(character) {
  if (SIGNS[character]) return SIGNS[character];
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
}

/* A token as it can be read: controls as signs, spaces at its ends as ␣, nothing as ∅. */
export function legible(token, longest = LONGEST) {
  const cut = token.length > longest ? `${[...token.slice(0, longest)].join("")}…` : token;
  const written = cut.replace(CONTROL, signOf);
  return written.replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length)) || "∅";
}

/* A token or a name whose writing direction does not reach the words around it. */
export function isolated(text, className = "") {
  const node = element("bdi", className, legible(text));
  if (text.length > LONGEST) node.title = legible(text, 600);
  return node;
}

/* The name of a class, by its place among the classes. */
export function classLabel({ index }, place) {
  return isolated(index.classes[place] ?? `class ${place}`, "class-name");
}

/* A token in a readout: what it is there, and its text. */
export function nameToken(role, index, token) {
  return [element("small", "", `${role} ${index} `), isolated(token, "name")];
}

/* A weight or a measure to three digits; a very small one as a power of ten. */
export function formatNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size !== 0 && size < 0.0005) return sign + size.toExponential(1);
  const digits = Math.max(0, Math.min(3, 2 - Math.floor(Math.log10(size || 0.1))));
  return sign + size.toFixed(digits);
}

/* A number with its sign, to two digits where it is small: +3.1, −0.25; 0.00 has none. */
export function formatSigned(value, digits = Math.abs(value) >= 0.995 ? 1 : 2) {
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return text;
  return (value < 0 ? "−" : "+") + text;
}

/* A share in percent; one that is not 100 % is not shown as that, nor a small one as 0. */
export function percent(share) {
  if (share < 0.0005) return "< 0.1 %";
  if (share > 0.9995) return "> 99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

export function wordsOf(name) {
  return name.replaceAll("_", " ");
}

/* Scroll a view, and not the page, until the node inside is in sight. */
export function reveal(view, node) {
  const above = node.offsetTop - view.scrollTop;
  const below = above + node.offsetHeight - view.clientHeight;
  if (above < 0) view.scrollTop += above;
  else if (below > 0) view.scrollTop += below;
}

/* A bar of the given share of its width. */
export function bar(share) {
  const node = element("span", "bar");
  node.style.setProperty("--share", String(Math.max(0, Math.min(1, share || 0))));
  return node;
}

/* The [value, label] options of a select, and the chosen one. What is the same is not touched. */
export function fillSelect(select, options, chosen) {
  const key = JSON.stringify(options);
  if (select.dataset.options !== key) {
    select.dataset.options = key;
    const optionOf = ([value, label]) => element("option", { value }, legible(label, 120));
    select.replaceChildren(...options.map(optionOf));
  }
  select.value = chosen;
}

/* A select of [value, label] options, called by its label. */
export function chooser(name, label, onChoose, options = []) {
  const onchange = (event) => onChoose(event.target.value);
  const attributes = { class: `choose-${name}`, "aria-label": label, title: label, onchange };
  const node = element("select", attributes);
  fillSelect(node, options, options[0]?.[0] ?? "");
  return node;
}

/* What went wrong, where the thing would be. */
export function showError(place, message) {
  place.hidden = message === null || message === undefined;
  place.textContent = place.hidden ? "" : legible(message, 400);
}

/* Hand a file to the reader, under a name of letters, digits and dashes. */
export function download(content, parts, suffix) {
  const dashed = (part) => legible(String(part), 40).replace(/[^\p{L}\p{N}]+/gu, "-");
  const names = parts.map((part) => dashed(part).replace(/^-+|-+$/g, "")).filter(Boolean);
  const url = URL.createObjectURL(content);
  element("a", { href: url, download: `${names.join("_") || "heads"}.${suffix}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
