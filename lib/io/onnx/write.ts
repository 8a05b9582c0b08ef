// write.ts: writer of ONNX files.
import path from 'node:path'
import { atOnce } from '../../core/paced.js'
import type { Constant } from '../../graph/constant.js'
import { allNodes } from '../../graph/edit.js'
import { canonicalOpset, type Graph, type ValueInfo } from '../../graph/graph.js'
import { lowestOpset } from '../../graph/opsets.js'
import { ShapeInference } from '../../graph/shape-inference.js'
import { expectShallow } from '../../graph/validate.js'
import { writeFileAtomic } from '../atomic-write.js'
import { type Encoded, encodeMessage, type LazyBytes } from './encode.js'
import type { Message } from './messages.js'
import {
  entryMessages,
  functionMessage,
  graphMessage,
  opsetMessages,
  type StoreExternally,
} from './write-parts.js'

/** Bytes of weights that may stay in the model: the rest of a file of 2 GiB is for its nodes. */
const maxInsideBytes = 1.9 * 2 ** 30

/** First IR version of each opset: [last opset, IR version], ascending. Initializers need not be inputs from 4 on. */
const irVersions = [
  [9, 4],
  [10, 5],
  [11, 6],
  [14, 7],
  [18, 8],
  [20, 9],
  [22, 10],
  [23, 11],
  [24, 12],
] as const

/** Initializers from this size on go into the data file, when there is one. */
const minExternalBytes = 1024

/** Data of tensors begin at multiples of this in a data file, so that they can be mapped into memory. */
const externalAlignment = 4096

/** Graphs may lie inside each other this deep in a file: each takes three of the 200 levels of messages that are read. */
const maxWrittenNesting = 60

/**
 * Writes a graph as an ONNX file.
 * @param externalData - whether weights go into a file beside it. Default: where one file cannot hold them
 * @throws SparkError as `writeOnnx` in save.ts
 */
export async function writeGraph(
  graph: Graph,
  file: string,
  externalData: boolean = weightBytes(graph) > maxInsideBytes,
): Promise<void> {
  const target = path.resolve(file)
  if (!externalData) {
    await writeFileAtomic(target, materialise(encodeGraph(graph)))
    return
  }
  const data = new DataFile(`${path.basename(target)}.data`)
  const model = encodeGraph(graph, (_, constant) => data.store(constant))
  await writeFileAtomic(path.join(path.dirname(target), data.name), data.chunks())
  await writeFileAtomic(target, materialise(model))
}

function weightBytes({ initializers }: Graph): number {
  return [...initializers.values()].reduce((sum, { byteLength }) => sum + byteLength, 0)
}

/**
 * The bytes of an ONNX file, written as {@link writeGraph} does.
 * @throws SparkError ERR_UNSUPPORTED when they are too many for one file, or when graphs lie too deep inside each other
 */
export function serializeOnnx(graph: Graph): Uint8Array {
  return Buffer.concat([...materialise(encodeGraph(graph))])
}

function encodeGraph(graph: Graph, storeExternally?: StoreExternally): Encoded {
  atOnce(expectShallow(graph, maxWrittenNesting))
  const opsets = new Map(graph.opsets)
  for (const { domain } of allNodes(graph)) if (!opsets.has(domain)) opsets.set(domain, 1)
  if (graph.opsets.get('') === canonicalOpset && graph.functions.length === 0) {
    const inference = new ShapeInference({ trustFile: true, strict: false })
    atOnce(inference.inferGraph(graph, []))
    opsets.set('', lowestOpset(graph, inference.facts))
  }
  return encodeMessage('Model', {
    irVersion: BigInt(irVersionOf(graph, opsets.get('') ?? 1)),
    producerName: graph.producer.name || undefined,
    producerVersion: graph.producer.version || undefined,
    graph: graphMessage(
      { ...graph, inputs: [...graph.inputs, ...overridableOf(graph)], metadata: new Map() },
      storeExternally,
    ),
    opsetImport: opsetMessages(opsets),
    metadata: entryMessages(graph.metadata),
    functions: graph.functions.map(functionMessage),
  })
}

/** What a run may feed instead of an initializer that is still there, and of the same type. */
const overridableOf = ({ overridable = [], initializers }: Graph): readonly ValueInfo[] =>
  overridable.filter(({ name, type }) => {
    const constant = initializers.get(name)
    return constant && type?.kind === 'tensor' && type.dtype === constant.dtype
  })

/** The file beside a model that holds its weights. */
class DataFile {
  readonly name: string
  readonly #constants: { readonly constant: Constant; readonly offset: number }[] = []
  #bytes = 0

  constructor(name: string) {
    this.name = name
  }

  /** Appends a constant to the external file; undefined for one that stays in the model. */
  store(constant: Constant): Message<'Entry'>[] | undefined {
    if (constant.byteLength < minExternalBytes) return undefined
    const offset = Math.ceil(this.#bytes / externalAlignment) * externalAlignment
    this.#constants.push({ constant, offset })
    this.#bytes = offset + constant.byteLength
    return entryMessages([
      ['location', this.name],
      ['offset', String(offset)],
      ['length', String(constant.byteLength)],
    ])
  }

  *chunks(): Generator<Uint8Array> {
    let written = 0
    for (const { constant, offset } of this.#constants) {
      if (offset > written) yield new Uint8Array(offset - written)
      yield constant.bytes
      written = offset + constant.byteLength
    }
  }
}

function irVersionOf({ functions }: Graph, opset: number): number {
  const byOpset = irVersions.find(([last]) => opset <= last)?.[1] ?? 13
  return functions.length > 0 ? Math.max(byOpset, 8) : byOpset
}

function* materialise({ chunks }: { chunks: readonly LazyBytes[] }): Generator<Uint8Array> {
  for (const chunk of chunks) yield chunk instanceof Uint8Array ? chunk : chunk.read()
}
