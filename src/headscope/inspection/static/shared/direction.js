/* The direction of the text's first letter, so that Arabic and Hebrew tokens run from the right. */
export function directionOf(text) {
  const letter = text.match(/\p{L}/u);
  return letter && /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(letter[0]) ? "rtl" : "ltr";
}
