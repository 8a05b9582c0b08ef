// gguf-memory.ts: the memory of a language model in a GGUF file: weights, and the keys and values of a context.
import type { GgufFile } from '../io/gguf/file.js'
import { type Memory, memoryWith } from './text/tensor-tables.js'

/** A number of the metadata of the architecture; undefined when there is none. */
const numbersOf = (model: GgufFile, key: string): number[] | undefined =>
  model.numbers(`${model.text('general.architecture')}.${key}`)

export const numberOf = (model: GgufFile, key: string): number | undefined => numbersOf(model, key)?.[0]

/** The memory that a context of `given` tokens takes; without a number of a usual one, or of the longest one. */
export function memoryOf(model: GgufFile, given: number | undefined): Memory {
  const weightBytes = [...model.tensors.values()].reduce((total, { byteLength }) => total + byteLength, 0)
  const window = numberOf(model, 'attention.sliding_window')
  const note = window ? `at most: some layers may look back ${window} tokens only` : undefined
  return memoryWith(weightBytes, given, {
    perToken: cacheElements(model),
    limit: numberOf(model, 'context_length'),
    note,
  })
}

/** Elements of keys and values that all layers keep of a token, or why nobody knows. */
function cacheElements(model: GgufFile): number | string {
  if (model.text('general.architecture') === undefined) return 'the file names no architecture'
  const layers = numberOf(model, 'block_count')
  const heads = numbersOf(model, 'attention.head_count')
  if (layers === undefined || !heads?.length) return 'the metadata name no layers and heads'
  if (numberOf(model, 'attention.kv_lora_rank') !== undefined) return 'the model keeps latent vectors (MLA)'
  const each = numbersOf(model, 'attention.head_count_kv') ?? heads
  const width = numberOf(model, 'embedding_length')
  const usual = width === undefined ? undefined : width / heads.reduce((a, b) => Math.max(a, b))
  const key = numberOf(model, 'attention.key_length') ?? usual
  const value = numberOf(model, 'attention.value_length') ?? usual
  if (key === undefined || value === undefined) return 'the metadata name no size of a head'
  const isPerLayer = each.length > 1
  if (isPerLayer && each.length !== layers)
    return `the metadata name ${layers} layers, but the heads of ${each.length}`
  const kvHeads = isPerLayer ? each.reduce((total, count) => total + count, 0) : layers * each[0]!
  const elements = kvHeads * (key + value)
  return Number.isFinite(elements) && elements >= 0 ? elements : 'the sizes in the metadata make no sense'
}
