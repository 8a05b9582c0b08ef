// Reading and writing ONNX files: what is read, written and read again is the same; every element type and field; and
// what is refused.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { type ElementType, elementBits } from '#lib/core/dtype.js'
import { float, graph as graphAttribute, int, tensor } from '#lib/graph/attributes.js'
import { Constant, type NumericType } from '#lib/graph/constant.js'
import { onnxNumbers } from '#lib/graph/element-types.js'
import {
  type Attributes,
  makeGraph,
  makeNode,
  type Node,
  tensorType,
  type ValueType,
} from '#lib/graph/graph.js'
import { encodeMessage } from '#lib/io/onnx/encode.js'
import type { Message } from '#lib/io/onnx/messages.js'
import { parseOnnx, readOnnx } from '#lib/io/onnx/read.js'
import { parseTensor } from '#lib/io/onnx/read-tensor.js'
import { writeOnnx } from '#lib/io/onnx/save.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { modelFiles, noModels } from '../fixtures/models/onnx-models.js'
import { runOnnxRuntime } from '../fixtures/onnx-runtime.js'
import { bytesOf, plain } from '../fixtures/values/onnx-bytes.js'

const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-onnx-'))
t.teardown(() => rmSync(folder, { recursive: true }))

t.test('real models are read, and written as they are', { skip: noModels }, async t => {
  const copy = path.join(folder, 'copy.onnx')
  for (const file of modelFiles()) {
    const graph = await readOnnx(file)
    await writeOnnx(graph, copy)
    const again = await readOnnx(pathToFileURL(copy))
    t.strictSame(plain(again), plain(graph), file)
    t.strictSame(plain(parseOnnx(readFileSync(file))), plain(graph), `${file} as bytes`)
  }
  t.equal(modelFiles().length, 18)
  t.strictSame(readdirSync(folder), ['copy.onnx'], 'no temporary file is left')
})

/** A tensor of `count` elements of any type. */
function sample(dtype: NumericType, count: number): Constant {
  const bytes = Uint8Array.from(
    { length: Math.ceil((count * elementBits[dtype]) / 8) },
    (_, i) => (i * 37 + 1) % 251,
  )
  return Constant.from(dtype, [count], bytes)
}

const numeric = (Object.keys(elementBits) as ElementType[]).filter(
  (name): name is NumericType => name !== 'string',
)

t.test('every element type', async t => {
  const initializers = new Map<string, Constant>(numeric.map(dtype => [dtype, sample(dtype, 7)]))
  initializers.set('words', Constant.strings([2], ['', 'é\u{1f600}']))
  const again = parseOnnx(serializeOnnx(makeGraph({ initializers })))
  t.equal(initializers.size, 26)
  t.strictSame(plain(again.initializers), plain(initializers))
})

