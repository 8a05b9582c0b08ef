// twins.ts: a model with each product twice, with its exact and with its rounded weight.
import type { Precision } from '../core/config.js'
import { Constant } from '../graph/constant.js'
import { freshNames } from '../graph/edit.js'
import type { Graph } from '../graph/graph.js'
import { weightInput } from '../graph/rewrites/fold-layouts.js'
import { roundWeights } from '../graph/rewrites/round-weights.js'
import { foldWeights } from '../plan/fold-weights.js'
import type { NVFP4Recipe } from '../precision/kernel-args.js'

/** The model with a second product beside each one, which reads the same and has the rounded weight. */
export async function twins(model: Graph, precision: Precision, recipe: NVFP4Recipe) {
  const exact = await foldWeights(model)
  const rounded = roundWeights(exact, { mode: precision, recipe })
  const fresh = freshNames(exact)
  const initializers = new Map(exact.initializers)
  const copies = new Map<string, string>()
  const pairs: { weight: string; a: string; b: string }[] = []
  const nodes = exact.nodes.flatMap(node => {
    const at = weightInput(node)
    const weight = node.inputs[at ?? -1] ?? ''
    const constant = rounded.initializers.get(weight)
    const own = exact.initializers.get(weight)
    if (!own || !constant || Buffer.compare(own.bytes, constant.bytes) === 0) return [node]
    if (!copies.has(weight)) {
      const copy = fresh(`${weight}/rounded`)
      copies.set(weight, copy)
      initializers.set(copy, Constant.from('f32', constant.shape, constant.data as Float32Array))
    }
    const [b = ''] = node.outputs
    const a = fresh(`${b}/rounded`)
    pairs.push({ weight, a, b })
    const inputs = node.inputs.map((name, i) => (i === at ? copies.get(weight)! : name))
    return [node, { ...node, name: '', inputs, outputs: [a] }]
  })
  const outputs = pairs.flatMap(({ a, b }) => [{ name: a }, { name: b }])
  return { graph: { ...exact, nodes, initializers, outputs }, pairs }
}
