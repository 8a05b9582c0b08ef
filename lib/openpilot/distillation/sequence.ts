// sequence.ts: driving models over the frames of a drive, in batches as far as they do not wait for themselves.
import { SparkError } from '../../core/errors.js'
import { numel } from '../../core/shape.js'
import type { Tensor } from '../../memory/tensor.js'
import type { ModelValue } from '../../model/model-value.js'
import { desires } from '../desires.js'
import type { DrivingModel } from '../driving-model.js'
import { inputNames } from '../inputs.js'
import { type ResolvedSlices, resolveSlices } from '../metadata.js'
import type { ModelFrameBatch } from '../model-frame-batch.js'
import type { Recurrence } from '../recurrence.js'
import type { Field } from './row-cache.js'

/** A model of frames, and the one that sees for it. */
export interface SequenceModels {
  /** The model whose inputs and outputs are wanted. */
  readonly model: DrivingModel
  /** Sees for a policy. */
  readonly vision?: DrivingModel | undefined
}

/** Rows of one frame after another. */
export interface SequenceRows {
  /** Values of the inputs of the model, by name: [count, …]. */
  readonly inputs: Record<string, Float32Array<ArrayBuffer> | Uint8Array<ArrayBuffer>>
  /** Raw outputs of the model, [count, width]; only where they are asked for. */
  readonly outputs: Float32Array<ArrayBuffer> | undefined
}

/** Seconds of delay of the steering of cars, which openpilot assumes where it knows none. */
const assumedDelay = 0.2

/** Runs models over a drive and keeps what they are shown again. */
export class DrivingSequence {
  readonly #model: DrivingModel
  readonly #vision: DrivingModel | undefined
  readonly #memory: Recurrence
  readonly #convention: readonly number[]
  readonly #names: ReadonlySet<string>
  readonly #visionNames: ReadonlySet<string>
  /** Inputs that outputs of frames before are fed back to. */
  readonly #fedBack: ReadonlySet<string>

  /**
   * @param isRightHandDrive - whether one drives on the left
   * @throws SparkError ERR_ARGUMENT when a policy has no vision model, ERR_UNSUPPORTED for models that keep their states
   */
  constructor({ model, vision }: SequenceModels, isRightHandDrive: boolean) {
    if (model.kind === 'policy' && vision === undefined) {
      const remedy = 'give the model that sees for it'
      throw new SparkError('ERR_ARGUMENT', `vision must be a driving model for a policy: ${remedy}`)
    }
    const state = model.inputs.find(({ name }) => name.startsWith('state_'))
    if (state || model.kind === 'dmonitoring') {
      const why = state ? `keeps its state ('${state.name}') itself` : 'looks at the driver'
      throw new SparkError('ERR_UNSUPPORTED', `distillation needs a model of the road, and this one ${why}`)
    }
    this.#model = model
    this.#vision = model.kind === 'policy' ? vision : undefined
    this.#memory = this.#vision
      ? this.#vision.remember(model, undefined)
      : model.remember(undefined, undefined)
    this.#convention = isRightHandDrive ? [0, 1] : [1, 0]
    this.#names = namesOf(model)
    this.#visionNames = this.#vision ? namesOf(this.#vision) : new Set()
    const back: readonly string[] = [...inputNames.features, ...inputNames.curvature]
    this.#fedBack = new Set(back.filter(name => this.#names.has(name)))
  }

  /** Frames that what follows depends on; infinite for models that are fed what they made of all frames before. */
  get span(): number {
    return this.#isRecursive ? Number.POSITIVE_INFINITY : this.#memory.span
  }