t.test('elements in typed fields', async t => {
  const read = (dtype: ElementType, fields: Message<'Tensor'>, dims = [3n]): Constant =>
    parseTensor(bytesOf(encodeMessage('Tensor', { dims, dataType: onnxNumbers[dtype], ...fields })))
  t.strictSame(read('f32', { floatData: [1, -2, 0.5] }).data, new Float32Array([1, -2, 0.5]))
  t.strictSame(read('f64', { doubleData: [1, -2, 0.1] }).data, new Float64Array([1, -2, 0.1]))
  t.strictSame(read('c64', { floatData: [1, 2, 3, 4, 5, 6] }).data, new Float32Array([1, 2, 3, 4, 5, 6]))
  t.strictSame(read('i64', { int64Data: [1n, -2n, 2n ** 62n] }).data, new BigInt64Array([1n, -2n, 2n ** 62n]))
  t.strictSame(
    read('u64', { uint64Data: [1n, 2n, 2n ** 64n - 1n] }).data,
    new BigUint64Array([1n, 2n, 2n ** 64n - 1n]),
  )
  t.strictSame(
    read('u32', { uint64Data: [1n, 2n, 2n ** 32n - 1n] }).data,
    new Uint32Array([1, 2, 2 ** 32 - 1]),
  )
  t.strictSame(read('i8', { int32Data: [1, -2, 127] }).data, new Int8Array([1, -2, 127]))
  t.strictSame(read('bool', { int32Data: [1, 0, 1] }).data, new Uint8Array([1, 0, 1]))
  t.strictSame(read('bf16', { int32Data: [1, 0xffff, 3] }).data, new Uint16Array([1, 0xffff, 3]))
  t.strictSame(read('u4', { int32Data: [0x21, 0x03] }).data, new Uint8Array([0x21, 0x03]))
  t.strictSame(read('f8_e8m0', { int32Data: [1, 2, 255] }).data, new Uint8Array([1, 2, 255]))
  t.strictSame(
    read('string', { stringData: [Buffer.from('a'), Buffer.from(''), Buffer.from('ü')] }).strings,
    ['a', '', 'ü'],
  )
  t.throws(() => read('f32', { floatData: [1, 2] }), {
    code: 'ERR_FORMAT',
    message: /f32 \[3\] needs 12 bytes, but there are 8/,
  })
  t.throws(() => read('f32', { rawData: new Uint8Array(13) }), { code: 'ERR_FORMAT', message: /13/ })
  t.throws(() => read('string', { stringData: [] }), { code: 'ERR_FORMAT', message: /needs 3 strings/ })
  t.throws(() => read('f32', {}, [-1n]), { code: 'ERR_FORMAT', message: /size -1/ })
  t.throws(() => read('f32', {}, [2n ** 40n, 2n ** 40n]), {
    code: 'ERR_FORMAT',
    message: /not the shape of a tensor/,
  })
  t.throws(() => parseTensor(bytesOf(encodeMessage('Tensor', { dataType: 77 }))), {
    code: 'ERR_FORMAT',
    message: /unknown element type 77/,
  })
})

t.test('every attribute, type and part of a model', async t => {
  const body = makeGraph({
    name: 'body',
    outputs: [{ name: 'w' }],
    initializers: new Map([['w', Constant.f32(1)]]),
  })
  const { opsets, functions, producer, ...subgraph } = body
  const sparse = {
    shape: [3, 5],
    values: Constant.f32([1, 2]),
    indices: Constant.from('i64', [2, 2], new BigInt64Array([0n, 1n, 2n, 4n])),
  }
  const sequence: ValueType = { kind: 'sequence', element: { kind: 'optional', element: tensorType('i64') } }
  const attributes: Attributes = {
    a: float(0.5),
    b: { type: 'floats', value: [1, -2] },
    c: { type: 'int', value: 2n ** 63n - 1n },
    d: { type: 'ints', value: [1, -(2n ** 63n)] },
    e: { type: 'string', value: 'é' },
    f: { type: 'strings', value: ['', 'x'] },
    g: { type: 'bytes', value: new Uint8Array([0xff, 0]) },
    h: tensor(sample('f4', 3)),
    i: { type: 'tensors', value: [sample('i2', 5)] },
    j: { type: 'sparse', value: sparse },
    k: { type: 'sparses', value: [sparse] },
    l: graphAttribute(subgraph),
    m: { type: 'graphs', value: [subgraph, subgraph] },
    n: { type: 'type', value: sequence },
    o: { type: 'types', value: [tensorType('f32', ['n', null, 3])] },
    p: { type: 'ints', value: [] },
  }
  const node: Node = {
    ...makeNode('Odd', ['', 'x'], ['y', ''], { domain: 'custom', attributes }),
    overload: 'v',
    metadata: new Map([['where', 'layer.3']]),
  }
  const graph = makeGraph({
    name: 'all',
    inputs: [{ name: 'x', type: { kind: 'map', key: 'string', value: sequence } }, { name: 'u' }],
    outputs: [{ name: 'y', type: { kind: 'sparse', dtype: 'f64', shape: [3] } }],
    nodes: [node],
    values: new Map([['v', tensorType('bf16', [])]]),
    metadata: new Map([['author', 'me']]),
    opsets: new Map([
      ['', 24],
      ['custom', 3],
    ]),
    functions: [
      {
        name: 'F',
        domain: 'custom',
        overload: 'v',
        inputs: ['a'],
        outputs: ['b'],
        attributes: ['p'],
        defaults: { q: int(1) },
        nodes: [
          makeNode('Elu', ['a'], ['b'], { attributes: { alpha: { type: 'reference', value: 'p', of: 1 } } }),
        ],
        opsets: new Map([['', 21]]),
      },
    ],
    producer: { name: 'test', version: '1' },
  })
  const again = parseOnnx(serializeOnnx(graph))
  t.strictSame(plain(again), plain(graph))
})

