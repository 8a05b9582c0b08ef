// trainer.ts: training and evaluation of an adapter's parameters, or of the weights of a model.
import { argumentError } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { graphOf } from '../dora/model/model-source.js'
import type { TrainableAdapter } from '../dora/model/trainable-adapter.js'
import { lockFolder } from '../io/lock.js'
import type { Kernels } from '../kernels/kernels.js'
import { openKernels } from '../kernels/open.js'
import { BatchReader, expectTrainingData, type TrainingData } from './dataset.js'
import type { Evaluation, Evaluator } from './evaluator.js'
import type { NamedMetric } from './metrics.js'
import { createOptimizer, type Optimizer } from './optimizers.js'
import {
  type CheckedOptions,
  checkOptions,
  type TrainableModel,
  type TrainerOptions,
  type TrainingEvent,
} from './options.js'
import type { TrainingRun } from './run.js'
import type { State } from './step.js'
import type { StopReason, TrainingSummary } from './summary.js'
import { TrainableWeights } from './trainable-weights.js'
import {
  type CheckedFitOptions,
  checkEvaluateOptions,
  checkFitOptions,
  type EvaluateOptions,
  type FitOptions,
  Validator,
} from './validation.js'

/**
 * Trains the parameters of an adapter, or with `null` for one the weights of a model; the model itself is not changed.
 * Training is deterministic: the same seed, data and machine produce the same bits.
 *
 * @example
 * const trainer = new Trainer(model, adapter, { loss: 'cross-entropy', epochs: 3, batchSize: 64 })
 * const { steps, finalLoss } = await trainer.fit(dataset, { onStep: ({ step, loss }) => console.log(step, loss) })
 * const { loss, metrics } = await trainer.evaluate(testData, { metrics: ['accuracy'] })
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
   * Trains to the end. The adapter receives the new parameters at each checkpoint and at the end; after an error it has those
   * of the last checkpoint. With validation data it has those of the best validation at the end, unless `keepBest` is false.
   * When the signal aborts, the current step completes, a checkpoint is written and the training ends.
   *
   * @throws SparkError ERR_NOT_FINITE when loss or gradients are not finite, naming the step and the last checkpoint, or the
   * field of the data that has NaN; ERR_OUT_OF_MEMORY naming a batch size that fits; ERR_ARGUMENT and ERR_SHAPE for batches
   * that do not fit the model; ERR_UNSUPPORTED for an operator without a gradient; ERR_FORMAT and ERR_IO for checkpoints;
   * ERR_BUSY naming the process that trains into the same folder or writes the same log
   */
  async fit(data: TrainingData, options: FitOptions = {}): Promise<TrainingSummary> {
    const steps = this.steps(data, options)
    for (;;) {
      const { done, value } = await steps.next()
      if (done) return value
    }
  }

  /**
   * Trains as {@link Trainer.fit} does, and yields an event after each step. Nothing happens until it is iterated. The adapter
   * receives the parameters also if the caller leaves the loop early.
   *
   * @example
   * for await (const { step, loss } of trainer.steps(dataset)) console.log(step, loss)
   *
   * @throws SparkError as {@link Trainer.fit}
   */
  async *steps(
    data: TrainingData,
    options: FitOptions = {},
  ): AsyncGenerator<TrainingEvent, TrainingSummary, undefined> {
    expectTrainingData(data)
    const checked = checkFitOptions(options)
    if (this.#running)
      throw new SparkError('ERR_ARGUMENT', 'the trainer is already training: create another one')
    this.#running = true
    try {
      return yield* this.#train(data, checked)
    } finally {
      this.#running = false
    }
  }

  /**
   * Measures the current parameters, without dropout: those of the step just made when it is called between the steps of a
   * training, else those of the adapter. Nothing is changed.
   *
   * @example
   * const { loss, metrics } = await trainer.evaluate(testData, { metrics: ['accuracy', 'top5'] })
   *
   * @returns mean loss of all samples, metrics by name, and the number of samples
   * @throws SparkError ERR_ARGUMENT and ERR_SHAPE for data or metrics that do not fit the model, ERR_NOT_FINITE for data with
   * NaN or infinities
   */
  async evaluate(data: TrainingData, options: EvaluateOptions = {}): Promise<Evaluation> {
    expectTrainingData(data)
    const { batchSize, metrics } = checkEvaluateOptions(options, this.#options.batchSize)
    using evaluator = await this.#evaluator(metrics)
    const reader = new BatchReader(data, { batchSize, seed: 0, shuffle: false })
    return await evaluator.run(reader.epoch(0), await this.#parameters())
  }

  /**
   * Writes the current parameters to the adapter, or to the weights of the model, between the steps of a training: for data that
   * the model itself makes, as in reinforcement learning. Nothing else is changed.
   *
   * @example
   * async function* batches() {
   *   for (let round = 0; round < 100; round++) {
   *     await trainer.publish()
   *     yield* await play(trainer.weights.graph)
   *   }
   * }
   * await trainer.fit(batches())
   *
   * @throws SparkError ERR_ARGUMENT while a step runs
   */
  async publish(): Promise<void> {
    for (const [name, values] of await this.#parameters()) this.adapter.write(name, values)
  }

  async *#train(
    data: TrainingData,
    { validation, ...callbacks }: CheckedFitOptions,
  ): AsyncGenerator<TrainingEvent, TrainingSummary, undefined> {
    const [{ TrainingStep }, { TrainingRun }] = await Promise.all([import('./step.js'), import('./run.js')])
    const options = this.#options
    const optimizer = this.#optimizer
    const { adapter } = this
    using _folder = options.checkpoint && (await lockFolder(options.checkpoint.folder))
    const kernels = await this.#kernels()
    const { maxNorm, memoryBudget, seed, batchSize, exchange } = options
    using step = new TrainingStep(
      { ...this.#passes, optimizer, maxNorm, memoryBudget, seed, exchange },
      kernels,
    )
    using evaluator = validation && (await this.#evaluator(validation.metrics))
    const validator = validation && new Validator(validation, evaluator!, batchSize)
    const run = new TrainingRun({
      adapter,
      step,
      optimizer,
      options,
      data,
      validator,
      ...callbacks,
    })
    this.#run = run
    let failed = false
    let reason: StopReason
    try {
      await run.resume()
      reason = yield* run.events()
      this.#interrupted = reason === 'signal'
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
    return run.summary(reason)
  }

  get #passes() {
    const { loss, teacher, precision } = this.#options
    return { adapter: this.adapter, loss, teacher: teacher?.graph, precision }
  }

  #kernels(): Promise<Kernels> {
    const { device, backend } = this.#options
    return openKernels({ device, ...(backend && { backend }) })
  }

  async #evaluator(metrics: readonly NamedMetric[]): Promise<Evaluator> {
    const { Evaluator } = await import('./evaluator.js')
    return new Evaluator(this.#passes, metrics, await this.#kernels())
  }

  /** The current parameters. */
  async #parameters(): Promise<State> {
    if (this.#running && this.#run) return this.#run.parameters()
    return new Map(this.adapter.parameters.map(name => [name, this.adapter.read(name)]))
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
