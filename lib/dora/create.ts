// create.ts: checks the options of a DoRA layer and computes what it starts with.
import { expectInteger, expectKnownOptions, expectNumber, expectOneOf } from '../core/checks.js'
import { getConfig } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { Tensor } from '../memory/tensor.js'
import { type HeldWeight, holdWeight } from '../runtime/held-weight.js'
import type { Kernels, LowRank, StoredWeight } from '../runtime/kernels.js'
import { openKernels } from '../runtime/open.js'
import { storeWeight } from '../runtime/stored-weight.js'
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
  const scale = Math.fround(alpha / (rslora ? Math.sqrt(rank) : rank))
  const base = await holdWeight(kernels, stored)
  try {
    const weightNorm2 = new Float32Array(rows)
    await kernels.run('weightNorm2', { weight: base.weight, out: weightNorm2 })
    const low = { rank, scale, a, b }
    const magnitude = given?.slice() ?? (await rowNorms(kernels, base.weight, weightNorm2, low))
    const settings = { rank, alpha, rslora, scale, dropout, normGradient, name }
    return { ...settings, kernels, base, weightNorm2, bias, random, a, b, magnitude }
  } catch (error) {
    base.dispose()
    throw error
  }
}

/** ‖W + scale · B·A‖ by rows: the magnitude with which a layer computes at first what plain LoRA does. */
async function rowNorms(
  kernels: Kernels,
  weight: StoredWeight,
  weightNorm2: Float32Array,
  lowRank: LowRank,
): Promise<Float32Array> {
  const norm = new Float32Array(weight.rows)
  const [magnitude, gain] = [new Float32Array(weight.rows), new Float32Array(weight.rows)]
  await kernels.run('doraNorm', { ...lowRank, weight, weightNorm2, magnitude, norm, gain })
  return norm
}
