// read-quantization.ts: the quantization that config.json and hf_quant_config.json describe.
import { SparkError } from '../../core/errors.js'
import {
  type Quantization,
  quantizationMethods,
  unknownQuantization,
} from '../../io/checkpoints/quantization.js'
import { ConfigReader } from '../architectures/config-reader.js'

type Method = NonNullable<Quantization['method']>

/** Algorithms of ModelOpt whose matrices can be read. */
const modelOptAlgorithms = [
  'FP8',
  'FP8_PER_CHANNEL_PER_TOKEN',
  'FP8_PB_WO',
  'NVFP4',
  'NVFP4_AWQ',
  'W4A16_NVFP4',
  'W4A8_NVFP4_FP8',
  'MIXED_PRECISION',
]

/** Formats of compressed-tensors that can be read. */
const compressedFormats = [
  'dense',
  'float-quantized',
  'int-quantized',
  'naive-quantized',
  'pack-quantized',
  'nvfp4-pack-quantized',
  'mxfp4-pack-quantized',
  'mixed-precision',
]

/**
 * How the matrices of a folder are quantized; undefined where nothing says that they are.
 * @param config - content of config.json
 * @param modelOpt - content of hf_quant_config.json, where there is one
 * @throws SparkError ERR_UNSUPPORTED naming a method, algorithm or layout that cannot be read; ERR_FORMAT
 */
export function readQuantization(config: unknown, modelOpt?: unknown): Quantization | undefined {
  const file = new ConfigReader(config, 'config.json')
  const holders = [file, file.object('text_config')]
  for (const holder of holders)
    for (const key of ['quantization_config', 'compression_config', 'quantization'])
      if (holder.has(key)) return ofMethod(holder.object(key))
  if (modelOpt === undefined) return undefined
  return ofModelOpt(new ConfigReader(modelOpt, 'hf_quant_config.json').object('quantization'))
}

function ofMethod(settings: ConfigReader): Quantization {
  const method = methodOf(settings)
  switch (method) {
    case 'fp8':
      return ofFP8(settings)
    case 'modelopt':
      return ofModelOpt(settings)
    case 'compressed-tensors':
      return ofCompressedTensors(settings)
    case 'gptq':
      return ofGPTQ(settings)
    case 'awq':
      expectOneOf(settings, 'version', ['gemm', 'GEMM'], 'gemm')
      return { ...unknownQuantization, method }
    default:
      return { ...unknownQuantization, method }
  }
}

function methodOf(settings: ConfigReader): Method {
  if (!settings.has('quant_method')) {
    if (settings.has('quant_algo')) return 'modelopt'
    if (settings.has('config_groups')) return 'compressed-tensors'
    throw refusal(settings.nameOf('quant_method'), 'missing, as in checkpoints of MLX', quantizationMethods)
  }
  const method = settings.text('quant_method')
  if (method.startsWith('modelopt')) return 'modelopt'
  const known = quantizationMethods.find(name => name === method)
  if (known) return known
  throw refusal(settings.nameOf('quant_method'), `'${method}'`, quantizationMethods)
}

function ofFP8(settings: ConfigReader): Quantization {
  expectOneOf(settings, 'fmt', ['e4m3', 'float8_e4m3fn'], 'e4m3')
  if (!settings.has('weight_block_size')) return { ...unknownQuantization, method: 'fp8' }
  const sizes = settings.numbers('weight_block_size')
  const [blockSize] = sizes
  const isSquare =
    sizes.length === 2 && sizes[0] === sizes[1] && Number.isSafeInteger(blockSize) && blockSize! > 0
  if (isSquare) return { ...unknownQuantization, method: 'fp8', blockSize: blockSize! }
  throw refusal(settings.nameOf('weight_block_size'), `[${sizes.join(', ')}]`, [
    'square blocks, such as [128, 128]',
  ])
}

function ofModelOpt(settings: ConfigReader): Quantization {
  expectOneOf(settings, 'quant_algo', modelOptAlgorithms, 'MIXED_PRECISION')
  const layers = settings.object('quantized_layers')
  for (const name of layers.keys) expectOneOf(layers.object(name), 'quant_algo', modelOptAlgorithms)
  return { ...unknownQuantization, method: 'modelopt' }
}

function ofCompressedTensors(settings: ConfigReader): Quantization {
  expectOneOf(settings, 'format', compressedFormats, 'dense')
  const groups = settings.object('config_groups')
  for (const name of groups.keys) expectOneOf(groups.object(name), 'format', compressedFormats, 'dense')
  expectOneOf(settings.object('sparsity_config'), 'format', ['dense'], 'dense')
  const transforms = settings.object('transform_config')
  if (transforms.object('config_groups').keys.length > 0)
    throw refusal(settings.nameOf('transform_config'), 'a rotation of activations', ['none'])
  return { ...unknownQuantization, method: 'compressed-tensors' }
}

function ofGPTQ(settings: ConfigReader): Quantization {
  const format = expectOneOf(settings, 'checkpoint_format', ['gptq', 'gptq_v2'], 'gptq')
  return { ...unknownQuantization, method: 'gptq', zeroOffset: format === 'gptq_v2' ? 0 : 1 }
}

/** The text of a key, which must be one of `known`. */
function expectOneOf(
  settings: ConfigReader,
  key: string,
  known: readonly string[],
  fallback?: string,
): string {
  const value = settings.text(key, fallback)
  if (known.includes(value)) return value
  throw refusal(settings.nameOf(key), `'${value}'`, known)
}

const refusal = (what: string, found: string, known: readonly string[]): SparkError =>
  new SparkError('ERR_UNSUPPORTED', `${what} is ${found}; supported: ${known.join(', ')}`)
