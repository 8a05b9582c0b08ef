// create.ts: checks the options of a DoRA layer and computes what it starts with.
import { expectInteger, expectKnownOptions, expectNumber, expectOneOf } from '../core/checks.js'
import { getConfig } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { Tensor } from '../memory/tensor.js'
import type { Kernels } from '../runtime/kernels.js'
import { openKernels } from '../runtime/open.js'
import { storeWeight } from '../runtime/stored-weight.js'
import { type HeldWeight, holdWeight } from './held-weight.js'
import type { DoRALinearOptions, LinearLayer, NormGradient } from './options.js'
import { floats } from './passes.js'
import { kaimingUniform, randomGenerator } from './random.js'

/** What the constructor of a layer takes. */
export interface LayerParts {
  kernels: Kernels
  base: HeldWeight
  weightNorm2: Float32Array
  bias: Float32Array | undefined
  rank: number
  alpha: number
  rslora: boolean
  scale: number
  dropout: number
  normGradient: NormGradient
  name: string
  random: () => number
  a: Float32Array
  b: Float32Array
  magnitude: Float32Array
}

/** Keys of LayerOptions. */
export const layerOptions = ['name', 'normGradient', 'precision', 'backend', 'device', 'seed']
const doraOptions = [...layerOptions, 'rank', 'alpha', 'rslora', 'dropout', 'initial']

/** See DoRALinear.fromLinear. */
export async function prepareLayer(linear: LinearLayer, options: DoRALinearOptions): Promise<LayerParts> {
  expectKnownOptions('options', options, doraOptions)
  expectKnownOptions('linear', linear, ['weight', 'bias'])
  const { rank = 16, alpha = 16, rslora = false, dropout = 0, initial = {}, seed = 0 } = options
  const { normGradient = 'detached', name = 'default', backend, device } = options
  expectInteger('options.rank', rank, 1)
  expectNumber('options.alpha', alpha)
  expectNumber('options.dropout', dropout, 0, 1 - 2 ** -24)
  expectInteger('options.seed', seed, 0, 2 ** 32 - 1)
  expectOneOf('options.normGradient', normGradient, ['detached', 'exact'])
  expectKnownOptions('options.initial', initial, ['a', 'b', 'magnitude'])

  const precision = options.precision ?? (linear.weight instanceof Tensor ? getConfig().precision : null)
  const stored = storeWeight(linear.weight, precision, 'linear.weight')
  const { rows, cols } = stored
  if (rows * cols === 0) throw new SparkError('ERR_SHAPE', `linear.weight is empty: [${rows}, ${cols}]`)
  const bias = linear.bias && floats('linear.bias', linear.bias, [rows])
  const random = randomGenerator(seed)
  const a = initial.a
    ? floats('options.initial.a', initial.a, [rank, cols]).slice()
    : kaimingUniform(random, rank * cols, cols)
  const b = initial.b
    ? floats('options.initial.b', initial.b, [rows, rank]).slice()
    : new Float32Array(rows * rank)
  const given = initial.magnitude && floats('options.initial.magnitude', initial.magnitude, [rows])

  const kernels = await openKernels({ ...(backend && { backend }), ...(device !== undefined && { device }) })
  const base = await holdWeight(kernels, stored)
  const { weight } = base
  const scale = Math.fround(alpha / (rslora ? Math.sqrt(rank) : rank))
  const weightNorm2 = new Float32Array(rows)
  await kernels.run('weightNorm2', { weight, out: weightNorm2 })
  const magnitude = given?.slice() ?? new Float32Array(rows)
  if (!given) {
    const [norm, gain] = [new Float32Array(rows), new Float32Array(rows)]
    await kernels.run('doraNorm', { weight, weightNorm2, rank, scale, a, b, magnitude, norm, gain })
    magnitude.set(norm)
  }
  const settings = { rank, alpha, rslora, scale, dropout, normGradient, name }
  return { ...settings, kernels, base, weightNorm2, bias, random, a, b, magnitude }
}
