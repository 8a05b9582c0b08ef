// driving-model.ts: a model of openpilot: what kind it is, and what its outputs mean.
import { argumentError, expectKnownOptions } from '../core/checks.js'
import type { ElementType } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { Tensor } from '../memory/tensor.js'
import type { Feeds } from '../model/feeds.js'
import { Model } from '../model/model.js'
import type { ModelFile } from '../model/model-file.js'
import type { LoadOptions, RunOptions } from '../model/model-options.js'
import type { ModelValue } from '../model/model-value.js'
import { plainDriverWidths, readPlainDriver } from './driver-state.js'
import { castInputs, type DrivingInputs, inputNames } from './inputs.js'
import { type OutputSlices, parseOutputSlices, type ResolvedSlices, resolveSlices } from './metadata.js'
import {
  type DrivingOutputs,
  expectFinite,
  type ParseOptions,
  parseRow,
  type RawOutputs,
  rowOf,
} from './outputs.js'
import { Recurrence } from './recurrence.js'

/**
 * What a model of openpilot does: `vision` reads images, `policy` drives by what vision has seen, `supercombo` does both,
 * `dmonitoring` watches the driver.
 */
export type DrivingModelKind = 'vision' | 'policy' | 'supercombo' | 'dmonitoring'

/** Options of `openModel`. */
export interface OpenModelOptions extends LoadOptions {
  /** Where each output lies, or the base64 text of a pickle of that. Default: `output_slices` of the model's metadata. */
  readonly outputSlices?: OutputSlices | string
}

/** What only this module can hand to the constructor. */
const internal: unique symbol = Symbol('internal')

/** A model of openpilot. Made by `openModel`. */
export class DrivingModel implements Disposable {
  /** The model itself. */
  readonly model: Model
  /** What it does. */
  readonly kind: DrivingModelKind
  /** What {@link DrivingModel.run} wants. */
  readonly inputs: readonly ModelValue[]
  /** Where each output lies in a row of raw numbers; none of a driver monitoring model of before 2023. */
  readonly outputSlices: OutputSlices
  /** Which training run it comes from; null where the file does not say it. */
  readonly checkpoint: string | null
  /** Name of the output with the raw numbers. */
  readonly outputName: string
  readonly #width: number
  readonly #slices: ResolvedSlices | undefined

