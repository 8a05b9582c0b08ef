// traits.ts: what configurations of decoders and encoders say in the same way.
import { SparkError } from '../../core/errors.js'
import type { FeedForwardActivation } from './config.js'
import type { ConfigReader } from './config-reader.js'

const activations: Readonly<Record<string, FeedForwardActivation>> = {
  silu: 'silu',
  swish: 'silu',
  gelu: 'gelu',
  gelu_new: 'gelu_tanh',
  gelu_pytorch_tanh: 'gelu_tanh',
  gelu_fast: 'gelu_tanh',
  relu: 'relu',
}

/**
 * The function that a key names.
 * @throws SparkError ERR_UNSUPPORTED for one that is not known
 */
export function activationOf(config: ConfigReader, key: string, fallback?: string): FeedForwardActivation {
  const name = config.text(key, fallback)
  const known = Object.hasOwn(activations, name) ? activations[name] : undefined
  if (known) return known
  const list = Object.keys(activations).join(', ')
  throw new SparkError(
    'ERR_UNSUPPORTED',
    `${config.nameOf(key)} is '${name}', which is not supported; these are: ${list}`,
  )
}

/**
 * Whether a layer has a window: as `layer_types` says, else as `fallback`.
 * @throws SparkError ERR_UNSUPPORTED for layers of another type
 */
export function hasWindow(config: ConfigReader, index: number, fallback: boolean): boolean {
  if (!config.has('layer_types')) return fallback
  const type = config.texts('layer_types', config.layerCount)[index]!
  if (type === 'sliding_attention' || type === 'full_attention') return type === 'sliding_attention'
  throw new SparkError('ERR_UNSUPPORTED', `layer ${index} is '${type}', which is not supported`)
}
