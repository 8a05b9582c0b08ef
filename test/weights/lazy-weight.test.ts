// Weights in files: what is read of them, when, and how they are packed.
import { mkdtempSync, rmSync, truncateSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { readGguf, writeGguf } from 'dgx-spark'
import t from 'tap'
import { Pacer } from '#lib/core/paced.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { weightConstant } from '#lib/graph/weight-constant.js'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { holdWeight, PanelLoader } from '#lib/kernels/hold-weight.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { loadConstants, packConstants } from '#lib/plan/pack-constants.js'
import { loadGgufWeights } from '#lib/text/files/gguf-weights.js'
import { WeightTensor } from '#lib/text/files/model-tensors.js'
import { bytesOfRows, LazyRows, type LazyWeight } from '#lib/weights/lazy-weight.js'
import { SharedWeight } from '#lib/weights/shared-weight.js'
import type { Weight } from '#lib/weights/weight.js'
import { randomGenerator } from '../fixtures/values/random.js'
import { storedBytes } from '../fixtures/weights/stored-bytes.js'

const cpu = openCpuKernels()
const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-lazy-'))
t.teardown(() => rmSync(folder, { recursive: true }))

/** Random bytes: those of any format. */
function randomRows(format: LazyRows['format'], rows: number, cols: number) {
  const random = randomGenerator(rows + cols)
  const length = bytesOfRows({ format, cols }, rows)
  const stored = storedBytes(Uint8Array.from({ length }, () => random() * 256))
  return { stored, lazy: new LazyRows(format, rows, cols, stored) }
}

const formats = ['f32', 'f16', 'bf16', 'q4_0', 'q6_k', 'mxfp4', 'u4_128'] as const

t.test('panels of weights in files', async t => {
  const loader = new PanelLoader(cpu)
  for (const format of formats)
    for (const rows of [1, 33, 100]) {
      const { lazy } = randomRows(format, rows, 256)
      const { data, ...facts } = await loader.load(lazy)
      const { data: expected, ...others } = await holdWeight(cpu, lazy.read())
      t.strictSame(facts, others)
      t.equal(Buffer.compare(bytesOf(data), bytesOf(expected)), 0, `${format} [${rows}, 256]`)
    }
})

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Buffer =>
  Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength)

t.test('a large weight is read and packed in pieces', async t => {
  const loader = new PanelLoader(cpu)
  const { lazy, stored } = randomRows('q8_0', 1000, 8192)
  const packed = await loader.load(lazy)
  const { count, longest } = stored.reads
  t.equal(count, 3)
  t.ok(longest <= 2 ** 22, `${longest} bytes at a time`)
  t.equal(Buffer.compare(bytesOf(packed.data), bytesOf((await holdWeight(cpu, lazy.read())).data)), 0)
})

t.test('weights below each other', async t => {
  const parts = [randomRows('q4_0', 3, 64), randomRows('q4_0', 40, 64), randomRows('q4_0', 1, 64)] as const
  const all = LazyRows.concat([parts[0].lazy, parts[1].lazy, parts[2].lazy])
  const expected = Buffer.concat(parts.map(({ stored }) => stored.read()))
  t.equal(all.rows, 44)
  t.equal(Buffer.compare(bytesOf(all.read().data), expected), 0)
  t.equal(Buffer.compare(bytesOf((await all.load()).data), expected), 0)
  const row = bytesOfRows(all, 1)
  const middle = new Uint8Array(41 * row)
  await all.loadRows(2, middle)
  t.equal(Buffer.compare(middle, expected.subarray(2 * row, 43 * row)), 0)
  t.throws(() => new LazyRows('q4_0', 3, 64, storedBytes(new Uint8Array(5))), {
    code: 'ERR_SHAPE',
    message: '[3, 64] of q4_0 is not 5 bytes',
  })
})

t.test('weights are read once', t => {
  const { lazy, stored } = randomRows('bf16', 4, 8)
  const shared = new SharedWeight(lazy)
  t.equal(shared.rows, 4)
  t.equal(stored.reads.count, 0)
  t.equal(shared.lazy, lazy)
  t.equal(shared.kept, shared.kept)
  t.equal(shared.lazy, undefined)
  t.equal(stored.reads.count, 1)
  t.end()
})

