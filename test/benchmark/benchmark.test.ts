// benchmark: statistics of real runs, peers in turns, signals, arguments; a GPU of a fake driver.
import path from 'node:path'
import { type BenchmarkOptions, benchmark, Model, Tensor } from 'dgx-spark'
import t from 'tap'
import { latencyOf } from '#lib/benchmark/statistics.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { loadAddon } from '#lib/native.js'
import { FakeDriver, noCompiler } from '../fixtures/fake-driver/fake-driver.js'
import { FakeRoot, gb10Pci, type Profile, profile, runChild } from '../fixtures/machine.js'

const folder = t.testdir({})
const weight = Constant.f32([1, -1, 2, 0, 0, 3], [3, 2])
const product = (scale: number) =>
  makeGraph({
    inputs: [{ name: 'x', type: tensorType('f32', ['rows', 3]) }],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('MatMul', ['x', 'w'], ['p']), makeNode('Mul', ['p', 's'], ['y'])],
    initializers: new Map([
      ['w', weight],
      ['s', Constant.f32([scale], [1])],
    ]),
  })
const [file, other] = ['small', 'other'].map(name => path.join(folder, `${name}.onnx`)) as [string, string]
const model = await Model.fromGraph(product(1), { backend: 'js' })
await model.save(file)
const doubled = await Model.fromGraph(product(2), { backend: 'js' })
await doubled.save(other)
doubled.dispose()
t.teardown(() => model.dispose())
const js = { backend: 'js', precision: 'fp32', warmup: 2 } as const

t.test('statistics are those of the samples', async t => {
  const result = await benchmark(file, { ...js, runs: 25, seed: 3 })
  const { mean, std, min, p50, p90, p99, max } = result
  t.same({ mean, std, min, p50, p90, p99, max }, latencyOf(result.samples))
  t.equal(result.samples.length, 25)
  t.ok(result.samples.every(ms => ms > 0))
  t.equal(result.throughput, 1000 / mean)
  t.match(result, {
    name: 'js fp32',
    backend: 'js',
    precision: 'fp32',
    model: file,
    runs: 25,
    warmup: 2,
    batch: 1,
    seed: 3,
    interrupted: false,
    peers: [],
    deviceMs: null,
    machine: { node: process.versions.node, version: String, cores: Number },
  })
  t.ok(result.loadMs > 0 && result.firstMs! > 0)
  t.ok(result.use.cpu!.cores >= 0)
  t.ok(result.use.memory.rss! > 1e6 && result.use.memory.available > 0)
  t.ok(Date.parse(result.date) > 1.7e12)
  t.equal(Object.keys(result)[0], 'warnings', 'warnings are first')
  const again = await benchmark(file, { ...js, runs: 1, seed: 3 })
  t.same(again.outputs, result.outputs, 'the same seed')
  t.equal(again.inputs, result.inputs)
  t.not((await benchmark(file, { ...js, runs: 1, seed: 4 })).inputs, result.inputs)
})

t.test('outputs are those of the model', async t => {
  const x = Tensor.of(Float32Array.from([1, 2, 3, 4, 5, 6]), [2, 3], 'f32')
  const { outputs } = await benchmark(file, { ...js, runs: 1, feeds: { x } })
  t.same(outputs, [{ name: 'y', shape: [2, 2], values: [5, 8, 14, 14] }])
  const lists = { x: [[1, 2, 3] as number[], [4, 5, 6]] }
  const listed = await benchmark(file, { ...js, runs: 1, feeds: lists, versus: ['onnxruntime'] })
  t.same(listed.outputs, outputs)
  t.same(listed.peers[0]!.outputs, outputs)
  t.equal(listed.peers[0]!.inputs, listed.inputs)
})

t.test('a batch counts as so many inferences', async t => {
  const result = await benchmark(file, { ...js, runs: 3, batch: 8, versus: ['onnxruntime'] })
  t.same(result.outputs![0]!.shape, [8, 2])
  t.equal(result.throughput, 8 * (1000 / result.mean))
  t.same(result.peers[0]!.outputs![0]!.shape, [8, 2])
})

t.test('peers are measured on the same inputs', async t => {
  const versus = [{ precision: 'bf16' } as const, 'onnxruntime', other, {}]
  const result = await benchmark(file, { ...js, runs: 12, versus })
  t.same(
    result.peers.map(({ name }) => name),
    ['js bf16', 'onnxruntime cpu', 'other js fp32', 'js fp32 (2)'],
  )
  for (const peer of result.peers) {
    t.equal(peer.samples.length, 12, peer.name)
    t.equal(peer.inputs, result.inputs, peer.name)
  }
  const [own, runtime, twice] = [result, result.peers[1]!, result.peers[2]!].map(
    ({ outputs }) => outputs![0]!.values as number[],
  )
  for (const [i, value] of own!.entries()) {
    t.ok(Math.abs(value - runtime![i]!) < 1e-6)
    t.ok(Math.abs(2 * value - twice![i]!) < 1e-6)
  }
})

