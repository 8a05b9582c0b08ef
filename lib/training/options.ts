// options.ts: options and events of a training.
import {
  argumentError,
  expectBoolean,
  expectInteger,
  expectKnownOptions,
  expectNumber,
  expectOneOf,
  expectSignal,
  expectText,
} from '../core/checks.js'
import { type BackendName, type Precision, precisions } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { graphOf, type ModelSource } from '../dora/model/model-source.js'
import type { Graph } from '../graph/graph.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import { isGraph } from '../graph/rewrites/losses/graph-loss.js'
import type { Loss } from '../graph/rewrites/losses.js'
import type { GpuSelector } from '../hardware/cuda-device.js'
import type { OptimizerOptions } from './optimizers.js'
import { expectOwnOptions } from './option-names.js'
import type { ScheduleOptions } from './schedules.js'
import type { GradientExchange } from './shared-gradients.js'

/** A model that can be trained. */
export interface TrainableModel {
  /**
   * In canonical form.
   * @internal
   */
  readonly graph: Graph
}

/** Precisions that training supports. */
export type TrainingPrecision = 'fp32' | 'fp16' | 'bf16'

/** Location and frequency of checkpoints. */
export interface CheckpointOptions {
  /** Created if it does not exist. */
  readonly folder: string
  /** Steps between checkpoints; the last step always has one. Default: 500. */
  readonly every?: number
  /** Number of checkpoints to keep. Default: 2. */
  readonly keep?: number
}

/** Options of {@link Trainer}. */
export interface TrainerOptions {
  /**
   * What training minimizes: a loss of the library, or a model of your own, such as one of `GraphBuilder` or `Model.load`. Its
   * inputs are named like outputs of the model and fields of the batch (`teacher/…`: outputs of the teacher); its one output
   * is one number of f32.
   */
  readonly loss: Loss | ModelSource
  /** Default: adamw. */
  readonly optimizer?: OptimizerOptions
  /** Learning rate schedule. Default: constant. */
  readonly schedule?: ScheduleOptions
  /** Default: 1. */
  readonly epochs?: number
  /** Samples per batch. Default: 32. */
  readonly batchSize?: number
  /** Gradient accumulation: batches per step, using the memory of one. Default: 1. */
  readonly accumulate?: number
  /** Gradient clipping: maximum global norm. Default: no limit. */
  readonly maxNorm?: number
  /**
   * Maximum bytes of intermediate tensors. A step that needs more recomputes as little as possible of the forward pass in
   * the backward pass. Default: no limit.
   */
  readonly memoryBudget?: number
  /**
   * Operands and results of matrix products, convolutions and attention, including weights, are rounded to this precision
   * in both passes. Accumulation, all other operations, the adapter, the loss and the optimizer use f32. On the CPU this simulates
   * 16-bit training and is not faster. In fp16 the loss is scaled dynamically: by 2^16 initially, half of that after a
   * step with gradients that are not finite, which is skipped, and twice as much after 2000 consecutive updates.
   * Default: fp32.
   */
  readonly precision?: TrainingPrecision
  /** Default: no checkpoints. */
  readonly checkpoint?: CheckpointOptions
  /**
   * Path of a checkpoint to resume from, or true for the newest in the checkpoint folder, if any. All settings, the teacher
   * and the number of samples must equal those of the original training; only `epochs` may be larger.
   */
  readonly resume?: string | boolean
  /** Seed of the order of the samples. Default: 0. */
  readonly seed?: number
  /** Whether each epoch reads the samples in a new order. Default: true. */
  readonly shuffle?: boolean
  /** A model whose outputs, for the same inputs, are targets (distillation). */
  readonly teacher?: TrainableModel
  /** Log file with one line of JSON per step. */
  readonly log?: string
  /**
   * With `null` for the adapter: the weights that are trained, by name or by the beginning of it (`encoder` for
   * `encoder.fc.weight`). Default: all weights, biases and scales of layers.
   */
  readonly trainable?: readonly string[]
  /** Stops the training after the current step. */
  readonly signal?: AbortSignal
  /**
   * Ranks that train together, each with the same model, adapter, data and options: of the `accumulate` batches of a step each
   * computes every world-th, and all make the same update. The parameters have the same bits for any number of ranks of one kind
   * of machine, and those of one without `exchange`. Not with `memoryBudget`. Default: this one alone.
   */
  readonly exchange?: GradientExchange
  /** Default: the best available. */
  readonly backend?: BackendName
  /** The GPU to use. Default: the best one. */
  readonly device?: GpuSelector
}

/** The result of one step. */
export interface TrainingEvent {
  /** Number of the step, from 1. */
  readonly step: number
  /** Number of the epoch, from 1. */
  readonly epoch: number
  /** Mean loss of the step's samples, before its update. */
  readonly loss: number
  /** Learning rate of the step. */
  readonly learningRate: number
  /** Global gradient norm before clipping; not finite if the step was skipped. */
  readonly gradientNorm: number
  /** Loss scale, in fp16. */
  readonly lossScale?: number
  /** Set in fp16 when gradients were not finite and nothing was updated. */
  readonly skipped?: true
  /** Throughput, including the time to read the samples. */
  readonly samplesPerSecond: number
  /** Memory use in bytes. */
  readonly memory: {
    /** Intermediate tensors of a step. */
    readonly plan: number
    /** Resident memory of the process. */
    readonly process: number
  }
  /** Steps of the whole training, if known. */
  readonly totalSteps?: number
  /** Path of the checkpoint written after this step. */
  readonly checkpoint?: string
}

