// The order of the rewrites of inference and of training.
import t from 'tap'
import { makeGraph } from '#lib/graph/graph.js'
import { inference, rewriteForTraining, training, trainingGraph } from '#lib/pipeline.js'

const namesOf = (rewrites: readonly { readonly phase: string; readonly name: string }[]): string[] =>
  rewrites.map(({ phase, name }) => `${phase}: ${name}`)

t.test('inference', async t => {
  t.same(namesOf(inference), [
    'load: canonicalise',
    'load: set batch size',
    'round: fold weights',
    'round: round weights',
    'open: read codes',
    'open: round rows',
    'specialise: inline branches',
    'compile: optimize',
  ])
})

t.test('training', async t => {
  t.same(namesOf(training), [
    'adapt: dequantize layers',
    'adapt: straight-through',
    'adapt: add dropout',
    'specialise: fit batch size',
    'specialise: inline branches',
    'specialise: select branches',
    'specialise: unroll',
    'specialise: widen halves',
    'specialise: round products',
    'loss: add teacher and loss',
    'differentiate: scale loss',
    'differentiate: differentiate',
    'step: recompute',
    'step: accumulate',
    'step: unscale gradients',
    'step: clip',
    'step: append update',
    'step: skip unless finite',
  ])
})

t.test('each rewrite has a reason of one line', async t => {
  for (const { name, reason } of [...inference, ...training]) {
    t.match(reason, /^\S.{10,120}$/, name)
  }
})

t.test('a rewrite is left out where it does not apply', async t => {
  const start = trainingGraph(makeGraph({}))
  t.same(rewriteForTraining('adapt', start, { dropout: 0 }).graph.inputs, [], 'no dropout, no state of it')
  const options = { shapes: {}, parameters: [], precision: 'fp32' } as const
  t.same(rewriteForTraining('specialise', start, options).graph.nodes, [])
})
