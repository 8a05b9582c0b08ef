// language-costs.ts: costs of a language model by the headers of its files: an embedding, its decoder layers, a head.
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import { readJson } from '../../io/read-file.js'
import type { LayerConfig } from '../../text/architectures/config.js'
import type { ModelConfig } from '../../text/architectures/model-config.js'
import { layerPrefixes, modelNames } from '../../text/architectures/weight-names.js'
import type { ExpertCost, LayerCost, ModelCosts, OperatorUse } from './costs.js'

/** A tensor of a file. */
export interface StoredMatrix {
  readonly name: string
  /** Element type or block format, as its file calls it. */
  readonly format: string
  readonly shape: readonly number[]
  readonly byteLength: number
}

/** Bytes of an element of keys, values and what goes from layer to layer, which are f16 or bf16. */
const halfBytes = 2

/** Of matrices that are packed in larger elements: elements in each of these. */
const packed: Readonly<
  Record<string, { readonly elements: number; readonly dtype: string; readonly multiplied: string }>
> = {
  U8: { elements: 2, dtype: 'f4_e2m1', multiplied: 'f4_e2m1' },
  I32: { elements: 8, dtype: 'i4', multiplied: 'f16' },
}

/** Element types of safetensors as we name them. */
const dtypes: Readonly<Record<string, string>> = { F8_E4M3: 'f8_e4m3', F8_E5M2: 'f8_e5m2', I8: 'i8' }

/** Tensors of quantizers that say how another one is read. */
const scalePattern = /(scales?|scale_inv|scale_2|zeros?|zero_points?|qzeros|g_idx|input_scale)$/

/**
 * Costs of a language model.
 * @param source - a folder with config.json and safetensors, or a GGUF file; only headers are read
 * @throws SparkError ERR_IO, ERR_FORMAT; ERR_UNSUPPORTED for an architecture that is not known
 */
export async function languageCosts(source: string, isFolder: boolean): Promise<ModelCosts> {
  const { readModelConfig } = await import('../../text/architectures/model-config.js')
  const name = path.basename(path.resolve(source))
  if (isFolder) {
    const { openSafetensorsFolder } = await import('../../io/safetensors-folder.js')
    const file = path.join(source, 'config.json')
    const config = readModelConfig(await readJson(file), file)
    const tensors = [...(await openSafetensorsFolder(source)).values()]
    return costsOfTensors(
      name,
      config,
      tensors.map(({ dtype, ...tensor }) => ({ ...fieldsOf(tensor), format: dtype })),
    )
  }
  const [{ readGguf }, { configOfGguf }] = await Promise.all([
    import('../../io/gguf/gguf.js'),
    import('../../text/architectures/gguf-config.js'),
  ])
  const gguf = await readGguf(source)
  const config = readModelConfig(await configOfGguf(gguf), source)
  return costsOfTensors(name, config, [...gguf.tensors.values()])
}

const fieldsOf = ({
  name,
  shape,
  byteLength,
}: Omit<StoredMatrix, 'format'>): Omit<StoredMatrix, 'format'> => ({
  ...{ name, shape, byteLength },
})

/**
 * Costs of a language model by its configuration and tensors.
 * @throws SparkError ERR_FORMAT when a layer has no tensors
 */
export function costsOfTensors(
  name: string,
  config: ModelConfig,
  tensors: readonly StoredMatrix[],
): ModelCosts {
  const isDecoder = config.kind === 'decoder'
  const { hiddenSize, contextLength, vocabularySize } = isDecoder ? config.decoder : config.encoder
  const layers: readonly Partial<LayerConfig>[] = isDecoder ? config.decoder.layers : config.encoder.layers
  const parts = partsOf(tensors, layers.length)
  for (const [l, own] of parts.layers.entries())
    if (own.length === 0) throw new SparkError('ERR_FORMAT', `${name} has no tensors of layer ${l}`)
  const table = parts.embedding.find(tensor =>
    (modelNames.embedding as readonly string[]).includes(tensor.name),
  )
  const hasHead = parts.head.some(({ shape }) => shape.length > 1)
  const shared = isDecoder && !hasHead && table ? [table] : []
  const cutBytes = halfBytes * hiddenSize
  const common = { cutBytes, attentionDtype: 'f16', stateBytes: 0, attentionFlops: 0, lastTokenOnly: false }
  const plain = {
    ...common,
    window: Number.POSITIVE_INFINITY,
    workspaceBytes: 16 * hiddenSize,
    allReduces: 1,
  }
  const embedding: LayerCost = {
    ...{
      name: 'embedding',
      ...plain,
      weightBytes: bytesOf(parts.embedding),
      idleBytes: bytesOf(parts.embedding),
    },
    ...{ flops: {}, operators: table ? [{ op: 'Gather', dtype: dtypeOf(table) }] : [] },
  }
  const head: LayerCost = {
    ...{ name: 'head', ...plain, ...costsOf([...parts.head, ...shared], undefined) },
    ...{ lastTokenOnly: isDecoder, workspaceBytes: isDecoder ? 4 * vocabularySize : 16 * hiddenSize },
  }
  const middle = layers.map((layer, l) => ({
    ...{ ...plain, ...layerState(layer, isDecoder), ...costsOf(parts.layers[l]!, layer.experts) },
    ...{ name: `${l}`, allReduces: 2 },
  }))
  const heads = layers.map(layer => layer.heads ?? 1)
  return {
    ...{ name, kind: 'language', contextLength },
    layers: [embedding, ...middle, head],
    sharedBytes: bytesOf(shared),
    divisible: {
      heads: heads.reduce(commonDivisor),
      kvHeads: layers.map((layer, l) => layer.kvHeads ?? heads[l]!).reduce(commonDivisor),
      hiddenSize,
    },
  }
}

