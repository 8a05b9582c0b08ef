// trainer.ts: training of an adapter's parameters, or of the weights of a model.
import { argumentError } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { graphOf } from '../dora/model/model-source.js'
import type { TrainableAdapter } from '../dora/model/trainable-adapter.js'
import { lockFolder } from '../io/lock.js'
import { openKernels } from '../kernels/open.js'
import { expectTrainingData, type TrainingData } from './dataset.js'
import { createOptimizer, type Optimizer } from './optimizers.js'
import {
  type CheckedOptions,
  checkOptions,
  type TrainableModel,
  type TrainerOptions,
  type TrainingEvent,
} from './options.js'
import { TrainingRun } from './run.js'
import { TrainingStep } from './step.js'
import { TrainableWeights } from './trainable-weights.js'

/**
 * Trains the parameters of an adapter, or with `null` for one the weights of a model; the model itself is not changed. Training is deterministic: the same seed, data and machine
 * produce the same bits.
 *
 * @example
 * const trainer = new Trainer(model, adapter, { loss: 'cross-entropy', epochs: 3, batchSize: 64 })
 * for await (const { step, loss } of trainer.fit(dataset)) console.log(step, loss)
 */
export class Trainer {
  /** The base model of the adapter. */
  readonly model: TrainableModel
  /** What is trained: the adapter, or the weights of the model. */
  readonly adapter: TrainableAdapter
  readonly #options: CheckedOptions
  readonly #optimizer: Optimizer
  #run: TrainingRun | undefined
  #running = false
  #interrupted = false

  /**
   * @param model - the base model of the adapter
   * @param adapter - the adapter to train; null: full fine-tuning of the weights that `options.trainable` names, or of all
   * @throws SparkError ERR_ARGUMENT for a model, adapter or option that is unknown or out of range, or an adapter of
   * another model; ERR_UNSUPPORTED for fp8 and nvfp4, and for a model without float weights
   */
  constructor(model: TrainableModel, adapter: TrainableAdapter | null, options: TrainerOptions) {
    graphOf(model)
    this.#options = checkOptions(options)
    const { trainable } = this.#options
    if (adapter !== null) expectTrainable(model, adapter, trainable)
    this.model = model
    this.adapter = adapter ?? new TrainableWeights(model, trainable)
    this.#optimizer = createOptimizer(this.#options.optimizer)
  }

  /**
   * The weights of the model that are trained.
   * @throws SparkError ERR_ARGUMENT when an adapter is trained instead
   */
  get weights(): TrainableWeights {
    if (this.adapter instanceof TrainableWeights) return this.adapter
    throw new SparkError(
      'ERR_ARGUMENT',
      'the trainer trains an adapter: its weights are those of trainer.adapter',
    )
  }

  /** Completed steps, including those before a resumption. */
  get step(): number {
    return this.#run?.step ?? 0
  }

  /** Path of the newest checkpoint, if any. */
  get lastCheckpoint(): string | undefined {
    return this.#run?.lastCheckpoint
  }

  /** Whether the last training was stopped by its signal. */
  get interrupted(): boolean {
    return this.#interrupted
  }

  /**
   * Trains, and yields an event after each step. The adapter receives the new parameters at each checkpoint and at the end,
   * even if the caller leaves the loop early; after an error it has those of the last checkpoint. When the signal aborts,
   * the current step completes, a checkpoint is written and the loop ends.
   *
   * @throws SparkError ERR_NOT_FINITE when loss or gradients are not finite, naming the step and the last
   * checkpoint; ERR_OUT_OF_MEMORY naming a batch size that fits; ERR_ARGUMENT and ERR_SHAPE for batches that do not fit
   * the model; ERR_UNSUPPORTED for an operator without a gradient; ERR_FORMAT and ERR_IO for checkpoints;
   * ERR_BUSY naming the process that trains into the same folder or writes the same log
   */
  async *fit(data: TrainingData): AsyncGenerator<TrainingEvent, void, undefined> {
    expectTrainingData(data)
    if (this.#running)
      throw new SparkError('ERR_ARGUMENT', 'the trainer is already training: create another one')
    this.#running = true
    try {
      yield* this.#train(data)
    } finally {
      this.#running = false
    }
  }

  async *#train(data: TrainingData): AsyncGenerator<TrainingEvent, void, undefined> {
    const options = this.#options
    const optimizer = this.#optimizer
    const { adapter } = this
    using _folder = options.checkpoint && (await lockFolder(options.checkpoint.folder))
    const { loss, maxNorm, teacher, backend, device, memoryBudget, seed, precision } = options
    const kernels = await openKernels({ device, ...(backend && { backend }) })
    const passes = { adapter, loss, optimizer, maxNorm, memoryBudget, seed, precision }
    using step = new TrainingStep({ ...passes, teacher: teacher?.graph }, kernels)
    const run = new TrainingRun({ adapter, step, optimizer, options, data })
    this.#run = run
    let failed = false
    try {
      await run.resume()
      this.#interrupted = yield* run.events()
    } catch (error) {
      failed = true
      throw error
    } finally {
      try {
        if (!failed) await run.publish()
      } finally {
        await run.close()
      }
    }
  }
}

function expectTrainable(
  model: TrainableModel,
  adapter: TrainableAdapter,
  trainable: readonly string[] | undefined,
): void {
  graphOf(adapter, 'adapter')
  if (!Array.isArray(adapter.parameters)) throw argumentError('adapter', 'an adapter, or null', adapter)
  if (trainable) throw argumentError('options.trainable', 'absent where an adapter is trained', trainable)
  if (adapter.parameters.length === 0) {
    throw new SparkError(
      'ERR_UNSUPPORTED',
      'the adapter has no trainable parameters: create one with createAdapter',
    )
  }
  if (adapter.base === undefined || model === adapter || graphOf(model) === adapter.base) return
  const remedy = 'create or load it for the model that is trained'
  throw new SparkError('ERR_ARGUMENT', `the adapter was made for another model: ${remedy}`)
}
