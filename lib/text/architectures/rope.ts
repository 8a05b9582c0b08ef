// rope.ts: frequencies of rotary embeddings as the published scaling methods change them. Formulas: RoFormer (Su et al. 2021),
// position interpolation (Chen et al. 2023), YaRN (Peng et al. 2023), LongRoPE (Ding et al. 2024), Llama 3.1's smoothing.
import { SparkError } from '../../core/errors.js'
import type { ConfigReader } from './config-reader.js'

/** Frequencies, and the factor of cosines and sines. */
export interface Frequencies {
  /** One list, or two: up to `shortLength` tokens the first one holds, beyond it the second one. Each [size / 2]. */
  readonly frequencies: readonly (readonly number[])[]
  /** Tokens up to which the first of two lists holds; Infinity where there is one. */
  readonly shortLength: number
  /** What cosines and sines are multiplied with. */
  readonly factor: number
}

/** θ^(−2i/size) */
export const plainFrequencies = (size: number, theta: number): number[] =>
  Array.from({ length: size / 2 }, (_, i) => Math.fround(1 / theta ** ((2 * i) / size)))

const one = (frequencies: readonly number[], factor = 1): Frequencies => ({
  frequencies: [frequencies],
  shortLength: Number.POSITIVE_INFINITY,
  factor,
})

/**
 * Frequencies of `size` rotated elements.
 * @param rope - `rope_parameters`, or `rope_scaling` of older files
 * @param maximum - `max_position_embeddings`
 * @param original - the length before scaling where the parameters do not say it
 * @throws SparkError ERR_UNSUPPORTED for a method that is not known; ERR_FORMAT for parameters that are wrong
 */
export function scaledFrequencies(
  rope: ConfigReader,
  size: number,
  theta: number,
  maximum: number,
  original: number,
): Frequencies {
  const method = rope.text('rope_type', rope.text('type', 'default'))
  const plain = plainFrequencies(size, theta)
  // Without a change up to the length that a model was made for, where its context ends.
  if (method === 'default' || method === 'none' || method === 'dynamic') return one(plain)
  if (method === 'linear') return one(plain.map(frequency => frequency / rope.number('factor')))
  const before = rope.number('original_max_position_embeddings', original)
  if (method === 'llama3') return one(llama3(plain, rope, before))
  if (method === 'yarn') return yarn(plain, rope, size, theta, before)
  if (method === 'longrope' || method === 'su') return longRope(plain, rope, maximum, before)
  const known = 'default, linear, dynamic, llama3, yarn, longrope'
  throw new SparkError(
    'ERR_UNSUPPORTED',
    `rotary embeddings of type '${method}' are not supported; these are: ${known}`,
  )
}

function llama3(plain: readonly number[], rope: ConfigReader, original: number): number[] {
  const factor = rope.number('factor')
  const [low, high] = [rope.number('low_freq_factor'), rope.number('high_freq_factor')]
  return plain.map(frequency => {
    const turns = (original * frequency) / (2 * Math.PI)
    if (turns > high) return frequency
    if (turns < low) return frequency / factor
    const smooth = (turns - low) / (high - low)
    return frequency * ((1 - smooth) / factor + smooth)
  })
}

function yarn(
  plain: readonly number[],
  rope: ConfigReader,
  size: number,
  theta: number,
  original: number,
): Frequencies {
  const factor = rope.number('factor')
  const dimension = (turns: number): number =>
    (size * Math.log(original / (turns * 2 * Math.PI))) / (2 * Math.log(theta))
  const [fast, slow] = [rope.number('beta_fast', 32), rope.number('beta_slow', 1)]
  const rounds = rope.flag('truncate', true)
  const low = Math.max(rounds ? Math.floor(dimension(fast)) : dimension(fast), 0)
  const end = Math.min(rounds ? Math.ceil(dimension(slow)) : dimension(slow), size - 1)
  const high = end === low ? low + 0.001 : end
  const frequencies = plain.map((frequency, i) => {
    const ramp = Math.min(Math.max((i - low) / (high - low), 0), 1)
    return (frequency / factor) * ramp + frequency * (1 - ramp)
  })
  return one(frequencies, rope.number('attention_factor', yarnFactor(rope, factor)))
}

/** Temperature of attention: 0.1 · m · ln(factor) + 1, or a quotient of two where `mscale_all_dim` is given. */
function yarnFactor(rope: ConfigReader, factor: number): number {
  const scaled = (m: number): number => (factor <= 1 ? 1 : 0.1 * m * Math.log(factor) + 1)
  const [numerator, denominator] = [rope.number('mscale', 0), rope.number('mscale_all_dim', 0)]
  return numerator && denominator ? scaled(numerator) / scaled(denominator) : scaled(1)
}

function longRope(
  plain: readonly number[],
  rope: ConfigReader,
  maximum: number,
  original: number,
): Frequencies {
  const lists = ['short_factor', 'long_factor'].map(name => rope.numbers(name))
  for (const [i, list] of lists.entries()) {
    if (list.length === plain.length && list.every(factor => factor > 0)) continue
    const name = rope.nameOf(i === 0 ? 'short_factor' : 'long_factor')
    throw new SparkError(
      'ERR_FORMAT',
      `${name} must have ${plain.length} numbers above 0, but has ${list.length}`,
    )
  }
  const growth = rope.number('factor', maximum / original)
  const computed = growth <= 1 ? 1 : Math.sqrt(1 + Math.log(growth) / Math.log(original))
  return {
    frequencies: lists.map(list => plain.map((frequency, i) => frequency / list[i]!)),
    shortLength: original,
    factor: rope.number('attention_factor', computed),
  }
}
