// options.ts: options of benchmarks, and their checks.
import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectNumber,
  expectObject,
  expectOneOf,
  expectSignal,
  expectText,
} from '../core/checks.js'
import { type Precision, precisions } from '../core/config.js'
import { didYouMean } from '../core/did-you-mean.js'
import { SparkError } from '../core/errors.js'
import { type ModelBackend, modelBackends, type RuntimeProvider } from '../model/engine.js'
import type { Feeds } from '../model/feeds.js'
import { Model } from '../model/model.js'

/** The model itself in another precision or engine. */
export interface BenchmarkVariant {
  /** Format of the weights. Default: that of the benchmark. */
  readonly precision?: Precision | 'fp4'
  /** Engine. Default: that of the benchmark. */
  readonly backend?: ModelBackend
}

/** What models of a benchmark run on. */
export interface BenchmarkEngineOptions {
  /** Runs before the timed ones, the first one, which compiles, not counted. Default: 20. */
  readonly warmup?: number
  /** Format of the weights. Default: as `Model.load`. */
  readonly precision?: Precision | 'fp4'
  /** Engine. Default: as `Model.load`. */
  readonly backend?: ModelBackend
  /** Where `onnxruntime`, as the engine, computes. Default: cpu. */
  readonly provider?: RuntimeProvider
  /** Seed of random inputs. Default: 0. */
  readonly seed?: number
  /** Threads of the CPU; 0: one per core. Default: as `Model.load`. */
  readonly threads?: number
  /** Ends it; the result is then what was measured so far. */
  readonly signal?: AbortSignal
}

/** Options of {@link benchmark}. */
export interface BenchmarkOptions extends BenchmarkEngineOptions {
  /** Timed runs. Default: 100. */
  readonly runs?: number
  /** Size of the first dimension of the inputs; a run counts as so many inferences. Default: what the model says, and 1. */
  readonly batch?: number
  /** Inputs by name; the others are random: floats in [-1, 1), integers 0, open sizes 1. */
  readonly feeds?: Feeds
  /**
   * What is measured in turns with the model: `onnxruntime` or `onnxruntime:<provider>` (such as cuda) where onnxruntime-node is
   * installed, `trtexec` where TensorRT is, the path of another .onnx file, or the model in another precision or engine.
   */
  readonly versus?: readonly (string | BenchmarkVariant)[]
}

/** Options of {@link benchmarkTogether}. */
export interface TogetherOptions extends BenchmarkEngineOptions {
  /** Frames of a second. Default: 20, as openpilot's cameras. */
  readonly hz?: number
  /** How long it runs. Default: 10. */
  readonly seconds?: number
  /** Number of frames, instead of seconds. */
  readonly runs?: number
}

/** What a text of `versus` names. */
export type Peer =
  | { readonly kind: 'onnxruntime'; readonly provider: string }
  | { readonly kind: 'trtexec' }
  | { readonly kind: 'file'; readonly file: string }

/**
 * Reads `onnxruntime`, `onnxruntime:cuda`, `trtexec` or the path of an .onnx file.
 * @throws SparkError ERR_ARGUMENT
 */
export function parsePeer(name: string, text: string): Peer {
  const [runtime, provider = 'cpu'] = /^onnxruntime(?::(\w+))?$/.exec(text) ?? []
  if (runtime !== undefined) return { kind: 'onnxruntime', provider }
  if (text === 'trtexec') return { kind: 'trtexec' }
  if (text.endsWith('.onnx')) return { kind: 'file', file: text }
  const kinds = 'onnxruntime[:provider], trtexec or a path that ends in .onnx'
  const { message, code } = argumentError(name, kinds, text)
  throw new SparkError(code, `${message}${didYouMean(text.split(':')[0]!, ['onnxruntime', 'trtexec'])}`)
}

/** Throws ERR_ARGUMENT for a model that is neither a path nor a Model. */
export function expectBenchmarkModel(name: string, value: unknown): void {
  if (value instanceof Model || (typeof value === 'string' && value !== '')) return
  throw argumentError(name, 'the path of an .onnx file, or a Model', value)
}

const engineOptions = ['warmup', 'precision', 'backend', 'provider', 'seed', 'threads', 'signal']

function expectEngine(options: BenchmarkEngineOptions): void {
  const { warmup = 20, seed = 0, signal, threads = 0 } = options
  expectInteger('options.warmup', warmup, 0, 999_999)
  expectInteger('options.seed', seed, 0, 2 ** 32 - 1)
  expectInteger('options.threads', threads, 0)
  expectSignal('options.signal', signal)
  expectVariant('options', options)
}

function expectVariant(name: string, { precision, backend }: BenchmarkVariant): void {
  if (precision !== undefined) expectOneOf(`${name}.precision`, precision, [...precisions, 'fp4'])
  if (backend !== undefined) expectOneOf(`${name}.backend`, backend, modelBackends)
}

/** Checks the options of a benchmark. */
export function expectBenchmarkOptions(options: BenchmarkOptions): void {
  expectKnownOptions('options', options, [...engineOptions, 'runs', 'batch', 'feeds', 'versus'])
  const { runs = 100, batch = 1, feeds = {}, versus = [] } = options
  expectEngine(options)
  expectInteger('options.runs', runs, 1, 999_999)
  expectInteger('options.batch', batch, 1)
  expectObject('options.feeds', 'an object with a value for each input by its name', feeds)
  if (!Array.isArray(versus)) throw argumentError('options.versus', 'an array', versus)
  for (const [i, peer] of versus.entries()) {
    const name = `options.versus[${i}]`
    if (typeof peer === 'string') {
      expectText(name, peer)
      parsePeer(name, peer)
    } else {
      expectKnownOptions(name, peer, ['precision', 'backend'])
      expectVariant(name, peer)
    }
  }
}

/** Checks the options of models that run together. */
export function expectTogetherOptions(options: TogetherOptions): void {
  expectKnownOptions('options', options, [...engineOptions, 'hz', 'seconds', 'runs'])
  const { hz = 20, seconds = 10, runs = 1 } = options
  expectEngine(options)
  expectNumber('options.hz', hz, 0.01, 10_000)
  expectNumber('options.seconds', seconds, 0.001, 86_400)
  expectInteger('options.runs', runs, 1, 9_999_999)
  if (options.seconds !== undefined && options.runs !== undefined)
    throw new SparkError('ERR_ARGUMENT', 'options has seconds and runs: give one of them')
}
