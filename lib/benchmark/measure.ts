// measure.ts: measures a model and its peers in turns.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Pacer } from '../core/paced.js'
import { type Feeds, readFeeds } from '../model/feeds.js'
import type { Model } from '../model/model.js'
import {
  benchmarkFeeds,
  type Candidate,
  fedInputs,
  labelOf,
  ModelCandidate,
  openBenchmarkModel,
  sharedFeeds,
  type Turn,
} from './candidate.js'
import { describeMachine } from './machine.js'
import { type Instruments, Meter, openInstruments } from './meter.js'
import { type BenchmarkOptions, type BenchmarkVariant, parsePeer } from './options.js'
import type { BenchmarkMeasurement, BenchmarkResult } from './result.js'
import { type Latency, latencyOf, meanOf } from './statistics.js'

/** Turns of each candidate: enough that a change of the machine's speed meets all of them. */
const maxTurns = 10
/** Share of the mean above which a standard deviation is warned of. */
const maxDeviation = 0.15

/** What is known of a candidate so far. */
interface Running {
  readonly candidate: Candidate
  readonly meter: Meter
  readonly loadMs: number
  readonly growth: number | null
  readonly samples: number[]
  readonly turns: Turn[]
  readonly firstMs: number | null
}

/** {@link benchmark}, after its checks. */
export async function measure(source: string | Model, options: BenchmarkOptions): Promise<BenchmarkResult> {
  const { runs = 100, warmup = 20, batch = 1, seed = 0, signal } = options
  const date = new Date().toISOString()
  const pacer = new Pacer(signal)
  const instruments = await openInstruments()
  const files = new PeerFiles(source, options.batch)
  const running: Running[] = []
  try {
    for await (const each of openAll(source, options, instruments, files)) running.push(each)
    await takeTurns(running, runs, warmup, pacer)
    const [own, ...peers] = measurements(running, batch)
    if (!own) throw signal?.reason
    const { warnings: ownWarnings, ...measured } = own
    return {
      warnings: [...ownWarnings, ...peers.flatMap(({ warnings }) => warnings)],
      ...measured,
      peers,
      machine: await describeMachine(),
      model: typeof source === 'string' ? source : null,
      batch,
      date,
      seed,
      warmup,
      interrupted: signal?.aborted ?? false,
    }
  } finally {
    await instruments.gpu?.stop()
    for (const { candidate } of running) await candidate.dispose()
    await files.dispose()
  }
}

/** Loads what is measured, one after another, so that the memory of each is known. */
async function* openAll(
  source: string | Model,
  options: BenchmarkOptions,
  instruments: Instruments,
  files: PeerFiles,
): AsyncGenerator<Running> {
  const { versus = [], feeds = {}, seed = 0 } = options
  const own = await opening(instruments, async () => {
    const opened = await openBenchmarkModel(source, options)
    return new ModelCandidate('', opened, benchmarkFeeds(opened.model.inputs, feeds, seed))
  })
  yield own
  for (const [i, peer] of versus.entries()) {
    const { candidate } = own
    yield await opening(instruments, () =>
      typeof peer === 'string'
        ? openPeer(parsePeer(`options.versus[${i}]`, peer), candidate, options, files)
        : openVariant(peer, candidate, source, options),
    )
  }
}

async function opening<C extends Candidate>(
  instruments: Instruments,
  open: () => Promise<C>,
): Promise<Running & { readonly candidate: C }> {
  const before = process.memoryUsage.rss()
  const start = performance.now()
  const candidate = await open()
  const loadMs = performance.now() - start
  let firstMs: number | null
  try {
    firstMs = await candidate.first()
  } catch (error) {
    await candidate.dispose()
    throw error
  }
  const growth = candidate.inProcess ? process.memoryUsage.rss() - before : null
  const meter = new Meter(instruments, candidate.inProcess)
  return { candidate, meter, loadMs, firstMs, growth, samples: [], turns: [] }
}

async function openVariant(
  { precision, backend }: BenchmarkVariant,
  { feeds }: ModelCandidate,
  source: string | Model,
  options: BenchmarkOptions,
): Promise<ModelCandidate> {
  const changed = { ...options, ...(precision && { precision }), ...(backend && { backend }) }
  return new ModelCandidate('', await openBenchmarkModel(source, changed), feeds)
}

async function openPeer(
  peer: ReturnType<typeof parsePeer>,
  { model, feeds }: ModelCandidate,
  options: BenchmarkOptions,
  files: PeerFiles,
): Promise<Candidate> {
  const { threads, signal, seed = 0 } = options
  if (peer.kind === 'onnxruntime') {
    const { OnnxRuntimeCandidate } = await import('./onnx-runtime.js')
    const file = await files.path()
    return OnnxRuntimeCandidate.open(file, peer.provider, threads, fedInputs(model.graph, feeds), feeds)
  }
  if (peer.kind === 'trtexec') {
    const { TrtexecCandidate } = await import('./trtexec.js')
    return TrtexecCandidate.open(await files.path(), model.precision, openShapes(model, feeds), signal)
  }
  const opened = await openBenchmarkModel(peer.file, options)
  const shared = sharedFeeds(opened.model.inputs, feeds)
  const inputs = benchmarkFeeds(opened.model.inputs, shared, seed)
  return new ModelCandidate(labelOf(peer.file), opened, inputs)
}

