// write.ts: graphs to ONNX files.
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import { writeFileAtomic } from '../atomic-write.js'
import { type Encoded, encodeMessage, type LazyBytes } from './encode.js'
import { entryMessages, functionMessage, graphMessage, opsetMessages } from './write-parts.js'

/** Bytes of one protobuf message at most. */
const maxMessageBytes = 2 ** 31 - 1

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

/**
 * Writes a graph as an ONNX file, which appears whole or not at all.
 * @throws SparkError ERR_IO when it cannot be written, ERR_UNSUPPORTED when it is too large for one file
 */
export async function writeOnnx(graph: Graph, file: string): Promise<void> {
  await writeFileAtomic(path.resolve(file), materialise(encodeGraph(graph)))
}

/**
 * The bytes of an ONNX file.
 * @throws SparkError ERR_UNSUPPORTED when they are too many for one file
 */
export function serializeOnnx(graph: Graph): Uint8Array {
  return Buffer.concat([...materialise(encodeGraph(graph))])
}

function encodeGraph(graph: Graph): Encoded {
  const encoded = encodeMessage('Model', {
    irVersion: BigInt(irVersionOf(graph)),
    producerName: graph.producer.name || undefined,
    producerVersion: graph.producer.version || undefined,
    graph: graphMessage({ ...graph, metadata: new Map() }),
    opsetImport: opsetMessages(graph.opsets),
    metadata: entryMessages(graph.metadata),
    functions: graph.functions.map(functionMessage),
  })
  if (encoded.byteLength > maxMessageBytes) {
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `the model has ${encoded.byteLength} bytes; one ONNX file holds at most ${maxMessageBytes}`,
    )
  }
  return encoded
}

function irVersionOf({ opsets, functions }: Graph): number {
  const opset = opsets.get('') ?? 1
  const byOpset = irVersions.find(([last]) => opset <= last)?.[1] ?? 13
  return functions.length > 0 ? Math.max(byOpset, 8) : byOpset
}

function* materialise({ chunks }: { chunks: readonly LazyBytes[] }): Generator<Uint8Array> {
  for (const chunk of chunks) yield chunk instanceof Uint8Array ? chunk : chunk.read()
}
