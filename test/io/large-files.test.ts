// Large ONNX files: the elements of large tensors stay in the file until somebody asks for them.
import {
  appendFileSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { Pacer } from '#lib/core/paced.js'
import { tensor } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { Model } from '#lib/index.js'
import { KeptFile } from '#lib/io/kept-file.js'
import { decodeMessage } from '#lib/io/onnx/decode.js'
import { type FileRange, readOutline } from '#lib/io/onnx/outline.js'
import { readOnnx } from '#lib/io/onnx/read.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const features = 2100

/** y = x · w + b, with b in an attribute: a file of more than 16 MiB. */
const graph: Graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', ['n', features]) }],
  outputs: [{ name: 'y', type: tensorType('f32', ['n', features]) }],
  nodes: [
    makeNode('Constant', [], ['b'], {
      attributes: {
        value: tensor(Constant.from('f32', [1, features], uniform(randomGenerator(2), features))),
      },
    }),
    makeNode('MatMul', ['x', 'w'], ['product']),
    makeNode('Add', ['product', 'b'], ['y']),
  ],
  initializers: new Map([
    ['w', Constant.from('f32', [features, features], uniform(randomGenerator(1), features ** 2))],
  ]),
  opsets: new Map([['', 21]]),
})

const bytes = serializeOnnx(graph)
const x = uniform(randomGenerator(3), 2 * features)

/** A file with the model that nobody has touched for a while. */
function written(t: Test, name = 'model.onnx'): string {
  const file = path.join(t.testdirName, name)
  mkdirSync(t.testdirName, { recursive: true })
  writeFileSync(file, bytes)
  utimesSync(file, 1, 1)
  return file
}

/** The model with what was left out put back. */
function whole(value: unknown, left: ReadonlyMap<number, FileRange>, file: Uint8Array): unknown {
  if (value instanceof Uint8Array) {
    const range = left.get(value.byteOffset)
    return Buffer.from(range ? file.subarray(range.begin, range.begin + range.byteLength) : value)
  }
  if (Array.isArray(value)) return value.map(part => whole(part, left, file))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, whole(part, left, file)]))
}

async function outlineOf(t: Test, content: Uint8Array, minBytes: number) {
  const file = path.join(t.testdirName, 'outline.onnx')
  writeFileSync(file, content)
  return readOutline(await KeptFile.open(file), minBytes, new Pacer())
}

t.test('an outline has all but the elements of large tensors', async t => {
  t.testdir()
  const expected = whole(decodeMessage('model', 'Model', bytes), new Map(), bytes)
  for (const [minBytes, count] of [
    [1, 2],
    [4 * features + 1, 1],
    [2 ** 30, 0],
  ] as const) {
    const outline = await outlineOf(t, bytes, minBytes)
    t.equal(outline.left.size, count)
    if (count > 1) t.ok(outline.bytes.byteLength < 1000)
    const decoded = decodeMessage('model', 'Model', outline.bytes)
    t.strictSame(whole(decoded, outline.left, bytes), expected, `from ${minBytes} bytes on`)
  }
})

t.test('a broken file is as broken in outline', async t => {
  t.testdir()
  const small = serializeOnnx({
    ...graph,
    initializers: new Map([['w', Constant.f32(Array(40).fill(1), [8, 5])]]),
  })
  const random = randomGenerator(5)
  const decoded = (content: Uint8Array, left: ReadonlyMap<number, FileRange>, file: Uint8Array): unknown => {
    try {
      return whole(decodeMessage('model', 'Model', content), left, file)
    } catch (error) {
      return (error as Error).name
    }
  }
  for (let i = 0; i < 300; i++) {
    const broken = Uint8Array.from(
      small.subarray(0, i % 3 === 0 ? Math.floor(random() * small.length) : small.length),
    )
    for (let flips = i % 4; flips > 0; flips--)
      broken[Math.floor(random() * broken.length)]! ^= 1 << Math.floor(random() * 8)
    const { bytes: outline, left } = await outlineOf(t, broken, 16)
    t.strictSame(decoded(outline, left, broken), decoded(broken, new Map(), broken), `${i}`)
  }
})

t.test('weights are read when they are needed', async t => {
  t.testdir()
  const file = written(t)
  const read = await readOnnx(file)
  const weight = read.initializers.get('w')!
  t.equal(weight.inMemory, false)
  t.strictSame(weight.data, graph.initializers.get('w')!.data)
  t.equal(weight.data.buffer, weight.data.buffer, 'the same memory while somebody has it')
  const before = process.memoryUsage().arrayBuffers
  using model = await Model.load(file, { backend: 'cpu' })
  using expected = await Model.load(bytes, { backend: 'cpu' })
  t.strictSame((await model.run({ x })).y?.data, (await expected.run({ x })).y?.data)
  const grown = process.memoryUsage().arrayBuffers - before
  t.ok(grown < 2.5 * weight.byteLength, `${grown} bytes for two packed weights`)
})

t.test('a file that is replaced or removed', async t => {
  t.testdir()
  const file = written(t)
  using model = await Model.load(file, { backend: 'cpu' })
  renameSync(written(t, 'other.onnx'), file)
  rmSync(file)
  using expected = await Model.load(bytes, { backend: 'cpu' })
  t.strictSame(
    (await model.run({ x })).y?.data,
    (await expected.run({ x })).y?.data,
    'the old content counts',
  )
})

t.test('a file that is written over', async t => {
  t.testdir()
  const damages: Record<string, (file: string) => void> = {
    longer: file => appendFileSync(file, 'x'),
    shorter: file => truncateSync(file, 2 ** 20),
    other: file => writeFileSync(file, bytes),
  }
  for (const [name, damage] of Object.entries(damages)) {
    const file = written(t, `${name}.onnx`)
    const read = await readOnnx(file)
    using model = await Model.load(file, { backend: 'cpu' })
    damage(file)
    const changed = { code: 'ERR_FORMAT', message: /has changed since it was loaded: load it again/ }
    t.throws(() => read.initializers.get('w')!.data, changed, name)
    await t.rejects(model.run({ x }), changed, `a run of ${name}`)
    writeFileSync(file, readFileSync(file))
  }
})