t.test('a model that is loaded', async t => {
  const result = await benchmark(model, { runs: 2, warmup: 0, versus: ['onnxruntime'] })
  t.match(result, { name: `js ${model.precision}`, model: null, peers: [{ name: 'onnxruntime cpu' }] })
  await model.run({ x: new Float32Array(3) })
  const changed = await benchmark(model, { runs: 2, warmup: 0, backend: 'onnxruntime' })
  t.equal(changed.backend, 'onnxruntime')
})

t.test('a signal ends it with what was measured', async t => {
  const stop = new AbortController()
  const stopped = await Model.fromGraph(product(1), { backend: 'js' })
  const run = stopped.run.bind(stopped)
  let calls = 0
  stopped.run = (...args): Promise<never> => {
    if (++calls === 30) stop.abort()
    return run(...args) as Promise<never>
  }
  const result = await benchmark(stopped, { runs: 900_000, warmup: 2, signal: stop.signal })
  stopped.dispose()
  t.equal(result.interrupted, true)
  t.equal(result.runs, 30 - 3, 'all but the first one and those that warm up')
  t.equal(result.samples.length, 30 - 3)
  const reason = new Error('enough')
  await t.rejects(benchmark(file, { ...js, signal: AbortSignal.abort(reason) }), reason)
})

t.test('wrong arguments', async t => {
  const rejects = (options: object, message: RegExp, source: unknown = file) =>
    t.rejects(benchmark(source as string, options as BenchmarkOptions), { code: 'ERR_ARGUMENT', message })
  await rejects({}, /^model must be the path of an \.onnx file, or a Model, got 7/, 7)
  await rejects({ runs: 0 }, /options\.runs must be an integer in \[1, 999999\], got 0/)
  await rejects({ run: 1 }, /did you mean 'runs'/)
  await rejects({ batch: 0.5 }, /options\.batch/)
  await rejects({ seed: -1 }, /options\.seed/)
  await rejects({ precision: 'fp33' }, /options\.precision .*did you mean 'fp32'/)
  await rejects({ versus: 'trtexec' }, /options\.versus must be an array/)
  await rejects({ versus: ['onnxruntime', 'tensorrt'] }, /options\.versus\[1\] must be onnxruntime/)
  await rejects({ versus: ['trtexek'] }, /did you mean 'trtexec'/)
  await rejects({ versus: [{ backend: 'cpi' }] }, /options\.versus\[0\]\.backend .*did you mean 'cpu'/)
  await rejects({ feeds: { z: new Float32Array(3) } }, /z/)
  await t.rejects(benchmark(file, { ...js, versus: ['onnxruntime:nowhere'] }), { code: 'ERR_UNSUPPORTED' })
  await t.rejects(benchmark(path.join(folder, 'missing.onnx')), { code: 'ERR_IO' })
})

t.test('a GPU and energy counters', { skip: noCompiler || !loadAddon().addon }, async t => {
  const driver = new FakeDriver()
  const root = new FakeRoot({
    pci: [gb10Pci],
    files: {
      'proc/meminfo': 'MemTotal: 127535932 kB\nMemAvailable: 101234567 kB\n',
      'sys/class/powercap/intel-rapl:0/name': 'package-0\n',
      'sys/class/powercap/intel-rapl:0/energy_uj': '5000\n',
      'sys/class/powercap/intel-rapl:0/max_energy_range_uj': '9000\n',
    },
  })
  t.teardown(() => {
    driver.dispose()
    root.dispose()
  })
  const measured = (machine: Profile, code = '') =>
    runChild(
      `import { benchmark } from 'dgx-spark'
       const answer = await benchmark(${JSON.stringify(file)}, { runs: 4000, backend: 'js', precision: 'fp32' })
       ${code}`,
      { ...driver.env(machine), DGX_SPARK_SYSFS_ROOT: root.path },
    )
  const calm = measured(profile('gb10'))
  t.match(calm.machine, { gpu: 'NVIDIA GB10', driver: '580.95.05' })
  t.match(calm.use.gpu, {
    utilization: { mean: 96 },
    power: { min: 41.3, peak: 41.3 },
    smClock: { peak: 2405 },
  })
  t.equal(calm.use.gpu.memoryUsed.peak, 8589934592 + 45088768)
  t.equal(calm.use.memory.available, 101234567 * 1024)
  if (calm.use.energy.why.length === 0) {
    const seconds = (calm.samples as number[]).reduce((sum, ms) => sum + ms, 0) / 1000
    const joules = calm.use.energy.gpu * 4000
    t.ok(joules >= 41.29 * seconds, `41.3 W for at least ${seconds} s are ${joules} J`)
    t.equal(calm.use.energy.cpu, 0, 'the counter stands still')
  } else t.match(calm.use.energy.why, [/it needs timed runs of 100 ms/])
  t.notMatch(calm.warnings.join(), 'throttled')
  const hot = profile('gb10')
  hot.gpus[0]!.eventReasons = 0x20
  const throttled = measured(hot).warnings as string[]
  t.ok(
    throttled.some(text =>
      /^js fp32: the GPU was throttled in \d+ of \d+ samples: software thermal/.test(text),
    ),
    throttled.join('\n'),
  )
})
