// decoder-ports.ts: what the inputs of an exported decoder are, by their names.
import { SparkError } from '../../core/errors.js'
import { Constant } from '../../graph/constant.js'
import type { Graph, TensorType, ValueInfo } from '../../graph/graph.js'

/** Names of inputs and outputs; `%d` stands for the number of a layer. */
export interface PortNames {
  readonly ids: string
  readonly mask: string
  readonly positions: string
  readonly logits: string
  /** Keys and values of a layer, each [batch, kv heads, past, head size]. */
  readonly keys: readonly string[]
  readonly values: readonly string[]
  /** Keys and values of a layer as one, [2, batch, kv heads, past, head size]. */
  readonly pairs: readonly string[]
}

/** Names that optimum and onnxruntime-genai give. */
export const usualNames: PortNames = {
  ids: 'input_ids',
  mask: 'attention_mask',
  positions: 'position_ids',
  logits: 'logits',
  keys: ['past_key_values.%d.key', 'past_key_%d', 'past_%d.key'],
  values: ['past_key_values.%d.value', 'past_value_%d', 'past_%d.value'],
  pairs: ['past_%d', 'past_key_values.%d'],
}

/** What a decoder remembers of a layer. */
export interface PastPorts {
  /** Names of the inputs, which are the same where one input has both. */
  readonly keys: string
  readonly values: string
  /** Heads of keys and values, and elements of each. */
  readonly kvHeads: number
  readonly headSize: number
}

/** Inputs and outputs of an exported decoder. */
export interface DecoderPorts {
  readonly ids: ValueInfo & { readonly type: TensorType }
  readonly mask: ValueInfo | undefined
  readonly positions: ValueInfo | undefined
  readonly logits: string
  /** First layer to last. */
  readonly layers: readonly PastPorts[]
}

/** The most heads, and elements of a head, that a file can ask for. */
const mostSize = 8192

/** Sizes that a configuration says, for files whose inputs do not. */
export interface HeadSizes {
  readonly kvHeads?: number | undefined
  readonly headSize?: number | undefined
}

/** Inputs that choose between branches, with the value that makes a decoder read its past and give all logits. */
const switches: Readonly<Record<string, (type: ValueInfo['type']) => Constant>> = {
  use_cache_branch: () => Constant.from('bool', [1], Uint8Array.of(1)),
  num_logits_to_keep: type => zeroOf(type),
  logits_to_keep: type => zeroOf(type),
}

/** A zero of the rank of an input. */
function zeroOf(type: ValueInfo['type']): Constant {
  const rank = type?.kind === 'tensor' ? (type.shape?.length ?? 0) : 0
  const shape = Array<number>(rank).fill(1)
  return type?.kind === 'tensor' && type.dtype === 'i32'
    ? Constant.from('i32', shape, Int32Array.of(0))
    : Constant.from('i64', shape, BigInt64Array.of(0n))
}

/** The graph with constants in the place of inputs that choose between branches. */
export function fixSwitches(graph: Graph): Graph {
  const isSwitch = ({ name }: ValueInfo): boolean => Object.hasOwn(switches, name)
  const fixed = graph.inputs.filter(isSwitch).map(({ name, type }) => [name, switches[name]!(type)] as const)
  if (fixed.length === 0) return graph
  const inputs = graph.inputs.filter(info => !isSwitch(info))
  return { ...graph, inputs, initializers: new Map([...graph.initializers, ...fixed]) }
}

/** The number of the layer in a name; undefined where the name has another form. */
function layerOf(name: string, patterns: readonly string[]): number | undefined {
  for (const pattern of patterns) {
    const [before = '', after = ''] = pattern.split('%d')
    const middle = name.slice(before.length, name.length - after.length)
    if (name === before + middle + after && /^\d{1,5}$/.test(middle)) return Number(middle)
  }
  return undefined
}

/**
 * Finds out what the inputs of a graph are.
 * @param sizes - for sizes that the inputs leave open
 * @throws SparkError ERR_UNSUPPORTED naming an input that is none of a decoder with keys and values, ERR_FORMAT
 */
