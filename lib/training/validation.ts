// validation.ts: validation in a training: when, on what, and what follows from it.
import {
  argumentError,
  expectBoolean,
  expectInteger,
  expectKnownOptions,
  expectNumber,
  expectOneOf,
  expectText,
} from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { BatchReader, expectTrainingData, type TrainingData } from './dataset.js'
import type { Evaluation, Evaluator } from './evaluator.js'
import { checkMetrics, isLargerBetter, type Metrics, type NamedMetric } from './metrics.js'
import { expectOwnOptions, validationOptions } from './option-names.js'
import type { TrainingEvent } from './options.js'
import type { State } from './step.js'

/** The evaluation of the validation data after a step. */
export interface Validation extends Evaluation {
  /** The step that it followed, from 1. */
  readonly step: number
  /** The epoch of that step, from 1. */
  readonly epoch: number
  /** Whether it was the best so far. */
  readonly best: boolean
}

/** Options of {@link Trainer.evaluate}. */
export interface EvaluateOptions {
  /** Default: the loss only. */
  readonly metrics?: Metrics
  /** Samples per batch; results do not depend on it. Default: that of the trainer. */
  readonly batchSize?: number
}

/** Options of {@link Trainer.fit} and {@link Trainer.steps}. */
export interface FitOptions {
  /** Called after each step, and awaited. */
  onStep?(event: TrainingEvent): unknown
  /** Called after each validation, and awaited. */
  onValidation?(validation: Validation): unknown
  /** Data that are not trained on; they are read from the beginning for each validation. */
  readonly validation?: TrainingData
  /** Steps between validations. Default: one at the end of each epoch. */
  readonly validateEvery?: number
  /** What is measured on the validation data besides the loss. */
  readonly metrics?: Metrics
  /** `loss` or the name of a metric: what decides which parameters are best. Default: loss. */
  readonly monitor?: string
  /** Whether smaller or larger is better. Default: max for accuracy and top5, min for all others but your own functions. */
  readonly mode?: 'min' | 'max'
  /** The training ends after this many validations in a row that were not better than the best one. Default: never. */
  readonly patience?: number
  /** A validation is better only when it is by more than this. Default: 0. */
  readonly minDelta?: number
  /** Whether the adapter has the parameters of the best validation in the end, not the last ones. Default: true. */
  readonly keepBest?: boolean
}

/** Functions of the caller. */
export type Callbacks = Pick<FitOptions, 'onStep' | 'onValidation'>

/** Options with their defaults. */
export interface CheckedFitOptions extends Callbacks {
  /** Absent without validation data. */
  readonly validation?: ValidationSettings
}

/** What a validation does. */
export interface ValidationSettings {
  readonly data: TrainingData
  /** Steps; undefined for the end of each epoch. */
  readonly every: number | undefined
  readonly metrics: readonly NamedMetric[]
  readonly monitor: string
  readonly mode: 'min' | 'max'
  readonly patience: number
  readonly minDelta: number
  readonly keepBest: boolean
}

/**
 * Checks options of a training and fills in defaults.
 * @throws SparkError ERR_ARGUMENT
 */
export function checkFitOptions(options: FitOptions): CheckedFitOptions {
  expectOwnOptions('trainer.fit', options)
  for (const name of ['onStep', 'onValidation'] as const) {
    const callback: unknown = options[name]
    if (callback !== undefined && typeof callback !== 'function')
      throw argumentError(`options.${name}`, 'a function', callback)
  }
  const { onStep, onValidation, validation } = options
  const callbacks = { ...(onStep && { onStep }), ...(onValidation && { onValidation }) }
  if (validation !== undefined) return { ...callbacks, validation: checkValidation(validation, options) }
  const useless = validationOptions.find(name => options[name] !== undefined)
  if (!useless) return callbacks
  const remedy = 'give options.validation, data that are not trained on'
  throw new SparkError('ERR_ARGUMENT', `options.${useless} needs validation data: ${remedy}`)
}

