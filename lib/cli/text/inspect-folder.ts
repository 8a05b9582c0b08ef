// inspect-folder.ts: `dgx-spark inspect` of the folder of a language model: tensors, formats, the memory that a context takes.
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import { isThere, readJson } from '../../io/read-file.js'
import { openSafetensorsFolder } from '../../io/safetensors-folder.js'
import type { ModelConfig } from '../../text/architectures/model-config.js'
import { hasSafetensors } from '../../text/files/model-files.js'
import { findOnnxDecoder } from '../../text/onnx/decoder-files.js'
import { formatCount } from '../counts.js'
import { formatBytes, print, printJson, printPairs, styled } from '../output.js'
import {
  bitsEach,
  type CacheFacts,
  type ListedTensor,
  memoryPairs,
  memoryWith,
  printTensors,
  sum,
  tensorRecords,
  totalsByFormat,
} from './tensor-tables.js'

/** Prints what a folder holds. */
export async function inspectFolder(
  folder: string,
  options: { context?: number; json?: boolean },
): Promise<void> {
  const files = (await hasSafetensors(folder)) ? undefined : await findOnnxDecoder(folder)
  if (files) return (await import('./inspect-onnx-folder.js')).inspectOnnxFolder(files, options)
  const stored = await openSafetensorsFolder(folder)
  const tensors: ListedTensor[] = [...stored.values()].map(({ name, dtype, shape, byteLength }) => ({
    ...{ name, format: dtype, shape, byteLength },
    count: numel(shape),
  }))
  const file = path.join(folder, 'config.json')
  const json = (await isThere(file)) ? await readJson(file) : undefined
  const { model_type: type, quantization_config: quantization } = (json ?? {}) as Settings
  const architecture = typeof type === 'string' ? type : null
  const method = typeof quantization?.quant_method === 'string' ? quantization.quant_method : null
  const memory = memoryWith(sum(tensors, 'byteLength'), options.context, await cacheOf(json, file))
  const formats = totalsByFormat(tensors)
  const elements = sum(tensors, 'count')
  if (options.json) {
    printJson({
      kind: 'safetensors',
      ...{ architecture, quantization: method, parameters: elements, memory },
      formats: Object.fromEntries(formats),
      tensors: tensorRecords(tensors),
    })
    return
  }
  print(styled('bold', path.basename(path.resolve(folder))))
  printPairs([
    ['architecture', architecture ?? 'not named'],
    ...(method === null ? [] : [['quantization', method] as const]),
    // Quantized elements are packed in larger ones.
    [method === null ? 'parameters' : 'elements in the files', formatCount(elements)],
    [
      'weights',
      `${formatBytes(memory.weightBytes)}${method === null ? `, ${bitsEach(memory.weightBytes, elements)} bits a parameter` : ''}`,
    ],
    ...memoryPairs(memory),
  ])
  printTensors(tensors, formats)
}

interface Settings {
  readonly model_type?: unknown
  readonly quantization_config?: { readonly quant_method?: unknown } | null
}

/** What the configuration says of keys and values. */
async function cacheOf(json: unknown, file: string): Promise<CacheFacts> {
  if (json === undefined) return { perToken: 'there is no config.json', limit: undefined }
  const { readModelConfig } = await import('../../text/architectures/model-config.js')
  let config: ModelConfig
  try {
    config = readModelConfig(json, file)
  } catch (error) {
    if (!(error instanceof SparkError)) throw error
    return { perToken: error.message, limit: undefined }
  }
  if (config.kind === 'encoder') return { perToken: 0, limit: config.encoder.contextLength }
  const { layers, contextLength } = config.decoder
  const perToken = layers.reduce((total, { kvHeads, headSize }) => total + 2 * kvHeads * headSize, 0)
  const window = layers.find(layer => Number.isFinite(layer.window))?.window
  const note = window && `at most: some layers look back ${window} tokens only`
  return { perToken, limit: contextLength, ...(note && { note }) }
}