t.test('external data', async t => {
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [3, 400]) }],
    outputs: [{ name: 'y', type: tensorType('f32', [3, 301]) }],
    nodes: [makeNode('Gemm', ['x', 'w', 'b'], ['y'])],
    initializers: new Map([
      [
        'w',
        Constant.f32(
          Array.from({ length: 400 * 301 }, (_, i) => i % 7),
          [400, 301],
        ),
      ],
      ['b', Constant.f32(Array.from({ length: 301 }, (_, i) => i))],
    ]),
  })
  const home = path.join(folder, 'external')
  mkdirSync(home)
  const file = path.join(home, 'model.onnx')
  await writeOnnx(graph, file, { externalData: true })
  t.strictSame(readdirSync(home).sort(), ['model.onnx', 'model.onnx.data'])
  t.ok(readFileSync(file).byteLength < 1000)
  const read = await readOnnx(file)
  t.strictSame(plain(read.initializers), plain(graph.initializers))
  const feeds = new Map([['x', Constant.f32(Array(1200).fill(0.5), [3, 400])]])
  t.strictSame(
    (await runOnnxRuntime(file, feeds)).y?.data,
    (await runOnnxRuntime(serializeOnnx(graph), feeds)).y?.data,
  )
  t.throws(() => parseOnnx(readFileSync(file)), { code: 'ERR_FORMAT', message: /load the model by its path/ })
  await writeOnnx(read, file, { externalData: true })
  t.strictSame(plain((await readOnnx(file)).initializers), plain(graph.initializers), 'written over itself')
  t.throws(() => read.initializers.get('w')!.data, { code: 'ERR_FORMAT', message: /has changed/ })
  writeFileSync(path.join(home, 'model.onnx.data'), 'short')
  await t.rejects(readOnnx(file), {
    code: 'ERR_FORMAT',
    message: /initializer 'w': bytes 0 to 481600 .*it has 5/,
  })
  writeFileSync(
    path.join(home, 'model.onnx.data'),
    'version https://git-lfs.github.com/spec/v1\noid sha256:0\n',
  )
  await t.rejects(readOnnx(file), { code: 'ERR_FORMAT', message: /git lfs pull/ })
  rmSync(path.join(home, 'model.onnx.data'))
  await t.rejects(readOnnx(file), { code: 'ERR_IO', message: /model\.onnx\.data/ })
})

t.test('weights beyond 2 GiB', async t => {
  const home = path.join(folder, 'large')
  mkdirSync(home)
  const bytes = 3 * 2 ** 30
  const handle = await open(path.join(home, 'weights'), 'w')
  await handle.truncate(bytes)
  await handle.write(Buffer.from([1, 2, 3, 4]), 0, 4, bytes - 4)
  await handle.close()
  const external = (offset: number, length: number) =>
    Object.entries({ location: 'weights', offset, length }).map(([key, value]) => ({
      key,
      value: String(value),
    }))
  const tensor = (name: string, offset: number, length: number): Message<'Tensor'> => ({
    name,
    dataType: onnxNumbers.u8,
    dims: [BigInt(length)],
    dataLocation: 1,
    externalData: external(offset, length),
  })
  const initializer = [tensor('all', 0, bytes), tensor('end', bytes - 5, 5)]
  const file = path.join(home, 'model.onnx')
  writeFileSync(file, bytesOf(encodeMessage('Model', { irVersion: 8n, graph: { name: 'g', initializer } })))
  const graph = await readOnnx(file)
  t.equal(graph.initializers.get('all')?.byteLength, bytes, 'nothing is read before it is asked for')
  t.strictSame(graph.initializers.get('end')?.data, new Uint8Array([0, 1, 2, 3, 4]))
  t.throws(() => serializeOnnx(graph), { code: 'ERR_UNSUPPORTED', message: /3221225/ })
})