  /** The inputs of the model as fields of rows. */
  get fields(): Field[] {
    return this.#model.inputs.map(input => ({
      name: input.name,
      dtype: input.dtype === 'u8' ? 'u8' : 'f32',
      shape: rowShape(input),
    }))
  }

  /**
   * Shows frames that follow those before.
   * @param isWanted - whether the outputs of the model are computed
   */
  async next(frames: ModelFrameBatch, isWanted: boolean): Promise<SequenceRows> {
    const rows: Row[] = []
    const images: Row[] = []
    for (let i = 0; i < frames.count; i++) {
      this.#see(frames, i)
      images.push(this.#memory.inputs(this.#visionNames))
      rows.push({ ...this.#constants(), ...this.#memory.inputs(this.#names) })
    }
    const features = this.#vision && (await this.#run(this.#vision, images))
    const outputs: FloatRow[] = []
    for (const [i, row] of rows.entries()) {
      if (features) this.#memory.features!.push(this.#part(this.#vision!, features[i]!, 'hidden_state'))
      Object.assign(row, this.#memory.inputs(this.#fedBack))
      if (this.#isRecursive) outputs.push(await this.#remembered(row))
    }
    if (isWanted && !this.#isRecursive) outputs.push(...(await this.#run(this.#model, rows)))
    return { inputs: stack(rows), outputs: isWanted ? joinFloats(outputs) : undefined }
  }

  /** Whether the model waits for what it says itself. */
  get #isRecursive(): boolean {
    const { curvature, features } = this.#memory
    return curvature !== undefined || (!this.#vision && features !== undefined)
  }

  #see({ img, bigImg, desires: wanted }: ModelFrameBatch, i: number): void {
    const bytes = this.#memory.frameBytes
    const frame = (all: Uint8Array): Uint8Array => all.subarray(i * bytes, (i + 1) * bytes)
    const desire = new Float32Array(this.#memory.desireSize)
    if (wanted[i]! < Math.min(desires.length, desire.length)) desire[wanted[i]!] = 1
    this.#memory.see(frame(img), this.#memory.hasBigImage ? frame(bigImg) : undefined, desire)
  }

  /** The output for a frame, which the next ones are shown. */
  async #remembered(row: Row): Promise<FloatRow> {
    const [output] = await this.#run(this.#model, [row])
    const { features, curvature } = this.#memory
    if (!this.#vision) features?.push(this.#part(this.#model, output!, 'hidden_state'))
    curvature?.push(this.#part(this.#model, output!, 'desired_curvature').subarray(0, 1))
    return output!
  }

  #part(model: DrivingModel, output: FloatRow, name: string): Float32Array {
    const ends = slicesOf(model).get(name)
    if (ends) return output.subarray(...ends)
    throw new SparkError(
      'ERR_FORMAT',
      `the ${model.kind} model has no output '${name}', which it is to be fed back`,
    )
  }

  /** Raw outputs of a model for rows of inputs. */
  async #run(model: DrivingModel, rows: readonly Row[]): Promise<FloatRow[]> {
    const first = model.inputs[0]!.shape?.[0]
    const size = typeof first === 'number' ? first : rows.length
    const outputs: FloatRow[] = []
    for (let start = 0; start < rows.length; start += size) {
      const part = rows.slice(start, start + size)
      // Behind the last there are copies of it, where the model has a fixed batch.
      while (part.length < size) part.push(part.at(-1)!)
      const { [model.outputName]: raw } = await model.model.run(model.cast(stack(part)), {
        outputs: [model.outputName],
      })
      const numbers = ((raw as Tensor<'f16'>).to('f32') as Tensor<'f32'>).data
      const width = numbers.length / size
      for (let i = 0; i < size && start + i < rows.length; i++)
        outputs.push(Float32Array.from(numbers.subarray(i * width, (i + 1) * width)))
    }
    return outputs
  }

  /** Inputs that are the same in all frames, and those that nothing is known of. */
  #constants(): Row {
    const known: Readonly<Record<string, readonly number[]>> = {
      traffic_convention: this.#convention,
      lateral_control_params: [0, assumedDelay],
      action_t: [assumedDelay, assumedDelay],
    }
    const others = this.#model.inputs.filter(({ name }) => !this.#memory.has(name))
    return Object.fromEntries(
      others.map(input => {
        const row = new Float32Array(numel(rowShape(input)))
        row.set((known[input.name] ?? []).slice(0, row.length))
        return [input.name, row]
      }),
    )
  }
}

/** Values of the inputs of one frame. */
type Row = Record<string, Float32Array | Uint8Array>
type FloatRow = Float32Array<ArrayBuffer>

const namesOf = ({ inputs }: DrivingModel): ReadonlySet<string> => new Set(inputs.map(({ name }) => name))

/** The shape of a frame's value of an input: its first dimension counts frames. */
function rowShape({ shape }: ModelValue): number[] {
  return (shape ?? []).slice(1).map(size => (typeof size === 'number' ? size : 1))
}

function stack(rows: readonly Row[]): SequenceRows['inputs'] {
  const join = (name: string) => {
    const parts = rows.map(row => row[name]!)
    return parts[0] instanceof Uint8Array
      ? joinBytes(parts as Uint8Array[])
      : joinFloats(parts as Float32Array[])
  }
  return Object.fromEntries(Object.keys(rows[0]!).map(name => [name, join(name)]))
}

const joinBytes = (parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> =>
  joinInto(new Uint8Array(totalOf(parts)), parts)
const joinFloats = (parts: readonly Float32Array[]): FloatRow =>
  joinInto(new Float32Array(totalOf(parts)), parts)

const totalOf = (parts: readonly { readonly length: number }[]): number =>
  parts.reduce((sum, { length }) => sum + length, 0)

function joinInto<A extends { set(part: ArrayLike<number>, at: number): void }>(
  all: A,
  parts: readonly ArrayLike<number>[],
): A {
  let at = 0
  for (const part of parts) {
    all.set(part, at)
    at += part.length
  }
  return all
}

/** Where the outputs of a model lie. */
export function slicesOf(model: DrivingModel): ResolvedSlices {
  return resolveSlices(model.outputSlices, widthOf(model))
}

/** How many numbers a model gives for a frame. */
export function widthOf({ model, outputName }: DrivingModel): number {
  return model.outputs.find(({ name }) => name === outputName)!.shape!.at(-1) as number
}
