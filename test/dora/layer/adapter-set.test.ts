// Several adapters on one frozen weight: switching, batches whose rows go through different ones, memory.
import { DoRALinear, type DoRALinearOptions, type Precision, type Tensor } from 'dgx-spark'
import t from 'tap'
import { backends } from '../../fixtures/backends.js'
import { scriptResult } from '../../fixtures/child.js'
import { FakeDriver, noCudaCalls } from '../../fixtures/fake-driver/fake-driver.js'
import { machine } from '../../fixtures/machine-log.js'
import { integrated } from '../../fixtures/machines.js'
import { randomGenerator } from '../../fixtures/values/random.js'
import { randomTensors } from '../../fixtures/values/random-tensors.js'

const [outs, ins] = [17, 48]
const precisions: readonly Precision[] = ['fp32', 'bf16', 'fp8', 'nvfp4']
process.on('warning', () => {}) // nvfp4 is experimental

const random = randomGenerator(9)
const tensor = randomTensors(random)
const linear = { weight: tensor(outs, ins), bias: tensor(outs) }

/** Options of an adapter that is not at its start. */
const trained = (rank: number) => ({
  rank,
  alpha: 7,
  initial: { b: tensor(outs, rank), magnitude: tensor(outs) },
})
const kinds = { default: trained(5), french: trained(3), german: { ...trained(9), rslora: true } }
type Kind = keyof typeof kinds
const names = Object.keys(kinds) as Kind[]

async function sharedLayer(options: DoRALinearOptions = {}): Promise<DoRALinear> {
  const layer = await DoRALinear.fromLinear(linear, { ...kinds.default, ...options })
  for (const name of names.slice(1)) await layer.addAdapter(name, kinds[name])
  return layer
}

const aloneLayer = (name: Kind, options: DoRALinearOptions = {}) =>
  DoRALinear.fromLinear(linear, { ...kinds[name], name, ...options })

for (const backend of backends) {
  t.test(`each adapter computes what it does alone (${backend})`, async t => {
    const [x, dy] = [tensor(3, ins), tensor(3, outs)]
    for (const precision of precisions) {
      using layer = await sharedLayer({ backend, precision, normGradient: 'exact' })
      t.strictSame(layer.adapters, names)
      for (const name of ['german', 'default', 'french', 'german'] as const) {
        using alone = await aloneLayer(name, { backend, precision, normGradient: 'exact' })
        t.equal(layer.setActive(name), layer)
        t.equal(layer.activeAdapter, name)
        for (const key of ['rank', 'alpha', 'rslora', 'scale', 'dropout', 'trainableCount'] as const) {
          t.equal(layer[key], alone[key], key)
        }
        t.strictSame(layer.parameters(), alone.parameters())
        t.strictSame(layer.forwardSync(x, { training: true }), alone.forwardSync(x, { training: true }))
        t.strictSame(layer.backwardSync(dy), alone.backwardSync(dy))
        for (const parameter of layer.parameters()) delete parameter.grad
        await layer.merge()
        await alone.merge()
        t.strictSame(layer.forwardSync(x), alone.forwardSync(x), 'merged')
        await layer.unmerge()
      }
    }
  })

  t.test(`rows go through their own adapters (${backend})`, async t => {
    const rows = ['french', null, 'default', 'german', 'default', null, 'french'] as const
    const x = tensor(rows.length, ins)
    for (const precision of precisions) {
      using layer = await sharedLayer({ backend, precision })
      const bare = await DoRALinear.fromLinear(linear, { backend, precision }) // as the base layer
      const runs = new Map<string | null, Tensor>([[null, bare.forwardSync(x)]])
      for (const name of names) runs.set(name, layer.setActive(name).forwardSync(x))
      const y = await layer.forward(x, { adapters: rows })
      t.strictSame(layer.forwardSync(x, { adapters: rows }), y)
      for (const [row, name] of rows.entries()) {
        const [mixed, own] = [y, runs.get(name)!].map(of =>
          of.toFloat32().subarray(row * outs, (row + 1) * outs),
        )
        if (name === null) t.ok(mixed!.every((value, i) => Math.abs(value - own![i]!) < 1e-5))
        else t.strictSame(mixed, own, `${precision}, row ${row}: ${name}`)
      }
      const shaped = layer.forwardSync(x.reshape([1, rows.length, ins]).to('bf16'), { adapters: rows })
      t.strictSame([shaped.dtype, shaped.shape], ['bf16', [1, rows.length, outs]])
    }
  })

  t.test(`a backward pass belongs to the adapter of its forward pass (${backend})`, async t => {
    using layer = await sharedLayer({ backend })
    using alone = await aloneLayer('french', { backend })
    const [x, dy] = [tensor(3, ins), tensor(3, outs)]
    layer.setActive('french').forwardSync(x, { training: true })
    alone.forwardSync(x, { training: true })
    layer.setActive('german')
    t.strictSame(layer.backwardSync(dy), alone.backwardSync(dy))
    t.notOk(layer.parameters()[0]!.grad, 'the active adapter has no gradient')
    t.strictSame(layer.setActive('french').parameters(), alone.parameters())
    layer.setActive('german').removeAdapter('french')
    t.throws(() => layer.backwardSync(dy), { code: 'ERR_ARGUMENT' }, 'gone with its adapter')
  })
}

