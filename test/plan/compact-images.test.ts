// Compact images in plans: which convolutions take them, what keeps them planes, and the same values either way.
import t from 'tap'
import { numel } from '#lib/core/shape.js'
import { int, ints, string } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Attribute, makeGraph, makeNode, type Node, tensorType } from '#lib/graph/graph.js'
import { optimize } from '#lib/graph/rewrites/optimize.js'
import { openKernels } from '#lib/kernels/open.js'
import { GraphRunner } from '#lib/model/graph-runner.js'
import { type HostTensor, hostTensor } from '#lib/model/values.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { identical } from '../fixtures/close.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

/** As many as full kernels need. */
const channels = 64

/** What a convolution is: its filters, kernel and attributes. */
interface Layer {
  op?: string
  filters?: number
  kernel?: number
  attributes?: Record<string, Attribute>
  /** Of each axis of an image that is resized. */
  scales?: readonly number[]
}

const pointwise: Layer = {}
const depthwise = (strides = 1): Layer => ({
  kernel: 3,
  attributes: { group: int(channels), pads: ints([1, 1, 1, 1]), strides: ints([strides, strides]) },
})

const pad = { pads: ints([1, 1, 1, 1]) }
const full: Layer = { kernel: 3, attributes: pad }
const pool = (op: 'MaxPool' | 'AveragePool', strides = 1): Layer => ({
  op,
  attributes: { ...pad, kernel_shape: ints([3, 3]), strides: ints([strides, strides]) },
})
const resize = (mode: string, ...scales: number[]): Layer => ({
  op: 'Resize',
  attributes: { mode: string(mode) },
  scales,
})
/** A pointwise convolution of two branches. */
const joined: Layer = { op: 'Join' }

interface Net {
  layers: readonly Layer[]
  image?: readonly (number | string)[]
  /** Results of layers that are outputs as well. */
  outputs?: readonly number[]
  /** [first, second]: the result of one layer is added to that of another. */
  sum?: readonly [number, number]
  batch?: number | string
}

/** A squeeze-and-excite block: h times a function of its means, for each channel. */
function excite(
  from: string,
  i: number,
  weights: () => Constant,
  initializers: Map<string, Constant>,
): Node[] {
  initializers.set(`w${i}`, weights())
  return [
    makeNode('GlobalAveragePool', [from], [`mean${i}`]),
    makeNode('Conv', [`mean${i}`, `w${i}`], [`gate${i}`]),
    makeNode('HardSigmoid', [`gate${i}`], [`active${i}`]),
    makeNode('Mul', [from, `active${i}`], [`h${i}`]),
  ]
}

/** Branches of h, joined, and a convolution of their channels. */
function join(from: string, i: number, weights: Constant, initializers: Map<string, Constant>): Node[] {
  initializers.set(`w${i}`, weights)
  return [
    makeNode('Tanh', [from], [`part${i}`]),
    makeNode('Concat', [from, `part${i}`], [`joined${i}`], { attributes: { axis: int(1) } }),
    makeNode('Conv', [`joined${i}`, `w${i}`], [`h${i}`]),
  ]
}

