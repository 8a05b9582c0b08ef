// open-engine.ts: choice of the engine of a model, and the engine of our own plans.
import type { ActivationType } from '../core/activation-types.js'
import { argumentError, expectInteger, expectOneOf } from '../core/checks.js'
import { getConfig, maxThreads, type Precision } from '../core/config.js'
import type { ElementArray } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { warnOnce } from '../core/log.js'
import { Pacer } from '../core/paced.js'
import type { Graph } from '../graph/graph.js'
import { HardwareInfo } from '../hardware/hardware-info.js'
import type { Kernels } from '../kernels/kernels.js'
import { openKernels } from '../kernels/open.js'
import { rewriteForInference } from '../pipeline.js'
import { loadConstants, packConstants } from '../plan/pack-constants.js'
import type { Plan } from '../plan/plan.js'
import type { StepTime } from '../plan/step-time.js'
import {
  type Engine,
  type EngineOptions,
  type EngineRunOptions,
  type ModelBackendChoice,
  type ModelStats,
  modelBackends,
} from './engine.js'
import { type CompileSettings, GraphRunner } from './graph-runner.js'
import { openOnnxRuntime } from './onnx-runtime.js'
import type { HostTensor, HostValue } from './values.js'
import { WeightCache } from './weight-cache.js'

/**
 * Opens the engine that a model asks for.
 * @param rounding - the mode that the weights of `graph` are rounded in, and what activations are rounded to
 * @throws SparkError as {@link openKernels} and {@link openOnnxRuntime}
 */
export async function openEngine(
  graph: Graph,
  options: EngineOptions,
  { mode, activations }: { readonly mode: Precision; readonly activations: ActivationType },
  pacer: Pacer,
): Promise<Engine> {
  const { backend = getConfig().backend, device, provider, threads, memory = 'fast', weightCache } = options
  const { communicator } = options
  expectOneOf('options.memory', memory, ['fast', 'small'])
  const settings = { mode, activations, memory, store: await WeightCache.open(weightCache) }
  if (threads !== undefined) expectInteger('options.threads', threads, 0, maxThreads)
  expectOneOf('options.backend', backend, modelBackends)
  expectCommunicator(communicator)
  if (communicator && backend === 'onnxruntime')
    throw argumentError('options.communicator', `left out for backend '${backend}'`, communicator)
  if (activations !== 'f32' && backend === 'onnxruntime')
    throw argumentError('options.activations', `left out for backend '${backend}'`, activations)
  if (backend === 'onnxruntime')
    return openOnnxRuntime(graph, provider ?? 'cpu', threads ?? getConfig().threads)
  if (provider !== undefined)
    throw argumentError('options.provider', `left out for backend '${backend}'`, provider)
  const kernels = await openKernels({ backend, device, threads, communicator })
  const source = { settings, pacer }
  if (backend !== 'auto') {
    const asked = options.backend ? 'the option' : 'the configuration'
    return openPlans(graph, source, kernels, `${asked} asks for ${backend}`)
  }
  const { backend: choice } = await HardwareInfo.detect()
  const reason =
    choice.name === kernels.backend ? choice.reason : `${choice.name} did not start on this machine`
  return openPlans(graph, source, kernels, reason, () =>
    openKernels({ backend: 'cpu', threads, communicator }),
  )
}

/** @throws SparkError ERR_ARGUMENT for anything but a communicator; ERR_UNSUPPORTED for one that plans cannot call */
function expectCommunicator(communicator: EngineOptions['communicator']): void {
  if (communicator === undefined) return
  if (!Number.isSafeInteger(communicator?.world) || typeof communicator.abort !== 'function')
    throw argumentError('options.communicator', 'a communicator', communicator)
  if (communicator.native === undefined && communicator.world > 1)
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `options.communicator of ${communicator.world} ranks is called by JavaScript only, and plans need one of the addon, such as local`,
    )
}

/** How plans are compiled, and what activations are rounded to. */
interface EngineSettings extends CompileSettings {
  readonly activations: ActivationType
}

/** Plans on `kernels`, and on those of `fallback` when a GPU lacks an operation. */
async function openPlans(
  graph: Graph,
  { settings, pacer }: { readonly settings: EngineSettings; readonly pacer: Pacer },
  kernels: Kernels,
  reason: string,
  fallback?: () => Promise<Kernels>,
): Promise<PlanEngine> {
  const runner = await runnerFor(graph, kernels, pacer, settings)
  return new PlanEngine({ graph, settings }, runner, kernels, reason, fallback)
}

/** A runner, and what frees the weights that a device has for it. */
interface Runner {
  readonly runner: GraphRunner
  readonly weights?: Disposable
}

