// decoded-weights.ts: weights of codes and scales that layers beside adapters read, whose kernels know no such codes.
import type { Paced } from '../../core/paced.js'
import { transpose } from '../../core/transpose.js'
import { Constant } from '../constant.js'
import { type Graph, type Node, sparkDomain } from '../graph.js'
import { dequantize, type WeightPattern, weightPatternsPaced } from '../weight-pattern.js'
import { weightInput } from './fold-layouts.js'

/** What these weights stand for, by name, decoded when somebody reads them. Those that others read, too, are left out. */
export function* decodedWeightsPaced(
  graph: Graph,
  readers: ReadonlyMap<string, readonly Node[]>,
): Paced<Map<string, Constant>> {
  const decoded = new Map<string, Constant>()
  const outputs = new Set(graph.outputs.map(({ name }) => name))
  for (const [name, pattern] of yield* weightPatternsPaced(graph)) {
    const nodes = outputs.has(name) ? [] : (readers.get(name) ?? [])
    const isAdapted = nodes.every(
      node => node.domain === sparkDomain && node.inputs[weightInput(node) ?? -1] === name,
    )
    if (nodes.length > 0 && isAdapted && pattern.format === 'scaled' && pattern.types.at(-1) === 'f32')
      decoded.set(name, decodedConstant(graph, pattern))
  }
  return decoded
}

function decodedConstant(graph: Graph, pattern: WeightPattern): Constant {
  const { sizes, transposed } = pattern
  const [rows = 0, cols = 0] = sizes
  const read = (): Uint8Array => {
    const values = dequantize(graph, pattern)
    const { buffer, byteOffset, byteLength } = transposed ? transpose(values, rows, cols) : values
    return new Uint8Array(buffer, byteOffset, byteLength)
  }
  const byteLength = sizes.reduce((a, b) => a * b, Float32Array.BYTES_PER_ELEMENT)
  return Constant.lazy('f32', transposed ? [cols, rows] : sizes, {
    byteLength,
    read,
    load: async () => read(),
  })
}
