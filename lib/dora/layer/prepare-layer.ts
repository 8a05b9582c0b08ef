// prepare-layer.ts: option checks and initial state of a DoRA layer.
import { expectKnownOptions, expectOneOf } from '../../core/checks.js'
import { getConfig } from '../../core/config.js'
import { SparkError } from '../../core/errors.js'
import { holdWeight } from '../../kernels/hold-weight.js'
import type { Kernels } from '../../kernels/kernels.js'
import { openKernels } from '../../kernels/open.js'
import { Tensor } from '../../memory/tensor.js'
import { precisionOf, storeWeight } from '../../weights/encode.js'
import { releaseWeight, type Weight } from '../../weights/weight.js'
import { floats } from './forward-backward.js'
import { adapterOptions, LayerAdapter, layerOptions } from './layer-adapter.js'
import type { DoRALinearOptions, LinearLayer, NormGradient } from './layer-types.js'

/** The initial state of a layer, as its constructor takes it. */
export interface LayerState {
  kernels: Kernels
  base: Weight
  weightNorm2: Float32Array
  bias: Float32Array | undefined
  normGradient: NormGradient
  activations: 'f32' | 'nvfp4'
  adapter: LayerAdapter
}

/** See DoRALinear.fromLinear. */
export async function prepareLayer(linear: LinearLayer, options: DoRALinearOptions): Promise<LayerState> {
  expectKnownOptions('options', options, [...new Set([...layerOptions, ...adapterOptions])])
  expectKnownOptions('linear', linear, ['weight', 'bias'])
  const { normGradient = 'detached', activations = 'f32', name = 'default', backend, device } = options
  expectOneOf('options.normGradient', normGradient, ['detached', 'exact'])
  expectOneOf('options.activations', activations, ['f32', 'nvfp4'])

  const precision = options.precision ?? (linear.weight instanceof Tensor ? getConfig().precision : null)
  const stored = storeWeight(linear.weight, precision, 'linear.weight')
  if (activations === 'nvfp4' && stored.format !== 'nvfp4') {
    const why = `options.activations is 'nvfp4', but the weight is held in ${precisionOf(stored.format)}: add precision 'nvfp4'`
    throw new SparkError('ERR_ARGUMENT', why)
  }
  const { rows, cols } = stored
  if (rows * cols === 0) throw new SparkError('ERR_SHAPE', `linear.weight is empty: [${rows}, ${cols}]`)
  const bias = linear.bias && floats('linear.bias', linear.bias, [rows])
  const { adapter, ready } = LayerAdapter.prepare(name, stored, options)

  const kernels = await openKernels({ ...(backend && { backend }), ...(device !== undefined && { device }) })
  const base = await holdWeight(kernels, stored)
  try {
    const weightNorm2 = new Float32Array(rows)
    await kernels.runOwned('weightNorm2', { weight: base, out: weightNorm2 })
    await ready(kernels, { weight: base, weightNorm2 })
    return { kernels, base, weightNorm2, bias, normGradient, activations, adapter }
  } catch (error) {
    releaseWeight(base)
    throw error
  }
}
