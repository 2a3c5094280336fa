/* Which two classes are held against each other: [asked, against], as places among the classes;
   against -1 is the absence of the class. It is decided here alone. */

const PREFIX = "contributions/";

/* The likeliest class of a text over the runner-up; null where no sums are known. */
export function ownPair(maps) {
  const pair = maps?.own ?? maps?.values(`${PREFIX}shown`) ?? null;
  return pair && [...pair];
}

/* The classes whose sums are known; all where the network runs here. */
export function knownClasses(maps) {
  return Array.from(maps?.classes ?? maps?.values(`${PREFIX}classes`) ?? []);
}

/* The place of the predicted class; null where a text may have several. */
function predictedOf(maps) {
  const shares = maps?.values("probabilities") ?? null;
  if (shares === null || maps.values("given") !== null) return null;
  return shares.indexOf(Math.max(...shares));
}

/* What the prediction changed between, of two texts or steps that are compared: [before, now]. */
function changedPair({ maps, other }) {
  const [before, now] = [predictedOf(other?.maps), predictedOf(maps)];
  return before === null || now === null || before === now ? null : [before, now];
}

/* The pair that is asked for: one that is held, else the text's own. A text with any number of
   labels has each against its absence. Of the two classes of an index the likelier one is asked
   for: the explanation of the other is the same, turned. */
export function pairOf({ own, pair, index = null }) {
  if (own === null || pair === null) return own;
  if (index?.classes.length === 2 && own[1] !== -1) return own;
  return [pair[0], own[1] === -1 ? -1 : pair[1]];
}

/* The pair that is shown: the one that the reader chose for this text, else what the prediction
   changed between, else the one that the text began with; its own where its sums are unknown. */
export function shownPair(store) {
  const { maps, pair, chosen } = store;
  const own = ownPair(maps);
  const isChosen = pair !== null && pair.join() === chosen?.join();
  const changed = isChosen ? pair : changedPair(store);
  const wish = pairOf(changed ? { own, pair: changed } : { own, pair, index: store.index });
  const known = knownClasses(maps);
  return wish?.every((place) => place === -1 || known.includes(place)) ? wish : own;
}

/* The pair that stays while a text is edited and its steps are gone through. */
export function heldPair({ maps, pair }) {
  return pair ?? ownPair(maps);
}

/* The pair that a click would show instead: what the text itself asks for, or the reader's. */
export function offeredPair(store, shown) {
  const isShown = (pair) => pair?.join() === shown.join();
  const own = changedPair(store) ?? ownPair(store.maps);
  const offer = isShown(own) ? store.chosen : own;
  return isShown(offer) ? null : offer;
}

/* Whether colours change places: of two classes each has its own colour, in every text. */
export function isTurned(index, asked) {
  return index?.classes.length === 2 && asked === 0;
}