export function decoderPorts(graph: Graph, names: PortNames, sizes: HeadSizes): DecoderPorts {
  const inputs = new Map(graph.inputs.map(info => [info.name, info]))
  const take = (name: string): ValueInfo | undefined => {
    const info = inputs.get(name)
    inputs.delete(name)
    return info
  }
  const [ids, mask, positions] = [take(names.ids), take(names.mask), take(names.positions)]
  if (ids?.type?.kind !== 'tensor')
    throw new SparkError('ERR_UNSUPPORTED', `it has no input '${names.ids}': it does not read tokens`)
  const layers = takeLayers(inputs, names, sizes)
  const [odd] = inputs.keys()
  if (odd !== undefined) throw oddInput(odd)
  if (layers.length === 0)
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `it has no inputs for keys and values, such as '${names.keys[0]}'`,
    )
  return { ids: { name: ids.name, type: ids.type }, mask, positions, logits: names.logits, layers }
}

function oddInput(name: string): SparkError {
  const reasons: readonly (readonly [RegExp, string])[] = [
    [/conv/, 'the state of a convolution'],
    [/encoder/, 'what an encoder gives'],
    [/embeds|embeddings/, 'embeddings in the place of tokens'],
    [/ssm|recurrent|state/, 'a recurrent state'],
    [/block_table|cumulative|metadata/, 'a table of paged keys and values'],
  ]
  const reason = reasons.find(([pattern]) => pattern.test(name))
  const what = reason ? `, ${reason[1]}` : ''
  const message = `it has an input '${name}'${what}; decoders that read tokens, positions, a mask, and keys and values are supported`
  return new SparkError('ERR_UNSUPPORTED', message)
}

/** Takes the inputs of keys and values out of `inputs`. */
function takeLayers(
  inputs: Map<string, ValueInfo>,
  { keys, values, pairs }: PortNames,
  sizes: HeadSizes,
): PastPorts[] {
  const parts = [...inputs].map(([name, info]) => ({
    info,
    key: layerOf(name, keys),
    value: layerOf(name, values),
    pair: layerOf(name, pairs),
  }))
  const layers = new Map<number, { keys?: ValueInfo; values?: ValueInfo }>()
  const at = (layer: number): { keys?: ValueInfo; values?: ValueInfo } => {
    const found = layers.get(layer) ?? {}
    layers.set(layer, found)
    return found
  }
  for (const { info, key, value, pair } of parts) {
    if (key !== undefined) at(key).keys = info
    else if (value !== undefined) at(value).values = info
    else if (pair !== undefined) Object.assign(at(pair), { keys: info, values: info })
    else continue
    inputs.delete(info.name)
  }
  return [...layers]
    .sort(([a], [b]) => a - b)
    .map(([layer, found]) => {
      if (found.keys && found.values) return pastPorts(found.keys, found.values, sizes)
      throw new SparkError('ERR_FORMAT', `layer ${layer} has not both an input for keys and one for values`)
    })
}

function pastPorts(keys: ValueInfo, values: ValueInfo, sizes: HeadSizes): PastPorts {
  const rank = keys === values ? 5 : 4
  const shape = keys.type?.kind === 'tensor' ? keys.type.shape : undefined
  if (shape && shape.length !== rank)
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `input '${keys.name}' has ${shape.length} dimensions; ${rank} are supported`,
    )
  const size = (axis: number, given: number | undefined, what: string): number => {
    const own = shape?.at(axis)
    const found = typeof own === 'number' ? own : given
    if (found !== undefined && found >= 1 && found <= mostSize) return found
    if (found !== undefined)
      throw new SparkError(
        'ERR_FORMAT',
        `input '${keys.name}' says ${found} for ${what}; 1 to ${mostSize} are possible`,
      )
    throw new SparkError('ERR_FORMAT', `neither input '${keys.name}' nor the configuration says ${what}`)
  }
  return {
    keys: keys.name,
    values: values.name,
    kvHeads: size(-3, sizes.kvHeads, 'the number of heads'),
    headSize: size(-1, sizes.headSize, 'the size of a head'),
  }
}
