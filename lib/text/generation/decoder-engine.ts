// decoder-engine.ts: a decoder that works on requests: its graph, its cache, and its scheduler.
import type { ActivationType } from '../../core/activation-types.js'
import { expectOneOf } from '../../core/checks.js'
import { elementBytes } from '../../core/dtype.js'
import { SparkError } from '../../core/errors.js'
import type { Graph } from '../../graph/graph.js'
import { roundRows } from '../../graph/rewrites/round-rows.js'
import { HardwareInfo } from '../../hardware/hardware-info.js'
import { machineMemory } from '../../hardware/memory.js'
import { systemRoot } from '../../hardware/system-files.js'
import { type CacheType, cacheTypes } from '../architectures/cache-types.js'
import type { CacheSizes, Decoder, DecoderSizes } from '../architectures/decoder.js'
import { contextOf, engineOptions } from '../engine-options.js'
import type { TextModelOptions } from '../text-options.js'
import { withCacheScales } from './cache-scales.js'
import { type BatchRunner, DecoderRunner } from './decoder-runner.js'
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
  layers.reduce((sum, layer) => sum + layerBytes(layer, type), 0)

/** How the graph of a decoder is made. */
export interface DecoderForm extends Required<CacheSizes> {
  /** What rows are rounded to before they are multiplied by weights. */
  readonly activations: ActivationType
}

/** The machine, or the machines, that a decoder runs on. */
export interface DecoderPlace {
  /** Bytes that are there for keys and values. */
  availableBytes(): Promise<number>
  /** Opens the decoder. @throws SparkError as `Model.fromGraph` */
  open(decoder: Decoder, form: DecoderForm, limits: SchedulerLimits): Promise<BatchRunner>
}

const thisMachine = (options: TextModelOptions): DecoderPlace => ({
  availableBytes: () => availableBytes(options),
  open: (decoder, form) => DecoderRunner.open(cachedGraph(decoder, form), engineOptions(options)),
})

/** @throws SparkError as `decoderGraph` */
function cachedGraph(decoder: Decoder, cache: Required<CacheSizes>): Graph {
  const graph = decoder.graph(cache)
  return cache.cacheType === 'i8' ? withCacheScales(graph) : graph
}

/** The graph of a decoder as stages run it, with what rows are rounded to at its weights. @throws SparkError as `decoderGraph` */
export function engineGraph(decoder: Decoder, { activations, ...cache }: DecoderForm): Graph {
  const graph = cachedGraph(decoder, cache)
  return activations === 'f32' ? graph : roundRows(graph, activations)
}

/** Bytes of keys and values of a token in a layer, and of their scales. */
export function layerBytes({ kvHeads, headSize }: DecoderSizes['layers'][number], type: CacheType): number {
  const scales = type === 'i8' ? elementBytes('f32', 2 * kvHeads) : 0
  return elementBytes(type, 2 * kvHeads * headSize) + scales
}

/** Works on requests of a model. */
export class DecoderEngine {
  readonly sizes: DecoderSizes
  readonly cacheType: CacheType
  readonly limits: SchedulerLimits
  readonly runner: BatchRunner
  readonly scheduler: Scheduler

  private constructor(
    sizes: DecoderSizes,
    cacheType: CacheType,
    limits: SchedulerLimits,
    runner: BatchRunner,
  ) {
    this.sizes = sizes
    this.cacheType = cacheType
    this.limits = limits
    this.runner = runner
    this.scheduler = new Scheduler(
      (batch, outputs) => runner.run(batch, outputs),
      { ...limits, batches: runner.batches },
      () => runner.reset(),
    )
  }

  /**
   * Makes the graph of a model and opens it.
   * @param place - where it runs; without one on this machine
   * @throws SparkError as `decoderGraph` and `Model.fromGraph`; ERR_OUT_OF_MEMORY with numbers for a cache that does not fit
   */
  static async open(
    decoder: Decoder,
    options: TextModelOptions,
    place = thisMachine(options),
  ): Promise<DecoderEngine> {
    const { cacheType = 'f32', activations = 'f32' } = options
    expectOneOf('options.cacheType', cacheType, cacheTypes)
    const limits = limitsOf(decoder.sizes, options, await place.availableBytes())
    const { blocks, blockSize } = limits
    const runner = await place.open(decoder, { blocks, blockSize, cacheType, activations }, limits)
    return new DecoderEngine(decoder.sizes, cacheType, limits, runner)
  }

  /** Frees what can be made again; see `TextModel.trim`. */
  async trim(): Promise<void> {
    await this.scheduler.trim()
    await this.runner.trim()
  }

  /** Ends all requests and frees weights and cache. */
  async close(): Promise<void> {
    await this.scheduler.close()
    await this.runner.dispose()
  }
}

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
