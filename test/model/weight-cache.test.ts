// Packed weights on the disk: the same numbers with and without, whatever has happened to the files.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { crc32 } from 'node:zlib'
import t, { type Test } from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { Model } from '#lib/index.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { loadAddon } from '#lib/native.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const skip = loadAddon().addon ? false : 'the addon does not load'

/** y = relu(x · w0) · w1 …, whose weights take `4 · features²` bytes each. */
function products(features: number, layers: number): Graph {
  const names = Array.from({ length: layers }, (_, i) => `w${i}`)
  return makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['n', features]) }],
    outputs: [{ name: `y${layers - 1}` }],
    nodes: names.map((name, i) => makeNode('MatMul', [i === 0 ? 'x' : `y${i - 1}`, name], [`y${i}`])),
    initializers: new Map(
      names.map((name, i) => [
        name,
        Constant.from('f32', [features, features], uniform(randomGenerator(i + 1), features ** 2, -0.1, 0.1)),
      ]),
    ),
    opsets: new Map([['', 21]]),
  })
}

const features = 130
const x = uniform(randomGenerator(9), 3 * features)

/** A model file that nobody has touched for a while, in a folder of its own, and the folder of its cache. */
function files(t: Test, graph = products(features, 3)): { file: string; folder: string } {
  const [file, folder] = [path.join(t.testdir(), 'model.onnx'), path.join(t.testdirName, 'cache')]
  writeFileSync(file, serializeOnnx(graph))
  return { file, folder }
}

/** Runs a model in a process of its own, in which nothing is packed yet; what it gives. */
const runAlone = (file: string, weightCache: unknown, env: Record<string, string> = {}): string =>
  execFileSync(process.execPath, ['--input-type=module', '-e', script(file, weightCache)], {
    encoding: 'utf8',
    env: { ...process.env, ...env },
  })

const script = (file: string, weightCache: unknown): string => `
  import { Model } from 'dgx-spark'
  const model = await Model.load(${JSON.stringify(file)}, { backend: 'cpu', weightCache: ${JSON.stringify(weightCache)} })
  const x = Float32Array.from({ length: 3 * ${features} }, (_, i) => Math.sin(i))
  const outputs = await model.run({ x })
  console.log(Object.values(outputs).map(({ data }) => Buffer.from(data.buffer).toString('hex')).join())
`

const packed = (folder: string): string[] => {
  const inside = path.join(folder, 'packed')
  return existsSync(inside) ? readdirSync(inside).map(name => path.join(inside, name)) : []
}

/** Files count as the same only when their last change is some time ago. */
const settle = (): Promise<void> => sleep(2100)

t.test('later processes read what an earlier one has packed', { skip }, async t => {
  const { file, folder } = files(t)
  await settle()
  const expected = runAlone(file, false)
  t.equal(packed(folder).length, 0)
  t.equal(runAlone(file, { folder }), expected, 'packed and kept')
  t.equal(packed(folder).length, 3)
  for (const kept of packed(folder)) utimesSync(kept, 1, 1)
  t.equal(runAlone(file, { folder }), expected, 'read')
  t.ok(
    packed(folder).every(kept => statSync(kept).mtimeMs > 1e6),
    'each was used',
  )
  t.equal(runAlone(file, undefined, { DGX_SPARK_WEIGHT_CACHE: folder }), expected, 'by the environment')
  for (const kept of packed(folder)) writeFileSync(kept, zeros(readFileSync(kept)))
  t.match(runAlone(file, { folder }), /^(00)+\n$/, 'what is kept is what runs')
  t.equal(runAlone(file, { folder }, { DGX_SPARK_CPU_ISA: 'plain' }).length, expected.length)
  t.equal(packed(folder).length, 6, 'another instruction set has its own')
})

/** A file of the cache with zeros for elements, and their checksum. */
function zeros(content: Buffer): Buffer {
  const other = Buffer.from(content).fill(0, 64)
  other.writeUInt32LE(crc32(other.subarray(64)), 16)
  return other
}

