// Files, graphs and tensors that are refused; nothing but a SparkError comes out of broken ones.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import t, { type Test } from 'tap'
import { SparkError } from '#lib/core/errors.js'
import { graph as graphAttribute } from '#lib/graph/attributes.js'
import { type Graph, makeGraph, makeNode } from '#lib/graph/graph.js'
import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { inferShapes } from '#lib/graph/shape-inference.js'
import { encodeMessage } from '#lib/io/onnx/encode.js'
import type { Message } from '#lib/io/onnx/messages.js'
import { parseOnnx, readOnnx } from '#lib/io/onnx/read.js'
import { writeOnnx } from '#lib/io/onnx/save.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { modelFile, noModels } from '../fixtures/models/onnx-models.js'
import { bytesOf } from '../fixtures/values/onnx-bytes.js'
import { randomGenerator } from '../fixtures/values/random.js'

const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-onnx-'))
t.teardown(() => rmSync(folder, { recursive: true }))

t.test('external data outside of the folder', async t => {
  const home = path.join(folder, 'outside')
  mkdirSync(home)
  writeFileSync(path.join(folder, 'secret.bin'), Buffer.alloc(4))
  symlinkSync(path.join(folder, 'secret.bin'), path.join(home, 'link.bin'))
  writeFileSync(path.join(home, 'fine.bin'), Buffer.alloc(4))
  const withData = (entries: Record<string, string>, folder = home): string => {
    const externalData = Object.entries(entries).map(([key, value]) => ({ key, value }))
    const initializer = [{ name: 'w', dataType: 1, dims: [1n], dataLocation: 1, externalData }]
    const file = path.join(folder, 'model.onnx')
    writeFileSync(file, bytesOf(encodeMessage('Model', { irVersion: 8n, graph: { name: 'g', initializer } })))
    return file
  }
  const outside = { code: 'ERR_FORMAT', message: /initializer 'w'.*not inside the folder/ }
  for (const location of ['../secret.bin', path.join(folder, 'secret.bin'), 'link.bin', '', '.', 'a\0b']) {
    await t.rejects(readOnnx(withData({ location })), outside, location)
  }
  for (const offset of ['-1', 'x', '1e99', '']) {
    const entries = { location: 'fine.bin', offset }
    await t.rejects(readOnnx(withData(entries)), { code: 'ERR_FORMAT', message: /offset/ }, offset)
  }
  const short = { location: 'fine.bin', length: '3' }
  await t.rejects(readOnnx(withData(short)), { code: 'ERR_FORMAT', message: /length is 3/ })
  symlinkSync('ring', path.join(home, 'ring'))
  for (const location of ['missing.bin', 'ring']) {
    const message = /model\.onnx: initializer 'w': could not read .*(missing\.bin: no such file|ring: )/
    await t.rejects(readOnnx(withData({ location })), { code: 'ERR_IO', message }, location)
  }
  t.equal((await readOnnx(withData({ location: 'fine.bin' }))).initializers.get('w')?.count, 1)

  const repository = path.join(folder, 'models--a--b')
  const snapshot = path.join(repository, 'snapshots', 'c'.repeat(40), 'onnx')
  for (const each of [snapshot, path.join(repository, 'blobs')]) mkdirSync(each, { recursive: true })
  writeFileSync(path.join(repository, 'blobs', 'd'), Buffer.alloc(4))
  symlinkSync('../../../blobs/d', path.join(snapshot, 'd.bin'))
  symlinkSync('../../../../secret.bin', path.join(snapshot, 'link.bin'))
  const inCache = await readOnnx(withData({ location: 'd.bin' }, snapshot))
  t.equal(inCache.initializers.get('w')?.count, 1, 'content of the same repository in the cache of the hub')
  await t.rejects(readOnnx(withData({ location: 'link.bin' }, snapshot)), outside, 'a link that leaves it')
})

const refused = (test: Test, parts: Partial<Graph>, message: RegExp) => {
  const bytes = serializeOnnx(makeGraph({ opsets: new Map([['', 20]]), ...parts }))
  test.throws(() => parseOnnx(bytes), { code: 'ERR_FORMAT', message })
}

