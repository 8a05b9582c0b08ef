// openpilot's models with random weights: inputs, outputs, operators, sizes; they run, and ONNX Runtime agrees.
import { spawnSync } from 'node:child_process'
import { statSync } from 'node:fs'
import path from 'node:path'
import {
  buildOpenpilotModel,
  type Graph,
  Model,
  type OpenpilotModelName,
  openpilotModelNames,
  Tensor,
  writeOnnx,
} from 'dgx-spark'
import t from 'tap'
import { readOnnx } from '#lib/io/onnx/read.js'
import { requireAddon } from '#lib/native.js'
import { writeOutputSlices } from '#lib/openpilot/write-output-slices.js'
import { goldenJson, noGolden } from '../fixtures/values/golden-bytes.js'
import { randomGenerator } from '../fixtures/values/random.js'

/** What is known of an original: values by name, nodes by operator, all nodes, bytes of the file. */
interface Original {
  readonly inputs: Readonly<Record<string, string>>
  readonly output: string
  readonly nodes?: number
  readonly operators?: Readonly<Record<string, number>>
  readonly fileBytes: number
  /** Difference allowed in the numbers of nodes and bytes. */
  readonly tolerance: number
  /** The file of metadata that openpilot built with it. */
  readonly metadata?: string
}

const images = { img: 'u8 1,12,128,256', big_img: 'u8 1,12,128,256' }
const originals: Readonly<Record<OpenpilotModelName, Original>> = {
  'supercombo-0.8.10': {
    inputs: {
      input_imgs: 'f32 1,12,128,256',
      desire: 'f32 1,8',
      traffic_convention: 'f32 1,2',
      initial_state: 'f32 1,512',
    },
    output: 'f32 1,6609',
    operators: { Conv: 70, BatchNormalization: 70, GRU: 1 },
    fileBytes: 56_742_706,
    tolerance: 0.001,
  },
  driving_vision: {
    inputs: images,
    output: 'f16 1,1576',
    nodes: 425,
    operators: { Mul: 128, Conv: 60, Gemm: 36 },
    fileBytes: 89_837_516,
    tolerance: 0.1,
    metadata: 'driving_vision_metadata.9aa8bf83',
  },
  driving_policy: {
    inputs: {
      desire_pulse: 'f16 1,25,8',
      traffic_convention: 'f16 1,2',
      features_buffer: 'f16 1,25,512',
    },
    output: 'f16 1,1000',
    nodes: 174,
    operators: { Gemm: 47, Relu: 39, Add: 26, Constant: 18, MatMul: 7, Mul: 5, Concat: 4, ReduceMean: 4 },
    fileBytes: 15_966_721,
    tolerance: 0.1,
    metadata: 'driving_policy_metadata.16d34afe',
  },
  driving_supercombo: {
    inputs: {
      ...images,
      features_buffer: 'f16 1,24,512',
      desire_pulse: 'f16 1,25,8',
      traffic_convention: 'f16 1,2',
      action_t: 'f16 1,2',
    },
    output: 'f16 1,2576',
    nodes: 874,
    fileBytes: 96_639_461,
    tolerance: 0.1,
  },
}

/** Where outputs lie in the row of the model that has most of them. */
const supercomboSlices = {
  plan: [0, 4955],
  lane_lines: [4955, 5483],
  lane_lines_prob: [5483, 5491],
  road_edges: [5491, 5755],
  lead: [5755, 6010],
  lead_prob: [6010, 6013],
  desire_state: [6013, 6021],
  meta: [6021, 6053],
  desire_pred: [6053, 6085],
  pose: [6085, 6097],
  hidden_state: [6097, 6609],
}

t.teardown(() => requireAddon().setThreads(0))
const hasRuntime = await import('onnxruntime-node').then(
  () => true,
  () => false,
)

const typesOf = (values: Graph['inputs']): Record<string, string> =>
  Object.fromEntries(
    values.map(({ name, type }) => [name, type?.kind === 'tensor' ? `${type.dtype} ${type.shape}` : '']),
  )

