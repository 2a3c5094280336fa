/* What a head seems to be, by rules over its numbers. Each rule says in words when it holds. */

const AT_LEAST = (measure, limit) => (numbers) => numbers[measure] !== undefined && numbers[measure] >= limit;
const AT_MOST = (measure, limit) => (numbers) => numbers[measure] !== undefined && numbers[measure] <= limit;

export const RULES = [
  { name: "previous token", holds: AT_LEAST("previous", 0.4),
    words: "gives at least 0.4 of its weight to the token before" },
  { name: "next token", holds: AT_LEAST("next", 0.4),
    words: "gives at least 0.4 of its weight to the token after" },
  { name: "itself", holds: AT_LEAST("self", 0.4),
    words: "each token gives at least 0.4 of its weight to itself" },
  { name: "first-token sink", holds: AT_LEAST("first", 0.4),
    words: "gives at least 0.4 of its weight to the first token, such as [CLS]" },
  { name: "separator sink", holds: AT_LEAST("separator", 0.4),
    words: "gives at least 0.4 of its weight to separators such as [SEP]" },
  { name: "across texts", holds: AT_LEAST("crossing", 0.6),
    words: "tokens of one text of a pair give at least 0.6 of their weight to the other text; about 0.45 if they look everywhere alike" },
  { name: "last token", holds: (numbers) => numbers.last >= 0.4 && !(numbers.separator >= 0.4),
    words: "gives at least 0.4 of its weight to the last token, which is no separator" },
  { name: "same token", holds: AT_LEAST("same_token", 0.4),
    words: "gives at least 0.4 of its weight to other places where the same token stands" },
  { name: "position only", holds: AT_LEAST("position_only", 0.9),
    words: "in at least 0.9 of the texts the place alone tells what a query looks at most, whatever the words are" },
  { name: "broad", holds: AT_LEAST("entropy_share", 0.9),
    words: "looks nearly everywhere alike: its entropy is at least 0.9 of the largest there is" },
  { name: "focused", holds: AT_MOST("entropy_share", 0.3),
    words: "looks at few tokens: its entropy is at most 0.3 of the largest there is" },
]; // prettier-ignore

/* The rules that hold for a head's numbers (measure -> value; what was not measured is missing). */
export function rolesOf(numbers) {
  return RULES.filter((rule) => rule.holds(numbers));
}

/* What each known number says, for its column's title. */
export const MEANINGS = {
  entropy: "entropy of a query's weights in nats, mean: 0 if each looks at one key",
  entropy_share: "entropy, as a share of the largest that a text of that length allows",
  mean_distance: "how many tokens away a query looks, mean",
  self: "weight that a token gives to itself",
  previous: "weight that a token gives to the one before",
  next: "weight that a token gives to the one after",
  first: "weight given to the first token, [CLS]",
  last: "weight given to the last token",
  separator: "weight given to separators, [SEP]",
  crossing: "of pairs: weight that a token of one text gives to tokens of the other, mean; special tokens are of neither text",
  between: "crossing of the shown pair alone, at the shown step",
  same_token: "weight given to the other places where the same token stands",
  position_only: "share of the texts where the place alone tells what a query looks at most",
  loss_zeroed: "change of the loss when the head's output is set to zero: above 0, the head was of use",
  accuracy_zeroed: "change of the accuracy when the head's output is set to zero: below 0, the head was of use",
  loss_averaged: "change of the loss when the head's output is set to its mean: above 0, the head was of use",
  accuracy_averaged: "change of the accuracy when the head's output is set to its mean: below 0, the head was of use",
  gate_gradient: "size of the loss's gradient by a gate on the head (Michel et al. 2019)",
  nats: "what the head put for the class that a text is given, against the mean of classes: above 0, it spoke for it",
  comprehensiveness: "how much the prediction falls without the tokens that the head points at: more is better",
  sufficiency: "how much the prediction falls with only the tokens that the head points at: less is better",
};
