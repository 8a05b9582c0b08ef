// options.ts: what a distillation is told.
import type { BackendName } from '../../core/config.js'
import type { DrivingModel } from '../driving-model.js'

/** Who learns from whom. */
export interface DistillationModels {
  /** The model whose inputs and outputs are learned: vision, policy or supercombo. */
  readonly student: DrivingModel
  /** Sees for a student that is a policy. */
  readonly vision?: DrivingModel
  /** Whose outputs are learned, on any backend and in any precision; it has the outputs of the student. Default: the student itself. */
  readonly teacher?: DrivingModel
  /** Sees for a teacher that is a policy. Default: `vision`. */
  readonly teacherVision?: DrivingModel
}

/** Options of `prepareDistillation`. */
export interface DistillationOptions {
  /** Folder in which rows are kept: a later preparation goes on behind them. Default: one that is removed in the end. */
  readonly cache?: string
  /** One frame in so many is learned; models see all. Default: 1. */
  readonly every?: number
  /** The video of the road. Default: `fcamera` or, where there is none, `qcamera`. */
  readonly video?: 'fcamera' | 'qcamera'
  /** Frames that models are shown at a time, where they do not wait for themselves. Default: 16. */
  readonly batch?: number
  /** Engine of the projection of frames. Default: the best one. */
  readonly backend?: BackendName
  /** Ends the preparation; what is computed is kept. */
  readonly signal?: AbortSignal
  /** Is told about progress. */
  readonly onProgress?: (progress: DistillationProgress) => void
}

/** How far the rows of a segment are. */
export interface DistillationProgress {
  /** Name of the segment. */
  readonly segment: string
  /** Rows that are there. */
  readonly rows: number
  /** Rows that there will be. */
  readonly of: number
}

/** Seconds that the stages took. */
export interface DistillationStages {
  /** Reading logs. */
  log: number
  /** Waiting for the decoder of videos. */
  decode: number
  /** Projection and packing of frames. */
  warp: number
  /** Vision and teacher. */
  models: number
  /** Writing rows. */
  write: number
}

/** Options of `drivingLoss`. */
export interface DrivingLossOptions {
  /**
   * What the student's distributions are compared with. `distribution`: the teacher's, by the Kullback-Leibler divergence of Laplace
   * distributions. `mean`: its means, by the negative log likelihood; it rewards a student that is more certain than its teacher.
   * Default: distribution.
   */
  readonly target?: 'distribution' | 'mean'
  /** Weight of the plan. Default: 1. */
  readonly path?: number
  /** Weight of probabilities: of hypotheses, lines, leads, desires, disengagements. Default: 0.1. */
  readonly prob?: number
  /** Weight of lane lines. Default: 0.5. */
  readonly lane?: number
  /** Weight of road edges. Default: 0.5. */
  readonly edge?: number
  /** Weight of leads, poses, curvatures and actions. Default: 0.5. */
  readonly other?: number
  /** Weight of the features that are fed back. Default: 0.1. */
  readonly feature?: number
  /** What features are divided by before their softmax. Default: 4. */
  readonly temperature?: number
}