/** Random inputs: bytes, and numbers in [-1, 1). */
function feedsOf(graph: Graph, seed: number): Record<string, Tensor> {
  const random = randomGenerator(seed)
  const feeds = graph.inputs.map(({ name, type }) => {
    if (type?.kind !== 'tensor') throw new Error(`${name} is no tensor`)
    const shape = type.shape as readonly number[]
    const length = shape.reduce((product, size) => product * size, 1)
    const numbers = Float32Array.from({ length }, () => 2 * random() - 1)
    if (type.dtype !== 'u8') return [name, Tensor.from(numbers, { shape }).to(type.dtype as 'f16')] as const
    return [
      name,
      Tensor.from(
        Uint8Array.from(numbers, value => 128 + 127 * value),
        { shape },
      ),
    ] as const
  })
  return Object.fromEntries(feeds) as Record<string, Tensor>
}

async function outputsOf(model: Model, feeds: Record<string, Tensor>): Promise<Float32Array> {
  const { outputs } = await model.run<{ outputs: 'f32' | 'f16' }>(feeds)
  return outputs!.toFloat32()
}

const difference = (a: Float32Array, b: Float32Array): number =>
  a.reduce((largest, value, i) => Math.max(largest, Math.abs(value - b[i]!)), 0)

const rootMeanSquare = (values: Float32Array): number =>
  Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / values.length)

for (const name of openpilotModelNames) {
  const original = originals[name]
  t.test(name, async t => {
    const graph = await buildOpenpilotModel(name)
    const near = (value: number, expected: number, what: string): void => {
      t.ok(Math.abs(value / expected - 1) <= original.tolerance, `${what}: ${value}, as ${expected}`)
    }
    t.strictSame(typesOf(graph.inputs), original.inputs)
    t.strictSame(typesOf(graph.outputs), { outputs: original.output })
    if (original.nodes) near(graph.nodes.length, original.nodes, 'nodes')
    for (const [operator, count] of Object.entries(original.operators ?? {}))
      near(graph.nodes.filter(({ op }) => op === operator).length, count, operator)
    t.equal(graph.metadata.has('approximate'), name !== 'supercombo-0.8.10')

    const file = path.join(t.testdir(), `${name}.onnx`)
    await writeOnnx(graph, file)
    near(statSync(file).size, original.fileBytes, 'bytes')
    t.strictSame((await readOnnx(file)).metadata, graph.metadata)

    using model = await Model.load(file, { backend: 'cpu' })
    const feeds = feedsOf(graph, 1)
    const values = await outputsOf(model, feeds)
    t.ok(values.every(Number.isFinite))
    const size = rootMeanSquare(values)
    t.ok(size > 0.3 && size < 3, `outputs of ${size}`)
    const others = feedsOf(graph, 2)
    for (const input of Object.keys(feeds)) {
      const changed = await outputsOf(model, { ...feeds, [input]: others[input]! })
      t.ok(difference(changed, values) > 0.01 * size, `${input} matters`)
    }
    if (!hasRuntime) return t.comment('skipped: onnxruntime-node is not installed')
    using runtime = await Model.load(file, { backend: 'onnxruntime' })
    const tolerance = name === 'supercombo-0.8.10' ? 1e-4 : 0.02
    t.ok(difference(await outputsOf(runtime, feeds), values) < tolerance * size, 'as ONNX Runtime')
  })
}

t.test('supercombo has exactly the parameters of the original', async t => {
  const { initializers, metadata } = await buildOpenpilotModel('supercombo-0.8.10')
  t.equal(
    [...initializers.values()].reduce((sum, { count }) => sum + count, 0),
    14_169_505,
  )
  const slices = Object.entries(supercomboSlices).map(([key, [start, end]]) => [
    key,
    { start: start!, end: end! },
  ])
  const bytes = writeOutputSlices(Object.fromEntries(slices))
  t.equal(metadata.get('output_slices'), Buffer.from(bytes).toString('base64'))
})

t.test('slices and shapes are those of the originals', { skip: noGolden }, async t => {
  interface Metadata {
    output_slices: Record<string, [number | null, number | null]>
    input_shapes: Record<string, number[]>
  }
  const all = goldenJson<Record<string, Metadata>>('openpilot/metadata/all.json')
  for (const [name, { metadata, inputs }] of Object.entries(originals)) {
    if (!metadata) continue
    const { output_slices, input_shapes } = all[metadata]!
    const graph = await buildOpenpilotModel(name as OpenpilotModelName)
    const slices = Object.entries(output_slices).map(([key, [start, end]]) => [key, { start, end }])
    const bytes = writeOutputSlices(Object.fromEntries(slices))
    t.equal(graph.metadata.get('output_slices'), Buffer.from(bytes).toString('base64'), name)
    const shapes = Object.entries(inputs).map(([key, text]) => [
      key,
      text.split(' ')[1]!.split(',').map(Number),
    ])
    t.strictSame(Object.fromEntries(shapes), input_shapes, name)
  }
})

