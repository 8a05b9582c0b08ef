// Constants in the memory of a device: filled in pieces, found by kernels without a copy, freed at once. On the fake driver, which
// refuses a launch on addresses that no allocation of the device has.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { scriptHead } from '../fixtures/fake-driver/script-head.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete, integrated } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

const count = 5 * 2 ** 18 + 7
const head = `${scriptHead}
  import { openCudaKernels } from '#lib/kernels/cuda.js'
  import { copyToDevice, readToDevice } from '#lib/kernels/device-memory.js'
  const kernels = await openCudaKernels()
  const memory = kernels.deviceMemory
  const count = ${count}
  const device = () => UnifiedBuffer.stats().bytes.device
  const add = (a, y) => ({ fn: 'add', dtype: 'f32', shape: [y.length], aStrides: [1], bStrides: [1], a, b: y.slice(), y })
`
/** Bytes of copies that are neither those of operands nor those of the first opening, which measures memory. */
const largeCopies = (lines: string[]): number[] =>
  lines.map(line => Number(line.split(' ')[1])).filter(bytes => bytes > 4000 && bytes < 2 ** 22)

for (const [name, profile] of Object.entries({ integrated, discrete }))
  t.test(`an array is filled in pieces, and kernels find it: ${name}`, async t => {
    const script = `${head}
      const pieces = []
      const target = await readToDevice(memory, { dtype: 'f32', count, unit: 4 }, async (at, bytes) => {
        pieces.push([at, bytes.length])
        bytes.fill(1)
      })
      const y = new Float32Array(1000)
      await kernels.run('binary', add(target.array.subarray(5, 1005), y))
      const plan = kernels.prepare([{ op: 'binary', args: add(target.array.subarray(count - 1000), y) }])
      await plan.run()
      await plan.run()
      plan.dispose()
      print({ pieces, sum: target.array.reduce((sum, each) => sum + each, 0), length: target.array.length })`
    const { env, lines } = machine(fakeDriver, {
      ...profile,
      delay: { cuMemAllocManaged: 50, cuMemHostAlloc: 50 },
    })
    const piece = 2 ** 21
    const last = 4 * count - 2 * piece
    t.strictSame(await scriptResult(script, env), {
      pieces: [
        [0, piece],
        [piece, piece],
        [2 * piece, last],
      ],
      sum: 0,
      length: count,
    })
    t.strictSame(largeCopies(lines('copy')), [piece, piece, last], 'nothing else of the array is copied')
  })

t.test('memory goes at once: with its owner, and when it cannot be filled', async t => {
  const script = `${head}
    const before = device()
    const seen = []
    const made = await copyToDevice(memory, 'f32', new Float32Array(count))
    seen.push(device() - before)
    made.dispose()
    seen.push(device() - before, made.array.length)
    seen.push(await attempt(() => made.fill(0, new Uint8Array(4))))
    const broken = () => readToDevice(memory, { dtype: 'f32', count }, async () => { throw new RangeError('gone') })
    seen.push(await broken().catch(({ message }) => message), device() - before)
    const small = await memory.allocate('u8', 5)
    seen.push(await attempt(() => small.fill(8, new Uint8Array(1))))
    const none = await memory.allocate('u8', 0)
    await none.fill(0, new Uint8Array(0))
    seen.push(none.array.length)
    print(seen)`
  const { env } = machine(fakeDriver, discrete)
  const [bytes, after, length, filled, gone, left, beyond, none] = (await scriptResult(
    script,
    env,
  )) as unknown[]
  t.strictSame([bytes, after, length, gone, left, none], [4 * count, 0, 0, 'gone', 0, 0])
  t.match(filled, ['ERR_DISPOSED', /disposed/])
  t.match(beyond, ['ERR_RANGE', /1 bytes at offset 8 do not lie in a buffer of 8/])
})

t.test('an upload that fails is an error, and its memory is free', async t => {
  const script = `${head}
    const before = device()
    print([await attempt(() => copyToDevice(memory, 'f32', new Float32Array(count))), device() - before])`
  const { env } = machine(fakeDriver, { ...discrete, 'fail.cuMemcpyAsync': 1, 'fail.cuMemcpyAsync.times': 1 })
  const [failed, left] = (await scriptResult(script, env)) as [string[], number]
  t.match(failed, ['ERR_CUDA', /copying weights failed/])
  t.equal(left, 0)
})

t.test('arrays and weights that do not fit are refused with numbers', async t => {
  const script = `${head}
    import { Pacer } from '#lib/core/paced.js'
    import { makeGraph } from '#lib/graph/graph.js'
    import { weightConstant } from '#lib/graph/weight-constant.js'
    import { loadConstants } from '#lib/plan/pack-constants.js'
    const read = () => { throw new Error('it is read') }
    const lazy = { format: 'bf16', rows: 2 ** 12, cols: 2 ** 12, read, load: read }
    const weight = weightConstant([2 ** 12, 2 ** 12], lazy, { transposed: false })
    const graph = makeGraph({ outputs: [], nodes: [], initializers: new Map([['w', weight]]) })
    print([
      await attempt(() => memory.allocate('f32', 2 ** 24)),
      await attempt(() => loadConstants(graph, kernels, new Pacer())),
    ])`
  const { env } = machine(fakeDriver, { ...discrete, memory: { free: 2 ** 24 } })
  const [array, weights] = (await scriptResult(script, env)) as string[][]
  t.match(array, ['ERR_OUT_OF_MEMORY', /^67108864 bytes do not fit on CUDA device 0, which has \d+ free/])
  t.match(weights, [
    'ERR_OUT_OF_MEMORY',
    /^the weights of the model take 33554432 bytes, but only \d+ are free$/,
  ])
})

t.test('a weight stays for as long as a plan reads it, and goes with the last one', async t => {
  const script = `${head}
    import { Pacer } from '#lib/core/paced.js'
    import { int } from '#lib/graph/attributes.js'
    import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
    import { weightConstant } from '#lib/graph/weight-constant.js'
    import { loadConstants } from '#lib/plan/pack-constants.js'
    import { Plan } from '#lib/plan/plan.js'
    const [rows, cols] = [256, 512]
    let reads = 0
    const read = () => {
      reads++
      return { format: 'bf16', rows, cols, data: new Uint16Array(rows * cols) }
    }
    const lazy = { format: 'bf16', rows, cols, read, load: async () => read() }
    const graph = makeGraph({
      inputs: [{ name: 'x', type: tensorType('f32', [3, cols]) }], outputs: [{ name: 'y' }],
      nodes: [makeNode('Gemm', ['x', 'w'], ['y'], { attributes: { transB: int(1) } })],
      initializers: new Map([['w', weightConstant([rows, cols], lazy, { transposed: false })]]),
    })
    const bytes = 2 * rows * cols
    const isThere = () => device() >= bytes
    const [first, second] = [await loadConstants(graph, kernels, new Pacer()), await loadConstants(graph, kernels, new Pacer())]
    const plan = await Plan.create(graph, kernels)
    first[Symbol.dispose]()
    first[Symbol.dispose]()
    second[Symbol.dispose]()
    const seen = [isThere()]
    for (let run = 0; run < 3; ++run) await plan.run({ x: new Float32Array(3 * cols) })
    plan.dispose()
    seen.push(isThere(), reads)
    const { data } = graph.initializers.get('w')
    seen.push(data.length, reads)
    print(seen)`
  const { env } = machine(fakeDriver, discrete)
  t.strictSame(await scriptResult(script, env), [true, false, 1, 256 * 512, 2])
})
