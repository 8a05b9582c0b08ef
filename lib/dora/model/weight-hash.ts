// weight-hash.ts: the constants of an adapted weight, and their hash.
import { createHash } from 'node:crypto'
import type { Constant } from '../../graph/constant.js'
import type { Graph } from '../../graph/graph.js'
import { dequantizeLayers } from '../../graph/rewrites/dequantize-layers.js'
import type { GraphModule } from './find-modules.js'

/** The initializers that a module's weight is computed from. */
export function weightConstants(graph: Graph, module: GraphModule): Constant[] {
  const { initializers } = withConstants(graph, module)
  return (module.quantized?.constants ?? [module.weight]).map(name => initializers.get(name)!)
}

/** A graph with all constants of a weight, some of which may only appear when its layer is dequantized. */
export function withConstants(graph: Graph, { weight, quantized }: GraphModule): Graph {
  const isComplete = quantized?.constants.every(name => graph.initializers.has(name)) ?? true
  return isComplete ? graph : dequantizeLayers(graph, new Set([weight]))
}

/** The hexadecimal sha256 of the bytes of a weight; for a quantized weight, of its codes and then its scales. */
export function weightHash(graph: Graph, module: GraphModule): string {
  const hash = createHash('sha256')
  for (const { bytes } of weightConstants(graph, module)) hash.update(bytes)
  return hash.digest('hex')
}