t.test('a write to a parameter is seen, whichever adapter is active', async t => {
  using layer = await sharedLayer()
  const x = tensor(2, ins)
  const before = layer.forwardSync(x, { adapters: ['french', 'default'] })
  layer.setActive('french').parameters()[2]!.data[1]! += 1
  const after = layer.setActive('german').forwardSync(x, { adapters: ['french', 'default'] })
  t.notSame(after.toFloat32().subarray(0, outs), before.toFloat32().subarray(0, outs))
  t.same(after.toFloat32().subarray(outs), before.toFloat32().subarray(outs))
})

t.test('the magnitude of a new adapter is the row norm', async t => {
  using layer = await sharedLayer()
  await layer.addAdapter('new', { rank: 2, seed: 4 })
  using alone = await DoRALinear.fromLinear(linear, { rank: 2, seed: 4 })
  t.strictSame(layer.setActive('new').parameters(), alone.parameters())
})

t.test('what does not fit is refused by name', async t => {
  using layer = await sharedLayer()
  const x = tensor(2, ins)
  const wrong = (message: RegExp) => ({ code: 'ERR_ARGUMENT', message })
  await t.rejects(layer.addAdapter('french'), wrong(/already has an adapter 'french'/))
  await t.rejects(layer.addAdapter(''), wrong(/name must be a non-empty string, got ''/))
  await t.rejects(layer.addAdapter('a', { rank: 0 }), wrong(/options.rank/))
  await t.rejects(layer.addAdapter('a', { precision: 'fp8' } as object), wrong(/no option 'precision'/))
  await t.rejects(layer.addAdapter('a', { rank: 4, initial: { b: tensor(outs, 5) } }), { code: 'ERR_SHAPE' })
  t.throws(
    () => layer.setActive('dutch'),
    wrong(/this layer has no adapter 'dutch'; it has: default, french/),
  )
  t.throws(() => layer.removeAdapter('default'), wrong(/'default' is active/))
  t.throws(() => layer.removeAdapter('dutch'), wrong(/no adapter 'dutch'/))
  await t.rejects(layer.forward(x, { adapters: ['french', 'dutch'] }), wrong(/no adapter 'dutch'/))
  await t.rejects(layer.forward(x, { adapters: ['french'] }), {
    code: 'ERR_SHAPE',
    message: /options.adapters has 1 entries, but x has 2 rows/,
  })
  await t.rejects(
    layer.forward(x, { adapters: 'french' as never }),
    wrong(/options.adapters must be an array/),
  )
  await t.rejects(layer.forward(x, { adapters: ['french', null], training: true }), wrong(/inference only/))
  await layer.merge()
  t.equal(layer.setActive('default'), layer, 'what is merged is active')
  t.throws(() => layer.setActive('french'), wrong(/merged: call unmerge\(\) first/))
  await t.rejects(layer.addAdapter('b'), wrong(/unmerge/))
  await t.rejects(layer.forward(x, { adapters: ['french', null] }), wrong(/unmerge/))
  layer.dispose()
  for (const call of [() => layer.setActive('default'), () => layer.removeAdapter('french')]) {
    t.throws(call, { code: 'ERR_DISPOSED' })
  }
  await t.rejects(layer.addAdapter('c'), { code: 'ERR_DISPOSED' })
})

/** Bytes of array buffers and blocks of the addon, before and after 1,000 switches. */
const switches = `
  import { DoRALinear, Tensor } from 'dgx-spark'
  import { loadAddon } from '#lib/native.js'
  const weight = Tensor.from(new Float32Array(64 * 96).fill(0.5), { shape: [64, 96] })
  const layer = await DoRALinear.fromLinear({ weight }, { rank: 8 })
  for (const name of ['a', 'b']) await layer.addAdapter(name, { rank: 8 })
  const x = Tensor.from(new Float32Array(3 * 96).fill(1), { shape: [3, 96] })
  const round = async i => {
    await layer.setActive(['default', 'a', 'b'][i % 3]).forward(x)
    await layer.forward(x, { adapters: ['a', null, 'b'] })
  }
  const used = async () => {
    for (let i = 0; i < 4; ++i) await new Promise(next => setTimeout(next, 5, gc()))
    return [process.memoryUsage().arrayBuffers, loadAddon().addon?.memoryStats().blocks ?? 0]
  }
  for (let i = 0; i < 20; ++i) await round(i)
  const before = await used()
  for (let i = 0; i < 1000; ++i) await round(i)
  console.log(JSON.stringify([before, await used()]))`

t.test('1,000 switches leave memory as it was', async t => {
  const [before, after] = (await scriptResult(switches, {}, ['--expose-gc'])) as [number, number][]
  t.ok(after![0] <= before![0], `array buffers: ${before![0]} bytes, then ${after![0]}`)
  t.equal(after![1], before![1], 'blocks')
})

t.test('1,000 switches on a GPU leave memory as it was', { skip: noCudaCalls }, async t => {
  const fakeDriver = new FakeDriver()
  t.teardown(() => fakeDriver.dispose())
  const { env, lines } = machine(fakeDriver, integrated)
  const settings = { ...env, DGX_SPARK_BACKEND: 'cuda', DGX_SPARK_ENABLED: '1' }
  const [before, after] = (await scriptResult(switches, settings, ['--expose-gc'])) as [number, number][]
  t.ok(after![0] <= before![0], `array buffers: ${before![0]} bytes, then ${after![0]}`)
  t.equal(after![1], before![1], 'blocks')
  const norms = lines('launch dora_norm_f32').length
  t.equal(norms, 6, 'three magnitudes and three gains, each computed once')
})