/** Shapes of fed tensors by name, where the model leaves sizes open; otherwise none. */
function openShapes({ graph, inputs }: Model, feeds: Feeds): (readonly [string, readonly number[]])[] {
  const isOpen = inputs.some(({ shape }) => shape?.some(size => typeof size !== 'number') ?? true)
  if (!isOpen) return []
  const values = readFeeds(graph.inputs, feeds)
  return values.flatMap((value, i) =>
    value.kind === 'tensor' ? [[inputs[i]!.name, value.shape] as const] : [],
  )
}

/** The file that other programs read: that of the model, or one with the graph that it has. */
class PeerFiles {
  readonly #source: string | Model
  readonly #batch: number | undefined
  #folder: string | undefined

  constructor(source: string | Model, batch: number | undefined) {
    this.#source = source
    this.#batch = batch
  }

  async path(): Promise<string> {
    if (typeof this.#source === 'string' && this.#batch === undefined) return this.#source
    const folder = this.#folder
    if (folder !== undefined) return path.join(folder, 'model.onnx')
    this.#folder = await mkdtemp(path.join(tmpdir(), 'dgx-spark-benchmark-'))
    const file = path.join(this.#folder, 'model.onnx')
    const { model, isOurs } = await openBenchmarkModel(this.#source, {
      ...(this.#batch !== undefined && { batch: this.#batch, backend: 'js', precision: 'fp32' }),
    })
    await model.save(file)
    if (isOurs) model.dispose()
    return file
  }

  async dispose(): Promise<void> {
    if (this.#folder !== undefined) await rm(this.#folder, { recursive: true, force: true })
  }
}

/** Warms all up, then gives each its turns in a circle. Ends early when the signal of the pacer is aborted. */
async function takeTurns(
  running: readonly Running[],
  runs: number,
  warmup: number,
  pacer: Pacer,
): Promise<void> {
  const count = Math.min(maxTurns, runs)
  const upTo = (turn: number): number => Math.floor((runs * turn) / count)
  try {
    for (const { candidate } of running)
      if (candidate.inProcess && warmup > 0) await candidate.turn(warmup, [], pacer)
    for (let turn = 0; turn < count; turn++) {
      const share = upTo(turn + 1) - upTo(turn)
      for (const { candidate, meter, samples, turns } of running) {
        // Others have used the caches since.
        if (running.length > 1 && candidate.inProcess) await candidate.turn(1, [], pacer)
        turns.push(await meter.during(() => candidate.turn(share, samples, pacer)))
      }
    }
  } catch (error) {
    if (!pacer.signal?.aborted) throw error
  }
}

/** Measurements of those that had a turn. */
function measurements(running: readonly Running[], batch: number): BenchmarkMeasurement[] {
  const names = new Map<string, number>()
  return running.flatMap(each => {
    const { candidate, samples, turns } = each
    const told = turns.flatMap(({ latency }) => latency ?? [])
    if (samples.length === 0 && told.length === 0) return []
    const times = names.get(candidate.name) ?? 0
    names.set(candidate.name, times + 1)
    const name = times === 0 ? candidate.name : `${candidate.name} (${times + 1})`
    return [measurementOf(each, name, batch, samples.length > 0 ? latencyOf(samples) : combined(told))]
  })
}

function measurementOf(
  { candidate, meter, loadMs, firstMs, growth, samples, turns }: Running,
  name: string,
  batch: number,
  latency: Latency,
): BenchmarkMeasurement {
  const told = turns.flatMap(({ throughput }) => throughput ?? [])
  const device = turns.flatMap(({ deviceMs }) => deviceMs ?? [])
  const runs = samples.length > 0 ? samples.length : turns.reduce((sum, turn) => sum + turn.runs, 0)
  return {
    warnings: [...deviationWarnings(latency), ...meter.warnings()].map(text => `${name}: ${text}`),
    name,
    backend: candidate.backend,
    precision: candidate.precision,
    ...latency,
    throughput: batch * (told.length > 0 ? meanOf(told) : 1000 / latency.mean),
    samples,
    runs,
    loadMs,
    firstMs,
    deviceMs: device.length > 0 ? meanOf(device) : null,
    use: meter.use(runs * batch, growth),
    outputs: candidate.outputs(),
    inputs: candidate.inputs,
  }
}

/** Latency over turns of one length of which only the statistics are known: quantiles are means of those of the turns. */
function combined(turns: readonly Latency[]): Latency {
  const mean = (of: (turn: Latency) => number | null): number | null => {
    const values = turns.flatMap(turn => of(turn) ?? [])
    return values.length === turns.length ? meanOf(values) : null
  }
  return {
    mean: meanOf(turns.map(turn => turn.mean)),
    std: null,
    min: Math.min(...turns.map(({ min }) => min)),
    p50: meanOf(turns.map(({ p50 }) => p50)),
    p90: mean(({ p90 }) => p90),
    p99: mean(({ p99 }) => p99),
    max: Math.max(...turns.map(({ max }) => max)),
  }
}

/** A warning of times that differ much from each other. */
export function deviationWarnings({ mean, std }: Latency): string[] {
  if (std === null || !(std > maxDeviation * mean)) return []
  const share = `${((100 * std) / mean).toFixed(0)} % of the mean`
  return [`times differ much: the standard deviation is ${share}; other programs may use the machine`]
}