  private constructor(key: typeof internal, model: Model, slices: OutputSlices | undefined) {
    if (key !== internal) {
      const call = "await openModel('driving_vision.onnx')"
      throw new SparkError('ERR_ARGUMENT', `new DrivingModel(…) opens no model; call ${call}`)
    }
    const output = rawOutputOf(model)
    this.model = model
    this.inputs = model.inputs
    this.outputName = output.name
    this.#width = output.width
    this.checkpoint = model.graph.metadata.get('model_checkpoint') ?? null
    this.outputSlices = slices ?? {}
    this.#slices = slices && resolveSlices(slices, output.width)
    this.kind = kindOf(model, this.#slices, output.width)
  }

  /** @internal */
  static async open(source: ModelFile | Model, options: OpenModelOptions): Promise<DrivingModel> {
    const { outputSlices, ...loading } = options
    if (source instanceof Model) {
      expectKnownOptions('options', options, ['outputSlices'])
      return new DrivingModel(internal, source, slicesOf(source, outputSlices))
    }
    const model = await Model.load(source, loading)
    try {
      return new DrivingModel(internal, model, slicesOf(model, outputSlices))
    } catch (error) {
      model.dispose()
      throw error
    }
  }

  /**
   * What raw outputs mean.
   * @param outputs - what `model.run` gave, or the raw numbers themselves: [batch, width]
   * @param options - `row`: which one of a batch
   * @throws SparkError ERR_ARGUMENT, ERR_SHAPE for another width than that of the model, ERR_NOT_FINITE naming the output
   */
  parse(outputs: RawOutputs | Readonly<Record<string, unknown>>, options: ParseOptions = {}): DrivingOutputs {
    const isRaw = outputs instanceof Float32Array || outputs instanceof Tensor
    const raw = isRaw ? outputs : (outputs as Readonly<Record<string, unknown>>)?.[this.outputName]
    if (raw === undefined)
      throw argumentError('outputs', `what model.run gave, with '${this.outputName}'`, outputs)
    const row = rowOf(raw as Tensor<ElementType>, options)
    if (row.length !== this.#width) {
      const remedy = 'give options.batch where there are several rows'
      throw new SparkError(
        'ERR_SHAPE',
        `outputs has rows of ${row.length} numbers, the model of ${this.#width}: ${remedy}`,
      )
    }
    if (this.#slices) return parseRow(row, this.#slices)
    expectFinite(this.outputName, row)
    return { ...readPlainDriver(row), others: {} }
  }

  /**
   * Runs the model once; `DrivingRunner` also remembers what it has seen.
   * @param inputs - a value for each of {@link DrivingModel.inputs}: a tensor of its type, or numbers, which are converted to it
   * @param options - as `Model.run` takes them, without `outputs`; and as {@link DrivingModel.parse}
   * @throws SparkError as `Model.run` and {@link DrivingModel.parse}; ERR_RANGE for numbers that are no bytes
   */
  async run(
    inputs: DrivingInputs,
    options: Pick<RunOptions, 'signal'> & ParseOptions = {},
  ): Promise<DrivingOutputs> {
    expectKnownOptions('options', options, ['signal', 'batch', 'row'])
    const { signal, ...parsing } = options
    return this.parse(
      await this.model.run(this.cast(inputs), { signal, outputs: [this.outputName] }),
      parsing,
    )
  }

  /**
   * Numbers in the types of the inputs, for `model.run`.
   * @throws SparkError ERR_ARGUMENT, ERR_RANGE
   */
  cast(inputs: DrivingInputs): Feeds {
    return castInputs(this.inputs, inputs)
  }

  /**
   * How many numbers an output has; undefined where there is none of this name.
   * @internal
   */
  widthOf(name: string): number | undefined {
    const ends = this.#slices?.get(name)
    return ends && ends[1] - ends[0]
  }

  /**
   * Memory for the frames of this model and of the policy behind it.
   * @internal
   */
  remember(policy: DrivingModel | undefined, frameSkip: number | undefined): Recurrence {
    return new Recurrence(this, policy, frameSkip)
  }

  /** Frees the model. A second dispose is a no-op. */
  dispose(): void {
    this.model.dispose()
  }

  /** As {@link DrivingModel.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }
}

function slicesOf(model: Model, given: OutputSlices | string | undefined): OutputSlices | undefined {
  if (typeof given === 'object' && given !== null) return given
  const text = given ?? model.graph.metadata.get('output_slices')
  return text === undefined ? undefined : parseOutputSlices(text)
}

/** The output that is a row of raw numbers. */
function rawOutputOf({ outputs }: Model): { readonly name: string; readonly width: number } {
  const candidates = outputs.filter(({ name }) => !name.startsWith('next_state_'))
  const output = candidates.length === 1 ? candidates[0] : candidates.find(({ name }) => name === 'outputs')
  const width = output?.shape?.at(-1)
  if (output?.kind === 'tensor' && typeof width === 'number') return { name: output.name, width }
  throw notOpenpilot(`no output 'outputs' of a known size; its outputs: ${listOf(outputs)}`)
}

const listOf = (values: readonly ModelValue[]): string =>
  values.map(({ name, shape }) => `'${name}' [${shape?.join(', ') ?? '?'}]`).join(', ')

const notOpenpilot = (why: string): SparkError =>
  new SparkError('ERR_FORMAT', `this is no model of openpilot: it has ${why}; run it with Model`)

function kindOf(model: Model, slices: ResolvedSlices | undefined, width: number): DrivingModelKind {
  const names = new Set(model.inputs.map(({ name }) => name))
  const hasDriver = slices ? slices.has('face_descs_lhd') : plainDriverWidths.includes(width)
  if (hasDriver && (names.has('input_img') || names.has('input_imgs'))) return 'dmonitoring'
  const seesRoad = [...inputNames.img, ...inputNames.bothImages].some(name => names.has(name))
  const remembers = ['features_buffer', 'initial_state', 'state_feat_q'].some(name => names.has(name))
  if (!seesRoad && !remembers) throw notOpenpilot(`the inputs ${listOf(model.inputs)}`)
  if (!slices) {
    const remedy = 'give options.outputSlices, such as those of its _metadata.pkl (readModelMetadata)'
    throw new SparkError('ERR_FORMAT', `the model does not say where its outputs lie: ${remedy}`)
  }
  if (seesRoad && remembers) return 'supercombo'
  if (seesRoad && slices.has('hidden_state')) return 'vision'
  if (remembers && slices.has('plan')) return 'policy'
  throw notOpenpilot(`the outputs ${[...slices.keys()].join(', ')}`)
}
