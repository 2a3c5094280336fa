/* The words of a text, as it comes with them, and where they stand in it. */

const LANGUAGES = [
  [/[\u3040-\u30ff]/u, "ja"],
  [/[\uac00-\ud7af]/u, "ko"],
  [/\p{Script=Han}/u, "zh"],
  [/\p{Script=Arabic}/u, "ar"],
  [/\p{Script=Hebrew}/u, "he"],
  [/\p{Script=Thai}/u, "th"],
];
const UNSPACED = "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}";
const COUNTED = new RegExp(`[${UNSPACED}]|(?:(?![${UNSPACED}])[\\p{L}\\p{M}\\p{N}'’])+`, "gu");

/* The language that a text is set in, by its script; "" where the script does not tell. */
export function languageOf(text) {
  return LANGUAGES.find(([script]) => script.test(text))?.[1] ?? "";
}

/* The direction of the text's first letter, so that Arabic and Hebrew tokens run from the right. */
export function directionOf(text) {
  const letter = text.match(/\p{L}/u)?.[0] ?? "";
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(letter) ? "rtl" : "ltr";
}

/* The class of what belongs to a text of a pair, or to neither. */
export function sideOf(segment) {
  return segment === null ? "of-neither" : `of-${"ab"[segment]}`;
}

/* What is counted, or compared, as the words of a text that has none: runs of letters, or single
   letters of scripts without spaces, as {segment, index}. */
export function wordsOf(text) {
  return Array.from(text.matchAll(COUNTED), ({ 0: segment, index }) => ({ segment, index }));
}

const known = new WeakMap(); // text -> its units by kind

/* What of a text was not read: {words, all, rest}, the number of its words, that of all words, and
   the text that is left; null where all was read, or where it cannot be told from the tokens. */
export function unreadOf(shownText) {
  const units = unitsOf(shownText, "token");
  if (units.unread === undefined) units.unread = findUnread(shownText);
  return units.unread;
}

function findUnread({ text, places }) {
  const end = Math.max(0, ...(places ?? []).map(([, to]) => to));
  const words = wordsOf(text);
  const count = words.filter(({ index }) => index >= end).length;
  return end > 0 && count > 0 ? { words: count, all: words.length, rest: text.slice(end) } : null;
}

/* The units that a text is shown in: its words, where they are known, or its tokens; special tokens
   are units of their own. Each is {start, end, from, to, word, isGlued}: its tokens, its place in
   the text (null where it has none), its name, and whether it follows the one before without a
   space. */
export function unitsOf(shownText, unit) {
  if (!known.has(shownText)) known.set(shownText, {});
  return (known.get(shownText)[unit] ??= splitText(shownText, unit));
}

function splitText({ tokens, words, places }, unit) {
  const named = unit === "word" ? (words ?? []) : [];
  const first = new Map(named.map((word) => [word[1], word]));
  const units = [];
  for (let start = 0; start < tokens.length; ) {
    const [word, , end] = first.get(start) ?? [tokens[start], start, start + 1];
    const [from, to] = [places?.[start][0] ?? 0, places?.[end - 1][1] ?? 0];
    const isGlued = from > 0 && from === units.at(-1)?.to;
    const place = from < to ? { from, to } : { from: null, to: null };
    units.push({ start, end, word, isGlued, ...place });
    start = end;
  }
  return units;
}
