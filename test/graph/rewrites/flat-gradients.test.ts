// Clipping of many gradients: the norm and the results, and that kernels do not grow in number with the gradients.
import t, { type Test } from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { addClip } from '#lib/graph/rewrites/clip.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../../fixtures/backends.js'
import { close } from '../../fixtures/close.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

type Shapes = Readonly<Record<string, readonly number[]>>

const count = (shape: readonly number[]): number => shape.reduce((product, size) => product * size, 1)

/** Clips gradients that are each computed from an input. */
function clipped(shapes: Shapes, maxNorm: number) {
  const names = Object.keys(shapes)
  const start = makeGraph({
    inputs: names.map(name => ({ name: `${name}/x`, type: tensorType('f32', shapes[name]!) })),
    nodes: names.map(name => makeNode('Neg', [`${name}/x`], [`${name}/gradient`])),
    initializers: new Map(
      names.map(name => [name, Constant.from('f32', shapes[name]!, new Float32Array(count(shapes[name]!)))]),
    ),
  })
  const gradients = new Map(names.map(name => [name, `${name}/gradient`]))
  const { graph, norm, gradients: results } = addClip(start, gradients, maxNorm)
  t.strictSame([...results.keys()], names, 'in the order of the parameters')
  const outputs = [norm, ...results.values()].map(name => ({ name }))
  return { graph: { ...graph, outputs }, norm, results }
}

async function check(t: Test, shapes: Shapes, maxNorm: number, backend: (typeof backends)[number]) {
  const { graph, norm, results } = clipped(shapes, maxNorm)
  const random = randomGenerator(7)
  const given = Object.entries(shapes).map(([name, shape]) => [name, uniform(random, count(shape))] as const)
  using plan = await Plan.create(graph, await openKernels({ backend }))
  const found = await plan.run(Object.fromEntries(given.map(([name, x]) => [`${name}/x`, x])))
  const squares = given.map(([, x]) => x.reduce((sum, value) => sum + value ** 2, 0))
  const expected = Math.sqrt(squares.reduce((sum, square) => sum + square, 0))
  close(t, found[norm] as Float32Array, [expected], 1e-5, 'norm')
  const factor = Math.min(1, maxNorm / (expected + 1e-6))
  for (const [name, x] of given) {
    const result = results.get(name)!
    close(
      t,
      found[result] as Float32Array,
      Array.from(x, value => -value * factor),
      1e-6,
      name,
    )
    t.strictSame(plan.outputs.find(output => output.name === result)!.shape, shapes[name])
  }
}

const cases: Record<string, Shapes> = {
  'one gradient': { a: [3, 5] },
  'gradients of several shapes': { a: [3, 5], b: [7], c: [], d: [2, 1, 4] },
  'a large one between small ones': { a: [3, 5], b: [1 << 10, 1 << 10], c: [9] },
}
for (const backend of backends)
  for (const [name, shapes] of Object.entries(cases))
    for (const maxNorm of [0.5, 1e6, Number.POSITIVE_INFINITY])
      t.test(`${name}, at most ${maxNorm}, on ${backend}`, async t => check(t, shapes, maxNorm, backend))

/** Steps of a plan whose clipped gradients are read by nodes behind it, but for one of each gradient before and behind. */
function stepsOf(many: number): number {
  const { graph, norm, results } = clipped(
    Object.fromEntries(Array.from({ length: many }, (_, i) => [`p${i}`, [i + 1, 3]])),
    1,
  )
  const readers = [...results.values()].map(name => makeNode('Exp', [name], [`${name}/exp`]))
  const outputs = [norm, ...readers.flatMap(node => node.outputs)].map(name => ({ name }))
  const whole: Graph = { ...graph, nodes: [...graph.nodes, ...readers], outputs }
  return compile(whole).steps.length - 2 * many
}

t.test('many gradients take as many kernels as few', async t => {
  t.equal(stepsOf(50), stepsOf(2))
  t.ok(stepsOf(50) < 12, `${stepsOf(50)} steps`)
})