/** Layers one behind the other; layer i makes `h{i}`. */
function netOf({ layers, image = [6, 7], outputs = [], sum, batch = 2 }: Net) {
  const random = randomGenerator(5)
  const initializers = new Map<string, Constant>()
  const nodes: Node[] = []
  for (const [i, layer] of layers.entries()) {
    const { op = 'Conv', filters = channels, kernel = 1, attributes = {}, scales } = layer
    const from = i === 0 ? 'x' : sum?.[1] === i - 1 ? 'sum' : `h${i - 1}`
    const weights = () => Constant.from('f32', [channels, channels, 1, 1], uniform(random, channels ** 2))
    if (op === 'Excite') {
      nodes.push(...excite(from, i, weights, initializers))
    } else if (op === 'Join') {
      const joined = Constant.from('f32', [channels, 2 * channels, 1, 1], uniform(random, 2 * channels ** 2))
      nodes.push(...join(from, i, joined, initializers))
    } else if (op === 'Scale') {
      initializers.set(`w${i}`, Constant.from('f32', [channels, 1, 1], uniform(random, channels)))
      nodes.push(makeNode('Mul', [`w${i}`, from], [`h${i}`]))
    } else if (scales) {
      initializers.set(`s${i}`, Constant.from('f32', [4], Float32Array.of(1, 1, ...scales)))
      nodes.push(makeNode(op, [from, '', `s${i}`], [`h${i}`], { attributes }))
    } else if (op !== 'Conv') {
      nodes.push(makeNode(op, [from], [`h${i}`], { attributes }))
    } else {
      const shape = [filters, attributes.group ? 1 : channels, kernel, kernel]
      initializers.set(`w${i}`, Constant.from('f32', shape, uniform(random, numel(shape))))
      nodes.push(makeNode('Conv', [from, `w${i}`], [`h${i}`], { attributes }))
    }
    if (sum?.[1] === i) nodes.push(makeNode('Add', [`h${i}`, `h${sum[0]}`], ['sum']))
  }
  const last = sum?.[1] === layers.length - 1 ? 'sum' : `h${layers.length - 1}`
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [batch, channels, ...image]) }],
    outputs: [...outputs.map(i => ({ name: `h${i}` })), { name: last }],
    nodes,
    initializers,
  })
  return optimize(graph).graph
}

/** The layouts of x and y of each convolution: c for compact, p for planes. */
function layoutsOf(net: Net, backend: 'cpu' | 'js' = 'cpu'): string {
  const { steps } = compile(netOf(net), { backend })
  return steps
    .filter(({ op }) => op === 'conv' || op === 'pointwiseDepthwise')
    .map(({ args }) => {
      const { xCompact, yCompact } = args as { xCompact?: boolean; yCompact?: boolean }
      return `${xCompact ? 'c' : 'p'}${yCompact ? 'c' : 'p'}`
    })
    .join(' ')
}

const chain = [pointwise, depthwise(), pointwise, pointwise]

t.test('the layout of a chain', t => {
  t.equal(layoutsOf({ layers: chain }), 'pc cc cc cp')
  t.equal(layoutsOf({ layers: chain }, 'js'), 'pp pp pp pp', 'on the CPU only')
  t.equal(layoutsOf({ layers: chain, image: [17, 16] }), 'pp pp pp pp', 'many positions')
  t.equal(
    layoutsOf({ layers: [pointwise, depthwise(2), pointwise, pointwise], image: [17, 16] }),
    'pp pp pc cp',
    'a smaller image of one that stays planes',
  )
  t.equal(layoutsOf({ layers: [pointwise, depthwise(2), pointwise] }), 'pc cc cp', 'a smaller image')
  t.equal(layoutsOf({ layers: chain, outputs: [1] }), 'pp pp pc cp', 'an output')
  t.equal(layoutsOf({ layers: chain, outputs: [0] }), 'pp pp pc cp', 'the input of a depthwise convolution')
  t.equal(layoutsOf({ layers: [pointwise, full, pointwise] }), 'pc cc cp', 'a full kernel')
  const narrow = { ...full, filters: 63 }
  t.equal(layoutsOf({ layers: [pointwise, narrow] }), 'pp pp', 'a full kernel of few filters')
  t.equal(layoutsOf({ layers: [pointwise, { op: 'Abs' }, pointwise] }), 'pc cp', 'an elementwise operation')
  t.equal(layoutsOf({ layers: [pointwise, { op: 'Softmax' }, pointwise] }), 'pp pp', 'another operation')
  t.equal(layoutsOf({ layers: chain, sum: [0, 2] }), 'pc cc cc cp', 'a residual')
  t.equal(
    layoutsOf({ layers: chain, sum: [0, 2], outputs: [0] }),
    'pp pp pp pp',
    'a residual that is an output',
  )
  t.end()
})

t.test('the layout around pools', t => {
  for (const op of ['MaxPool', 'AveragePool'] as const) {
    t.equal(layoutsOf({ layers: [pointwise, pool(op), full] }), 'pc cp', op)
    t.equal(layoutsOf({ layers: [pointwise, pool(op, 2), full] }), 'pc cp', 'every second window')
    t.equal(
      layoutsOf({ layers: [pointwise, pool(op, 2), full], image: [17, 16] }),
      'pp pp',
      'of many positions',
    )
    t.equal(layoutsOf({ layers: [pointwise, pool(op), full], outputs: [1] }), 'pp pp', 'an output')
  }
  const wide = { kernel_shape: ints([9, 1]), pads: ints([4, 0, 4, 0]) }
  const layers = [pointwise, { op: 'MaxPool', attributes: wide }, full]
  t.equal(layoutsOf({ layers }), 'pp pp', 'windows of many taps')
  t.end()
})

