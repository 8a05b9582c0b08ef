// open-model.ts: opens models of openpilot, and reads what is stored beside them.
import { expectKnownOptions } from '../core/checks.js'
import type { Model } from '../model/model.js'
import type { ModelFile } from '../model/model-file.js'
import { loadOptions } from '../model/model-options.js'
import type { DrivingModel, OpenModelOptions } from './driving-model.js'
import type { ModelMetadata, OutputSlices } from './metadata.js'
import type { DrivingOutputs, ParseOptions, RawOutputs } from './outputs.js'
import type { DrivingRunner, RunnerModels, RunnerOptions } from './runner.js'

/**
 * Opens a model of openpilot: vision, policy, supercombo or driver monitoring.
 * @param source - as `Model.load` takes it; or a model that is loaded already, which then belongs to the result
 * @param options - `outputSlices`, and for a source that is no model what `Model.load` takes
 * @throws SparkError as `Model.load`; ERR_FORMAT for a model that is none of openpilot, or whose metadata are missing or broken;
 * ERR_SHAPE for slices that do not fit
 * @example
 * const vision = await openModel('driving_vision.onnx')
 * const { laneLines } = await vision.run({ img, big_img }) // Uint8Array(12 * 128 * 256) each
 * laneLines?.[1]?.y.mean // metres to the right of the camera, at drivingConstants.distances
 */
export async function openModel(
  source: ModelFile | Model,
  options: OpenModelOptions = {},
): Promise<DrivingModel> {
  expectKnownOptions('options', options, ['outputSlices', ...loadOptions])
  const { DrivingModel } = await import('./driving-model.js')
  return DrivingModel.open(source, options)
}

/**
 * What a metadata file beside a model (`driving_vision_metadata.pkl`) says. It is a Python pickle, of which nothing but texts,
 * integers, slices and dictionaries of these is read: nothing in it can run.
 * @param bytes - of the file
 * @throws SparkError ERR_FORMAT naming the place for a file that is broken or holds anything else
 */
export async function readModelMetadata(bytes: Uint8Array): Promise<ModelMetadata> {
  const { parseModelMetadata } = await import('./metadata.js')
  return parseModelMetadata(bytes)
}

/**
 * Where each output lies, as a model's metadata `output_slices` say it.
 * @param source - base64 text, or the bytes of the pickle that it stands for
 * @throws SparkError ERR_FORMAT as {@link readModelMetadata}
 */
export async function readOutputSlices(source: string | Uint8Array): Promise<OutputSlices> {
  const { parseOutputSlices } = await import('./metadata.js')
  return parseOutputSlices(source)
}

/**
 * What the raw numbers of a model mean, such as those of a log (`rawPredictions`). Of an open model: {@link DrivingModel.parse}.
 * @param raw - [batch, width]: a tensor of any float type, or f32
 * @param slices - where each output lies
 * @param options - `batch`: number of rows; `row`: which one
 * @throws SparkError ERR_ARGUMENT, ERR_SHAPE for slices or outputs that do not fit, ERR_NOT_FINITE naming the output
 */
export async function parseOutputs(
  raw: RawOutputs,
  slices: OutputSlices,
  options: ParseOptions = {},
): Promise<DrivingOutputs> {
  const { parseSlices } = await import('./outputs.js')
  return parseSlices(raw, slices, options)
}

/**
 * Runs driving models frame by frame; see {@link DrivingRunner}. The models stay the caller's.
 * @param models - `{ vision, policy }` or `{ supercombo }`
 * @throws SparkError ERR_ARGUMENT for models of another kind; ERR_SHAPE for models that do not belong together or whose inputs have
 * unknown sizes
 * @example
 * const vision = await openModel('driving_vision.onnx')
 * const policy = await openModel('driving_policy.onnx')
 * const runner = await createDrivingRunner({ vision, policy })
 * for (const { img, bigImg } of frames) {
 *   const { plan } = await runner.step({ img, bigImg, trafficConvention: [1, 0] })
 *   console.log(plan?.velocity.mean[32]?.[0]) // speed in ten seconds, in m/s
 * }
 */
export async function createDrivingRunner(
  models: RunnerModels,
  options: RunnerOptions = {},
): Promise<DrivingRunner> {
  const { DrivingRunner } = await import('./runner.js')
  return new DrivingRunner(models, options)
}
