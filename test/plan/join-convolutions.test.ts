// A pointwise convolution and the depthwise one behind it: what becomes one step of the CPU, what stays as it is, and the same
// values either way.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { int, ints } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attribute, type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { identical } from '../fixtures/close.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

interface Net {
  /** N, channels in, channels between, and both sides of the image. */
  sizes?: readonly number[]
  pointwise?: Record<string, Attribute>
  depthwise?: Record<string, Attribute>
  kernel?: readonly number[]
  /** Groups of the second convolution, as many as channels by default. */
  groups?: number
  /** Reads what lies between as well. */
  isReadTwice?: boolean
  outputs?: readonly string[]
}

function netOf({ sizes = [1, 5, 64, 65, 67], kernel = [3, 3], groups = sizes[2]!, ...net }: Net = {}): Graph {
  const [batch, depth, channels, height, width] = sizes as [number, number, number, number, number]
  const random = randomGenerator(3)
  const constant = (...shape: readonly number[]): Constant =>
    Constant.from('f32', shape, uniform(random, numel(shape)))
  const attributes = { group: int(groups), pads: ints([1, 1, 1, 1]), ...net.depthwise }
  return makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [batch, depth, height, width]) }],
    outputs: (net.outputs ?? ['y']).map(name => ({ name })),
    nodes: [
      makeNode('Conv', ['x', 'p', 'c'], ['h'], { attributes: net.pointwise ?? {} }),
      makeNode('Conv', ['h', 'w', 'b'], ['y'], { attributes }),
      ...(net.isReadTwice ? [makeNode('Neg', ['h'], ['z'])] : []),
    ],
    initializers: new Map([
      ['p', constant(channels, depth, 1, 1)],
      ['c', constant(channels)],
      ['w', constant(channels, channels / groups, ...kernel)],
      ['b', constant(channels)],
    ]),
  })
}

const ops = (net: Net, backend: 'cpu' | 'js' = 'cpu'): string =>
  compile(netOf(net), { backend })
    .steps.map(({ op }) => op)
    .join()

const apart = 'conv,conv'

t.test('what is joined', t => {
  t.equal(ops({}), 'pointwiseDepthwise')
  t.equal(ops({ depthwise: { strides: ints([2, 2]) } }), 'pointwiseDepthwise', 'strides of 2')
  t.equal(ops({ kernel: [5, 5] }), 'pointwiseDepthwise', '5 x 5')
  t.equal(ops({}, 'js'), apart, 'on the CPU only')
  t.equal(ops({ sizes: [8, 5, 64, 33, 35] }), apart, 'images that the cache holds')
  t.equal(ops({ outputs: ['y', 'h'] }), apart, 'an output')
  t.equal(ops({ isReadTwice: true, outputs: ['y', 'z'] }), `${apart},unary`, 'another reader')
  t.equal(ops({ groups: 32 }), apart, 'groups of several channels')
  t.equal(ops({ kernel: [3, 5] }), apart, 'no square')
  t.equal(ops({ depthwise: { dilations: ints([2, 2]) } }), apart, 'dilations')
  t.equal(ops({ pointwise: { strides: ints([2, 2]) }, sizes: [1, 5, 64, 130, 134] }), apart, 'lines left out')
  t.equal(ops({ pointwise: { pads: ints([0, 0, 1, 0]) } }), apart, 'a pad in front')
  t.end()
})

t.test('the values of a plan', async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  for (const sizes of [
    [1, 5, 64, 65, 67],
    [3, 7, 96, 81, 77],
  ]) {
    const x = uniform(randomGenerator(4), sizes[0]! * sizes[1]! * sizes[3]! * sizes[4]!)
    using joined = await Plan.create(netOf({ sizes }), kernels)
    using separate = await Plan.create(netOf({ sizes, outputs: ['y', 'h'] }), kernels)
    const [y, expected] = [await joined.run({ x }), await separate.run({ x })].map(
      run => run.y as Float32Array,
    )
    identical(t, y!, expected!, sizes.join())
  }
})
