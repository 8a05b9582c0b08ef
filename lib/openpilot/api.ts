// api.ts: what the package exports of this folder.
// biome-ignore-all assist/source/organizeImports: exports stand in reading order
export type { ModelFrameBatch, ModelFrameOptions, ModelFrameStages } from './model-frame-batch.js'
export { type ModelFrames, readModelFrames } from './model-frames.js'
export {
  readScaledFrames,
  type ScaledFrameBatch,
  type ScaledFrameOptions,
} from './scaled-frames.js'
export { desires } from './desires.js'
export type { FrameTimes, RoadVideo, Timeline } from './timeline.js'
export type { Camera, RoadCameras } from './cameras.js'
export {
  createDrivingRunner,
  openModel,
  parseOutputs,
  readModelMetadata,
  readOutputSlices,
} from './open-model.js'
export type { DrivingModel, DrivingModelKind, OpenModelOptions } from './driving-model.js'
export type { DrivingInput, DrivingInputs } from './inputs.js'
export type { ModelMetadata, OutputSlice, OutputSlices } from './metadata.js'
export type { DrivingFrame, DrivingRunner, RunnerModels, RunnerOptions } from './runner.js'
export { drivingConstants } from './constants.js'
export type {
  CameraMotion,
  DrivingOutputs,
  ParseOptions,
  RawOutputs,
  RoadTransform,
} from './outputs.js'
export type {
  LaneLine,
  Lead,
  Plan,
  PlanHypothesis,
  PlanPath,
  PlanSeries,
  RoadLine,
} from './road.js'
export type { DisengageProbs, DrivingMeta } from './meta.js'
export type { DriverState } from './driver-state.js'
export type { Estimate, ScalarEstimate } from './mixture.js'
export { drivingLoss, prepareDistillation } from './distillation/distillation.js'
export type { DistillationData } from './distillation/data.js'
export type {
  DistillationModels,
  DistillationOptions,
  DistillationProgress,
  DistillationStages,
  DrivingLossOptions,
} from './distillation/options.js'
export {
  buildOpenpilotModel,
  type OpenpilotModelName,
  type OpenpilotModelOptions,
  openpilotModelNames,
} from './architectures/build.js'
