// Weights in NVFP4 and FP8 with standard nodes: the numbers, the file, ONNX Runtime where it can read them.
import { dequantizeFP8, dequantizeNVFP4, quantizeFP8, quantizeNVFP4 } from 'dgx-spark'
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { quantizableWeights, quantizeWeights } from '#lib/graph/rewrites/quantize-weights.js'
import { parseOnnx } from '#lib/io/onnx/read.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { Plan } from '#lib/plan/plan.js'
import { close, identical } from '../../fixtures/close.js'
import { runOnnxRuntime } from '../../fixtures/onnx-runtime.js'
import { randomGenerator, uniform } from '../../fixtures/values/random.js'

const random = randomGenerator(3)
const [a, b, c] = [uniform(random, 7 * 32), uniform(random, 32 * 5), uniform(random, 5 * 17)]

/** y = x·aᵀ, z = x·b, and a weight whose rows are no whole blocks. */
const graph: Graph = makeGraph({
  inputs: [
    { name: 'x', type: tensorType('f32', ['N', 32]) },
    { name: 'odd', type: tensorType('f32', ['N', 17]) },
  ],
  outputs: [{ name: 'y' }, { name: 'z' }, { name: 'w' }],
  nodes: [
    makeNode('Gemm', ['x', 'a'], ['y'], { attributes: { transB: int(1) } }),
    makeNode('MatMul', ['x', 'b'], ['z']),
    makeNode('Gemm', ['odd', 'c'], ['w'], { attributes: { transB: int(1) } }),
  ],
  initializers: new Map([
    ['a', Constant.from('f32', [7, 32], a)],
    ['b', Constant.from('f32', [32, 5], b)],
    ['c', Constant.from('f32', [5, 17], c)],
  ]),
})

const transpose = (values: Float32Array, rows: number, cols: number): Float32Array =>
  Float32Array.from(values, (_, i) => values[(i % rows) * cols + Math.floor(i / rows)]!)

async function run(graph: Graph): Promise<Record<string, Float32Array>> {
  using plan = await Plan.create(graph, jsKernels, { shapes: { x: [3, 32], odd: [3, 17] } })
  const outputs = await plan.run(feeds)
  return Object.fromEntries(
    Object.entries(outputs).map(([name, y]) => [name, Float32Array.from(y as Float32Array)]),
  )
}
const feeds = { x: uniform(random, 3 * 32), odd: uniform(random, 3 * 17) }

for (const format of ['nvfp4', 'fp8'] as const) {
  t.test(format, async t => {
    const round = (values: Float32Array, shape: readonly number[]): Float32Array =>
      format === 'fp8'
        ? dequantizeFP8(quantizeFP8(values, shape))
        : dequantizeNVFP4(quantizeNVFP4(values, shape))
    const quantized = quantizeWeights(graph, { format })
    t.notOk(quantized.initializers.has('a'))
    t.equal(quantized.initializers.has('c'), format === 'nvfp4', 'rows of 17 are no blocks of 16')
    const rounded = new Map([
      ['a', Constant.from('f32', [7, 32], round(a, [7, 32]))],
      ['b', Constant.from('f32', [32, 5], transpose(round(transpose(b, 32, 5), [5, 32]), 5, 32))],
      ['c', Constant.from('f32', [5, 17], format === 'fp8' ? round(c, [5, 17]) : c)],
    ])
    const expected = await run({ ...graph, initializers: rounded })
    const bytes = serializeOnnx(quantized)
    for (const [name, y] of Object.entries(await run(quantized))) identical(t, y, expected[name]!, name)
    for (const [name, y] of Object.entries(await run(parseOnnx(bytes)))) {
      identical(t, y, expected[name]!, `${name} from a file`)
    }
    // ONNX Runtime 1.30 has no kernel for 4-bit floats on the CPU.
    if (format === 'nvfp4') return
    const inputs = new Map([
      ['x', Constant.from('f32', [3, 32], feeds.x)],
      ['odd', Constant.from('f32', [3, 17], feeds.odd)],
    ])
    for (const [name, { data }] of Object.entries(await runOnnxRuntime(bytes, inputs))) {
      close(t, expected[name]!, data as Float32Array, 1e-6, `${name} in ONNX Runtime`)
    }
  })
}

t.test('some weights only', async t => {
  t.strictSame(quantizableWeights(graph), ['a', 'b'])
  const some = quantizeWeights(graph, { weights: ['b'] })
  t.strictSame(some.nodes.filter(({ op }) => op === 'DequantizeLinear').length, 2)
  t.ok(some.initializers.has('a'))
  for (const name of ['c', 'x', 'nothing']) {
    t.throws(() => quantizeWeights(graph, { weights: [name] }), {
      code: 'ERR_ARGUMENT',
      message: new RegExp(`'${name}' cannot be stored in nvfp4`),
    })
  }
  t.throws(() => quantizeWeights(graph, { format: 'fp5' as 'fp8' }), { code: 'ERR_ARGUMENT' })
})