t.test('the layout in front of a reduction of whole images', t => {
  const axes = { axes: ints([2, 3]), keepdims: int(0) }
  for (const batch of [1, 2]) {
    for (const op of ['GlobalMaxPool', 'GlobalAveragePool'])
      t.equal(layoutsOf({ layers: [pointwise, depthwise(), { op }], batch }), 'pc cc', op)
    for (const [op, layouts] of [
      ['ReduceMax', 'pc cc'],
      ['ReduceMin', 'pp pp'],
    ] as const)
      t.equal(layoutsOf({ layers: [pointwise, depthwise(), { op, attributes: axes }], batch }), layouts, op)
  }
  t.end()
})

t.test('the layout around concatenations', t => {
  for (const batch of [1, 2]) {
    t.equal(layoutsOf({ layers: [full, joined, full], batch }), 'pc cc cp', 'channels')
    t.equal(layoutsOf({ layers: [{ op: 'Abs' }, joined, full], batch }), 'pc cp', 'parts that are no images')
    t.equal(layoutsOf({ layers: [full, joined, full], image: [17, 16], batch }), 'pp pp pp', 'many positions')
  }
  t.end()
})

t.test('the layout around resized images', t => {
  for (const batch of [1, 2]) {
    for (const mode of ['nearest', 'linear', 'cubic']) {
      const layers = [full, resize(mode, 2, 2), full]
      t.equal(layoutsOf({ layers, image: [3, 5], batch }), 'pc cp', mode)
      t.equal(layoutsOf({ layers, image: [8, 9], batch }), 'pp pp', 'to many positions')
    }
    t.equal(layoutsOf({ layers: [full, resize('linear', 1, 0.5), full], batch }), 'pc cp', 'one axis')
    t.equal(layoutsOf({ layers: [full, resize('linear', 0.5, 0.5), full], image: [17, 16], batch }), 'pp pp')
    t.equal(layoutsOf({ layers: [full, resize('linear', 1, 2)], image: [3, 4], batch }), 'pp', 'an output')
  }
  t.end()
})

t.test('the values of resized images', async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  for (const mode of ['nearest', 'linear', 'cubic']) {
    const layers = [full, resize(mode, 2, 1.5), depthwise(), resize(mode, 0.5, 1), full]
    for (const batch of [1, 3]) {
      for (const image of [
        [3, 5],
        [4, 5],
      ]) {
        const x = uniform(randomGenerator(4), batch * channels * numel(image))
        using compact = await Plan.create(netOf({ layers, image, batch }), kernels)
        using planes = await Plan.create(netOf({ layers, image, batch, outputs: [0, 1, 2, 3] }), kernels)
        const [{ h4 }, { h4: expected }] = [await compact.run({ x }), await planes.run({ x })]
        identical(t, h4 as Float32Array, expected as Float32Array, `${mode}, ${batch} x ${image}`)
      }
    }
  }
})

t.test('images that others read as images of other sizes stay planes', t => {
  const random = randomGenerator(1)
  const weights = (size: number) => Constant.from('f32', [size, size, 1, 1], uniform(random, size ** 2))
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [1, channels, 4, 4]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Conv', ['x', 'w'], ['h']),
      makeNode('Reshape', ['h', 'shape'], ['r']),
      makeNode('Conv', ['r', 'v'], ['y']),
    ],
    initializers: new Map([
      ['w', weights(channels)],
      ['v', weights(4 * channels)],
      ['shape', Constant.from('i64', [4], BigInt64Array.of(1n, 4n * BigInt(channels), 2n, 2n))],
    ]),
  })
  const { steps } = compile(optimize(graph).graph, { backend: 'cpu' })
  const convolutions = steps.filter(({ op }) => op === 'conv')
  t.equal(convolutions.length, 2)
  for (const { args } of convolutions) t.notOk('xCompact' in args || 'yCompact' in args)
  t.end()
})

