// checkpoint.ts: quantized checkpoints: folders with model.safetensors and config.json.
import path from 'node:path'
import { expectKnownOptions, expectOneOf, expectText } from '../../core/checks.js'
import { relativeError } from '../../core/difference.js'
import { Regex } from '../../core/regex.js'
import type { Tensor } from '../../memory/tensor.js'
import type { QuantizerInput } from '../../precision/casts.js'
import { dequantizeNVFP4, quantizeNVFP4 } from '../../precision/nvfp4.js'
import { inOrder } from '../../weights/ordered-weight.js'
import type { Weight } from '../../weights/weight.js'
import { makeFolder, writeFileAtomic } from '../atomic-write.js'
import { recordOf, type SafetensorsTensor, tensorFromRecord, writeSafetensors } from '../safetensors.js'
import { type CheckpointLayout, nvfp4Tensors } from './layout.js'

/** How a checkpoint is written. */
export interface ExportOptions {
  /** Whose names and forms. Default: modelopt. */
  readonly layout?: CheckpointLayout
  /**
   * Modules that stay as they are, as regular expressions, in Python's syntax, on whole names. Default: output and input
   * embeddings, `lm_head` and names with `embed` in them.
   */
  readonly exclude?: readonly string[]
  /** Largest magnitude of the input of each module, from calibration; writes scales of activations. */
  readonly inputAmax?: Readonly<Record<string, number>>
  /** Further content of config.json, to which `quantization_config` is added. */
  readonly config?: Readonly<Record<string, unknown>>
}

/** Modules that stay as they are by default. */
export const defaultExclude = ['(.*\\.)?lm_head', '.*embed.*']

/** Layers that runtimes fuse, whose matrices must share a tensor scale. */
const fused = [
  ['q_proj', 'k_proj', 'v_proj'],
  ['gate_proj', 'up_proj'],
]

/** A quantized checkpoint and the modules in it. */
export interface QuantizedCheckpoint {
  /** By the names of the layout. */
  readonly tensors: Map<string, Tensor | SafetensorsTensor>
  /** Modules with NVFP4 weights. */
  readonly quantized: readonly string[]
  /** ‖stored − weight‖ / ‖weight‖ by the name of each of them. */
  readonly losses: ReadonlyMap<string, number>
  /** Modules with a matrix that stayed as it was: excluded, or with rows of no whole blocks of 16. */
  readonly excluded: readonly string[]
}

/**
 * Quantizes the matrices of a model, `<module>.weight` [out, in], to NVFP4 by ModelOpt's recipe. The projections of
 * query, key and value of a layer share a tensor scale, and so do gate and up projection.
 * @throws SparkError ERR_NOT_FINITE, ERR_ARGUMENT
 */
export function quantizeWeights(
  weights: ReadonlyMap<string, Tensor>,
  options: ExportOptions = {},
): QuantizedCheckpoint {
  expectKnownOptions('options', options, ['layout', 'exclude', 'inputAmax', 'config'])
  const { layout = 'modelopt', exclude = defaultExclude, inputAmax = {} } = options
  expectOneOf('options.layout', layout, ['modelopt', 'compressed-tensors'])
  const tests = exclude.map(pattern => new Regex('options.exclude', pattern))
  const matrices = new Map<string, Tensor>()
  const excluded: string[] = []
  for (const [name, tensor] of weights) {
    if (!name.endsWith('.weight') || tensor.shape.length !== 2) continue
    const module = name.slice(0, -'.weight'.length)
    const fits = tensor.shape[1]! % 16 === 0 && !tests.some(test => test.matches(module))
    if (fits) matrices.set(module, tensor)
    else excluded.push(module)
  }
  const largest = new Map([...matrices].map(([module, tensor]) => [module, amaxOf(tensor)]))
  const tensors = new Map<string, Tensor | SafetensorsTensor>()
  for (const [name, tensor] of weights) {
    const module = name.replace(/\.weight$/, '')
    if (!matrices.has(module) || name === module) tensors.set(name, tensor)
  }
  const losses = new Map<string, number>()
  for (const [module, tensor] of matrices) {
    const amax = Math.max(...fellows(module).map(name => largest.get(name) ?? 0))
    const matrix = quantizeNVFP4({ data: tensor.data, dtype: tensor.dtype } as QuantizerInput, tensor.shape, {
      amax,
    })
    losses.set(module, relativeError(dequantizeNVFP4(matrix), tensor.toFloat32()))
    for (const [name, record] of nvfp4Tensors(layout, module, matrix)) tensors.set(name, record)
    const input = inputAmax[module]
    if (input !== undefined) tensors.set(...inputScale(layout, module, input))
  }
  return { tensors, quantized: [...matrices.keys()], losses, excluded }
}

