// recurrence.ts: which of its inputs a driving model is to be given from memory, as their shapes say, and these memories.
import { SparkError } from '../core/errors.js'
import { numel } from '../core/shape.js'
import type { ModelValue } from '../model/model-value.js'
import { everyNth, History, maxPooled } from './history.js'
import { inputNames } from './inputs.js'

/** Models of this many remembered frames remember each one; those of fewer every fourth. */
const fullRateHistory = 99
/** Channels of a packed YUV 4:2:0 frame. */
const frameChannels = 6

/** What an input is made of. */
interface Source {
  readonly name: string
  value(): Float32Array | Uint8Array
}

/** What a model shows of itself. */
export interface RecurrentModel {
  readonly inputs: readonly ModelValue[]
  /** How many numbers an output has. */
  widthOf(output: string): number | undefined
}

/** What is remembered from frame to frame. */
export class Recurrence {
  /** Frames between two that the model sees. */
  readonly skip: number
  /** Bytes of a frame. */
  readonly frameBytes: number
  readonly hasBigImage: boolean
  readonly desireSize: number
  readonly remembersDesire: boolean
  readonly features: History | undefined
  readonly curvature: History | undefined
  readonly #img: History<Uint8Array>
  readonly #bigImg: History<Uint8Array>
  readonly #desire: History
  /** Of the frame before, to find rising edges. */
  #lastDesire: Float32Array
  #sources: Source[] = []

  /**
   * @param eyes - sees, and without a policy also drives
   * @param policy - drives by what the other one sees
   * @throws SparkError ERR_SHAPE
   */
  constructor(eyes: RecurrentModel, policy: RecurrentModel | undefined, frameSkip: number | undefined) {
    const inputs = [...eyes.inputs, ...(policy?.inputs ?? [])]
    const find = (key: keyof typeof inputNames): ModelValue | undefined =>
      inputs.find(({ name }) => (inputNames[key] as readonly string[]).includes(name))
    const [image, bigImage, both] = [find('img'), find('bigImg'), find('bothImages')]
    const [desire, features, curvature] = [find('desire'), find('features'), find('curvature')]
    this.skip = frameSkip ?? skipOf(desire, features)
    const frames = framesOf(image ?? both!)
    this.frameBytes = numel(sizesOf(image ?? both!).slice(-2)) * frameChannels
    this.hasBigImage = both !== undefined || bigImage !== undefined
    const memory = (): History<Uint8Array> =>
      new History((frames - 1) * this.skip + 1, () => new Uint8Array(this.frameBytes))
    this.#img = memory()
    this.#bigImg = memory()
    this.desireSize = desire ? sizesOf(desire).at(-1)! : 8
    const desires = desire && sizesOf(desire).length === 3 ? sizesOf(desire)[1]! * this.skip : 1
    this.#desire = new History(desires, () => new Float32Array(this.desireSize))
    this.#lastDesire = new Float32Array(this.desireSize)
    this.remembersDesire = desire !== undefined

    const imageAges = everyNth(frames, this.skip)
    if (image) this.#add(image, () => this.#img.gather(imageAges))
    if (bigImage) this.#add(bigImage, () => this.#bigImg.gather(imageAges))
    if (both) this.#add(both, () => joined(this.#img.row(0), this.#bigImg.row(0)))
    if (desire) this.#add(desire, () => maxPooled(this.#desire, desires === 1 ? 1 : this.skip))
    this.features = features && this.#addFeatures(features, eyes, policy)
    this.curvature = curvature && this.#addCurvature(curvature)
  }

  /** The inputs of these names that are remembered. */
  inputs(names: ReadonlySet<string>): Record<string, Float32Array | Uint8Array> {
    const sources = this.#sources.filter(({ name }) => names.has(name))
    return Object.fromEntries(sources.map(({ name, value }) => [name, value()]))
  }

  /** Whether an input is remembered. */
  has(name: string): boolean {
    return this.#sources.some(source => source.name === name)
  }