t.test('damaged files are made anew', { skip }, async t => {
  const { file, folder } = files(t)
  await settle()
  const expected = runAlone(file, { folder })
  const sound = new Map(packed(folder).map(kept => [kept, readFileSync(kept)]))
  const flipped = (content: Buffer, at: number): Buffer => {
    const other = Buffer.from(content)
    other[at]! ^= 4
    return other
  }
  const damages: Record<string, (content: Buffer) => Buffer> = {
    truncated: content => content.subarray(0, content.length - 1),
    longer: content => Buffer.concat([content, Buffer.alloc(1)]),
    empty: () => Buffer.alloc(0),
    'a bit of an element': content => flipped(content, content.length - 9),
    'a bit of the header': content => flipped(content, 3),
    'a bit of the checksum': content => flipped(content, 17),
  }
  for (const [name, damage] of Object.entries(damages)) {
    for (const [kept, content] of sound) writeFileSync(kept, damage(content))
    t.equal(runAlone(file, { folder }), expected, name)
    for (const [kept, content] of sound) t.ok(readFileSync(kept).equals(content), 'whole again')
  }
  for (const note of readdirSync(path.join(folder, 'hashes')))
    writeFileSync(path.join(folder, 'hashes', note), 'broken')
  t.equal(runAlone(file, { folder }), expected, 'a damaged hash')
  t.equal(packed(folder).length, 3)
})

t.test('another content is another key', { skip }, async t => {
  const { file, folder } = files(t)
  await settle()
  const first = runAlone(file, { folder })
  const graph = products(features, 3)
  const other = Constant.from('f32', [features, features], uniform(randomGenerator(77), features ** 2))
  const changed = { ...graph, initializers: new Map([...graph.initializers, ['w1', other]]) }
  writeFileSync(file, serializeOnnx(changed))
  const second = runAlone(file, { folder })
  t.not(second, first)
  t.equal(second, runAlone(file, false), 'a file that has just changed')
  await settle()
  t.equal(runAlone(file, { folder }), second)
  t.equal(packed(folder).length, 6, 'names come from the whole file')
})

t.test('processes at once, and processes that are killed', { skip }, async t => {
  const { file, folder } = files(t)
  await settle()
  const expected = runAlone(file, false)
  const start = () =>
    spawn(process.execPath, ['--input-type=module', '-e', script(file, { folder })], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
  const outputs = await Promise.all(
    [start(), start(), start()].map(async child => {
      let text = ''
      child.stdout.setEncoding('utf8').on('data', part => {
        text += part
      })
      await once(child, 'close')
      return text
    }),
  )
  t.same(outputs, [expected, expected, expected])
  t.equal(packed(folder).length, 3, 'no temporary file is left')
  rmSync(folder, { recursive: true })
  for (const wait of [150, 250, 350]) {
    const child = start()
    await sleep(wait)
    child.kill('SIGKILL')
    await once(child, 'close')
  }
  t.equal(runAlone(file, { folder }), expected)
})

t.test('the folder stays below its limit', { skip }, async t => {
  const { file, folder } = files(t)
  mkdirSync(path.join(folder, 'packed'), { recursive: true })
  const abandoned = path.join(folder, 'packed', '.0.tmp')
  writeFileSync(abandoned, 'x')
  utimesSync(abandoned, 1, 1)
  await settle()
  const expected = runAlone(file, { folder, maxBytes: 170_000 })
  t.equal(packed(folder).length, 2, 'two of three, without what a killed writer left')
  t.equal(runAlone(file, { folder, maxBytes: 0 }), expected)
  t.equal(packed(folder).length, 0)
})

t.test('a folder that cannot be written', { skip }, async t => {
  const { file } = files(t)
  await settle()
  const folder = path.join(file, 'inside')
  const expected = await (await Model.load(file, { backend: 'cpu' })).run({ x })
  const warned = once(process, 'warning')
  using model = await Model.load(file, { backend: 'cpu', weightCache: { folder } })
  t.same((await model.run({ x })).y2?.data, expected.y2?.data)
  const [warning] = await warned
  t.match(warning, { code: 'SPARK_WEIGHT_CACHE', message: /are not kept in .*model\.onnx.inside: could not/ })
})

t.test('wrong options', async t => {
  const { file } = files(t)
  const load = (weightCache: unknown) => Model.load(file, { weightCache: weightCache as never })
  for (const [wrong, message] of [
    ['on', /options\.weightCache must be true, false, or \{ folder, maxBytes \}, got 'on'/],
    [{ path: '/x' }, /options\.weightCache.*path/],
    [{ folder: 3 }, /options\.weightCache\.folder/],
    [{ folder: '/x', maxBytes: -1 }, /options\.weightCache\.maxBytes/],
  ] as const)
    await t.rejects(load(wrong), { code: 'ERR_ARGUMENT', message })
})
