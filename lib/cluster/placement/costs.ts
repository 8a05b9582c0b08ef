// costs.ts: what each layer of a model costs: bytes, arithmetic, state, and what goes to the next layer.

/** An operator in an element type or block format, such as MatMul in `f8_e4m3` or `q4_K`. */
export interface OperatorUse {
  /** Name of the operator, as ONNX has it. */
  readonly op: string
  /** Element type or block format. */
  readonly dtype: string
}

/** Weights of experts: a token reads those of a few. */
export interface ExpertCost {
  /** Of all experts. */
  readonly bytes: number
  /** How many there are. */
  readonly count: number
  /** How many a token uses. */
  readonly used: number
}

/** Costs of a layer. A step of a language model makes one token for each sequence of a batch; one of another model is a run. */
export interface LayerCost {
  /** `embedding`, `head`, or its number. */
  readonly name: string
  /** Of a graph: one behind its last node, where `cutGraph` cuts. */
  readonly end?: number
  /** Weights as they are stored. */
  readonly weightBytes: number
  /** Weights of which a step reads nothing worth counting: the table of an embedding. */
  readonly idleBytes: number
  /** Weights that each device of a group has whole; the others are cut. Default: none. */
  readonly replicatedBytes?: number
  /** Experts among the weights. */
  readonly experts?: ExpertCost
  /** Arithmetic for one token by the dtype that multiplies; without what grows with the context. */
  readonly flops: Readonly<Record<string, number>>
  /** Arithmetic of attention for one token and each token of the context. */
  readonly attentionFlops: number
  /** The dtype of the arithmetic of attention. */
  readonly attentionDtype: string
  /** Keys and values of one token. */
  readonly stateBytes: number
  /** Tokens that keys and values are kept of; Infinity: of the whole context. */
  readonly window: number
  /** What one token sends to the next layer. */
  readonly cutBytes: number
  /** Memory that one token needs while the layer runs. */
  readonly workspaceBytes: number
  /** All-reduces of `cutBytes` where a group of devices shares the layer. */
  readonly allReduces: number
  /** Whether reading a prompt runs it for the last token only. */
  readonly lastTokenOnly: boolean
  /** What a device must be able to run. */
  readonly operators: readonly OperatorUse[]
}

/** Costs of a model: a chain of layers, each of which needs what the one before it made. */
export interface ModelCosts {
  /** That of the file or folder. */
  readonly name: string
  /** A language model whose steps make tokens, or a graph whose steps are runs. */
  readonly kind: 'language' | 'graph'
  /** First to last. */
  readonly layers: readonly LayerCost[]
  /** Bytes of weights that the first and the last layer share; a device that has both keeps them once. */
  readonly sharedBytes: number
  /** Tokens of the longest sequence that it was made for; undefined where nothing says it. */
  readonly contextLength: number | undefined
  /** What sizes of tensor-parallel groups must divide; undefined: layers cannot be divided. */
  readonly divisible?: {
    /** Of attention. */
    readonly heads: number
    /** Heads of keys and values. */
    readonly kvHeads: number
    /** Elements of a token between layers. */
    readonly hiddenSize: number
  }
}

/** Of how many tokens, and for how many sequences. */
export interface Load {
  /** Tokens in front of the one that a step makes. */
  readonly context: number
  /** Sequences of a step. */
  readonly batch: number
  /** Sequences whose keys and values are kept: more than those of a step where stages work on several batches at once. */
  readonly sequences: number
}

/** Keys and values of a sequence, bytes. */
const sequenceBytes = ({ stateBytes, window }: LayerCost, { context }: Load): number =>
  stateBytes * Math.min(window, context)

/** Bytes that a layer holds: weights, and keys and values of all sequences. */
export const heldBytesOf = (layer: LayerCost, load: Load): number =>
  layer.weightBytes + load.sequences * sequenceBytes(layer, load)

/** The part of bytes of a layer that each device of a group has. */
export const shareOf = (bytes: number, { replicatedBytes = 0 }: LayerCost, devices: number): number =>
  replicatedBytes + (bytes - replicatedBytes) / devices

/**
 * Bytes that a step reads: weights once, keys and values of each sequence. Of experts those that at least one of the tokens uses,
 * where each token chooses evenly: bytes · (1 − (1 − used / count)^batch).
 */
export function readBytesOf(layer: LayerCost, load: Load): number {
  const { weightBytes, idleBytes, experts } = layer
  const dense = weightBytes - idleBytes - (experts?.bytes ?? 0)
  const share = experts ? 1 - (1 - experts.used / experts.count) ** load.batch : 0
  return dense + share * (experts?.bytes ?? 0) + load.batch * sequenceBytes(layer, load)
}

/** Arithmetic of a step that makes a token of each sequence, by dtype. */
export function decodeFlopsOf(layer: LayerCost, { context, batch }: Load): Map<string, number> {
  return flopsOf(layer, batch, batch * Math.min(layer.window, context))
}

/** Arithmetic of reading a prompt of `tokens` tokens, by dtype; token i attends to i tokens. */
export function prefillFlopsOf(layer: LayerCost, tokens: number): Map<string, number> {
  if (layer.lastTokenOnly) return flopsOf(layer, Math.min(1, tokens), 0)
  const window = Math.min(layer.window, tokens)
  return flopsOf(layer, tokens, (window * (window + 1)) / 2 + (tokens - window) * window)
}

function flopsOf(layer: LayerCost, tokens: number, pairs: number): Map<string, number> {
  const flops = new Map(Object.entries(layer.flops).map(([dtype, count]) => [dtype, count * tokens]))
  const attention = layer.attentionFlops * pairs
  if (attention > 0) flops.set(layer.attentionDtype, (flops.get(layer.attentionDtype) ?? 0) + attention)
  return flops
}

/** A layer as people call it: layer 31, the head. */
export const layerName = ({ name }: LayerCost): string => (/^\d/.test(name) ? `layer ${name}` : `the ${name}`)

/** Layers `from` to `end` as people call them: layers 0-20, layers 60-79 and head. */
export function layerRange({ layers }: Pick<ModelCosts, 'layers'>, from: number, end: number): string {
  const named = layers.slice(from, end)
  const numbered = named.filter(({ name }) => /^\d/.test(name))
  const parts = named.filter(({ name }) => !/^\d/.test(name)).map(({ name }) => name)
  const [first, last] = [numbered[0], numbered.at(-1)]
  const range = !first
    ? []
    : first === last
      ? [`layer ${first.name}`]
      : [`layers ${first.name}-${last!.name}`]
  return [...parts.filter(name => name !== 'head'), ...range, ...parts.filter(name => name === 'head')].join(
    ', ',
  )
}