t.test('the layout around numbers for each channel', t => {
  const gated = [pointwise, depthwise(), { op: 'Excite' }, pointwise]
  for (const batch of [1, 2]) {
    t.equal(layoutsOf({ layers: gated, batch }), 'pc cc pp cp', 'squeeze and excite')
    const scaled = [pointwise, { op: 'Tanh' }, { op: 'Scale' }, { op: 'Abs' }, pointwise]
    t.equal(layoutsOf({ layers: scaled, batch }), 'pc cp', 'a constant')
    t.equal(layoutsOf({ layers: scaled, batch, outputs: [3] }), 'pp pp', 'a result that is an output')
  }
  t.equal(layoutsOf({ layers: gated, image: [17, 16] }), 'pp pp pp pp', 'many positions')
  t.end()
})

t.test('the largest elements of whole images', async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  const layers = [pointwise, depthwise(), { op: 'GlobalMaxPool' }]
  const net: Net = { layers, image: ['height', 'width'], batch: 'n' }
  const runner = new GraphRunner(netOf(net), kernels)
  t.teardown(() => runner.dispose())
  for (const batch of [1, 3]) {
    for (const image of [
      [6, 7],
      [8, 8],
      [16, 16],
      [17, 16],
    ]) {
      const x = uniform(randomGenerator(3), batch * channels * numel(image))
      const sizes = { image, batch }
      using compact = await Plan.create(netOf({ layers, ...sizes }), kernels)
      using planes = await Plan.create(netOf({ layers, ...sizes, outputs: [1] }), kernels)
      const [{ h2 }, { h2: expected }] = [await compact.run({ x }), await planes.run({ x })]
      identical(t, h2 as Float32Array, expected as Float32Array, `${batch} x ${image}`)
      const [later] = (await runner.run([hostTensor('f32', [batch, channels, ...image], x)])) as HostTensor[]
      identical(t, later!.data as Float32Array, expected as Float32Array, `${batch} x ${image}, sized later`)
    }
  }
})

t.test('the values of poolings, concatenations and full kernels', async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  const pools = [pool('MaxPool'), pool('AveragePool')]
  const layers = [full, joined, ...pools, depthwise(2), full, joined, { op: 'Abs' }]
  const names = layers.map((_, i) => i).slice(0, -1)
  for (const batch of [1, 3]) {
    for (const image of [
      [6, 7],
      [13, 10],
      [15, 16],
      [17, 19],
    ]) {
      const x = uniform(randomGenerator(2), batch * channels * numel(image))
      using compact = await Plan.create(netOf({ layers, image, batch }), kernels)
      using planes = await Plan.create(netOf({ layers, image, batch, outputs: names }), kernels)
      const [{ h7 }, { h7: expected }] = [await compact.run({ x }), await planes.run({ x })]
      identical(t, h7 as Float32Array, expected as Float32Array, `${batch} x ${image}`)
    }
  }
})

t.test('the values of a plan, for all sizes', async t => {
  const kernels = await openKernels({ backend: 'cpu' })
  const gates = [{ op: 'Excite' }, { op: 'Scale' }, { op: 'Abs' }]
  const layers = [
    pointwise,
    depthwise(2),
    pool('AveragePool'),
    depthwise(),
    joined,
    full,
    ...gates,
    pointwise,
    { op: 'Tanh' },
  ]
  const net: Net = { layers, sum: [2, 5], image: ['height', 'width'], batch: 'n' }
  const runner = new GraphRunner(netOf(net), kernels)
  t.teardown(() => runner.dispose())
  for (const image of [
    [6, 7],
    [13, 10],
    [40, 31],
    [15, 16],
  ]) {
    const x = uniform(randomGenerator(2), 3 * channels * numel(image))
    const shape = [3, channels, ...image]
    const [actual] = (await runner.run([hostTensor('f32', shape, x)])) as HostTensor[]
    const planes = netOf({ ...net, image, batch: 3, outputs: layers.map((_, i) => i).slice(0, -1) })
    using plan = await Plan.create(planes, kernels)
    const { h10 } = await plan.run({ x })
    identical(t, actual!.data as Float32Array, h10 as Float32Array, image.join())
  }
  t.equal(runner.compilations, 1)
})
