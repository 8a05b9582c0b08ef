// Products in 16 bits: operands, results and their gradients are numbers of that type; everything else is f32.

import { Tensor } from 'dgx-spark'
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { differentiate } from '#lib/graph/gradients/differentiate.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { roundProducts } from '#lib/graph/rewrites/half-precision.js'
import { doraParameters, insertDora } from '#lib/graph/rewrites/insert-dora.js'
import { openKernels } from '#lib/kernels/open.js'
import { compile } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { backends } from '../../fixtures/backends.js'
import { close, identical } from '../../fixtures/close.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'
import { randomConstants } from '../../fixtures/values/random-tensors.js'

const random = randomGenerator(5)
const f32 = randomConstants(random)
const rounded = (values: Float32Array, dtype: 'f16' | 'bf16') => Tensor.from(values).to(dtype).toFloat32()

t.test('a product', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3, 5]) }],
    outputs: [{ name: 'y' }, { name: 'z' }],
    nodes: [
      makeNode('Gemm', ['x', 'w', 'bias'], ['y'], { attributes: { transB: int(1) } }),
      makeNode('MatMul', ['y', 'v'], ['h']),
      makeNode('Add', ['h', 'x'], ['z']),
    ],
    initializers: new Map([
      ['w', f32(7, 5)],
      ['v', f32(7, 5)],
      ['bias', f32(7)],
    ]),
  })
  const x = uniform(random, 15)
  const operand = (name: string) => graph.initializers.get(name)!.data as Float32Array
  for (const dtype of ['f16', 'bf16'] as const) {
    const [xs, w, v] = [x, operand('w'), operand('v')].map(values => rounded(values, dtype))
    const bias = operand('bias')
    const y = new Float32Array(21)
    for (let t = 0; t < 3; t++) {
      for (let o = 0; o < 7; o++) {
        let sum = bias[o]!
        for (let i = 0; i < 5; i++) sum += xs![t * 5 + i]! * w![o * 5 + i]!
        y[t * 7 + o] = sum
      }
    }
    const expected = rounded(y, dtype)
    for (const backend of backends) {
      using plan = await Plan.create(roundProducts(graph, dtype), await openKernels({ backend }))
      const results = await plan.run({ x })
      const [found, z] = ['y', 'z'].map(name => Float32Array.from(results[name] as Float32Array))
      identical(t, rounded(found!, dtype), found!, `${dtype} on ${backend}: y holds numbers of that type`)
      close(t, found!, expected, dtype === 'f16' ? 1e-3 : 8e-3, `${dtype} on ${backend}: y`)
      t.notSame(rounded(z!, dtype), z, 'sums between products are f32')
    }
    t.ok(v)
  }
})

t.test('gradients of what is rounded are rounded, those of parameters are not', async t => {
  const plain = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3, 5]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Tanh', ['x'], ['a']),
      makeNode('Gemm', ['a', 'w'], ['y'], { attributes: { transB: int(1) } }),
      makeNode('ReduceSumSquare', ['y'], ['loss'], { attributes: { keepdims: int(0) } }),
    ],
    initializers: new Map([['w', f32(7, 5)]]),
  })
  const target = { weight: 'w', module: 'fc', scale: 1, a: f32(2, 5), b: f32(7, 2), magnitude: f32(7) }
  const graph = roundProducts(insertDora(plain, [target]), 'f16')
  const wrt = [...doraParameters('fc'), 'a']
  const made = differentiate(graph, { loss: 'loss', wrt })
  const outputs = [...made.gradients.values()].map(name => ({ name }))
  using plan = await Plan.create({ ...made.graph, outputs }, await openKernels({ backend: backends.at(-1)! }))
  const results = await plan.run({ x: uniform(random, 15) })
  const gradient = (name: string) => Float32Array.from(results[made.gradients.get(name)!] as Float32Array)
  identical(t, rounded(gradient('a'), 'f16'), gradient('a'), 'of an activation')
  for (const name of doraParameters('fc')) t.notSame(rounded(gradient(name), 'f16'), gradient(name), name)
})

