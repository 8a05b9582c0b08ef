// options.ts: what a training can be told, and what it tells.
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
import { graphOf } from '../dora/model/model-source.js'
import type { Graph } from '../graph/graph.js'
import type { Loss } from '../graph/rewrites/losses.js'
import type { GpuSelector } from '../hardware/cuda-device.js'
import type { OptimizerOptions } from './optimizers.js'
import type { ScheduleOptions } from './schedules.js'

/** What a trainer needs of a model: its canonical graph. */
export interface TrainableModel {
  /**
   * Its nodes and weights.
   * @internal
   */
  readonly graph: Graph
}

/** Precisions that there is training in. */
export type TrainingPrecision = 'fp32' | 'fp16' | 'bf16'

/** Where and when checkpoints are written. */
export interface CheckpointOptions {
  /** Folder for them; it is made when it is not there. */
  readonly folder: string
  /** Steps between two. Default: 500; there is always one at the end. */
  readonly every?: number
  /** How many are kept. Default: 2. */
  readonly keep?: number
}

/** Options of {@link Trainer}. */
export interface TrainerOptions {
  /** What is minimised. */
  readonly loss: Loss
  /** Default: adamw. */
  readonly optimizer?: OptimizerOptions
  /** How the learning rate changes. Default: constant. */
  readonly schedule?: ScheduleOptions
  /** Times that all samples are seen. Default: 1. */
  readonly epochs?: number
  /** Samples of a batch. Default: 32. */
  readonly batchSize?: number
  /** Batches of a step: gradients are averaged over them, with the memory of one. Default: 1. */
  readonly accumulate?: number
  /** Largest norm of all gradients together; longer ones are scaled. Default: no limit. */
  readonly maxNorm?: number
  /**
   * Bytes for values in between of a step. A step that needs more recomputes parts of the forward pass in the backward
   * pass, as few as possible. Default: no limit.
   */
  readonly memoryBudget?: number
  /**
   * What goes into matrix products and convolutions and comes out of them, weights included, is rounded to this in the
   * forward and in the backward pass. Sums, everything between products, A and B, magnitudes, loss and optimizer are f32;
   * on the CPU that is a way to see what 16 bits do, not to be faster. In fp16 the loss is scaled: by 2^16 at first, by half
   * as much after a step whose gradients are not finite, which is skipped, and by twice as much after 2000 updates in a row.
   * Default: fp32.
   */
  readonly precision?: TrainingPrecision
  /** Default: none are written. */
  readonly checkpoint?: CheckpointOptions
  /**
   * A checkpoint to go on from, or true for the newest of the checkpoint folder, if there is one. All settings, the
   * teacher and the number of samples must be those that the training began with; `epochs` may be more.
   */
  readonly resume?: string | boolean
  /** Seed of the order of the samples. Default: 0. */
  readonly seed?: number
  /** Whether samples are read in a new order in each epoch. Default: true. */
  readonly shuffle?: boolean
  /** A model that runs on the same inputs; its outputs are targets. */
  readonly teacher?: TrainableModel
  /** File that gets a line of JSON for each step. */
  readonly log?: string
  /** Ends the training after the step in progress. */
  readonly signal?: AbortSignal
  /** Engine. Default: the best of this machine. */
  readonly backend?: BackendName
  /** Which GPU. Default: the best one. */
  readonly device?: GpuSelector
}

/** How a step went. */
export interface TrainingEvent {
  /** Number of the step, from 1. */
  readonly step: number
  /** Number of the epoch, from 1. */
  readonly epoch: number
  /** Mean loss of the samples of the step, before its update. */
  readonly loss: number
  /** Learning rate of the step. */
  readonly learningRate: number
  /** Norm of all gradients together, before they were clipped; not finite where the step was skipped. */
  readonly gradientNorm: number
  /** Factor of the loss, in fp16. */
  readonly lossScale?: number
  /** In fp16: gradients were not finite, and nothing was updated. */
  readonly skipped?: true
  /** Samples of the step by its duration, reading them included. */
  readonly samplesPerSecond: number
  /** Bytes. */
  readonly memory: {
    /** Values in between of a step. */
    readonly plan: number
    /** Resident memory of the process. */
    readonly process: number
  }
  /** Steps in all, where they are known. */
  readonly totalSteps?: number
  /** Path of the checkpoint that was written after the step. */
  readonly checkpoint?: string
}

/** Options with their defaults. */
export type CheckedOptions = TrainerOptions &
  Required<
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

const known = [
  ...[
    'loss',
    'optimizer',
    'schedule',
    'epochs',
    'batchSize',
    'accumulate',
    'maxNorm',
    'precision',
    'checkpoint',
  ],
  ...['memoryBudget', 'resume', 'seed', 'shuffle', 'teacher', 'log', 'signal', 'backend', 'device'],
]

const examples = { loss: "'cross-entropy'", optimizer: "'adamw'", schedule: "'cosine'" } as const

/**
 * Checks options and fills in defaults.
 * @throws SparkError ERR_ARGUMENT, ERR_UNSUPPORTED for fp8 and nvfp4
 */
export function checkOptions(options: TrainerOptions): CheckedOptions {
  expectKnownOptions('options', options, known)
  const checked = {
    ...({ optimizer: 'adamw', schedule: 'constant', epochs: 1, batchSize: 32, accumulate: 1 } as const),
    ...({ maxNorm: Number.POSITIVE_INFINITY, precision: 'fp32', seed: 0, shuffle: true } as const),
    ...options,
  }
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
  expectPrecision(checked.precision)
  expectBoolean('options.shuffle', checked.shuffle)
  expectSignal('options.signal', options.signal)
  if (options.log !== undefined) expectText('options.log', options.log)
  if (options.teacher !== undefined) graphOf(options.teacher, 'options.teacher')
  expectResume(options)
  const { checkpoint, ...rest } = checked
  return checkpoint ? { ...rest, checkpoint: checkCheckpoint(checkpoint) } : rest
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
