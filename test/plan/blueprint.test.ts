// Plans for new sizes are bound in parts, so that the event loop turns in between.
import t from 'tap'
import { type Paced, Pacer } from '#lib/core/paced.js'
import { SizeScope } from '#lib/core/size-scope.js'
import { makeGraph, makeNode } from '#lib/graph/graph.js'
import type { PreparedSteps } from '#lib/kernels/kernels.js'
import { openKernels } from '#lib/kernels/open.js'
import { loadAddon } from '#lib/native.js'
import { bind } from '#lib/plan/bind.js'
import { Blueprint } from '#lib/plan/blueprint.js'
import { compilePaced, optionsFor } from '#lib/plan/compile.js'

const skip = loadAddon().addon ? false : 'the addon does not load'
const depth = 500

/** What work returns, and in how many parts it was done. */
function watch<T>(work: Paced<T>): { result: T; parts: number } {
  for (let parts = 1; ; parts++) {
    const { done, value } = work.next()
    if (done) return { result: value, parts }
  }
}

t.test('steps are read, and bound to sizes, in parts', { skip }, async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  const scope = new SizeScope()
  const n = scope.symbol('n', 5)
  const names = Array.from({ length: depth + 1 }, (_, i) => (i === depth ? 'y' : `x${i}`))
  const graph = makeGraph({
    inputs: [{ name: 'x0', type: { kind: 'tensor', dtype: 'f32', shape: [n, 3] } }],
    outputs: [{ name: 'y' }],
    nodes: names.slice(1).map((name, i) => makeNode('Tanh', [names[i]!], [name])),
  })
  const pacer = new Pacer()
  const program = await pacer.do(compilePaced(graph, optionsFor(kernels)))
  t.equal(program.steps.length, depth)
  const { result: blueprint, parts } = watch(Blueprint.read(program, new Map(), kernels))
  t.ok(parts > depth, `${parts} parts`)

  let steps: PreparedSteps | undefined
  for (const size of [2, 7, 5]) {
    const values = scope.evaluate([size])!
    const bound = await pacer.do(bind(program, {}, { values, folded: new Map(), kernels }))
    const binding = watch(blueprint.bind(values, bound, steps))
    t.ok(binding.parts >= 4, `${binding.parts} parts`)
    steps = binding.result
    const x = bound.arrayOf(program.inputs[0]!.buffer)
    x.fill(1 as never)
    await steps.run()
    let expected = 1
    for (let i = 0; i < depth; i++) expected = Math.fround(Math.tanh(expected))
    const y = Array.from(bound.arrayOf(program.outputs[0]!.buffer), Number)
    t.equal(y.length, 3 * size)
    t.ok(y.every(value => Math.abs(value - expected) < 1e-5))
  }

  const values = scope.evaluate([9])!
  const bound = await pacer.do(bind(program, {}, { values, folded: new Map(), kernels }))
  const unfinished = blueprint.bind(values, bound, steps)
  while (!unfinished.next().done && (await started(steps!)));
  t.notOk(await started(steps!), 'steps that are being bound to other sizes do not run')
  unfinished.return(undefined as never)
  const { result: others } = watch(blueprint.bind(values, bound, undefined))
  await others.run()
  t.pass('new ones do')
  blueprint.dispose()
  steps!.dispose()
  others.dispose()
})

/** Whether steps run now. */
async function started(steps: PreparedSteps): Promise<boolean> {
  try {
    await steps.run()
    return true
  } catch {
    return false
  }
}