t.test('graphs that do not hold together', async t => {
  const x = [{ name: 'x' }]
  const a = [{ name: 'a' }]
  refused(t, { nodes: [makeNode('Relu', ['w'], ['y'])] }, /node 'y' \(Relu\) reads 'w', which is no input/)
  const ring = [makeNode('Add', ['a', 'c'], ['b']), makeNode('Neg', ['b'], ['c'])]
  refused(t, { nodes: ring, inputs: a }, /cycle: .*'b' \(Add\).*'c' \(Neg\)/)
  refused(t, { nodes: [makeNode('Neg', ['y'], ['y'])] }, /cycle/)
  const twice = [makeNode('Neg', ['x'], ['y']), makeNode('Abs', ['x'], ['y'])]
  refused(t, { inputs: x, nodes: twice }, /'y', which is made by/)
  refused(t, { inputs: x, nodes: [makeNode('Neg', ['x'], ['x'])] }, /'x', which is an input/)
  refused(t, { inputs: [...x, ...x] }, /input 'x' occurs twice/)
  refused(t, { inputs: x, outputs: [{ name: 'z' }] }, /output 'z'/)
  const partly = [makeNode('TopK', ['x', 'x'], ['y', ''])]
  refused(
    t,
    { inputs: x, nodes: partly, outputs: [{ name: 'y' }, { name: '' }] },
    /nothing makes the output ''/,
  )
  refused(t, { inputs: x, nodes: [makeNode('', ['x'], ['y'])] }, /names no operator/)
  const branch = makeGraph({ nodes: [makeNode('Neg', ['nowhere'], ['y'])], outputs: [{ name: 'y' }] })
  const choice = makeNode('If', ['x'], ['y'], { attributes: { then_branch: graphAttribute(branch) } })
  refused(t, { inputs: x, nodes: [choice] }, /'nowhere' in a subgraph/)
  const shuffled = [makeNode('Neg', ['b'], ['c']), makeNode('Abs', ['a'], ['b'])]
  const sorted = parseOnnx(serializeOnnx(makeGraph({ inputs: a, nodes: shuffled, outputs: [{ name: 'c' }] })))
  t.strictSame(
    sorted.nodes.map(node => node.op),
    ['Abs', 'Neg'],
    'another order is sorted',
  )
  const count = 20_000
  const nodes = Array.from({ length: count }, (_, i) => makeNode('Neg', [`v${i}`], [`v${i + 1}`])).reverse()
  const long = makeGraph({ inputs: [{ name: 'v0' }], nodes, outputs: [{ name: `v${count}` }] })
  t.equal(parseOnnx(serializeOnnx(long)).nodes[0]?.inputs[0], 'v0')
})

t.test('files that are something else', async t => {
  const file = path.join(folder, 'odd.onnx')
  const refusedFile = async (content: string | Uint8Array, error: { code: string; message: RegExp }) => {
    writeFileSync(file, content)
    await t.rejects(readOnnx(file), error)
  }
  const pointer = 'version https://git-lfs.github.com/spec/v1\n'
  await refusedFile(pointer, { code: 'ERR_FORMAT', message: /git lfs pull/ })
  await refusedFile('', { code: 'ERR_FORMAT', message: /no graph/ })
  await refusedFile('{"a": 1}', { code: 'ERR_FORMAT', message: /odd\.onnx: Model/ })
  const zeros =
    /odd\.onnx: Model cannot be read \(these bytes are no field\): the file is truncated or no ONNX model/
  await refusedFile(new Uint8Array(20), { code: 'ERR_FORMAT', message: zeros })
  const versions = (irVersion: bigint, version: bigint): Uint8Array =>
    bytesOf(
      encodeMessage('Model', { irVersion, graph: { name: 'g' }, opsetImport: [{ domain: '', version }] }),
    )
  await refusedFile(versions(99n, 20n), { code: 'ERR_UNSUPPORTED', message: /IR version 99/ })
  await refusedFile(versions(8n, 29n), { code: 'ERR_UNSUPPORTED', message: /opset 29/ })
  await refusedFile(versions(8n, -5n), { code: 'ERR_FORMAT', message: /opset -5/ })
  t.equal(parseOnnx(versions(13n, 28n)).opsets.get(''), 28)
  await t.rejects(readOnnx(path.join(folder, 'missing.onnx')), { code: 'ERR_IO', message: /no such file/ })
  const web = new URL('https://example.com/a.onnx')
  await t.rejects(readOnnx(web), { code: 'ERR_ARGUMENT', message: /source/ })
  await t.rejects(readOnnx(7 as never), { code: 'ERR_ARGUMENT' })
  const nowhere = path.join(folder, 'no', 'such.onnx')
  await t.rejects(writeOnnx(makeGraph({}), nowhere), { code: 'ERR_IO' })
  const misspelled = { externl: true } as never
  await t.rejects(writeOnnx(makeGraph({}), file, misspelled), { code: 'ERR_ARGUMENT', message: /externl/ })
})