  /** A frame has been taken. Returns what takes it back. */
  see(img: Uint8Array, bigImg: Uint8Array | undefined, desire: Float32Array): () => void {
    const last = this.#lastDesire
    // The first element means that there is no desire.
    const pulse = desire.map((value, i) => (i > 0 && value - last[i]! > 0.99 ? value : 0))
    this.#img.push(img)
    if (bigImg) this.#bigImg.push(bigImg)
    this.#desire.push(pulse)
    this.#lastDesire = desire.slice()
    this.#lastDesire[0] = 0
    return () => {
      this.#img.undo()
      if (bigImg) this.#bigImg.undo()
      this.#desire.undo()
      this.#lastDesire = last
    }
  }

  /** Frames before one that its inputs depend on, unless outputs of the model itself are fed back. */
  get span(): number {
    const { length } = this.#img
    return Math.max(length, this.#desire.length + 1, length + (this.features?.length ?? 0))
  }

  /** Forgets everything. */
  clear(): void {
    const all = [this.#img, this.#bigImg, this.#desire, this.features, this.curvature]
    for (const history of all) history?.clear()
    this.#lastDesire = new Float32Array(this.desireSize)
  }

  #add({ name }: ModelValue, value: Source['value']): void {
    this.#sources.push({ name, value })
  }

  /** A policy sees the features of this frame, too; a model that makes them itself only those before. */
  #addFeatures(input: ModelValue, eyes: RecurrentModel, policy: RecurrentModel | undefined): History {
    const sizes = sizesOf(input)
    const [count, size] = sizes.length > 2 ? [sizes[1]!, numel(sizes.slice(2))] : [1, sizes.at(-1)!]
    const width = eyes.widthOf('hidden_state')
    if (width !== size) {
      const made = width === undefined ? 'does not make any' : `makes ${width}`
      throw new SparkError(
        'ERR_SHAPE',
        `'${input.name}' wants ${size} features of a frame, but the model that sees ${made}: these models do not belong together`,
      )
    }
    const ages = everyNth(count, this.skip, policy ? 0 : this.skip - 1)
    const history = new History(ages[0]! + 1, () => new Float32Array(size))
    this.#add(input, () => history.gather(ages))
    return history
  }

  #addCurvature(input: ModelValue): History {
    const ages = everyNth(sizesOf(input)[1] ?? 1, this.skip)
    const history = new History(ages[0]! + 1, () => new Float32Array(1))
    this.#add(input, () => history.gather(ages))
    return history
  }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array {
  const both = new Uint8Array(a.length + b.length)
  both.set(a)
  both.set(b, a.length)
  return both
}

/** The sizes of an input, all of which must be known. */
function sizesOf({ name, shape }: ModelValue): readonly number[] {
  const sizes = shape?.map((size, i) => (typeof size === 'string' && i === 0 ? 1 : size))
  if (sizes?.every(size => typeof size === 'number')) return sizes
  const shown = shape ? `[${shape.map(size => size ?? '?').join(', ')}]` : 'unknown'
  throw new SparkError('ERR_SHAPE', `the input '${name}' has the shape ${shown}: a runner needs its sizes`)
}

/** Number of frames of an input of images: [1, 6 · frames, h, w]; an input of both cameras, [2, 6, h, w], takes one of each. */
function framesOf(image: ModelValue): number {
  const sizes = sizesOf(image)
  const isBoth = (inputNames.bothImages as readonly string[]).includes(image.name)
  const channels = sizes[1]! * (isBoth ? sizes[0]! : 1)
  const frames = channels / frameChannels
  const fits = sizes.length === 4 && Number.isInteger(frames) && frames >= 1 && (!isBoth || frames === 2)
  if (fits) return isBoth ? 1 : frames
  const wanted = isBoth ? '[2, 6, height, width]' : '[1, 6 · frames, height, width]'
  throw new SparkError(
    'ERR_SHAPE',
    `the input '${image.name}' has the shape [${sizes.join(', ')}], not ${wanted}`,
  )
}

function skipOf(desire: ModelValue | undefined, features: ModelValue | undefined): number {
  const lengths = [desire, features].map(input => {
    const sizes = input ? sizesOf(input) : []
    return sizes.length > 2 ? sizes[1]! : 1
  })
  const length = Math.max(...lengths)
  return length === 1 || length >= fullRateHistory ? 1 : 4
}
