// trtexec as a peer, played by a script.
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { benchmark, compareBenchmarks, Model } from 'dgx-spark'
import t from 'tap'
import { parseSummary } from '#lib/benchmark/trtexec.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { type FakeTrtexec, fakeTrtexec, summary } from '../fixtures/trtexec.js'

const folder = t.testdir({})
const graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', ['rows', 3]) }],
  outputs: [{ name: 'y' }],
  nodes: [makeNode('MatMul', ['x', 'w'], ['y'])],
  initializers: new Map([['w', Constant.f32([1, -1, 2, 0, 0, 3], [3, 2])]]),
})
const file = path.join(folder, 'small.onnx')
const model = await Model.fromGraph(graph, { backend: 'js' })
await model.save(file)
t.teardown(() => model.dispose())

const before = process.env.PATH
t.afterEach(() => {
  process.env.PATH = before
})
/** The result with a fake, and the arguments of its calls. */
async function measured(name: string, fake: FakeTrtexec, precision: 'fp32' | 'fp16' = 'fp32') {
  const programs = path.join(folder, name)
  process.env.PATH = fakeTrtexec(programs, fake)
  const calls = (): string[][] =>
    readFileSync(path.join(programs, 'calls.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map(line => JSON.parse(line))
  const options = {
    runs: 4,
    warmup: 0,
    backend: 'js' as const,
    precision,
    versus: ['trtexec'],
    feeds: {
      x: [
        [1, 2, 3],
        [4, 5, 6],
      ],
    },
  }
  return { result: await benchmark(file, options), calls }
}

t.test('the summary', async t => {
  const { latency, throughput, deviceMs } = parseSummary(summary)
  t.same(latency, { mean: 1.5, std: null, min: 1.25, p50: 1.375, p90: 1.75, p99: 3.25, max: 3.5 })
  t.equal(throughput, 812.5)
  t.equal(deviceMs, 1.125)
  const old = summary
    .replace(', percentile(99%) = 3.25 ms', '')
    .replace('[I] Latency', '[I] End-to-End Host Latency: min = 7 ms\n[11/23/2026-10:00:00] [I] Latency')
    .replace(/.*GPU Compute Time.*\n/, '')
  t.match(parseSummary(old), { latency: { mean: 1.5, p90: 1.75, p99: null }, deviceMs: null })
  for (const text of [
    '',
    'Throughput: 3 qps',
    summary.replace('mean = 1.5 ms', ''),
    summary.replace('812.5', '-'),
  ])
    t.throws(() => parseSummary(text), { code: 'ERR_FORMAT', message: /printed no performance summary/ })
})

t.test('statistics of a program that tells no single times', async t => {
  const { result, calls } = await measured('plain', {}, 'fp16')
  const [peer] = result.peers
  t.match(peer, {
    name: 'trtexec fp16',
    backend: 'trtexec',
    mean: 1.5,
    std: null,
    p90: 1.75,
    throughput: 812.5,
    deviceMs: 1.125,
    runs: 4,
    samples: [],
    firstMs: null,
    outputs: null,
    use: { cpu: null, memory: { rss: null, growth: null } },
  })
  t.equal(compareBenchmarks(result, peer!).latency.interval, null)
  const [build, ...turns] = calls()
  t.same(
    build!.filter(arg => !arg.startsWith('--saveEngine')),
    [`--onnx=${file}`, '--skipInference', '--fp16', '--shapes=x:2x3'],
  )
  t.equal(turns.length, 4, 'a turn for each run')
  for (const args of turns) t.ok(args.includes('--iterations=1'))
  const engine = build!.find(arg => arg.startsWith('--saveEngine='))!.slice('--saveEngine='.length)
  t.notOk(existsSync(path.dirname(engine)), 'the engine is removed')
})

t.test('single times, without those of the warm-up', async t => {
  const { result, calls } = await measured('times', { hasTimes: true })
  const [peer] = result.peers
  t.same(peer!.samples, [1, 1, 1, 1])
  t.match(peer, { name: 'trtexec fp32', mean: 1, std: 0, max: 1, runs: 4, throughput: 812.5 })
  t.notOk(calls()[0]!.includes('--fp16'))
})

t.test('what goes wrong', async t => {
  await t.rejects(measured('fails', { fails: 3 }), {
    code: 'ERR_UNSUPPORTED',
    message: /trtexec failed with 3: .*the fake refuses/,
  })
  await t.rejects(measured('silent', { prints: 'nothing' }), { code: 'ERR_FORMAT' })
  const nothing = path.join(folder, 'nothing')
  process.env.PATH = nothing
  await t.rejects(
    benchmark(file, { runs: 1, backend: 'js', versus: ['trtexec'] }),
    { code: 'ERR_UNSUPPORTED', message: /trtexec is not installed/ },
    existsSync('/usr/src/tensorrt/bin/trtexec') ? { skip: 'TensorRT is installed' } : {},
  )
})