t.test('a tensor lets its rows go when a backend keeps them as panels', async t => {
  const { lazy } = randomRows('q4_0', 64, 32)
  const rows = lazy.read()
  const tensor = new WeightTensor(rows)
  const { shared } = tensor.constant(false).weight!
  t.equal(tensor.weight, rows)
  shared.keepAs(await holdWeight(cpu, rows))
  t.equal((tensor.weight as Weight).layout, 'panels')
  t.equal(tensor.constant(true).weight!.shared, shared, 'for all constants')
})

t.test('engines read all weights of a graph', async t => {
  const matrix = randomRows('q4_0', 64, 32)
  const table = randomRows('f16', 5, 64)
  const whole: LazyWeight = {
    format: 'f32',
    rows: 5,
    cols: 64,
    read: () => matrix.lazy.read(),
    load: async () => matrix.lazy.load(),
  }
  t.notOk(whole.loadRows)
  const graph = () =>
    makeGraph({
      inputs: [
        { name: 'x', type: tensorType('f32', ['n', 32]) },
        { name: 'ids', type: tensorType('i64', ['n']) },
      ],
      outputs: ['y', 'row'].map(name => ({ name, type: tensorType('f32', ['n', 64]) })),
      initializers: new Map([
        ['w', weightConstant([32, 64], matrix.lazy, { transposed: true })],
        ['table', weightConstant([5, 64], table.lazy, { transposed: false })],
      ]),
      nodes: [makeNode('MatMul', ['x', 'w'], ['y']), makeNode('Gather', ['table', 'ids'], ['row'])],
    })
  const layouts = async (read: (graph: ReturnType<typeof makeGraph>) => Promise<unknown>) => {
    const made = graph()
    await read(made)
    return [...made.initializers.values()].map(({ weight }) => {
      const { shared } = weight!
      return shared.lazy ? 'in its file' : (shared.kept.layout ?? 'rows')
    })
  }
  t.strictSame(await layouts(made => packConstants(made, cpu, new Pacer())), ['panels', 'rows'])
  t.strictSame(await layouts(made => loadConstants(made, jsKernels, new Pacer())), ['rows', 'rows'])
})

t.test('weights of which there is more than memory are refused before they are read', async t => {
  const [rows, cols] = [2 ** 24, 2 ** 20]
  const read = (): never => {
    throw new Error('it is read')
  }
  const weight: LazyWeight = { format: 'nvfp4', rows, cols, read, load: async () => read() }
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', [1, cols]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('MatMul', ['x', 'w'], ['y'])],
    initializers: new Map([['w', weightConstant([cols, rows], weight, { transposed: true })]]),
  })
  const refused = {
    code: 'ERR_OUT_OF_MEMORY',
    message: new RegExp(
      `the weights of the model take ${(rows * cols * 9) / 16} bytes, but only \\d+ are free`,
    ),
  }
  await t.rejects(packConstants(graph, cpu, new Pacer()), refused)
  await t.rejects(loadConstants(graph, jsKernels, new Pacer()), refused)
})

t.test('a file that changes is refused, not read', async t => {
  const file = path.join(folder, 'model.gguf')
  const shape = [64, 256]
  const values = () => new Float32Array(64 * 256).fill(0.5)
  const write = () => writeGguf(file, { tensors: [{ name: 'w', format: 'Q4_0', shape, values }] })
  const open = async () => (await loadGgufWeights(await readGguf(file), new Pacer())).constant('w')
  const pack = (lazy: LazyWeight | undefined) => new PanelLoader(cpu).load(lazy!)
  await write()
  const { weight } = await open()
  t.ok((await pack(weight!.shared.lazy)).data.length > 0)
  truncateSync(file, 5000)
  await t.rejects(pack(weight!.shared.lazy), { code: 'ERR_FORMAT', message: /has changed/ })
  t.throws(() => weight!.shared.kept, { code: 'ERR_FORMAT', message: /has changed/ })

  await write()
  const touched = await open()
  utimesSync(file, 1, 1)
  await t.rejects(pack(touched.weight!.shared.lazy), { code: 'ERR_FORMAT', message: /has changed/ })

  await write()
  const replaced = await open()
  rmSync(file)
  writeFileSync(file, 'something else')
  t.equal((await pack(replaced.weight!.shared.lazy)).rows, 64, 'what was opened is still there')
})
