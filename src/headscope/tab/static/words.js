/* Where the tokens stand in their text, and which of them make up a word. */

const LANGUAGES = [
  [/[\u3040-\u30ff]/u, "ja"],
  [/[\uac00-\ud7af]/u, "ko"],
  [/\p{Script=Han}/u, "zh"],
  [/\p{Script=Arabic}/u, "ar"],
  [/\p{Script=Hebrew}/u, "he"],
  [/\p{Script=Thai}/u, "th"],
];
const FARTHEST = 40; // characters that a token may lie behind the one before
const MARKS = /^(##|▁|Ġ)|[₀-₉]+$/gu; // of a piece of a word, and of the bytes of a character

/* The language that a text is set in, by its script; "" where the script does not tell. */
export function languageOf(text) {
  return LANGUAGES.find(([script]) => script.test(text))?.[1] ?? "";
}

/* The direction of the text's first letter, so that Arabic and Hebrew tokens run from the right. */
export function directionOf(text) {
  const letter = text.match(/\p{L}/u)?.[0] ?? "";
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(letter) ? "rtl" : "ltr";
}

function segmentsOf(text) {
  const segmenter = new Intl.Segmenter(languageOf(text) || undefined, { granularity: "word" });
  return segmenter.segment(text);
}

/* The words of a text as {segment, index}, without spaces and punctuation. */
export function wordsOf(text) {
  return [...segmentsOf(text)].filter(({ isWordLike }) => isWordLike);
}

/* [start, end] of each token in the text, null for one that is not found there. */
function placesOf({ text, tokens, special }) {
  const lower = text.toLowerCase();
  const searched = lower.length === text.length ? lower : text;
  const resting = new Set(special ?? []);
  let from = 0;
  let last = [0, 0, ""];
  return tokens.map((token, place) => {
    const word = token.replaceAll(MARKS, "").toLowerCase();
    if (resting.has(place) || word === "") return null;
    const isAgain = word === last[2] && /[₀-₉]$/u.test(token); // another byte of a character
    const at = isAgain ? last[0] : searched.indexOf(word, from);
    if (at < 0 || at - from > FARTHEST) return null;
    from = at + word.length;
    last = [at, from, word];
    return [at, from];
  });
}

const known = new WeakMap(); // text -> its units by kind

/* What of a text was not read: {words, all, rest}, the number of its words, that of all words, and
   the text that is left; null where all was read, or where it cannot be told from the tokens. */
export function unreadOf(shownText) {
  const units = unitsOf(shownText, "token");
  if (units.unread === undefined) units.unread = findUnread(shownText);
  return units.unread;
}

function findUnread(shownText) {
  const { text } = shownText;
  const places = placesOf(shownText);
  const resting = new Set(shownText.special ?? []);
  const last = places.findLastIndex((_, token) => !resting.has(token));
  if (last < 0 || places[last] === null) return null;
  const end = places[last][1];
  const words = wordsOf(text);
  const count = words.filter(({ index }) => index >= end).length;
  return count > 0 ? { words: count, all: words.length, rest: text.slice(end) } : null;
}

/* The units that a text is shown in: its words or its tokens. Words are those of Unicode and of the
   browser's dictionaries. Each is {start, end, from, to, word, isGlued}: its tokens, its place in
   the text (null where it has none), and whether it follows the one before without a space. */
export function unitsOf(shownText, unit) {
  if (!known.has(shownText)) known.set(shownText, {});
  return (known.get(shownText)[unit] ??= splitText(shownText, unit));
}

function splitText(shownText, unit) {
  const { text, segments } = shownText;
  const places = placesOf(shownText);
  const found = segmentsOf(text);
  const units = [];
  places.forEach((place, token) => {
    const before = token > 0 ? places[token - 1] : null;
    const isSame = segments?.[token] === segments?.[token - 1];
    const isNear = isSame && place !== null && before !== null;
    const [last, first] = isNear ? [before[1] - 1, place[0]] : [];
    const isOne = isNear && found.containing(last).index === found.containing(first).index;
    const isGlued = isNear && place[0] <= before[1];
    if (unit === "word" && isOne) units.at(-1).end = token + 1;
    else units.push({ start: token, end: token + 1, isGlued });
  });
  for (const each of units) {
    const own = places.slice(each.start, each.end);
    [each.from, each.to] = own[0] === null ? [null, null] : [own[0][0], own.at(-1)[1]];
    each.word = shownText.tokens[each.start];
    if (own.length > 1) each.word = text.slice(each.from, each.to);
  }
  return units;
}
