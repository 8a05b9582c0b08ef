// run.ts: a training run, from its start or a checkpoint to its end.
import { SparkError } from '../core/errors.js'
import type { TrainableAdapter } from '../dora/model/trainable-adapter.js'
import {
  bestCheckpointFile,
  type Checkpoint,
  checkpointFile,
  listCheckpoints,
  type Progress,
  readCheckpoint,
  saveCheckpoint,
  stepOf,
  writeCheckpoint,
} from './checkpoint.js'
import { describeNotFinite } from './data-check.js'
import { type Batch, BatchReader, batchSizeOf, type TrainingData, withSamples } from './dataset.js'
import { TrainingLog } from './log.js'
import { LossScaler } from './loss-scaler.js'
import type { Optimizer } from './optimizers.js'
import type { CheckedOptions, TrainingEvent } from './options.js'
import { createSchedule, type Schedule } from './schedules.js'
import { expectSettings, type Settings, settingsOf, trainingRecord } from './settings.js'
import type { State, StepNumbers, StepResult, TrainingStep } from './step.js'
import { type StopReason, Tally, type TrainingSummary } from './summary.js'
import type { Callbacks, Validator } from './validation.js'

/** The parts of a run. */
export interface RunParts extends Callbacks {
  readonly adapter: TrainableAdapter
  readonly step: TrainingStep
  readonly optimizer: Optimizer
  readonly options: CheckedOptions
  readonly data: TrainingData
  readonly validator?: Validator | undefined
}

/** Runs the steps of a training, with its schedule, log and checkpoints. */
export class TrainingRun {
  readonly #parts: RunParts
  readonly #reader: BatchReader
  readonly #schedule: Schedule
  readonly #log: TrainingLog
  readonly #scaler: LossScaler
  /** The sha256 of each adapted frozen weight by module name. */
  readonly #base: ReadonlyMap<string, string>
  readonly #settings: Settings
  /** The last batch, which tells what the data are. */
  #batch: Batch | undefined
  readonly #tally = new Tally()
  #progress: Progress
  #lastCheckpoint: string | undefined
  #bestCheckpoint: string | undefined
  #totalSteps: number | undefined

  /** @throws SparkError ERR_ARGUMENT when the schedule needs an unknown number of steps */
  constructor(parts: RunParts) {
    const { adapter, optimizer, options, data, validator } = parts
    const { epochs, accumulate, schedule } = options
    this.#parts = parts
    this.#reader = new BatchReader(data, options)
    const batches = this.#reader.batchesPerEpoch
    this.#totalSteps = batches === undefined ? undefined : epochs * Math.ceil(batches / accumulate)
    this.#schedule = createSchedule(schedule, optimizer.learningRate, this.#totalSteps)
    this.#log = new TrainingLog(options.log)
    this.#scaler = new LossScaler(options.precision === 'fp16')
    const isKept = options.checkpoint !== undefined || options.resume !== undefined
    this.#base = (isKept ? adapter.baseHashes?.() : undefined) ?? new Map()
    this.#settings = isKept ? settingsOf(options, adapter, data, validator?.settings) : {}
    this.#progress = { step: 0, epoch: 0, batch: 0, lossSum: 0, samples: 0 }
  }

  /** Completed steps, including those before a resumption. */
  get step(): number {
    return this.#progress.step
  }

  /** Path of the newest checkpoint. */
  get lastCheckpoint(): string | undefined {
    return this.#lastCheckpoint
  }

