// Convolutions take in the zeros that a Pad puts around their image, and no others.

import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { int, ints, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attributes, type Graph, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { operators, sameOptimized } from '../../../fixtures/models/optimized.js'
import { randomGenerator, uniform } from '../../../fixtures/values/random.js'

const weight = [5, 3, 3, 3]
const constants = new Map([
  ['w', Constant.from('f32', weight, uniform(randomGenerator(3), numel(weight)))],
  ['around', Constant.i64([0, 0, 1, 0, 0, 0, 2, 1])],
  ['behind', Constant.i64([0, 0, 0, 0, 0, 0, 1, 1])],
  ['sides', Constant.i64([1, 2, 0, 1])],
  ['axes', Constant.i64([-1, 2])],
  ['cut', Constant.i64([0, 0, -1, 0, 0, 0, 0, 1])],
  ['batch', Constant.i64([1, 0, 1, 1, 0, 0, 1, 1])],
  ['zero', Constant.from('f32', [], new Float32Array(1))],
  ['half', Constant.from('f32', [], Float32Array.of(0.5))],
])

const graphOf = (nodes: readonly Node[], outputs: readonly string[] = ['y']): Graph =>
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [2, 3, 7, 9]) }],
    outputs: outputs.map(name => ({ name })),
    nodes,
    initializers: constants,
  })

const pad = (inputs: readonly string[], attributes: Attributes = {}): Node =>
  makeNode('Pad', ['x', ...inputs], ['p'], { attributes })
const conv = (attributes: Attributes = {}): Node => makeNode('Conv', ['p', 'w'], ['y'], { attributes })

for (const [what, inputs, attributes, pads] of [
  ['zeros', ['around'], {}, [1, 0, 2, 1]],
  ['as TensorFlow writes them, with a stride', ['behind', 'zero'], { strides: ints([2, 2]) }, [0, 0, 1, 1]],
  ['some axes', ['sides', '', 'axes'], { pads: ints([1, 0, 1, 2]) }, [3, 1, 2, 2]],
  ['an image that stays as it is', ['around', 'zero'], { auto_pad: string('VALID') }, [1, 0, 2, 1]],
] as const)
  t.test(what, async t => {
    const { graph, fusions } = await sameOptimized(t, graphOf([pad(inputs), conv(attributes)]))
    t.equal(fusions.get('padding'), 1)
    t.notOk(operators(graph).Pad)
    t.match(graph.nodes[0], { inputs: ['x', 'w'], attributes: { pads: { value: pads } } })
  })

for (const [what, inputs, modes, attributes] of [
  ['other numbers', ['around', 'half'], {}, {}],
  ['the edge', ['around'], { mode: string('edge') }, {}],
  ['a part that goes', ['cut'], {}, {}],
  ['images', ['batch'], {}, {}],
  ['sizes that decide', ['around'], {}, { auto_pad: string('SAME_UPPER') }],
] as const)
  t.test(`not: ${what}`, async t => {
    const { graph } = await sameOptimized(t, graphOf([pad(inputs, modes), conv(attributes)]))
    t.equal(operators(graph).Pad, 1)
  })

t.test('who else reads the padded image still does', async t => {
  const { graph, fusions } = await sameOptimized(
    t,
    graphOf(
      [pad(['around']), conv({ dilations: ints([2, 1]), group: int(1) }), makeNode('Neg', ['p'], ['n'])],
      ['y', 'n'],
    ),
  )
  t.equal(fusions.get('padding'), 1)
  t.equal(operators(graph).Pad, 1)
})
