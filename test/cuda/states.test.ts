// States of a model on a device: kernels work on them where they are, and plans for sizes that come back are kept.
import t from 'tap'
import { scriptResult } from '../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../fixtures/fake-driver/fake-driver.js'
import { machine } from '../fixtures/machine-log.js'
import { discrete, withoutManaged } from '../fixtures/machines.js'

if (noCudaCalls) {
  t.plan(0, noCudaCalls)
  process.exit()
}
const fakeDriver = new FakeDriver(['cuda'])
t.teardown(() => fakeDriver.dispose())

const size = 100_003

// next = s + sum(x), y = the first element of next.
const head = `
  import { Model, Tensor, UnifiedBuffer } from 'dgx-spark'
  import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
  import { Constant } from '#lib/graph/constant.js'
  const graph = makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['rows']) }, { name: 's', type: tensorType('f32', [${size}]) }],
    outputs: [{ name: 'y' }, { name: 'next' }],
    nodes: [
      makeNode('ReduceSum', ['x'], ['sum']),
      makeNode('Add', ['s', 'sum'], ['next']),
      makeNode('Gather', ['next', 'first'], ['y']),
    ],
    initializers: new Map([['first', Constant.from('i64', [1], BigInt64Array.of(0n))]]),
  })
  const model = await Model.fromGraph(graph, { backend: 'cuda', precision: 'fp32' })
  const states = model.bindState({ s: { output: 'next', axis: null } })
  const run = rows => states.run({ x: Tensor.ones([rows]) })
`

for (const [name, profile, kind] of [
  ['managed', discrete, 'managed'],
  ['pinned', withoutManaged, 'pinned'],
] as const)
  t.test(`a state in ${name} memory is never copied`, async t => {
    const script = `${head}
      for (let i = 0; i < 4; i++) await run(3)
      const { bytes } = UnifiedBuffer.stats()
      const shape = (await states.states()).s.shape
      states.dispose()
      model.dispose()
      console.log(JSON.stringify({ bytes, shape }))`
    const { env, lines } = machine(fakeDriver, profile)
    const { bytes, shape } = (await scriptResult(script, env)) as {
      bytes: Record<string, number>
      shape: number[]
    }
    t.strictSame(shape, [size])
    t.ok(bytes[kind]! >= 4 * size, `${bytes[kind]} bytes of ${kind} memory`)
    const largest = Math.max(...lines('copy').map(line => Number(line.split(' ')[1])))
    t.ok(largest < size, `the largest copy has ${largest} bytes`)
  })

t.test('sizes that come back have their plans still', async t => {
  const script = `${head}
    for (const rows of [2, 3]) for (let i = 0; i < 3; i++) await run(rows)
    const before = UnifiedBuffer.stats().blocks
    console.error('again')
    for (const rows of [2, 3, 2, 3]) await run(rows)
    console.log(UnifiedBuffer.stats().blocks - before)`
  const { env, lines } = machine(fakeDriver, discrete)
  t.equal(await scriptResult(script, env), 0)
  t.equal(lines('instantiate').length, 2, 'a graph for each size')
})

t.test('a state that does not fit on the device is refused with numbers', async t => {
  const script = `${head}
    console.log(JSON.stringify(await run(3).catch(({ code, message }) => [code, message])))`
  const { env } = machine(fakeDriver, { ...discrete, 'memory.free': 4 * size - 1 })
  const [code, message] = (await scriptResult(script, env)) as string[]
  t.equal(code, 'ERR_OUT_OF_MEMORY')
  t.match(message, /400012 bytes do not fit on CUDA device 0, which has \d+ free/)
})