t.test('messages that lie too deep inside each other', async t => {
  let inner: Message<'Graph'> = { name: 'end' }
  for (let i = 0; i < 150; i++) {
    inner = { node: [{ opType: 'If', attribute: [{ name: 'g', type: 5, g: inner }] }] }
  }
  const bytes = bytesOf(encodeMessage('Model', { irVersion: 8n, graph: inner }))
  t.throws(() => parseOnnx(bytes), { code: 'ERR_FORMAT', message: /deeper than 200/ })
})

t.test('what is written can be read, however deep graphs lie inside each other', async t => {
  const leaf = makeGraph({ nodes: [makeNode('Neg', ['x'], ['y'])], outputs: [{ name: 'y' }] })
  const chain = (depth: number): Graph => {
    let graph = leaf
    for (let i = 0; i < depth; i++) {
      const attributes = { then_branch: graphAttribute(graph), else_branch: graphAttribute(leaf) }
      graph = makeGraph({ nodes: [makeNode('If', ['c'], ['y'], { attributes })], outputs: [{ name: 'y' }] })
    }
    const inputs = [{ name: 'x' }, { name: 'c' }]
    return { ...graph, inputs, opsets: new Map([['', 20]]) }
  }
  t.equal(parseOnnx(serializeOnnx(chain(60))).nodes[0]?.op, 'If')
  for (const depth of [61, 10_000]) {
    const message = /node 'y' \(If\): graphs lie inside each other deeper than 60/
    t.throws(() => serializeOnnx(chain(depth)), { code: 'ERR_UNSUPPORTED', message }, `${depth} deep`)
    await t.rejects(writeOnnx(chain(depth), path.join(folder, 'deep.onnx')), { code: 'ERR_UNSUPPORTED' })
  }
})

t.test('a piece of a tensor', async t => {
  const initializer = [
    { name: 'w', dataType: 1, dims: [2n], segment: { begin: 0n, end: 2n }, floatData: [1, 2] },
  ]
  const bytes = bytesOf(encodeMessage('Model', { irVersion: 8n, graph: { name: 'g', initializer } }))
  t.throws(() => parseOnnx(bytes), { code: 'ERR_UNSUPPORTED', message: /initializer 'w' is a piece.*0 to 2/ })
})

t.test('broken files end in a SparkError', { skip: noModels }, async t => {
  const names = ['mnist-8.onnx', 'mnist_float16.onnx']
  const sources = names.map(name => readFileSync(modelFile('mnist', name)))
  const random = randomGenerator(23)
  const below = (limit: number): number => Math.floor(random() * limit)
  const counts = new Map<string, number>()
  for (let i = 0; i < 1500; i++) {
    const bytes = new Uint8Array(sources[i % sources.length]!)
    for (let change = below(4); change >= 0; change--) {
      // Most of a file is weights; names and sizes stand at its ends.
      const at = below(2) ? below(bytes.length) : (below(3000) + bytes.length - 1500) % bytes.length
      bytes[at] = below(2) ? below(256) : bytes[at]! ^ (1 << below(8))
    }
    let result = 'fine'
    try {
      const graph = canonicalise(parseOnnx(below(10) ? bytes : bytes.subarray(0, below(bytes.length))))
      serializeOnnx(inferShapes(graph))
    } catch (error) {
      if (!(error instanceof SparkError)) throw error
      result = error.code
    }
    counts.set(result, (counts.get(result) ?? 0) + 1)
  }
  t.comment([...counts].map(([code, count]) => `${code}: ${count}`).join(', '))
  t.ok(counts.has('ERR_FORMAT') && counts.has('fine'))
})