const commonDivisor = (a: number, b: number): number => (b === 0 ? a : commonDivisor(b, a % b))

/** Keys, values and arithmetic of attention. */
function layerState(
  { heads = 1, kvHeads = heads, headSize = 0, window = Number.POSITIVE_INFINITY }: Partial<LayerConfig>,
  isDecoder: boolean,
): Pick<LayerCost, 'stateBytes' | 'attentionFlops' | 'window'> {
  return {
    stateBytes: isDecoder ? 2 * kvHeads * headSize * halfBytes : 0,
    // Two products, q · k and p · v, of a multiplication and an addition for each element of a head.
    attentionFlops: 4 * heads * headSize,
    window,
  }
}

const bytesOf = (tensors: readonly StoredMatrix[]): number =>
  tensors.reduce((sum, { byteLength }) => sum + byteLength, 0)

/** Tensors by the layer that they belong to; what is neither of a layer nor of the head goes with the embedding. */
function partsOf(tensors: readonly StoredMatrix[], count: number) {
  const prefixes = [...layerPrefixes, 'encoder.layer.', 'transformer.layer.']
  const plain = (name: string): string => name.replace(/^(bert|roberta|distilbert)\./, '')
  const prefix =
    prefixes.find(start => tensors.some(({ name }) => plain(name).startsWith(`${start}0.`))) ?? ''
  const heads = [...modelNames.norm, ...modelNames.head]
  const parts = {
    embedding: [] as StoredMatrix[],
    head: [] as StoredMatrix[],
    layers: Array.from({ length: count }, (): StoredMatrix[] => []),
  }
  for (const tensor of tensors) {
    const name = plain(tensor.name)
    const layer =
      prefix !== '' && name.startsWith(prefix) ? Number.parseInt(name.slice(prefix.length), 10) : -1
    if (parts.layers[layer]) parts.layers[layer].push(tensor)
    else if (heads.some(start => name.startsWith(`${start}.`))) parts.head.push(tensor)
    else parts.embedding.push(tensor)
  }
  return parts
}

/** The dtype or format of the elements of a tensor. */
const dtypeOf = ({ format }: StoredMatrix): string =>
  packed[format]?.dtype ?? dtypes[format] ?? format.toLowerCase()

/** The dtype that products with a tensor are computed in: blocks are widened to f16. */
function multipliedIn(tensor: StoredMatrix): string {
  const dtype = dtypeOf(tensor)
  return packed[tensor.format]?.multiplied ?? (/^(f32|bf16|f8_|i8$)/.test(dtype) ? dtype : 'f16')
}

/** Bytes, arithmetic and operators of the tensors of a layer. */
function costsOf(
  tensors: readonly StoredMatrix[],
  experts: { readonly count: number; readonly used: number } | undefined,
): Pick<LayerCost, 'weightBytes' | 'idleBytes' | 'flops' | 'operators'> & { experts?: ExpertCost } {
  const flops: Record<string, number> = {}
  const operators = new Map<string, OperatorUse>()
  let expertBytes = 0
  for (const tensor of tensors) {
    const isExpert = experts !== undefined && /(_exps?\.|\.experts\.)/.test(tensor.name)
    if (isExpert) expertBytes += tensor.byteLength
    if (tensor.shape.length < 2 || scalePattern.test(tensor.name)) continue
    const dtype = multipliedIn(tensor)
    const used = isExpert ? experts.used / experts.count : 1
    const count = numel(tensor.shape) * (packed[tensor.format]?.elements ?? 1)
    flops[dtype] = (flops[dtype] ?? 0) + 2 * count * used
    operators.set(dtypeOf(tensor), { op: 'MatMul', dtype: dtypeOf(tensor) })
  }
  return {
    ...{ weightBytes: bytesOf(tensors), idleBytes: 0, flops, operators: [...operators.values()] },
    ...(experts &&
      expertBytes > 0 && { experts: { bytes: expertBytes, count: experts.count, used: experts.used } }),
  }
}
