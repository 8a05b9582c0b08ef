// rotary.ts: the rotary embeddings of a layer, as both generations of config.json say it.
import { SparkError } from '../../core/errors.js'
import type { Rotary } from './config.js'
import type { ConfigReader } from './config-reader.js'
import { scaledFrequencies } from './rope.js'

/** What a layer takes its frequencies from: parameters of the scaling, and the base. */
function baseOf(config: ConfigReader, isWindowed: boolean): { rope: ConfigReader; theta: number } {
  const all = config.object(config.has('rope_parameters') ? 'rope_parameters' : 'rope_scaling')
  const kind = isWindowed ? 'sliding_attention' : 'full_attention'
  const base = config.number('rope_theta', config.number('rotary_emb_base', 10_000))
  if (all.has(kind)) {
    const rope = all.object(kind)
    return { rope, theta: rope.number('rope_theta', base) }
  }
  // Only layers without a window are scaled where those with one have a base of their own.
  if (isWindowed && config.has('rope_local_base_freq'))
    return { rope: config.object('no scaling'), theta: config.number('rope_local_base_freq') }
  return { rope: all, theta: all.number('rope_theta', base) }
}

/**
 * The rotary embeddings of a layer.
 * @throws SparkError ERR_FORMAT, ERR_UNSUPPORTED as {@link scaledFrequencies}
 */
export function rotaryOf(config: ConfigReader, headSize: number, isWindowed: boolean): Rotary {
  const { rope, theta } = baseOf(config, isWindowed)
  const whole = config.number('partial_rotary_factor', config.number('rotary_pct', 1))
  const size = Math.floor(headSize * rope.number('partial_rotary_factor', whole))
  if (!(theta > 0) || size < 2 || size % 2 !== 0 || size > headSize)
    throw new SparkError('ERR_FORMAT', `${size} of ${headSize} elements with base ${theta} cannot be rotated`)
  const maximum = config.integer('max_position_embeddings')
  const original = config.integer('original_max_position_embeddings', maximum)
  const scaled = scaledFrequencies(rope, size, theta, maximum, original)
  const divisors = config.has('rope_divisors') ? config.numbers('rope_divisors') : []
  const divided = scaled.frequencies.map(list => list.map((frequency, i) => frequency / (divisors[i] ?? 1)))
  return { ...scaled, frequencies: divided, interleaved: config.flag('rope_interleaved', false) }
}
