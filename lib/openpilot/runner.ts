// runner.ts: driving models frame by frame.
import {
  argumentError,
  expectAttached,
  expectInteger,
  expectKnownOptions,
  expectObject,
} from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import type { RunOptions } from '../model/model-options.js'
import type { StatefulModel } from '../model/stateful-model.js'
import type { DrivingModel, DrivingModelKind } from './driving-model.js'
import type { DrivingInput } from './inputs.js'
import type { DrivingOutputs } from './outputs.js'
import type { Recurrence } from './recurrence.js'

/** The models of a {@link DrivingRunner}: two of the same release, or one. */
export type RunnerModels =
  | {
      /** Sees. */
      readonly vision: DrivingModel
      /** Drives by what the other one sees. */
      readonly policy: DrivingModel
    }
  | {
      /** Sees and drives. */
      readonly supercombo: DrivingModel
    }

/** Options of {@link DrivingRunner}. */
export interface RunnerOptions {
  /**
   * Frames between two that the models are shown. Default: as the shapes of the inputs say, 4 for models that remember five
   * seconds at 5 Hz, 1 for older ones.
   */
  readonly frameSkip?: number
}

/** What is known at one frame. */
export interface DrivingFrame {
  /** The narrow camera's frame: packed YUV 4:2:0, [6, 128, 256]. */
  readonly img: Uint8Array
  /** The wide camera's frame, for models that read it: [6, 128, 256]. */
  readonly bigImg?: Uint8Array
  /** What the driver wants, one of [8] 1, in the order of `DrivingOutputs.desireState`. Only its beginning counts. Default: nothing. */
  readonly desire?: ArrayLike<number>
  /** [1, 0] where one drives on the right, with the wheel on the left; [0, 1] where one drives on the left. */
  readonly trafficConvention?: ArrayLike<number>
  /** Speed in m/s and delay of the steering in s, for models that read them: [2]. */
  readonly lateralControlParams?: ArrayLike<number>
  /** Delays until steering and acceleration take effect, in s, for models that read them: [2]. */
  readonly actionT?: ArrayLike<number>
  /** Curvature of the frame before, in 1/m, if another one was driven than the model wanted. */
  readonly prevDesiredCurvature?: number
  /** Values for all other inputs by their names; those of navigation are zeros without it. */
  readonly others?: Readonly<Record<string, DrivingInput>>
}

const frameKeys = [
  'img',
  'bigImg',
  'desire',
  'trafficConvention',
  'lateralControlParams',
  'actionT',
  'prevDesiredCurvature',
  'others',
]

/** Inputs by the names that frames have for them. */
const frameInputs = {
  traffic_convention: 'trafficConvention',
  lateral_control_params: 'lateralControlParams',
  action_t: 'actionT',
} as const

/** Navigation is off while these are zeros. */
const zeroInputs = ['nav_features', 'nav_instructions']

const statePrefix = 'state_'

/**
 * Runs driving models on one frame after another, at 20 Hz, and keeps what they are to be shown again: frames, features, what the
 * driver wanted, and their states. What they see of it follows from the shapes of their inputs. The models stay the caller's. Made by
 * `createDrivingRunner`.
 */
export class DrivingRunner implements Disposable {
  readonly #eyes: DrivingModel
  readonly #policy: DrivingModel | undefined
  readonly #memory: Recurrence
  readonly #states: StatefulModel | undefined
  /** Settles when the last step that was asked for has ended. */
  #last: Promise<unknown> = Promise.resolve()

  /**
   * @param models - `vision` and `policy`, or `supercombo`
   * @throws SparkError ERR_ARGUMENT for models of another kind; ERR_SHAPE for models that do not belong together or
   * whose inputs have unknown sizes
   */
  constructor(models: RunnerModels, options: RunnerOptions = {}) {
    expectObject('models', '{ vision, policy } or { supercombo }', models)
    expectKnownOptions('options', options, ['frameSkip'])
    const { frameSkip } = options
    if (frameSkip !== undefined) expectInteger('options.frameSkip', frameSkip, 1, 100)
    const isPair = 'vision' in models || 'policy' in models
    expectKnownOptions('models', models, isPair ? ['vision', 'policy'] : ['supercombo'])
    const given = models as Readonly<Record<string, DrivingModel>>
    this.#eyes = isPair ? expectKind('vision', given.vision) : expectKind('supercombo', given.supercombo)
    this.#policy = isPair ? expectKind('policy', given.policy) : undefined
    this.#memory = this.#eyes.remember(this.#policy, frameSkip)
    this.#states = bindStates(this.#eyes)
  }

  /**
   * Shows the models one more frame. Steps wait for each other. After one that fails the runner is as it was before it;
   * only the states of a model that keeps them itself have moved on when its outputs are not finite: reset then.
   * @param frame - what is known at this frame; it is copied before the call returns its promise
   * @param options - `signal`: ends the step
   * @returns what the models say together
   * @throws SparkError ERR_ARGUMENT and ERR_SHAPE naming a value that is missing or does not fit; as `Model.run`; ERR_NOT_FINITE
   */
  async step(frame: DrivingFrame, options: Pick<RunOptions, 'signal'> = {}): Promise<DrivingOutputs> {
    expectKnownOptions('options', options, ['signal'])
    const copy = copyFrame(frame)
    return this.#enqueue(async () => this.#run(copy, options.signal))
  }

