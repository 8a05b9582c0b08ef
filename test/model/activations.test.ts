// The option `activations` of models: which layers round their rows, on every backend, and what it costs.
import { DoRALinear, Model, type ModelOptions, Tensor } from 'dgx-spark'
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { makeGraph, makeNode, sparkDomain, tensorType } from '#lib/graph/graph.js'
import { optimize } from '#lib/graph/rewrites/optimize.js'
import { quantizeWeights } from '#lib/graph/rewrites/quantize-weights.js'
import { roundRows } from '#lib/graph/rewrites/round-rows.js'
import { roundWeights } from '#lib/graph/rewrites/round-weights.js'
import { compile } from '#lib/plan/compile.js'
import { backends } from '../fixtures/backends.js'
import { close, identical } from '../fixtures/close.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'
import { randomConstants } from '../fixtures/values/random-tensors.js'

const random = randomGenerator(9)
const f32 = randomConstants(random)

/** A MatMul, a Gemm that keeps a weight of other columns than blocks have, and a Gemm with bias. */
const graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', [5, 32]) }],
  outputs: [{ name: 'y' }],
  nodes: [
    makeNode('MatMul', ['x', 'first'], ['a']),
    makeNode('Gemm', ['a', 'odd'], ['b'], { attributes: { transB: int(1) } }),
    makeNode('Gemm', ['b', 'last', 'bias'], ['y'], { attributes: { transB: int(1) } }),
  ],
  initializers: new Map([
    ['first', f32(32, 24)],
    ['odd', f32(48, 24)],
    ['last', f32(7, 48)],
    ['bias', f32(7)],
  ]),
})
const x = uniform(random, 5 * 32)

const run = async (options: ModelOptions, source = graph): Promise<Float32Array> => {
  using model = await Model.fromGraph(source, options)
  return (await model.run({ x })).y!.toFloat32()
}

const computesOf = (source: typeof graph, backend: 'cpu' | 'cuda' | 'js'): unknown[] =>
  compile(optimize(source).graph, { backend, bf16Support: 'matrix' }).steps.flatMap(({ op, args }) =>
    op === 'linear' || op === 'doraForward' ? [args.compute ?? 'f32'] : [],
  )

t.test('layers whose weights are in the format for it round their rows, on every backend', async t => {
  for (const [mode, activations, onCpu, onGpu] of [
    ['nvfp4', 'nvfp4', ['nvfp4', 'f32', 'nvfp4'], ['nvfp4', 'f32', 'nvfp4']],
    ['nvfp4', 'int8', ['f32', 'f32', 'f32'], ['bf16', 'f32', 'bf16']],
    ['bf16', 'nvfp4', ['bf16', 'bf16', 'bf16'], ['bf16', 'bf16', 'bf16']],
  ] as const) {
    const rounded = roundRows(roundWeights(graph, { mode }), activations)
    t.same(computesOf(rounded, 'cpu'), onCpu, `${mode}, ${activations}, CPU`)
    t.same(computesOf(rounded, 'cuda'), onGpu, `${mode}, ${activations}, GPU`)
  }
})

t.test('activations in nvfp4: of a mode and of a file, alone and in a batch', async t => {
  const stored = quantizeWeights(graph, { format: 'nvfp4' })
  for (const backend of backends) {
    const base = { backend, precision: 'nvfp4' } as const
    const [exact, rounded] = [await run(base), await run({ ...base, activations: 'nvfp4' })]
    t.notSame(rounded, exact, backend)
    close(t, rounded, exact, 0.2, `${backend}: 4 bits`)
    const ofFile = await run({ backend, precision: 'fp32', activations: 'nvfp4' }, stored)
    identical(t, ofFile, rounded, `${backend}: the codes of a file`)
  }
})

t.test('a layer beside an adapter rounds its rows but for dropout and in training', async t => {
  const adapted = (inputs: readonly string[], outputs: readonly string[]) =>
    makeGraph({
      inputs: ['x', 'mask'].map(name => ({ name, type: tensorType('f32', [3, 32]) })),
      outputs: outputs.map(name => ({ name })),
      nodes: [makeNode('DoRA', ['x', 'w', 'a', 'b', 'm', ...inputs], outputs, { domain: sparkDomain })],
      initializers: new Map([
        ['w', f32(24, 32)],
        ['a', f32(4, 32)],
        ['b', f32(24, 4)],
        ['m', f32(24)],
      ]),
    })
  for (const [inputs, outputs, compute] of [
    [[], ['y'], 'nvfp4'],
    [['', 'mask'], ['y'], 'bf16'],
    [[], ['y', 'xa', 'z'], 'f32'],
  ] as const) {
    const rounded = roundRows(roundWeights(adapted(inputs, outputs), { mode: 'nvfp4' }), 'nvfp4')
    t.same(computesOf(rounded, 'cuda'), [compute], `${inputs.length} inputs, ${outputs.length} outputs`)
  }
})

t.test('DoRALinear rounds rows in inference', async t => {
  const weight = Tensor.from(uniform(random, 24 * 32), { shape: [24, 32] })
  const rows = Tensor.from(x, { shape: [5, 32] })
  for (const backend of backends) {
    const options = { backend, precision: 'nvfp4', rank: 4 } as const
    using plain = await DoRALinear.fromLinear({ weight }, options)
    using layer = await DoRALinear.fromLinear({ weight }, { ...options, activations: 'nvfp4' })
    const exact = (await plain.forward(rows)).toFloat32()
    const rounded = (await layer.forward(rows)).toFloat32()
    t.notSame(rounded, exact, backend)
    close(t, rounded, exact, 0.2, `${backend}: 4 bits`)
    const trained = (await layer.forward(rows, { training: true })).toFloat32()
    identical(t, trained, exact, `${backend}: a training pass rounds nothing`)
    await layer.merge({ precision: 'nvfp4' })
    await plain.merge({ precision: 'nvfp4' })
    t.notSame((await layer.forward(rows)).toFloat32(), (await plain.forward(rows)).toFloat32(), 'merged')
    await layer.unmerge()
    await t.rejects(layer.forward(rows, { adapters: Array(5).fill(null) }), {
      code: 'ERR_ARGUMENT',
      message: /inference only, in f32/,
    })
  }
})

t.test('refused', async t => {
  const refused = (options: object, message: RegExp, source = graph) =>
    t.rejects(run({ backend: 'js', precision: 'nvfp4', activations: 'nvfp4', ...options }, source), {
      code: 'ERR_ARGUMENT',
      message,
    })
  await refused({ activations: 'fp4' }, /options\.activations must be one of .*nvfp4.*'fp4'/)
  await refused({ precision: 'fp32' }, /no weight of the model is: add precision 'nvfp4'/)
  await refused({ backend: 'onnxruntime' }, /left out for backend 'onnxruntime'/)
  const weight = Tensor.from(new Float32Array(64), { shape: [2, 32] })
  await t.rejects(DoRALinear.fromLinear({ weight }, { activations: 'nvfp4', precision: 'bf16' }), {
    code: 'ERR_ARGUMENT',
    message: /the weight is held in bf16: add precision 'nvfp4'/,
  })
})
