// trtexec.ts: TensorRT's trtexec as a peer: a program of its own, whose summary is read.
import { spawn } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { SparkError } from '../core/errors.js'
import type { Pacer } from '../core/paced.js'
import type { Candidate, Turn } from './candidate.js'
import type { Latency } from './statistics.js'

/** What trtexec says at its end. */
export interface TrtexecSummary {
  readonly latency: Latency
  /** Queries of a second. */
  readonly throughput: number
  /** Mean of `GPU Compute Time`, milliseconds; null where it is not printed. */
  readonly deviceMs: number | null
}

/** Where packages of TensorRT have it beside the PATH. */
const programs = ['trtexec', '/usr/src/tensorrt/bin/trtexec']

/** Milliseconds for which it runs before it measures. */
const warmupMs = 200

/** Flags of the precisions that need no quantized model. */
const precisionFlags: Readonly<Record<string, string>> = { fp16: '--fp16', bf16: '--bf16' }

/**
 * Reads the performance summary.
 * @throws SparkError ERR_FORMAT when there is none
 */
export function parseSummary(text: string): TrtexecSummary {
  const throughput = Number(/Throughput: ([\d.e+-]+) qps/.exec(text)?.[1])
  // Without `\s` before it, `End-to-End Host Latency` of older versions would match.
  const line = /(?:^|\] )Latency: (.*)$/m.exec(text)?.[1] ?? ''
  const value = (name: string): number | null => {
    const found = new Map(
      Array.from(line.matchAll(/([\w()%.]+) = ([\d.e+-]+) ms/g), ([, key, ms]) => [key, Number(ms)]),
    ).get(name)
    return found !== undefined && Number.isFinite(found) ? found : null
  }
  const [mean, min, p50, max] = ['mean', 'min', 'median', 'max'].map(value)
  if (!Number.isFinite(throughput) || mean == null || min == null || p50 == null || max == null) {
    const end = text.trim().split('\n').slice(-3).join('; ').slice(-300)
    throw new SparkError('ERR_FORMAT', `trtexec printed no performance summary; its last lines are: ${end}`)
  }
  const p90 = value('percentile(90%)')
  const p99 = value('percentile(99%)')
  const device = /GPU Compute Time: .*?mean = ([\d.e+-]+) ms/.exec(text)?.[1]
  return {
    latency: { mean, std: null, min, p50, p90, p99, max },
    throughput,
    deviceMs: device === undefined ? null : Number(device),
  }
}

/** Latencies of a file that `--exportTimes` wrote, runs of the warm-up left out; undefined where there is none. */
async function readTimes(file: string): Promise<number[] | undefined> {
  const text = await readFile(file, 'utf8').catch(() => undefined)
  if (text === undefined) return undefined
  let runs: unknown
  try {
    runs = JSON.parse(text)
  } catch {
    return undefined
  }
  if (!Array.isArray(runs)) return undefined
  const times = runs.filter(run => !(run?.startComputeMs < warmupMs)).map(run => Number(run?.latencyMs))
  return times.length > 0 && times.every(Number.isFinite) ? times : undefined
}

/** A model that trtexec runs on random inputs of its own. */
export class TrtexecCandidate implements Candidate {
  readonly backend = 'trtexec'
  readonly inProcess = false
  readonly inputs = null
  readonly name: string
  readonly precision: string
  readonly #folder: string
  readonly #signal: AbortSignal | undefined
  readonly #build: readonly string[]
  #program = programs[0]!

  private constructor(
    folder: string,
    precision: string,
    build: readonly string[],
    signal: AbortSignal | undefined,
  ) {
    this.#folder = folder
    this.precision = precision
    this.name = `trtexec ${precision}`
    this.#build = build
    this.#signal = signal
  }

  /**
   * Builds the engine of a file.
   * @param shapes - of all inputs, where the model leaves sizes open; otherwise none
   * @throws SparkError ERR_UNSUPPORTED when trtexec is not installed or fails
   */
  static async open(
    file: string,
    precision: string,
    shapes: readonly (readonly [name: string, shape: readonly number[]])[],
    signal: AbortSignal | undefined,
  ): Promise<TrtexecCandidate> {
    const folder = await mkdtemp(path.join(tmpdir(), 'dgx-spark-trtexec-'))
    const flag = precisionFlags[precision]
    const sizes = shapes.map(([name, shape]) => `${name}:${shape.join('x')}`)
    const build = [
      `--onnx=${file}`,
      `--saveEngine=${path.join(folder, 'engine')}`,
      '--skipInference',
      ...(flag ? [flag] : []),
      ...(sizes.length > 0 ? [`--shapes=${sizes.join(',')}`] : []),
    ]
    const candidate = new TrtexecCandidate(folder, flag ? precision : 'fp32', build, signal)
    try {
      await candidate.#find()
    } catch (error) {
      await candidate.dispose()
      throw error
    }
    return candidate
  }

  /** Builds with the first program that exists. */
  async #find(): Promise<void> {
    for (const program of programs) {
      this.#program = program
      if ((await this.#call(this.#build)) !== undefined) return
    }
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `trtexec is not installed: neither the PATH nor ${path.dirname(programs[1]!)} has it; it comes with TensorRT`,
    )
  }

  /** What it prints; undefined when the program is not there. */
  #call(args: readonly string[]): Promise<string | undefined> {
    return new Promise((resolve, reject) => {
      const child = spawn(this.#program, args, { stdio: ['ignore', 'pipe', 'pipe'], signal: this.#signal })
      let text = ''
      const take = (chunk: string): void => {
        text = (text + chunk).slice(-1_000_000)
      }
      child.stdout.setEncoding('utf8').on('data', take)
      child.stderr.setEncoding('utf8').on('data', take)
      child.on('error', (error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') resolve(undefined)
        else reject(this.#signal?.aborted ? this.#signal.reason : error)
      })
      child.on('close', (code, killed) => {
        if (code === 0) return resolve(text)
        const end = text.trim().split('\n').slice(-3).join('; ').slice(-300)
        reject(new SparkError('ERR_UNSUPPORTED', `trtexec failed with ${code ?? killed}: ${end}`))
      })
    })
  }

  async first(): Promise<null> {
    return null
  }

  async turn(runs: number, samples: number[], _pacer: Pacer): Promise<Turn> {
    const times = path.join(this.#folder, 'times.json')
    await rm(times, { force: true })
    const text = await this.#call([
      `--loadEngine=${path.join(this.#folder, 'engine')}`,
      `--iterations=${runs}`,
      '--duration=0',
      `--warmUp=${warmupMs}`,
      '--percentile=90,99',
      `--exportTimes=${times}`,
    ])
    const { latency, throughput, deviceMs } = parseSummary(text ?? '')
    const read = await readTimes(times)
    if (read) samples.push(...read)
    return { runs: read?.length ?? runs, latency, throughput, ...(deviceMs !== null && { deviceMs }) }
  }

  outputs(): null {
    return null
  }

  async dispose(): Promise<void> {
    await rm(this.#folder, { recursive: true, force: true })
  }
}