t.test('a GPU forms products of 16 bits, a processor of f32', async t => {
  const plain = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3, 4, 5, 7]) }],
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Conv', ['x', 'k'], ['a']),
      makeNode('Tanh', ['a'], ['b']),
      makeNode('ConvTranspose', ['b', 'k'], ['c']),
      makeNode('Flatten', ['c'], ['d']),
      makeNode('Gemm', ['d', 'w'], ['e'], { attributes: { transB: int(1) } }),
      makeNode('Gemm', ['e', 'v'], ['f'], { attributes: { transB: int(1) } }),
      makeNode('Transpose', ['f'], ['g']),
      makeNode('MatMul', ['g', 'e'], ['y']),
      makeNode('ReduceSumSquare', ['y'], ['loss'], { attributes: { keepdims: int(0) } }),
    ],
    initializers: new Map([
      ['k', f32(6, 4, 3, 3)],
      ['w', f32(7, 140)],
      ['v', f32(9, 7)],
    ]),
  })
  const target = { weight: 'w', module: 'fc', scale: 1, a: f32(2, 140), b: f32(7, 2), magnitude: f32(7) }
  const graph = insertDora(plain, [target])
  const products = /^(conv|convBackward|convTranspose|linear|matmul|dora(Forward|Backward))$/
  const computes = (step: Graph, backend: 'cpu' | 'cuda') => {
    const { graph: both, gradients } = differentiate(step, {
      loss: 'loss',
      wrt: [...doraParameters('fc'), 'k', 'x'],
    })
    const outputs = [...gradients.values()].map(name => ({ name }))
    const { steps, setup } = compile(
      { ...both, outputs },
      { backend, bf16Support: backend === 'cpu' ? 'simd' : 'matrix' },
    )
    const calls = [...setup, ...steps].filter(({ op }) => products.test(op))
    return calls.map(({ op, args }) => `${op} ${(args as { compute?: string }).compute ?? 'f32'}`).sort()
  }
  const passes = [
    'conv',
    'conv',
    'convBackward',
    'convBackward',
    'convTranspose',
    'doraBackward',
    'doraForward',
    'linear',
    ...Array<string>(4).fill('matmul'),
  ]
  for (const dtype of ['f16', 'bf16'] as const) {
    t.strictSame(
      computes(roundProducts(graph, dtype), 'cuda'),
      passes.map(op => `${op} ${dtype}`),
      dtype,
    )
    t.strictSame(
      computes(roundProducts(graph, dtype), 'cpu'),
      passes.map(op => `${op} f32`),
      `${dtype} on a processor`,
    )
  }
  t.strictSame(
    computes(graph, 'cuda'),
    passes.map(op => `${op} f32`),
    'operands of f32',
  )
})

t.test('attention in both passes', async t => {
  const inputs = ['q', 'k', 'v'].map(name => ({ name, type: tensorType('f32', [2, 3, 5, 8]) }))
  const graph = makeGraph({
    inputs,
    outputs: [{ name: 'y' }],
    nodes: [
      makeNode('Attention', ['q', 'k', 'v'], ['y'], { attributes: { is_causal: int(1) } }),
      makeNode('ReduceSumSquare', ['y'], ['loss'], { attributes: { keepdims: int(0) } }),
    ],
  })
  const made = (step: Graph) => {
    const { graph: both, gradients } = differentiate(step, { loss: 'loss', wrt: ['q', 'k', 'v'] })
    return { ...both, outputs: [{ name: 'y' }, ...[...gradients.values()].map(name => ({ name }))] }
  }
  const computes = (step: Graph, backend: 'cpu' | 'cuda') => {
    const { steps } = compile(made(step), { backend, bf16Support: 'matrix' })
    const calls = steps.filter(({ op }) => op.startsWith('attention'))
    return calls.map(({ op, args }) => `${op} ${(args as { compute?: string }).compute ?? 'f32'}`).sort()
  }
  const passes = ['attention', 'attention', 'attentionBackward']
  const feeds = Object.fromEntries(inputs.map(({ name }) => [name, uniform(random, 240)]))
  for (const dtype of ['f16', 'bf16'] as const) {
    const step = roundProducts(graph, dtype)
    t.strictSame(
      computes(step, 'cuda'),
      passes.map(op => `${op} ${dtype}`),
      dtype,
    )
    t.strictSame(
      computes(step, 'cpu'),
      passes.map(op => `${op} f32`),
      `${dtype} on a processor`,
    )
    for (const backend of backends) {
      using plan = await Plan.create(made(step), await openKernels({ backend }))
      for (const [name, values] of Object.entries(await plan.run(feeds))) {
        const found = Float32Array.from(values as Float32Array)
        identical(
          t,
          rounded(found, dtype),
          found,
          `${dtype} on ${backend}: ${name} holds numbers of that type`,
        )
      }
    }
  }
  t.strictSame(
    computes(graph, 'cuda'),
    passes.map(op => `${op} f32`),
    'operands of f32',
  )
})

t.test('values of other types stay', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f16', [3, 5]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('MatMul', ['x', 'w'], ['y'])],
    initializers: new Map([['w', Constant.from('f16', [5, 2], new Uint16Array(10))]]),
  })
  t.same(roundProducts(graph, 'bf16').nodes, graph.nodes)
})
