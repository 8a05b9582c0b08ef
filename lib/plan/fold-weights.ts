// fold-weights.ts: constant folding of the weights of products, so that they can be stored in another format.
import { SparkError } from '../core/errors.js'
import { mapPaced, Pacer } from '../core/paced.js'
import { Constant, type NumericType } from '../graph/constant.js'
import { consumersOfPaced, producersOfPaced, readsOf } from '../graph/edit.js'
import { type Graph, makeGraph, type Node } from '../graph/graph.js'
import { carryFacts } from '../graph/kept-facts.js'
import { weightInput } from '../graph/rewrites/fold-layouts.js'
import { fuseBatchNorm, fuseChannels } from '../graph/rewrites/fuse/channels.js'
import { fuse, GraphView } from '../graph/rewrites/fuse/pattern.js'
import { removeDeadPaced } from '../graph/rewrites/remove-dead.js'
import { openCpuKernels } from '../kernels/cpu.js'
import { jsKernels } from '../kernels/js/js.js'
import { loadAddon } from '../native.js'
import { Plan } from './plan.js'

/**
 * The graph whose products read initializers where they read what nodes make of constants; convolutions take in the
 * batch normalization behind them first, in any form. A folded weight keeps the name of the initializer that it is made of, where
 * nobody else reads that. Weights that a graph makes of codes and scales stay as they are.
 */
export async function foldWeights(graph: Graph, pacer = new Pacer()): Promise<Graph> {
  const original = await pacer.do(GraphView.of(graph))
  const { view } = await pacer.do(
    fuse(original, (node, view) => fuseBatchNorm(node, view) ?? fuseChannels(node, view)),
  )
  const fused = view.done()
  const names = madeWeights(view)
  if (names.size === 0) return fused
  const producers = await pacer.do(producersOfPaced(fused))
  const consumers = await pacer.do(consumersOfPaced(fused))
  const values = await valuesOf(fused, names, producers, pacer)
  if (values.size === 0) return fused
  const initializers = new Map(fused.initializers)
  const renamed = new Map<string, string>()
  for (const [name, value] of values) {
    const origin = originOf(name, fused, producers, consumers)
    if (origin !== undefined) renamed.set(name, origin)
    initializers.set(origin ?? name, value)
  }
  const left = fused.nodes.filter(({ outputs }) => !outputs.some(name => values.has(name)))
  const nodes = await pacer.do(
    mapPaced(left, node => ({ ...node, inputs: node.inputs.map(name => renamed.get(name) ?? name) })),
  )
  return carryFacts(fused, await pacer.do(removeDeadPaced({ ...fused, nodes, initializers })))
}

/** Names of the weights of products that depend on constants and are none. */
function madeWeights(view: GraphView): Set<string> {
  const { graph } = view
  const names = graph.nodes.map(node => node.inputs[weightInput(node) ?? -1])
  return new Set(
    names.filter(name => name && !graph.initializers.has(name) && view.isConstant(name)) as string[],
  )
}

/** The elements of the given values, as far as they can be computed. */
async function valuesOf(
  { initializers }: Graph,
  names: ReadonlySet<string>,
  producers: ReadonlyMap<string, Node>,
  pacer: Pacer,
): Promise<Map<string, Constant>> {
  const kernels = loadAddon().addon ? openCpuKernels() : jsKernels
  const values = new Map<string, Constant>()
  for (const name of names) {
    const nodes = nodesBehind(name, producers)
    if (nodes.some(({ op }) => op === 'DequantizeLinear')) continue
    try {
      const reads = new Set(nodes.flatMap(readsOf))
      const constants = new Map([...reads].flatMap(read => entryOf(initializers, read)))
      const part = makeGraph({ outputs: [{ name }], nodes, initializers: constants })
      using plan = await Plan.create(part, kernels, {}, pacer)
      const { [name]: data } = await plan.run()
      const [{ dtype, shape }] = plan.outputs as [(typeof plan.outputs)[0]]
      values.set(name, Constant.from(dtype as NumericType, shape, data!.slice() as Float32Array))
    } catch (error) {
      if (!(error instanceof SparkError) || error.code !== 'ERR_UNSUPPORTED') throw error
    }
  }
  return values
}

function entryOf<T>(map: ReadonlyMap<string, T>, name: string): [string, T][] {
  const value = map.get(name)
  return value === undefined ? [] : [[name, value]]
}

/** The nodes that make a value, in an order in which they can run. */
function nodesBehind(name: string, producers: ReadonlyMap<string, Node>): Node[] {
  const nodes = new Set<Node>()
  // A chain of thousands of nodes would overflow the stack of a recursive visit.
  const stack = [producers.get(name)]
  while (stack.length > 0) {
    const node = stack.at(-1)
    const waiting = node && !nodes.has(node) ? readsOf(node).map(read => producers.get(read)) : []
    const missing = waiting.filter(maker => maker && !nodes.has(maker))
    for (const maker of missing) stack.push(maker)
    if (missing.length > 0) continue
    if (node) nodes.add(node)
    stack.pop()
  }
  return [...nodes]
}

/** The initializer that a value is made of by its first operands, where only it is. */
function originOf(
  name: string,
  { initializers }: Graph,
  producers: ReadonlyMap<string, Node>,
  consumers: ReadonlyMap<string, readonly Node[]>,
): string | undefined {
  let at = name
  for (let node = producers.get(at); node; node = producers.get(at)) {
    at = node.inputs[0] ?? ''
    if (consumers.get(at)?.length !== 1) return undefined
  }
  return initializers.has(at) ? at : undefined
}
