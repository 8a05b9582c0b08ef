// module-weight.ts: the weight of a layer in a graph as rows of out features in f32, and back.
import type { DType, DTypeArray } from '../core/dtype.js'
import { transpose } from '../core/transpose.js'
import { Constant } from '../graph/constant.js'
import type { Graph } from '../graph/graph.js'
import { dequantize, requantize } from '../graph/quantized-weight.js'
import { Tensor } from '../memory/tensor.js'
import type { GraphModule } from './modules.js'

/** The weight of a module, [rows, cols], in f32; the elements of the graph itself where they are that already. */
export function weightRows(
  graph: Graph,
  { weight, quantized, inColumns, rows, cols }: GraphModule,
): Float32Array {
  const values = quantized ? dequantize(graph, quantized) : floatsOf(graph.initializers.get(weight)!)
  const isTransposed = inColumns !== (quantized?.transposed ?? false)
  return isTransposed ? transpose(values, cols, rows) : values
}

/** The initializers that a module's weight is made of. */
export function weightConstants(graph: Graph, { weight, quantized }: GraphModule): Constant[] {
  return (quantized?.constants ?? [weight]).map(name => graph.initializers.get(name)!)
}

/** The elements of a constant of f32, f16 or bf16 as f32. */
export function floatsOf({ dtype, data }: Constant): Float32Array {
  return Tensor.from(data as DTypeArray, { dtype: dtype as DType }).toFloat32()
}

/** A constant of the given type and shape with these values, rounded to nearest even. */
export function constantOf(
  dtype: 'f32' | 'f16' | 'bf16',
  shape: readonly number[],
  values: Float32Array,
): Constant {
  return Constant.from(dtype, shape, dtype === 'f32' ? values : Tensor.from(values).to(dtype).data)
}

/** ‖actual − expected‖ / ‖expected‖; 0 where both are 0. */
export function relativeError(actual: Float32Array, expected: Float32Array): number {
  let [error, size] = [0, 0]
  for (const [i, value] of expected.entries()) {
    error += (actual[i]! - value) ** 2
    size += value ** 2
  }
  return error === 0 ? 0 : Math.sqrt(error / size)
}

/** Initializers that replace those of a module's weight, and what rounding to their format lost. */
export interface StoredRows {
  /** By name. */
  readonly initializers: ReadonlyMap<string, Constant>
  /** ‖stored − rows‖ / ‖rows‖ */
  readonly loss: number
}

/** Rows [rows, cols] in the format and layout of the module's weight. */
export function storeRows(graph: Graph, module: GraphModule, rows: Float32Array): StoredRows {
  const { weight, quantized, inColumns } = module
  const isTransposed = inColumns !== (quantized?.transposed ?? false)
  const values = isTransposed ? transpose(rows, module.rows, module.cols) : rows
  if (quantized) {
    const initializers = requantize(quantized, values)
    const stored = new Map([...graph.initializers, ...initializers])
    return {
      initializers,
      loss: relativeError(dequantize({ ...graph, initializers: stored }, quantized), values),
    }
  }
  const { dtype, shape } = graph.initializers.get(weight)!
  const stored = constantOf(dtype as 'f32', shape, values)
  const loss = dtype === 'f32' ? 0 : relativeError(floatsOf(stored), values)
  return { initializers: new Map([[weight, stored]]), loss }
}