t.test('a seed gives its weights, again and again', async t => {
  const build = async (seed?: number): Promise<Uint8Array> => {
    const { initializers } = await buildOpenpilotModel('driving_policy', seed === undefined ? {} : { seed })
    return Buffer.concat([...initializers.values()].map(({ bytes }) => bytes))
  }
  const [first, again, other] = [await build(), await build(1), await build(2)]
  t.ok(Buffer.compare(first, again) === 0)
  t.ok(Buffer.compare(first, other) !== 0)
})

t.test('wrong arguments', async t => {
  const build = buildOpenpilotModel as (name: unknown, options?: unknown) => Promise<Graph>
  await t.rejects(build('driving_polcy'), { code: 'ERR_ARGUMENT', message: /did you mean 'driving_policy'/ })
  await t.rejects(build(undefined), { code: 'ERR_ARGUMENT' })
  for (const options of [null, { sed: 1 }, { seed: -1 }, { seed: 1.5 }, { seed: 2 ** 32 }])
    await t.rejects(build('driving_policy', options), { code: 'ERR_ARGUMENT' })
})

t.test('slices are pickled as Python does', async t => {
  const hex = (slices: Parameters<typeof writeOutputSlices>[0]): string =>
    Buffer.from(writeOutputSlices(slices)).toString('hex')
  t.equal(hex({}), '80047d942e')
  // pickle.dumps({'a': slice(None, 70000)}, protocol=4)
  t.equal(
    hex({ a: { start: null, end: 70_000 } }),
    '80049528000000000000007d948c0161948c086275696c74696e73948c05736c6963659493944e4a701101004e87945294732e',
  )
  // pickle.dumps({'plan': slice(0, 990), 'desire_state': slice(990, 998), 'pad': slice(-2, None)}, protocol=4)
  t.equal(
    hex({
      plan: { start: 0, end: 990 },
      desire_state: { start: 990, end: 998 },
      pad: { start: -2, end: null },
    }),
    [
      '8004955a000000000000007d94288c04706c616e948c086275696c74696e73948c05736c6963659493944b004dde03',
      '4e879452948c0c6465736972655f73746174659468044dde034de6034e879452948c037061649468044afeffffff4e',
      '4e87945294752e',
    ].join(''),
  )
  t.match(hex({ ['a'.repeat(300)]: { start: 0, end: 1 } }), '7d94582c010000616161')
  const write = writeOutputSlices as (slices: unknown) => Uint8Array
  for (const wrong of [
    null,
    [],
    { a: null },
    { a: { start: 0.5, end: 1 } },
    { a: { start: 0, end: 2 ** 31 } },
  ])
    t.throws(() => write(wrong), { code: 'ERR_ARGUMENT' })
  const many = Array.from({ length: 1001 }, (_, i) => [`output ${i}`, { start: 0, end: 1 }])
  t.throws(() => write(Object.fromEntries(many)), { code: 'ERR_ARGUMENT' })
})

t.test('dgx-spark openpilot-model', async t => {
  const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
  const output = path.join(t.testdir(), 'policy.onnx')
  const args = ['openpilot-model', 'driving_policy', '--output', output, '--seed', '3']
  const run = (...more: string[]) =>
    spawnSync(process.execPath, [main, ...args, ...more], { encoding: 'utf8', timeout: 120_000 })
  t.match(run(), {
    status: 0,
    stdout: /features_buffer: f16 \[1, 25, 512\].*nodes +174.*wrote .*policy\.onnx/s,
  })
  const { metadata } = await readOnnx(output)
  t.equal(metadata.get('model_checkpoint'), 'random weights of seed 3')
  const json = JSON.parse(run('--json').stdout)
  t.match(json, { name: 'driving_policy', seed: 3, nodes: 174, fileBytes: statSync(output).size })
  t.match(run('--seed', '-1'), { status: 2, stderr: /expected an integer from 0 to 4294967295/ })
})