/** Options with their defaults. */
export type CheckedOptions = Omit<TrainerOptions, 'loss'> & { readonly loss: Loss | Graph } & Required<
    Pick<
      TrainerOptions,
      | 'optimizer'
      | 'schedule'
      | 'epochs'
      | 'batchSize'
      | 'accumulate'
      | 'maxNorm'
      | 'precision'
      | 'seed'
      | 'shuffle'
    >
  > & { readonly checkpoint?: Required<CheckpointOptions> }

const defaults = {
  optimizer: 'adamw',
  schedule: 'constant',
  epochs: 1,
  batchSize: 32,
  accumulate: 1,
  maxNorm: Number.POSITIVE_INFINITY,
  precision: 'fp32',
  seed: 0,
  shuffle: true,
} as const

const examples = { loss: "'cross-entropy'", optimizer: "'adamw'", schedule: "'cosine'" } as const

/**
 * Checks options and fills in defaults.
 * @throws SparkError ERR_ARGUMENT, ERR_UNSUPPORTED for fp8 and nvfp4
 */
export function checkOptions(options: TrainerOptions): CheckedOptions {
  expectOwnOptions('new Trainer', options)
  const checked = { ...defaults, ...options, loss: checkLoss(options.loss) }
  for (const name of ['loss', 'optimizer', 'schedule'] as const) {
    const value: unknown = checked[name]
    const fits = typeof value === 'string' || (typeof value === 'object' && value !== null)
    if (!fits) throw argumentError(`options.${name}`, `${examples[name]}, or an object`, value)
  }
  for (const name of ['epochs', 'batchSize', 'accumulate'] as const) {
    expectInteger(`options.${name}`, checked[name], 1)
  }
  expectInteger('options.seed', checked.seed, 0, 2 ** 32 - 1)
  if (checked.maxNorm !== Number.POSITIVE_INFINITY) {
    expectNumber('options.maxNorm', checked.maxNorm, 0)
    if (checked.maxNorm === 0) throw argumentError('options.maxNorm', 'above 0: nothing would be learned', 0)
  }
  if (options.memoryBudget !== undefined) expectInteger('options.memoryBudget', options.memoryBudget, 0)
  expectExchange(options)
  expectPrecision(checked.precision)
  expectBoolean('options.shuffle', checked.shuffle)
  expectSignal('options.signal', options.signal)
  if (options.log !== undefined) expectText('options.log', options.log)
  if (options.teacher !== undefined) graphOf(options.teacher, 'options.teacher')
  expectResume(options)
  const { checkpoint, ...rest } = checked
  return checkpoint ? { ...rest, checkpoint: checkCheckpoint(checkpoint) } : rest
}

/** The graph of a model as a loss, in canonical form; all others as they are. */
function checkLoss(loss: Loss | ModelSource): Loss | Graph {
  const isModel = typeof loss === 'object' && loss !== null && ('graph' in loss || isGraph(loss))
  return isModel ? canonicalise(graphOf(loss as ModelSource, 'options.loss')) : (loss as Loss)
}

function expectExchange({ exchange, memoryBudget }: TrainerOptions): void {
  if (exchange === undefined) return
  if (typeof exchange?.allGather !== 'function')
    throw argumentError('options.exchange', 'a communicator, or { rank, world, allGather }', exchange)
  expectInteger('options.exchange.world', exchange.world, 1)
  expectInteger('options.exchange.rank', exchange.rank, 0, exchange.world - 1)
  if (memoryBudget !== undefined)
    throw argumentError('options.memoryBudget', 'absent where ranks train together', memoryBudget)
}

function expectResume({ resume = false, checkpoint }: TrainerOptions): void {
  if (typeof resume !== 'boolean') expectText('options.resume', resume)
  if (resume !== true || checkpoint) return
  const remedy = 'give options.checkpoint.folder, or the path of a checkpoint'
  throw new SparkError('ERR_ARGUMENT', `options.resume: true needs a folder to find the newest in: ${remedy}`)
}

function checkCheckpoint(options: CheckpointOptions): Required<CheckpointOptions> {
  expectKnownOptions('options.checkpoint', options, ['folder', 'every', 'keep'])
  const checked = { every: 500, keep: 2, ...options }
  expectText('options.checkpoint.folder', checked.folder)
  expectInteger('options.checkpoint.every', checked.every, 1)
  expectInteger('options.checkpoint.keep', checked.keep, 1)
  return checked
}

function expectPrecision(precision: Precision): asserts precision is TrainingPrecision {
  expectOneOf('options.precision', precision, precisions)
  if (precision === 'fp32' || precision === 'fp16' || precision === 'bf16') return
  const remedy = 'quantize the model, whose weights are frozen, and train its adapter in fp32 or bf16'
  throw new SparkError('ERR_UNSUPPORTED', `there is no training in ${precision}: ${remedy}`)
}
