// Generated nets of nets.json: sizes that rows name, and equal outputs of both engines; how rows of sizes are timed.
import { createRequire } from 'node:module'
import t from 'tap'
import { packages } from '../../bench/engines.js'
import { feedBytes, feedsOf, type Size } from '../../bench/feeds.js'
import { measure } from '../../bench/harness.js'
import { buildNet, changing, many, manySizes, nets, openNet, sizesOf, start, zoo } from '../../bench/nets.js'
import { detail, expectSameSums, repeatedTask } from '../../bench/processes.js'
import { expectNear } from '../../bench/rows/models.js'

const small: Record<string, Size> = {
  recogniser: { w: 24 },
  detector: { h: 64, w: 32 },
  'small detector': { h: 32, w: 64, n: 2 },
  'speech encoder': { t: 11 },
  decoder: { past: 3 },
  mlp: { n: 3 },
  cnn: { n: 2 },
  'mobilenet-v2': { h: 33, w: 47, n: 2 },
  'efficientnet-lite0': { h: 32, w: 32 },
  'mobilenet-v3': { h: 47, w: 33 },
  'mobilenet-v3, older export': { h: 32, w: 64 },
  'shufflenet-v2': { h: 64, w: 33, n: 2 },
  'ssd-mobilenet-v2': { h: 64, w: 96 },
  'inception-v2': { h: 47, w: 64 },
  'inception-v4': { h: 95, w: 75 },
  'regnet-y-400mf': { h: 33, w: 64, n: 2 },
  'densenet-121': { h: 32, w: 64 },
  'convnext-tiny': { h: 32, w: 64 },
  'u-net': { h: 16, w: 48 },
  'vit-small': { h: 224, w: 224 },
  'vit-tiny, patches of 32': { h: 256, w: 256, n: 2 },
  'bert-mini': { t: 7, n: 2 },
  minilm: { t: 5 },
  'whisper-tiny encoder': { t: 11 },
  'deep encoder': { n: 2, t: 5 },
}

/** Deeper ones, as whole models are. */
const zooNets = new Set(zoo.map(({ net }) => net))

function isInstalled(name: string): boolean {
  try {
    createRequire(import.meta.url).resolve(name)
    return true
  } catch {
    return false
  }
}
const skip = isInstalled('onnxruntime-node') ? false : 'onnxruntime-node is not installed'

t.test('nets.json names what is there', async t => {
  t.same(Object.keys(small), Object.keys(nets), 'a small size of each net')
  t.throws(() => buildNet('none'), /nets.json has no net 'none'/)
  for (const { row, net, first, sizes } of changing) {
    const all = sizesOf(sizes)
    t.ok(nets[net], net)
    t.ok(all.length >= 20, `${row}: ${all.length} sizes`)
    const different = new Set([first, ...all].map(size => JSON.stringify(size)))
    t.equal(different.size, all.length + 1, `${row}: no size twice`)
    const lengths = new Set(Object.values(sizes).map(list => list.length))
    t.equal(lengths.size, 1, `${row}: a size of each symbol`)
  }
  for (const net of Object.keys(many.nets)) {
    const sizes = manySizes(net)
    t.ok(nets[net], net)
    t.equal(new Set(sizes.map(size => JSON.stringify(size))).size, many.count, net)
    t.same(manySizes(net), sizes, 'the same on every run')
  }
  for (const { net, size } of zoo)
    t.same(Object.keys(size).sort(), Object.keys({ n: 1, ...small[net] }).sort(), net)
  t.ok(start.heavy.every(name => start.models.includes(name)))
})

for (const [net, size] of Object.entries(small)) {
  t.test(`${net}: both engines agree`, { skip }, async t => {
    const { file, inputs, dispose } = await openNet(net)
    t.teardown(dispose)
    t.ok(feedBytes(inputs, size) > 0)
    const outputs = []
    for (const open of Object.values(packages)) {
      const engine = await open()
      const model = await engine.open(file, { threads: 1 })
      outputs.push(await model.run(feedsOf(engine, inputs, size)))
      await model.dispose()
    }
    const [ours, theirs] = outputs
    t.same(Object.keys(ours!).sort(), Object.keys(theirs!).sort())
    for (const [name, { data }] of Object.entries(theirs!))
      expectNear(name, ours![name]?.data, data, zooNets.has(net) ? 1e-4 : 1e-5)
  })
}

t.test('a process tells its times and memory', { skip }, async t => {
  const { file, inputs, dispose } = await openNet('mlp')
  t.teardown(dispose)
  const task = { file, inputs, sizes: [{ n: 1 }, { n: 2 }], marks: [1, 2], options: { threads: 1 } }
  const ours = repeatedTask({ ...task, engine: 'dgx-spark' })
  await ours.run()
  const [result] = ours.results
  t.match(result, { rssMB: [Number, Number] })
  for (const value of [result!.importMs, result!.startMs, result!.runsMs, result!.cpuMs, result!.peakMB])
    t.ok(value > 0)
  const theirs = repeatedTask({ ...task, engine: 'onnxruntime-node' })
  await expectSameSums(ours, theirs)
  t.same([ours.results, theirs.results], [[], []], 'the processes of the check do not count')
  await ours.run()
  const other = repeatedTask({ ...task, sizes: [{ n: 1 }], engine: 'onnxruntime-node' })
  await t.rejects(expectSameSums(ours, other), /should be/)
  t.same(
    detail('ms', [3, 1, 2], [5], time => time),
    { unit: 'ms', ours: 2, peer: 5 },
  )
})

t.test('prepare is not timed, times are those of a call, pairs are as many as they say', async t => {
  const order: string[] = []
  const wait = (ms: number) => new Promise(next => setTimeout(next, ms))
  const side = (name: string) => ({
    name,
    run: () => void order.push(name),
    prepare: async () => {
      order.push(`prepare ${name}`)
      await wait(5)
    },
  })
  const limits = { copyGBs: 10, gemmGFLOPs: 100 }
  const bench = { name: 'a', shape: '', dtype: '', bytes: 8, check: () => {} }
  const row = await measure({ ...bench, ...side('ours'), peer: { ...side('peer'), spins: true } }, limits)
  t.ok(row.medianMs < 5 && row.peerMs! < 5)
  for (const [i, name] of order.entries())
    if (!name.startsWith('prepare')) t.equal(order[i - 1], `prepare ${name}`)
  const many = await measure(
    { ...bench, calls: 10, run: () => wait(20), peer: { name: 'peer', run: () => wait(20) } },
    limits,
  )
  t.ok(many.medianMs > 1.9 && many.peerMs! > 1.9)
  t.ok(many.medianMs < 19, 'of one call, not of ten')
  order.length = 0
  const { prepare: _, ...ours } = side('ours')
  const details = ({ ours, peer }: { ours: number; peer: number }) => ({
    sum: { unit: 'ms' as const, ours: ours + peer, peer: 0 },
  })
  const paired = await measure(
    { ...bench, ...ours, pairs: 3, details, peer: { ...ours, name: 'peer' } },
    limits,
  )
  t.equal(order.length, 7, 'one run for the check, and three pairs')
  t.equal(paired.details?.sum?.ours, paired.medianMs + paired.peerMs!)
})
