// sampling-filters.ts: changes of logits, one step of sampling each, with the results of transformers' logits processors.
// Logits are f64, −Infinity where a token is excluded. Sizes: logits[vocabulary].

/** Divides positive logits of the tokens by `penalty` and multiplies negative ones with it (Keskar et al. 2019). */
export function penalizeRepetition(
  logits: Float64Array,
  seen: Iterable<readonly [id: number, count: number]>,
  penalty: number,
): void {
  for (const [id] of seen) {
    if (id < logits.length) logits[id] = logits[id]! < 0 ? logits[id]! * penalty : logits[id]! / penalty
  }
}

/** Subtracts `presence`, and `frequency` times its count, from each token that was generated. */
export function penalizeCounts(
  logits: Float64Array,
  counts: Iterable<readonly [id: number, count: number]>,
  presence: number,
  frequency: number,
): void {
  for (const [id, count] of counts) if (id < logits.length) logits[id]! -= presence + frequency * count
}

/** Adds to logits by token id. */
export function addBiases(logits: Float64Array, biases: ReadonlyMap<number, number>): void {
  for (const [id, bias] of biases) if (id < logits.length) logits[id]! += bias
}

const exclude = (logits: Float64Array, isKept: (id: number) => boolean): void => {
  for (let id = 0; id < logits.length; id++) if (!isKept(id)) logits[id] = Number.NEGATIVE_INFINITY
}

/** Probabilities of logits. */
export function softmax(logits: Float64Array): Float64Array {
  const max = logits.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY)
  const weights = logits.map(logit => Math.exp(logit - max))
  const sum = weights.reduce((a, b) => a + b, 0)
  return weights.map(weight => weight / sum)
}

/** Keeps the `count` highest logits and those that equal the last of them. */
export function keepTopK(logits: Float64Array, count: number): void {
  if (count >= logits.length) return
  const threshold = logits.toSorted()[logits.length - count]!
  exclude(logits, id => logits[id]! >= threshold)
}

/**
 * Keeps the fewest tokens whose probabilities add up to `mass`, at least one; of equal ones those of lower ids.
 * A token stays while those above it have less than `mass` together.
 */
export function keepTopP(logits: Float64Array, mass: number): void {
  const probabilities = softmax(logits)
  const sorted = probabilities.toSorted()
  let above = 0
  let last = sorted.length - 1
  for (let i = last; i >= 0 && (i === sorted.length - 1 || above < mass); i--) {
    above += sorted[i]!
    last = i
  }
  const threshold = sorted[last]!
  let equal = 0
  for (let i = last; i < sorted.length && sorted[i] === threshold; i++) equal++
  exclude(logits, id => {
    if (probabilities[id] !== threshold) return probabilities[id]! > threshold
    equal--
    return equal >= 0
  })
}

/** Keeps tokens at least `fraction` as likely as the most likely one. */
export function keepMinP(logits: Float64Array, fraction: number): void {
  const max = logits.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY)
  const threshold = max + Math.log(fraction)
  exclude(logits, id => logits[id]! >= threshold)
}

/**
 * Keeps tokens whose information −log p is nearest to the entropy, until they have `mass` together, with all that are
 * as near as the last.
 */
export function keepTypical(logits: Float64Array, mass: number): void {
  const probabilities = softmax(logits)
  const information = probabilities.map(p => -Math.log(p))
  const entropy = probabilities.reduce((sum, p, id) => (p > 0 ? sum + p * information[id]! : sum), 0)
  const distances = information.map(bits => Math.abs(bits - entropy))
  const order = Array.from(distances.keys()).sort((a, b) => distances[a]! - distances[b]!)
  let sum = 0
  const last = order.find(id => {
    sum += probabilities[id]!
    return sum >= mass
  })
  const threshold = distances[last ?? order.at(-1)!]!
  exclude(logits, id => distances[id]! <= threshold)
}

/** The first token, in the order of ids, at which the sum of probabilities is above `uniform`, a number in [0, 1). */
export function draw(logits: Float64Array, uniform: number): number {
  const probabilities = softmax(logits)
  let sum = 0
  let last = 0
  for (let id = 0; id < probabilities.length && sum <= uniform; id++) {
    if (probabilities[id] === 0) continue
    sum += probabilities[id]!
    last = id
  }
  return last
}