const amaxOf = (tensor: Tensor): number =>
  tensor.toFloat32().reduce((largest, value) => Math.max(largest, Math.abs(value)), 0)

/** The modules that share a tensor scale with one, itself included. */
function fellows(module: string): string[] {
  const at = module.lastIndexOf('.') + 1
  const group = fused.find(names => names.includes(module.slice(at)))
  return group ? group.map(name => module.slice(0, at) + name) : [module]
}

function inputScale(layout: CheckpointLayout, module: string, amax: number): [string, SafetensorsTensor] {
  return layout === 'modelopt'
    ? [`${module}.input_scale`, { dtype: 'F32', shape: [], data: Float32Array.of(amax / 2688) }]
    : [`${module}.input_global_scale`, { dtype: 'F32', shape: [1], data: Float32Array.of(2688 / amax) }]
}

/**
 * Writes a folder with quantized weights, as TensorRT-LLM, vLLM and SGLang read it.
 * @throws SparkError ERR_IO, and as {@link quantizeWeights}
 */
export async function writeCheckpoint(
  folder: string,
  weights: ReadonlyMap<string, Tensor>,
  options: ExportOptions = {},
): Promise<QuantizedCheckpoint> {
  expectText('folder', folder)
  const made = quantizeWeights(weights, options)
  const { layout = 'modelopt', config = {}, inputAmax } = options
  const hasInputs = inputAmax !== undefined && Object.keys(inputAmax).length > 0
  await makeFolder(folder)
  const write = (name: string, value: unknown): Promise<void> =>
    writeFileAtomic(path.join(folder, name), [Buffer.from(`${JSON.stringify(value, null, 2)}\n`)])
  await writeSafetensors(path.join(folder, 'model.safetensors'), made.tensors)
  const settings = layout === 'modelopt' ? modelOptConfig : compressedTensorsConfig
  await write('config.json', { ...config, quantization_config: settings(made.excluded, hasInputs) })
  if (layout !== 'modelopt') return made
  await write('hf_quant_config.json', {
    producer: { name: 'dgx-spark' },
    quantization: {
      quant_algo: hasInputs ? 'NVFP4' : 'W4A16_NVFP4',
      kv_cache_quant_algo: null,
      group_size: 16,
      exclude_modules: made.excluded,
    },
  })
  return made
}

function modelOptConfig(ignore: readonly string[], hasInputs: boolean): object {
  const group = { dynamic: false, num_bits: 4, type: 'float', group_size: 16 }
  return {
    config_groups: {
      group_0: { ...(hasInputs && { input_activations: group }), weights: group, targets: ['Linear'] },
    },
    ignore,
    quant_algo: hasInputs ? 'NVFP4' : 'W4A16_NVFP4',
    producer: { name: 'dgx-spark' },
    quant_method: 'modelopt',
  }
}

function compressedTensorsConfig(ignore: readonly string[], hasInputs: boolean): object {
  const group = { num_bits: 4, type: 'float', group_size: 16, strategy: 'tensor_group', symmetric: true }
  const input = { ...group, dynamic: 'local', observer: 'static_minmax' }
  return {
    config_groups: {
      group_0: {
        format: 'nvfp4-pack-quantized',
        input_activations: hasInputs ? input : null,
        output_activations: null,
        targets: ['Linear'],
        weights: { ...group, dynamic: false },
      },
    },
    format: 'nvfp4-pack-quantized',
    ignore,
    kv_cache_scheme: null,
    quant_method: 'compressed-tensors',
    quantization_status: 'compressed',
  }
}

/**
 * Reads the weights of a folder, quantized or not, in the layout of ModelOpt or compressed-tensors, in one file or in
 * several.
 * @throws SparkError ERR_IO, ERR_FORMAT naming the tensor
 */
export async function readCheckpoint(folder: string): Promise<Map<string, Tensor | Weight>> {
  expectText('folder', folder)
  const { openSafetensorsFolder } = await import('../safetensors-folder.js')
  const { findQuantized } = await import('./quantized-matrices.js')
  const tensors = await openSafetensorsFolder(folder)
  const { matrices, parts } = findQuantized(folder, tensors)
  const weights = new Map<string, Tensor | Weight>()
  for (const [name, tensor] of tensors) {
    if (parts.has(name)) continue
    weights.set(name, tensorFromRecord(name, recordOf(tensor, await tensor.load())))
  }
  for (const [name, matrix] of matrices) weights.set(name, inOrder(await matrix.read()))
  return weights
}
