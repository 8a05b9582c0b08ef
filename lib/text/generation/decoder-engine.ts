// decoder-engine.ts: a decoder that works on requests: its graph, its cache, and its scheduler.
import { expectOneOf } from '../../core/checks.js'
import { elementBytes } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import { roundingRows } from '../../graph/weight-constant.js'
import { HardwareInfo } from '../../hardware/hardware-info.js'
import { machineMemory } from '../../hardware/memory.js'
import { systemRoot } from '../../hardware/system-files.js'
import { type CacheType, cacheTypes } from '../architectures/cache-types.js'
import type { Decoder, DecoderSizes } from '../architectures/decoder.js'
import { contextOf, engineOptions } from '../engine-options.js'
import type { TextModelOptions } from '../text-options.js'
import { withCacheScales } from './cache-scales.js'
import { DecoderRunner } from './decoder-runner.js'
import { Scheduler, type SchedulerLimits } from './scheduler.js'

/** Tokens of a block of the cache: texts share whole blocks of equal beginnings. */
const blockSize = 32

/** Tokens of the cache unless somebody asks for more. */
const usualCacheTokens = 16_384

/** Part of the available memory that the cache takes unless somebody asks for more. */
const cacheShare = 1 / 4

const defaults = { maxSequences: 64, batchTokens: 512 }

/** Bytes of keys and values of a token, and of their scales. */
const bytesPerToken = ({ layers }: DecoderSizes, type: CacheType): number =>
  layers.reduce((sum, { kvHeads, headSize }) => {
    const scales = type === 'i8' ? elementBytes('f32', 2 * kvHeads) : 0
    return sum + elementBytes(type, 2 * kvHeads * headSize) + scales
  }, 0)

/** Works on requests of a model. */
export class DecoderEngine {
  readonly limits: SchedulerLimits
  readonly runner: DecoderRunner
  readonly scheduler: Scheduler

  private constructor(limits: SchedulerLimits, runner: DecoderRunner) {
    this.limits = limits
    this.runner = runner
    this.scheduler = new Scheduler(
      (batch, outputs) => runner.run(batch, outputs),
      limits,
      () => runner.reset(),
    )
  }

  /**
   * Makes the graph of a model and opens it.
   * @throws SparkError as `decoderGraph` and `Model.fromGraph`; ERR_OUT_OF_MEMORY with numbers for a cache that does not fit
   */
  static async open({ sizes, graph }: Decoder, options: TextModelOptions): Promise<DecoderEngine> {
    const { cacheType = 'f32' } = options
    expectOneOf('options.cacheType', cacheType, cacheTypes)
    const limits = limitsOf(sizes, options, await availableBytes(options))
    const plain = graph({ ...limits, cacheType })
    const scaled = cacheType === 'i8' ? withCacheScales(plain) : plain
    const made = options.activations === 'int8' ? withRoundedRows(scaled) : scaled
    const runner = await DecoderRunner.open(made, engineOptions(options))
    return new DecoderEngine(limits, runner)
  }

  /** Ends all requests and frees weights and cache. */
  async close(): Promise<void> {
    await this.scheduler.close()
    this.runner.dispose()
  }
}

/** The graph with products that round rows to bytes where weights are in blocks of integers. */
const withRoundedRows = (graph: Graph): Graph => ({
  ...graph,
  initializers: new Map([...graph.initializers].map(([name, constant]) => [name, roundingRows(constant)])),
})

/** Bytes that are there for the cache, on the machine and on the GPU that the model runs on. */
async function availableBytes({ backend, device, memoryLimit }: TextModelOptions): Promise<number> {
  const free = [memoryLimit ?? Number.POSITIVE_INFINITY, machineMemory(systemRoot()).available]
  if (backend !== undefined && backend !== 'auto' && backend !== 'cuda') return Math.min(...free)
  const { gpus, bestGpu, backend: chosen } = await HardwareInfo.detect()
  if (backend !== 'cuda' && chosen.name !== 'cuda') return Math.min(...free)
  const gpu = device === undefined ? bestGpu : gpus.find(({ uuid }, i) => device === i || device === uuid)
  return Math.min(...free, gpu?.memory?.free ?? Number.POSITIVE_INFINITY)
}

function limitsOf(sizes: DecoderSizes, options: TextModelOptions, available: number): SchedulerLimits {
  const { maxSequences, batchTokens } = { ...defaults, ...options }
  const context = contextOf(sizes, options)
  const perToken = bytesPerToken(sizes, options.cacheType ?? 'f32')
  const affordable = Math.floor((available * cacheShare) / perToken)
  const usual = Math.min(context, usualCacheTokens, Math.max(blockSize, affordable))
  const blocks = Math.ceil((options.cacheTokens ?? usual) / blockSize)
  const bytes = blocks * blockSize * perToken
  if (bytes > available)
    throw new SparkError(
      'ERR_OUT_OF_MEMORY',
      `a cache of ${blocks * blockSize} tokens takes ${bytes} bytes, but ${Math.floor(available)} are available: lower cacheTokens`,
    )
  return {
    blocks,
    blockSize,
    sequences: maxSequences,
    tokens: batchTokens,
    rows: batchTokens,
    context,
    shortLength: sizes.shortLength,
  }
}
