// masks.ts: which keys the queries of an exported decoder see, from the mask that it computes for an example.
import { isHalf } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import type { AnyTensor } from '../../model/results.js'
import { decode } from '../../precision/casts.js'
import type { DecoderPorts } from './decoder-ports.js'
import { type ProbeSizes, probe } from './probe.js'

/** A mask as a rule. */
export interface MaskForm {
  /** Whether it hides later keys. */
  readonly isCausal: boolean
  /** Keys that a query sees at most, itself included; Infinity for no limit. */
  readonly window: number
}

/** New tokens of the example that masks are computed for, and the most tokens in it. */
const exampleAdded = 3
const exampleTokens = 1 << 18

/**
 * The rules of masks of a canonical graph, by name.
 * @param contextLength - tokens of the longest sequence
 * @throws SparkError as {@link maskForm} and {@link probe}
 */
export async function maskForms(
  graph: Graph,
  ports: DecoderPorts,
  names: readonly string[],
  contextLength: number,
): Promise<ReadonlyMap<string, MaskForm>> {
  const total = Math.max(2 * exampleAdded, Math.min(contextLength, exampleTokens))
  const sizes = { past: total - exampleAdded, added: exampleAdded }
  const values = await probe(graph, ports, names, sizes)
  return new Map(names.map(name => [name, maskForm(values.get(name)!, sizes, name)]))
}

/** What is added to the score of a key that is hidden, at most: exp of it is 0 in f32 whatever the scores are. */
const hiddenBelow = -9000

/**
 * The rule of a mask.
 * @param mask - [..., queries or 1, keys]: booleans, true for keys that are seen, or numbers that are added to scores
 * @param name - of the value, for messages
 * @throws SparkError ERR_UNSUPPORTED for a mask that hides other keys than later ones and those before a window, and for
 * numbers that change scores
 */
export function maskForm(mask: AnyTensor, sizes: ProbeSizes, name: string): MaskForm {
  const { past, added } = sizes
  const total = past + added
  const [rows = 1, cols = 1] = mask.shape.slice(-2)
  const outer = mask.shape.slice(0, -2).reduce((product, size) => product * size, 1)
  if (mask.shape.length < 2 || ![1, added].includes(rows) || cols !== total || outer === 0)
    throw refused(name, `is [${mask.shape.join(', ')}] for ${added} tokens behind ${past}`)
  const seen = visible(mask, name)
  for (let i = rows * cols; i < seen.length; i++)
    if (seen[i] !== seen[i % (rows * cols)]) throw refused(name, 'differs from head to head')
  return rows === 1 ? rowForm(seen, total, name) : squareForm(seen, sizes, name)
}

/** 1 for each key that is seen. */
function visible({ dtype, data }: AnyTensor, name: string): Uint8Array {
  const numbers = isHalf(dtype) ? decode(data as Uint16Array, dtype) : (data as ArrayLike<number>)
  if (dtype === 'bool') return Uint8Array.from(numbers, value => (value ? 1 : 0))
  if (!isHalf(dtype) && dtype !== 'f32' && dtype !== 'f64') throw refused(name, `is of ${dtype}`)
  return Uint8Array.from(numbers, value => {
    if (value !== 0 && !(value <= hiddenBelow)) throw refused(name, `adds ${value} to a score`)
    return value === 0 ? 1 : 0
  })
}

/** A mask that is the same for all queries can hide nothing. */
function rowForm(seen: Uint8Array, total: number, name: string): MaskForm {
  if (seen.subarray(0, total).includes(0)) throw refused(name, 'hides keys from all queries')
  return { isCausal: false, window: Number.POSITIVE_INFINITY }
}

function squareForm(seen: Uint8Array, { past, added }: ProbeSizes, name: string): MaskForm {
  const total = past + added
  const rowOf = (i: number): Uint8Array => seen.subarray(i * total, (i + 1) * total)
  const last = rowOf(added - 1)
  const first = last.indexOf(1)
  const window = first > 0 ? total - first : Number.POSITIVE_INFINITY
  const isCausal = rowOf(0)[total - 1] === 0
  for (let i = 0; i < added; i++) {
    const position = past + i
    const wrong = rowOf(i).findIndex(
      (value, key) => value !== Number(key > position - window && (!isCausal || key <= position)),
    )
    if (wrong >= 0)
      throw refused(name, `is neither causal nor a window at query ${position} and key ${wrong}`)
  }
  return { isCausal, window }
}

const refused = (name: string, why: string): SparkError =>
  new SparkError('ERR_UNSUPPORTED', `the mask '${name}' ${why}; causal masks and windows are supported`)