async function runnerFor(
  graph: Graph,
  kernels: Kernels,
  pacer: Pacer,
  { activations, ...settings }: EngineSettings,
): Promise<Runner> {
  const opened = await rewriteForInference('open', graph, { activations }, pacer)
  if (kernels.backend === 'cpu') {
    await packConstants(opened, kernels, pacer)
    return { runner: new GraphRunner(opened, kernels, settings) }
  }
  const weights = await loadConstants(opened, kernels, pacer)
  return { runner: new GraphRunner(opened, kernels, settings), weights }
}

class PlanEngine implements Engine {
  readonly holdZeros: Kernels['holdZeros']
  #runner: GraphRunner
  #weights: Disposable | undefined
  #choice: ModelBackendChoice
  readonly #source: { readonly graph: Graph; readonly settings: EngineSettings }
  #fallback: (() => Promise<Kernels>) | undefined

  constructor(
    source: { readonly graph: Graph; readonly settings: EngineSettings },
    { runner, weights }: Runner,
    kernels: Kernels,
    reason: string,
    fallback?: () => Promise<Kernels>,
  ) {
    this.#source = source
    this.#runner = runner
    this.#weights = weights
    this.#choice = { name: kernels.backend, reason }
    this.holdZeros = kernels.holdZeros
    this.#fallback = kernels.backend === 'cuda' ? fallback : undefined
  }

  get choice(): ModelBackendChoice {
    return this.#choice
  }

  get stats(): ModelStats {
    const plans = this.#runner.plans.map(({ stats }) => stats)
    const sum = (read: (stats: (typeof plans)[number]) => number): number =>
      plans.reduce((total, stats) => total + read(stats), 0)
    return {
      plans: plans.length,
      steps: sum(({ steps }) => steps),
      setupSteps: sum(({ setupSteps }) => setupSteps),
      arenaBytes: sum(({ arenaBytes }) => arenaBytes),
      lowerBound: sum(({ lowerBound }) => lowerBound),
      compilations: this.#runner.compilations,
      compileMs: this.#runner.compileMs,
      fusions: Object.fromEntries(this.#runner.fusions),
      constantBytes: distinctBytes(this.#runner.plans.flatMap(({ constants }) => constants)),
    }
  }

  async run(
    inputs: readonly HostValue[],
    { signal, outputs }: EngineRunOptions = {},
  ): Promise<readonly HostValue[]> {
    try {
      return await this.#runner.withOutputs(outputs).run(inputs, new Pacer(signal))
    } catch (error) {
      const fallback = this.#fallback
      if (!fallback || !(error instanceof SparkError) || error.code !== 'ERR_UNSUPPORTED') throw error
      const reason = `the GPU cannot run this model yet: ${error.message}`
      warnOnce('SPARK_CUDA', 'model', `The model runs on the CPU: ${reason}`)
      this.#fallback = undefined
      this.dispose()
      const kernels = await fallback()
      const { graph, settings } = this.#source
      const { runner, weights } = await runnerFor(graph, kernels, new Pacer(signal), settings)
      this.#runner = runner
      this.#weights = weights
      this.#choice = { name: kernels.backend, reason }
      return this.#runner.withOutputs(outputs).run(inputs, new Pacer(signal))
    }
  }

  bind(inputs: readonly HostTensor[], buffers: ReadonlyMap<string, ElementArray>): Promise<Plan> {
    return this.#runner.bind(inputs, buffers)
  }

  deviceMs(): number | null {
    const times = this.#runner.ran.map(plan => plan.deviceMs)
    return times.includes(null) ? null : times.reduce<number>((sum, time) => sum + time!, 0)
  }

  async profile(runs: number): Promise<readonly StepTime[]> {
    const times: StepTime[] = []
    for (const plan of this.#runner.ran) times.push(...(await plan.profile(runs)))
    return times
  }

  trim(): void {
    this.#runner.trim()
  }

  dispose(): void {
    this.#runner.dispose()
    this.#weights?.[Symbol.dispose]()
    this.#weights = undefined
  }
}

/** Bytes of arrays, those at one address counted once. */
function distinctBytes(arrays: readonly ElementArray[]): number {
  const spans = new Map<ArrayBufferLike, Map<number, number>>()
  for (const { buffer, byteOffset, byteLength } of arrays) {
    const sizes = spans.get(buffer) ?? new Map<number, number>()
    spans.set(buffer, sizes.set(byteOffset, byteLength))
  }
  return [...spans.values()].flatMap(sizes => [...sizes.values()]).reduce((sum, bytes) => sum + bytes, 0)
}
