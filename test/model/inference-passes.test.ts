// Shape inference: each version of a graph is inferred once, and what is kept is what a new inference finds.
import { Model } from 'dgx-spark'
import t, { type Test } from 'tap'
import { atOnce } from '#lib/core/paced.js'
import { ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { keptFacts } from '#lib/graph/kept-facts.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { optimize } from '#lib/graph/rewrites/optimize.js'
import { roundWeights } from '#lib/graph/rewrites/round-weights.js'
import { ShapeInference } from '#lib/graph/shape-inference.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { foldWeights } from '#lib/plan/fold-weights.js'
import { conformanceCases, modelFiles, noModels } from '../fixtures/models/onnx-models.js'

/** Layers that fuse: a product with bias and activation, and its own output added to it. */
function layers(count: number): Graph {
  const nodes = Array.from({ length: count }, (_, i) => [
    makeNode('Transpose', [`w${i}`], [`t${i}`], { attributes: { perm: ints([1, 0]) } }),
    makeNode('MatMul', [`x${i}`, `t${i}`], [`m${i}`]),
    makeNode('Add', [`m${i}`, `b${i}`], [`a${i}`]),
    makeNode('Relu', [`a${i}`], [`r${i}`]),
    makeNode('Identity', [`r${i}`], [`x${i + 1}`]),
  ])
  const constants = Array.from({ length: count }, (_, i): [string, Constant][] => [
    [`w${i}`, Constant.f32(Array(64 * 64).fill(0.01), [64, 64])],
    [`b${i}`, Constant.f32(Array(64).fill(i))],
  ])
  return makeGraph({
    inputs: [{ name: 'x0', type: tensorType('f32', ['N', 64]) }],
    outputs: [{ name: `x${count}` }],
    nodes: nodes.flat(),
    initializers: new Map(constants.flat()),
  })
}

/** How many nodes are inferred in the course of some work. */
async function inferredIn(work: () => Promise<unknown>): Promise<number> {
  const { inferNodePaced } = ShapeInference.prototype
  let count = 0
  ShapeInference.prototype.inferNodePaced = function (node, graph) {
    count++
    return inferNodePaced.call(this, node, graph)
  }
  try {
    await work()
    return count
  } finally {
    ShapeInference.prototype.inferNodePaced = inferNodePaced
  }
}

t.test(
  'loading and the first run infer the graph twice: with the sizes of the file and with those of the run',
  async t => {
    const layersCount = 40
    const graph = layers(layersCount)
    for (const precision of ['fp32', 'bf16'] as const) {
      const inferred = await inferredIn(async () => {
        using model = await Model.fromGraph(graph, { backend: 'js', precision })
        await model.run({ x0: new Float32Array(64) })
      })
      const passes = inferred / graph.nodes.length
      t.comment(`${precision}: ${passes} passes`)
      t.ok(passes <= 3, `${precision}: ${inferred} nodes, ${passes} passes`)
    }
  },
)

/** Checks the kept facts of a graph against those of a new inference. */
function check(t: Test, graph: Graph, name: string): void {
  const kept = keptFacts(graph)
  if (!kept) return
  const inference = new ShapeInference({ trustFile: kept.trustFile, strict: true })
  atOnce(inference.inferGraph(graph, []))
  let differences = 0
  for (const [value, { type, known }] of inference.facts) {
    const other = kept.facts.get(value)
    if (JSON.stringify([type, known]) === JSON.stringify([other?.type, other?.known])) continue
    if (++differences <= 3) t.same(other, { type, known }, `${name}: ${value}`)
  }
  t.equal(differences, 0, `${name}: ${inference.facts.size} values`)
}

/** Checks what is kept in the course of loading. */
async function checkAll(t: Test, source: string | Uint8Array, name: string): Promise<void> {
  let canonical: Graph
  try {
    canonical = canonicalise(await readOnnx(source))
  } catch {
    return
  }
  check(t, canonical, `${name}, canonical`)
  if (!keptFacts(canonical)) return
  const { graph } = optimize(canonical)
  check(t, graph, `${name}, optimized`)
  const folded = await foldWeights(canonical)
  check(t, folded, `${name}, folded`)
  check(t, roundWeights(folded, { mode: 'bf16' }), `${name}, rounded`)
}

t.test('facts that are kept are those of a new inference: whole models', { skip: noModels }, async t => {
  for (const file of modelFiles()) await checkAll(t, file, file)
})

t.test('facts that are kept are those of a new inference: operators', { skip: noModels }, async t => {
  for (const { name, model } of conformanceCases()) await checkAll(t, model, name)
})