/** @throws SparkError ERR_ARGUMENT */
export function checkEvaluateOptions(options: EvaluateOptions, batchSize: number) {
  expectKnownOptions('options', options, ['metrics', 'batchSize'])
  const checked = { batchSize, ...options }
  expectInteger('options.batchSize', checked.batchSize, 1)
  return { batchSize: checked.batchSize, metrics: checkMetrics(options.metrics) }
}

function checkValidation(data: TrainingData, options: FitOptions): ValidationSettings {
  expectTrainingData(data, 'options.validation')
  const { validateEvery: every, monitor = 'loss', patience = Number.POSITIVE_INFINITY } = options
  const { minDelta = 0, keepBest = true } = options
  if (every !== undefined) expectInteger('options.validateEvery', every, 1)
  if (options.patience !== undefined) expectInteger('options.patience', patience, 1)
  expectNumber('options.minDelta', minDelta, 0)
  expectBoolean('options.keepBest', keepBest)
  expectText('options.monitor', monitor)
  const metrics = checkMetrics(options.metrics)
  expectOneOf('options.monitor', monitor, ['loss', ...metrics.map(({ name }) => name)])
  const metric = metrics.find(({ name }) => name === monitor)
  const largerIsBetter = metric ? isLargerBetter(metric) : false
  const mode = options.mode ?? (largerIsBetter ? 'max' : 'min')
  expectOneOf('options.mode', mode, ['min', 'max'])
  if (options.mode === undefined && largerIsBetter === undefined) {
    const remedy = "options.mode must say which values are better, 'min' or 'max'"
    throw new SparkError('ERR_ARGUMENT', `options.monitor: '${monitor}' is a metric of your own: ${remedy}`)
  }
  return { data, every, metrics, monitor, mode, patience, minDelta, keepBest }
}

/** What a checkpoint keeps of the validations of a training. */
export interface ValidationState {
  readonly history: readonly Validation[]
  /** The parameters of the best validation, if there was one. */
  readonly best: State | undefined
}

/** The validations of a training and what they decide. */
export class Validator {
  readonly settings: ValidationSettings
  readonly #evaluator: Evaluator
  readonly #reader: BatchReader
  #state: ValidationState = { history: [], best: undefined }

  constructor(settings: ValidationSettings, evaluator: Evaluator, batchSize: number) {
    this.settings = settings
    this.#evaluator = evaluator
    this.#reader = new BatchReader(settings.data, { batchSize, seed: 0, shuffle: false })
  }

  /** The validations so far, and the best parameters. */
  get state(): ValidationState {
    return this.#state
  }

  /** The best validation so far. */
  get best(): Validation | undefined {
    return this.#state.history.findLast(({ best }) => best)
  }

  /** Whether the last validations were not better, as many as patience allows. */
  get exhausted(): boolean {
    const { history } = this.#state
    const sinceBest = history.length - 1 - history.findLastIndex(({ best }) => best)
    return history.length > 0 && sinceBest >= this.settings.patience
  }

  /** Continues after the validations of a checkpoint. */
  restore(state: ValidationState): void {
    this.#state = state
  }

  /**
   * Evaluates parameters after a step.
   * @throws SparkError as {@link Evaluator.run}
   */
  async validate(parameters: State, step: number, epoch: number): Promise<Validation> {
    const evaluation = await this.#evaluator.run(this.#reader.epoch(0), parameters)
    const validation = { step, epoch, ...evaluation, best: this.#isBetter(evaluation) }
    this.#state = {
      history: [...this.#state.history, validation],
      best: validation.best ? parameters : this.#state.best,
    }
    return validation
  }

  #isBetter(evaluation: Evaluation): boolean {
    const { monitor, mode, minDelta } = this.settings
    const monitored = ({ loss, metrics }: Evaluation): number =>
      monitor === 'loss' ? loss : metrics[monitor]!
    const [value, { best }] = [monitored(evaluation), this]
    if (Number.isNaN(value)) return false
    if (!best) return true
    return mode === 'min' ? value < monitored(best) - minDelta : value > monitored(best) + minDelta
  }
}