  /** Forgets all frames and states, after all steps that were asked for. */
  async reset(): Promise<void> {
    await this.#enqueue(async () => {
      this.#memory.clear()
      await this.#states?.reset()
    })
  }

  /** Frees the states. The models stay open. */
  dispose(): void {
    this.#states?.dispose()
  }

  /** As {@link DrivingRunner.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }

  #enqueue<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work)
    this.#last = done.catch(() => undefined)
    return done
  }

  async #run(frame: DrivingFrame, signal: AbortSignal | undefined): Promise<DrivingOutputs> {
    const memory = this.#memory
    const images = [expectImage(memory, 'img', frame.img)]
    if (memory.hasBigImage) images.push(expectImage(memory, 'bigImg', frame.bigImg))
    const desire = expectNumbers(
      'desire',
      frame.desire ?? new Float32Array(memory.desireSize),
      memory.desireSize,
    )
    const { prevDesiredCurvature } = frame
    if (prevDesiredCurvature !== undefined)
      memory.curvature?.row(0).fill(expectNumbers('prevDesiredCurvature', [prevDesiredCurvature], 1)[0]!)
    const undos = [memory.see(images[0]!, images[1], desire)]
    try {
      const seen = await this.#runModel(memory, this.#eyes, frame, signal)
      if (memory.features && seen.hiddenState) {
        memory.features.push(seen.hiddenState)
        undos.push(() => memory.features?.undo())
      }
      const driven = this.#policy && (await this.#runModel(memory, this.#policy, frame, signal))
      const outputs = driven ? { ...seen, ...driven, others: { ...seen.others, ...driven.others } } : seen
      memory.curvature?.push([outputs.desiredCurvature?.mean ?? 0])
      return outputs
    } catch (error) {
      for (const undo of undos) undo()
      throw error
    }
  }

  async #runModel(
    memory: Recurrence,
    driving: DrivingModel,
    frame: DrivingFrame,
    signal: AbortSignal | undefined,
  ): Promise<DrivingOutputs> {
    const states = driving === this.#eyes ? this.#states : undefined
    const names = new Set(states?.inputs ?? driving.inputs.map(({ name }) => name))
    const given = driving.inputs
      .filter(({ name }) => names.has(name) && !memory.has(name))
      .map(({ name, shape }) => [name, inputOf(name, shape, frame)] as const)
    const inputs = { ...memory.inputs(names), ...Object.fromEntries(given) }
    if (!states) return driving.run(inputs, { signal })
    const results = await states.run(driving.cast(inputs), { signal, outputs: [driving.outputName] })
    return driving.parse(results)
  }
}

function expectKind(kind: DrivingModelKind, model: DrivingModel | undefined): DrivingModel {
  if (model?.kind === kind) return model
  const got = model?.kind ? `a model of the kind '${model.kind}'` : String(model)
  throw new SparkError('ERR_ARGUMENT', `models.${kind} must be a ${kind} model of openModel, got ${got}`)
}

/** States that a model with `state_…` and `next_state_…` keeps. */
function bindStates({ model }: DrivingModel): StatefulModel | undefined {
  const names = model.inputs.map(({ name }) => name).filter(name => name.startsWith(statePrefix))
  if (names.length === 0) return undefined
  const pairs = names.map(name => [name, { output: `next_${name}`, axis: null }])
  return model.bindState(Object.fromEntries(pairs))
}

function copyFrame(frame: DrivingFrame): DrivingFrame {
  expectObject('frame', 'an object with img and what else the models read', frame)
  expectKnownOptions('frame', frame, frameKeys)
  const entries = Object.entries(frame).map(([name, value]) => {
    if (name === 'others') return [name, copyOthers(value)]
    if (ArrayBuffer.isView(value)) {
      expectAttached(`frame.${name}`, value)
      return [name, value instanceof Uint8Array ? new Uint8Array(value) : (value as Float32Array).slice()]
    }
    return [name, Array.isArray(value) ? [...value] : value]
  })
  return Object.fromEntries(entries)
}

function copyOthers(others: NonNullable<DrivingFrame['others']>): unknown {
  expectObject('frame.others', 'an object with values by the names of inputs', others)
  const copies = Object.entries(others).map(([name, value]) => [
    name,
    ArrayBuffer.isView(value) || Array.isArray(value) ? (value as Float32Array).slice() : value,
  ])
  return Object.fromEntries(copies)
}

function expectImage(memory: Recurrence, name: string, image: unknown): Uint8Array {
  if (!(image instanceof Uint8Array))
    throw argumentError(`frame.${name}`, 'a Uint8Array with a packed frame, [6, height, width]', image)
  if (image.length === memory.frameBytes) return image
  const sizes = `${memory.frameBytes} bytes, got ${image.length}`
  throw new SparkError('ERR_SHAPE', `frame.${name} must be one packed frame of ${sizes}`)
}

function expectNumbers(name: string, values: unknown, count: number): Float32Array {
  const length = (values as ArrayLike<number> | null)?.length
  const numbers = length === count ? Float32Array.from(values as ArrayLike<number>) : new Float32Array(0)
  if (numbers.length === count && numbers.every(Number.isFinite)) return numbers
  throw argumentError(`frame.${name}`, `${count} finite number${count === 1 ? '' : 's'}`, values)
}

function inputOf(name: string, shape: readonly unknown[] | null, frame: DrivingFrame): DrivingInput {
  const key = Object.hasOwn(frameInputs, name) ? frameInputs[name as keyof typeof frameInputs] : undefined
  if (key) return expectNumbers(key, frame[key], 2)
  const given = frame.others && Object.hasOwn(frame.others, name) ? frame.others[name] : undefined
  if (given !== undefined) return given
  const sizes = shape?.map(Number) ?? []
  if (zeroInputs.includes(name)) return new Float32Array(sizes.reduce((a, b) => a * b, 1))
  throw new SparkError('ERR_ARGUMENT', `frame.others['${name}'] is missing: the model reads it`)
}
