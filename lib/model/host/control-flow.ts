// control-flow.ts: If, Loop and Scan. Their bodies are graphs that run as the model does.
import { SparkError } from '../../core/errors.js'
import { describeNode, graphOf, intOf, intsOf } from '../../graph/attributes.js'
import type { Node, Subgraph, ValueInfo } from '../../graph/graph.js'
import { axisOf } from '../../plan/views.js'
import {
  copied,
  expectTensor,
  type HostTensor,
  type HostValue,
  hostIntegers,
  hostTensor,
  hostZeros,
  numbersOf,
} from '../values.js'
import { sliceAlong, stackAlong } from './axes.js'
import type { HostOperator } from './table.js'

function bodyOf(node: Node, name: string): Subgraph {
  const graph = graphOf(node, name)
  if (!graph) throw new SparkError('ERR_FORMAT', `${describeNode(node)} lacks its graph '${name}'`)
  return graph
}

/** The only element of a condition or count. */
function single(node: Node, value: HostValue | undefined): number {
  const numbers = numbersOf(expectTensor(node, value))
  if (numbers.length === 1) return numbers[0]!
  throw new SparkError(
    'ERR_SHAPE',
    `${describeNode(node)}: a condition has ${numbers.length} elements instead of 1`,
  )
}

const conditional: HostOperator = ({ node, inputs, run }) =>
  run(bodyOf(node, single(node, inputs[0]) !== 0 ? 'then_branch' : 'else_branch'), [])

/** What the steps of a loop have made of an output, along a new axis. */
function gathered(node: Node, parts: readonly HostTensor[], { type }: ValueInfo, axis: number): HostTensor {
  const [first] = parts
  if (first) return stackAlong(parts, axisOf(axis, first.shape.length + 1))
  if (type?.kind !== 'tensor')
    throw new SparkError('ERR_DTYPE', `${describeNode(node)}: an output has no type`)
  const sizes = (type.shape ?? []).map(size => (typeof size === 'number' ? size : 0))
  const at = axisOf(axis, sizes.length + 1)
  return hostZeros(type.dtype, [...sizes.slice(0, at), 0, ...sizes.slice(at)])
}

/** What a loop begins with; nothing of it may be left out. */
function statesOf(node: Node, values: readonly (HostValue | undefined)[]): HostValue[] {
  return values.map((value, i) => {
    if (value) return value
    throw new SparkError('ERR_FORMAT', `${describeNode(node)}: state ${i} that it carries is missing`)
  })
}

const loop: HostOperator = async ({ node, inputs, run }) => {
  const body = bodyOf(node, 'body')
  const trips = inputs[0] ? single(node, inputs[0]) : Number.POSITIVE_INFINITY
  let alive = inputs[1] ? single(node, inputs[1]) !== 0 : true
  let carried = statesOf(node, inputs.slice(2))
  const scans = body.outputs.slice(1 + carried.length)
  const parts: HostTensor[][] = scans.map(() => [])
  for (let i = 0; alive && i < trips; i++) {
    const head = [hostIntegers([], [i]), hostTensor('bool', [], Uint8Array.of(1))]
    const outputs = (await run(body, [...head, ...carried])).map(copied)
    alive = single(node, outputs[0]) !== 0
    carried = outputs.slice(1, 1 + carried.length)
    scans.forEach((_, n) => {
      parts[n]!.push(expectTensor(node, outputs[1 + carried.length + n]))
    })
  }
  return [...carried, ...scans.map((info, n) => gathered(node, parts[n]!, info, 0))]
}

const scan: HostOperator = async ({ node, inputs, run }) => {
  const body = bodyOf(node, 'body')
  const count = intOf(node, 'num_scan_inputs')
  const states = inputs.length - count
  const sources = inputs.slice(states).map(value => expectTensor(node, value))
  const setting = (name: string, i: number): number => intsOf(node, name)?.[i] ?? 0
  const axes = sources.map(({ shape }, i) => axisOf(setting('scan_input_axes', i), shape.length))
  const lengths = new Set(sources.map(({ shape }, i) => shape[axes[i]!]!))
  if (lengths.size !== 1) {
    throw new SparkError(
      'ERR_SHAPE',
      `${describeNode(node)}: its sequences have the lengths ${[...lengths].join(', ')}`,
    )
  }
  const [length = 0] = lengths
  let carried = statesOf(node, inputs.slice(0, states))
  const results = body.outputs.slice(states)
  const parts: HostTensor[][] = results.map(() => [])
  for (let step = 0; step < length; step++) {
    const slices = sources.map((source, i) => {
      const at = setting('scan_input_directions', i) ? length - 1 - step : step
      return sliceAlong(source, axes[i]!, [at, at + 1], true)
    })
    const outputs = (await run(body, [...carried, ...slices])).map(copied)
    carried = outputs.slice(0, states)
    results.forEach((_, n) => {
      parts[n]!.push(expectTensor(node, outputs[states + n]))
    })
  }
  const stacked = results.map((info, n) => {
    const ordered = setting('scan_output_directions', n) ? parts[n]!.reverse() : parts[n]!
    return gathered(node, ordered, info, setting('scan_output_axes', n))
  })
  return [...carried, ...stacked]
}

/** Operators that run subgraphs. */
export const controlFlow: Readonly<Record<string, HostOperator>> = { If: conditional, Loop: loop, Scan: scan }