  /**
   * Restores the checkpoint that the options name, if any.
   * @throws SparkError ERR_ARGUMENT naming each setting that the checkpoint was not made with, or for a folder with the
   * checkpoints of another training; ERR_SHAPE when the adapter, ERR_FORMAT when the base is another one
   */
  async resume(): Promise<void> {
    const { step, options, validator } = this.#parts
    const { resume, checkpoint } = options
    const kept = resume === true && checkpoint ? await listCheckpoints(checkpoint.folder) : []
    const file = typeof resume === 'string' ? resume : kept.at(-1)
    if (file !== undefined) {
      const saved = await readCheckpoint(file).catch(error => {
        throw withOlder(error, kept.at(-2))
      })
      expectSettings(file, saved.settings, this.#settings)
      this.#expectBase(file, saved.base)
      step.writeState(saved.state, file)
      this.#progress = saved.progress
      this.#schedule.restore(saved.schedule)
      if (saved.lossScale) this.#scaler.restore(saved.lossScale)
      if (saved.validation) validator?.restore(saved.validation)
      this.#lastCheckpoint = file
    }
    await this.#expectOwnFolder()
    await this.#log.open(this.#progress.step, validator?.state.history)
  }

  /**
   * A copy of the parameters as they are now.
   * @throws SparkError ERR_ARGUMENT while a step runs
   */
  async parameters(): Promise<State> {
    const state = await this.#parts.step.readState()
    return new Map(this.#parts.adapter.parameters.map(name => [name, state.get(name)!]))
  }

  /** Trains; returns why it ended. */
  async *events(): AsyncGenerator<TrainingEvent, StopReason> {
    const { options, validator, onStep } = this.#parts
    const { checkpoint, signal } = options
    let saved = this.#progress.step
    while (this.#progress.epoch < options.epochs && !validator?.exhausted) {
      for await (const event of this.#epoch()) {
        const { step, epoch } = event
        if (validator?.settings.every && step % validator.settings.every === 0) await this.#validate(epoch)
        const reason = signal?.aborted ? 'signal' : validator?.exhausted ? 'patience' : undefined
        const due = checkpoint && (reason || step % checkpoint.every === 0)
        const told = due ? { ...event, checkpoint: checkpointFile(checkpoint.folder, step) } : event
        await this.#log.write(told)
        if (due) {
          await this.#save()
          saved = step
        }
        await onStep?.(told)
        yield told
        if (reason) return reason
      }
      this.#schedule.observe(this.#progress.lossSum / this.#progress.samples)
      const epoch = this.#progress.epoch + 1
      this.#progress = { ...this.#progress, epoch, batch: 0, lossSum: 0, samples: 0 }
      if (validator && validator.settings.every === undefined) await this.#validate(epoch)
    }
    if (checkpoint && saved < this.#progress.step) await this.#save()
    return validator?.exhausted ? 'patience' : 'epochs'
  }

  /** What the run did. */
  summary(reason: StopReason): TrainingSummary {
    const { validator } = this.#parts
    const best = validator?.best
    return {
      reason,
      steps: this.#progress.step,
      epochs: this.#progress.epoch,
      ...this.#tally.sums,
      validation: validator?.state.history ?? [],
      ...(best && { bestStep: best.step }),
      ...(this.#lastCheckpoint !== undefined && { lastCheckpoint: this.#lastCheckpoint }),
      ...(this.#bestCheckpoint !== undefined && { bestCheckpoint: this.#bestCheckpoint }),
    }
  }

  /** Writes the parameters to the adapter: those of the best validation if it is to keep them. */
  async publish(): Promise<void> {
    const { validator, step } = this.#parts
    const best = validator?.settings.keepBest ? validator.state.best : undefined
    this.#writeAdapter(best ?? (await step.readState()))
  }

  /** Validates the parameters, and writes a checkpoint of its own if they are the best. */
  async #validate(epoch: number): Promise<void> {
    const { validator, options, onValidation } = this.#parts
    const validation = await validator!.validate(await this.parameters(), this.#progress.step, epoch)
    await this.#log.writeValidation(validation)
    if (validation.best && options.checkpoint) {
      this.#bestCheckpoint = bestCheckpointFile(options.checkpoint.folder)
      await writeCheckpoint(this.#bestCheckpoint, this.#checkpointOf(await this.#parts.step.readState()))
    }
    await onValidation?.(validation)
  }

  #writeAdapter(state: State): void {
    const { adapter, options, data } = this.#parts
    for (const name of adapter.parameters) adapter.write(name, state.get(name)!)
    const { step, epoch } = this.#progress
    if (step > 0) adapter.record?.(trainingRecord(options, data, { step, epoch, batch: this.#batch }))
  }

  /** Closes the log. */
  async close(): Promise<void> {
    await this.#log.close()
  }

  /** The remaining steps of the current epoch. */
  async *#epoch(): AsyncGenerator<TrainingEvent> {
    let parts: Batch[] = []
    let began = performance.now()
    for await (const batch of this.#reader.epoch(this.#progress.epoch, this.#progress.batch)) {
      parts.push(batch)
      if (parts.length < this.#parts.options.accumulate) continue
      yield await this.#step(parts, began)
      parts = []
      began = performance.now()
    }
    if (parts.length > 0) yield await this.#step(parts, began)
  }

  async #step(parts: readonly Batch[], began: number): Promise<TrainingEvent> {
    this.#batch = parts.at(-1)
    const training = this.#parts.step
    const progress = this.#progress
    const step = progress.step + 1
    const learningRate = this.#schedule.rate(progress.step)
    const { scale, skipped } = this.#scaler.state
    const numbers = { rate: learningRate, step, update: step - skipped, lossScale: scale }
    const result = await this.#attempt(parts, numbers)
    const isFp16 = this.#parts.options.precision === 'fp16'
    const finite = Number.isFinite(result.gradientNorm)
    if (isFp16 && Number.isFinite(result.loss)) this.#scaler.observe(finite)
    this.#expectFinite(result, parts)
    const samples = parts.reduce((sum, batch) => sum + batchSizeOf(batch), 0)
    this.#tally.add(result.loss, samples)
    this.#progress = {
      ...progress,
      step,
      batch: progress.batch + parts.length,
      lossSum: progress.lossSum + result.loss * samples,
      samples: progress.samples + samples,
    }
    return {
      step,
      epoch: progress.epoch + 1,
      ...result,
      learningRate,
      ...(isFp16 && { lossScale: scale, ...(!finite && { skipped: true }) }),
      samplesPerSecond: (1000 * samples) / (performance.now() - began),
      memory: { plan: training.planBytes, process: process.memoryUsage.rss() },
      ...(this.#totalSteps !== undefined && { totalSteps: this.#totalSteps }),
    }
  }

  /** Runs a step; an out-of-memory error names a batch size that would fit. */
  async #attempt(parts: readonly Batch[], numbers: StepNumbers): Promise<StepResult> {
    try {
      return await this.#parts.step.run(parts, numbers)
    } catch (error) {
      if (!isOutOfMemory(error)) throw error
      const size = batchSizeOf(parts[0]!)
      const fitting = fittingSize(this.#parts.step, parts[0]!)
      const remedy =
        fitting === 0
          ? 'not even one sample fits: free memory'
          : `try batchSize ${fitting}${this.#parts.options.accumulate === 1 ? ', with accumulate to make up for it' : ''}`
      const message = `step ${numbers.step}: no memory for a batch of ${size}; ${remedy}`
      throw new SparkError('ERR_OUT_OF_MEMORY', message, { cause: error })
    }
  }

  /** Rejects a folder with newer checkpoints of another training: cleanup would delete ours, as the older ones. */
  async #expectOwnFolder(): Promise<void> {
    const { checkpoint } = this.#parts.options
    const other = checkpoint && (await listCheckpoints(checkpoint.folder)).at(-1)
    if (other === undefined || stepOf(other) <= this.#progress.step) return
    const remedy = 'resume from it (resume: true, --resume), or give another folder'
    throw new SparkError('ERR_ARGUMENT', `${other} is a checkpoint of another training: ${remedy}`)
  }

  #expectBase(file: string, base: ReadonlyMap<string, string>): void {
    const other = [...base].find(([module, hash]) => (this.#base.get(module) ?? hash) !== hash)
    if (!other) return
    const remedy = 'resume with the model that the training began with'
    throw new SparkError(
      'ERR_FORMAT',
      `${file} was made for another base: the weight of '${other[0]}' has a different sha256; ${remedy}`,
    )
  }

  /** In fp16, gradients may be infinite while the loss scale can still be reduced. */
  #expectFinite({ loss, gradientNorm }: StepResult, parts: readonly Batch[]): void {
    const isFp16 = this.#parts.options.precision === 'fp16'
    const mayOverflow = isFp16 && !this.#scaler.exhausted
    if (Number.isFinite(loss) && (mayOverflow || Number.isFinite(gradientNorm))) return
    const last = this.#lastCheckpoint
    const rest = last ? `the last good checkpoint is ${last}` : 'there is no checkpoint to go back to'
    const found = this.#notFiniteIn(parts)
    const smaller = `try a smaller learning rate, or maxNorm${isFp16 ? ', or bf16, which has a larger range' : ''}`
    const remedy = found === undefined ? smaller : `${found}: remove or replace such samples`
    const values = `step ${this.#progress.step + 1}: loss ${loss}, gradient norm ${gradientNorm}`
    throw new SparkError('ERR_NOT_FINITE', `${values}; ${rest}; ${remedy}`)
  }

  /** The first value of the batches of a step that is NaN or infinite, in words. */
  #notFiniteIn(parts: readonly Batch[]): string | undefined {
    const types = new Map(
      this.#parts.adapter.graph.inputs.flatMap(({ name, type }) =>
        type?.kind === 'tensor' ? [[name, type.dtype] as const] : [],
      ),
    )
    const { epoch, batch } = this.#progress
    for (const [i, part] of parts.entries()) {
      const found = describeNotFinite(part, types, this.#reader.samplesOf(epoch, batch + i))
      if (found !== undefined) return found
    }
    return undefined
  }

  /** Flushes the log before it writes a checkpoint, so that a resumed training has log lines for all its steps. */
  async #save(): Promise<void> {
    await this.#log.sync()
    const { step, options } = this.#parts
    const { folder, keep } = options.checkpoint!
    const state = await step.readState()
    this.#lastCheckpoint = await saveCheckpoint(folder, this.#checkpointOf(state), keep)
    this.#writeAdapter(state)
  }

  #checkpointOf(state: State): Checkpoint {
    const { validator } = this.#parts
    return {
      progress: this.#progress,
      schedule: this.#schedule.state(),
      state,
      base: this.#base,
      settings: this.#settings,
      ...(validator && { validation: validator.state }),
      ...(this.#scaler.matters && { lossScale: this.#scaler.state }),
    }
  }
}

/** Adds the path of an older checkpoint to the error for a damaged one. */
function withOlder(error: unknown, older: string | undefined): unknown {
  if (!(error instanceof SparkError) || error.code !== 'ERR_FORMAT' || !older) return error
  return new SparkError('ERR_FORMAT', `${error.message}; remove it to resume from ${older}`, { cause: error })
}

const isOutOfMemory = (error: unknown): boolean =>
  error instanceof SparkError
    ? error.code === 'ERR_OUT_OF_MEMORY'
    : error instanceof RangeError && /allocation failed|array length|array buffer/i.test(error.message)

/** The largest of 1/2, 1/4, … of a batch size whose intermediate tensors fit into free memory, or 0. */
function fittingSize(step: TrainingStep, batch: Batch): number {
  for (let size = batchSizeOf(batch) >> 1; size > 0; size >>= 1) {
    const fields = Object.entries(batch).map(([name, field]) => [name, withSamples(field, size)] as const)
    if (step.bytesFor([Object.fromEntries(fields)]) < step.freeBytes) return size
  }
  return 0
}
