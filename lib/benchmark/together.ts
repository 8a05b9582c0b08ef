// together.ts: several models on one clock.
import { setTimeout as sleep } from 'node:timers/promises'
import { Pacer } from '../core/paced.js'
import type { Model } from '../model/model.js'
import { benchmarkFeeds, labelOf, ModelCandidate, openBenchmarkModel } from './candidate.js'
import { describeMachine } from './machine.js'
import { deviationWarnings } from './measure.js'
import { Meter, openInstruments } from './meter.js'
import type { TogetherOptions } from './options.js'
import type { TogetherModel, TogetherResult } from './result.js'
import { latencyOf } from './statistics.js'

/** Times of all frames. */
interface Frames {
  /** Milliseconds by model and frame. */
  readonly times: readonly number[][]
  /** Milliseconds of all models, by frame. */
  readonly combined: number[]
  dropped: number
}

/** {@link benchmarkTogether}, after its checks. */
export async function runTogether(
  models: readonly (string | Model)[],
  options: TogetherOptions,
): Promise<TogetherResult> {
  const { hz = 20, seconds = 10, warmup = 20, seed = 0, signal } = options
  const runs = options.runs ?? Math.max(1, Math.round(seconds * hz))
  const date = new Date().toISOString()
  const before = process.memoryUsage.rss()
  const pacer = new Pacer(signal)
  const candidates: ModelCandidate[] = []
  const instruments = await openInstruments()
  try {
    for (const [i, source] of models.entries()) {
      const opened = await openBenchmarkModel(source, options)
      const label = typeof source === 'string' ? labelOf(source) : `model ${i + 1}`
      candidates.push(new ModelCandidate(label, opened, benchmarkFeeds(opened.model.inputs, {}, seed)))
    }
    const frames: Frames = { times: models.map(() => []), combined: [], dropped: 0 }
    const meter = new Meter(instruments, true)
    for (const candidate of candidates) await candidate.turn(warmup + 1, [], pacer)
    const growth = process.memoryUsage.rss() - before
    try {
      await meter.during(() => runFrames(candidates, frames, runs, 1000 / hz, pacer))
    } catch (error) {
      if (!signal?.aborted || frames.combined.length === 0) throw error
    }
    const machine = await describeMachine()
    const record = { machine, date, seed, warmup, hz, interrupted: signal?.aborted ?? false }
    return { ...record, ...resultOf(candidates, frames, 1000 / hz, meter, growth) }
  } finally {
    await instruments.gpu?.stop()
    for (const candidate of candidates) candidate.dispose()
  }
}

function resultOf(
  candidates: readonly ModelCandidate[],
  { times, combined, dropped }: Frames,
  period: number,
  meter: Meter,
  growth: number,
): Omit<TogetherResult, 'machine' | 'date' | 'seed' | 'warmup' | 'hz' | 'interrupted'> {
  const latency = latencyOf(combined)
  const models = candidates.map(({ name, backend, precision }, i): TogetherModel => {
    const samples = times[i]!
    return { name, backend, precision, ...latencyOf(samples), samples }
  })
  return {
    warnings: [...deviationWarnings(latency).map(text => `all models: ${text}`), ...meter.warnings()],
    frames: combined.length,
    misses: combined.filter(ms => ms > period).length,
    dropped,
    models,
    combined: { ...latency, samples: combined },
    use: meter.use(combined.length, growth),
  }
}

/** Runs frames at the ticks of a clock. */
async function runFrames(
  candidates: readonly ModelCandidate[],
  frames: Frames,
  runs: number,
  period: number,
  pacer: Pacer,
): Promise<void> {
  const begun = performance.now()
  for (let frame = 0, tick = 0; frame < runs; frame++) {
    const wait = begun + tick * period - performance.now()
    if (wait > 0) await sleep(wait, undefined, pacer.signal && { signal: pacer.signal })
    const taken: number[] = []
    for (const { model, feeds } of candidates) {
      const start = performance.now()
      await model.run(feeds)
      taken.push(performance.now() - start)
    }
    for (const [i, ms] of taken.entries()) frames.times[i]!.push(ms)
    frames.combined.push(taken.reduce((sum, ms) => sum + ms, 0))
    const next = Math.max(tick + 1, Math.ceil((performance.now() - begun) / period))
    frames.dropped += next - tick - 1
    tick = next
    await pacer.pause()
  }
}
