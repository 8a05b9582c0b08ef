// driver-state.ts: what a driver monitoring model sees. The formulas are those of openpilot's dmonitoringmodeld, those of models
// without metadata those of its selfdrive/modeld/models/dmonitoring.cc.
import {
  clippedExp,
  type Estimate,
  part,
  readEstimate,
  type ScalarEstimate,
  scalar,
  sigmoid,
} from './mixture.js'

/** What a driver monitoring model says about one seat. Probabilities that a model lacks are missing. */
export interface DriverState {
  /** Pitch, yaw and roll of the face, in radians. */
  readonly faceOrientation: Estimate
  /** Where the face is, across and down, as fractions of the image from where a face is expected. */
  readonly facePosition: Estimate
  /** How large the face is. */
  readonly faceSize?: ScalarEstimate
  /** Probability that there is a face. */
  readonly faceProb: number
  /** Probability that the left eye is seen. */
  readonly leftEyeProb: number
  /** Probability that the right eye is seen. */
  readonly rightEyeProb: number
  /** Probability that the left eye is closed. */
  readonly leftBlinkProb: number
  /** Probability that the right eye is closed. */
  readonly rightBlinkProb: number
  /** Probability of sunglasses. */
  readonly sunglassesProb: number
  /** Probability that the driver uses a phone. */
  readonly usingPhoneProb?: number
  /** Probability that the driver sleeps. */
  readonly sleepProb?: number
  /** Probability that something hides the face. */
  readonly occludedProb?: number
  /** Probability that the camera sees little. */
  readonly poorVisionProb?: number
  /** Probability that a part of the face is out of sight. */
  readonly partialFaceProb?: number
  /** Probability that the head is turned away from the road. */
  readonly distractedPoseProb?: number
  /** Probability that the eyes are turned away from the road. */
  readonly distractedEyesProb?: number
  /** Probabilities that the driver is ready to take over, [4]. */
  readonly readyProbs?: Float32Array
  /** Probabilities that the driver is not, [2]. */
  readonly notReadyProbs?: Float32Array
}

/** What a driver monitoring model without slices gives: one driver, or both seats. */
export interface DriverOutputs {
  readonly driver?: DriverState
  readonly leftHandDrive?: DriverState
  readonly rightHandDrive?: DriverState
  readonly wheelOnRightProb?: number
  readonly poorVisionProb?: number
}

/** Probabilities of one seat by the names of their slices. */
const probNames = {
  face_prob: 'faceProb',
  left_eye_prob: 'leftEyeProb',
  right_eye_prob: 'rightEyeProb',
  left_blink_prob: 'leftBlinkProb',
  right_blink_prob: 'rightBlinkProb',
  sunglasses_prob: 'sunglassesProb',
  using_phone_prob: 'usingPhoneProb',
  sleep_prob: 'sleepProb',
} as const

/**
 * One seat of a model with slices.
 * @param raw - the numbers of a slice, such as `face_prob`, of this seat
 * @throws SparkError ERR_SHAPE
 */
export function readSeat(raw: (name: string) => Float32Array | undefined): DriverState {
  const face = readEstimate('face_descs', raw('face_descs') ?? new Float32Array(0), 6)
  const probs = Object.entries(probNames).flatMap(([slice, name]) => {
    const logit = raw(slice)?.[0]
    return logit === undefined ? [] : [[name, sigmoid(logit)]]
  })
  return {
    faceOrientation: part(face, 0, 3),
    facePosition: part(face, 3, 5),
    faceSize: scalar(part(face, 5)),
    ...(Object.fromEntries(probs) as Pick<DriverState, 'faceProb' | 'leftEyeProb' | 'rightEyeProb'> &
      Pick<DriverState, 'leftBlinkProb' | 'rightBlinkProb' | 'sunglassesProb'>),
  }
}

/** Widths of driver monitoring models that come without slices. */
export const plainDriverWidths: readonly number[] = [38, 39, 45, 84]

/** What the numbers of a face are multiplied with from 2021 on, until models had slices. */
const faceScale = 0.25

/** A row of a driver monitoring model without slices, of {@link plainDriverWidths}. */
export function readPlainDriver(raw: Float32Array): DriverOutputs {
  if (raw.length < 45) {
    // Its probabilities are ready, and its deviations are log(1 + e^x).
    const driver = readFace(
      raw,
      1,
      x => Math.log1p(clippedExp(x)),
      x => x,
    )
    return { driver: { ...driver, ...readDistraction(raw, x => x) } }
  }
  if (raw.length === 45) {
    const face = readFace(raw, faceScale, clippedExp, sigmoid)
    return { driver: { ...face, ...readDistraction(raw, sigmoid), ...readReadiness(raw, 39) } }
  }
  const seat = (start: number): DriverState => {
    const side = raw.subarray(start, start + 41)
    return {
      ...readFace(side, faceScale, clippedExp, sigmoid),
      occludedProb: sigmoid(side[34]!),
      ...readReadiness(side, 35),
    }
  }
  return {
    leftHandDrive: seat(0),
    rightHandDrive: seat(41),
    poorVisionProb: sigmoid(raw[82]!),
    wheelOnRightProb: sigmoid(raw[83]!),
  }
}

function readFace(
  raw: Float32Array,
  scale: number,
  deviation: (x: number) => number,
  probability: (x: number) => number,
): DriverState {
  const values = (start: number, count: number): Estimate => ({
    mean: raw.slice(start, start + count).map(x => x * scale),
    std: raw.slice(start + 6, start + 6 + count).map(deviation),
  })
  const prob = (index: number): number => probability(raw[index]!)
  return {
    faceOrientation: values(0, 3),
    facePosition: values(3, 2),
    faceProb: prob(12),
    leftEyeProb: prob(21),
    rightEyeProb: prob(30),
    leftBlinkProb: prob(31),
    rightBlinkProb: prob(32),
    sunglassesProb: prob(33),
  }
}

function readDistraction(raw: Float32Array, probability: (x: number) => number): Partial<DriverState> {
  return {
    poorVisionProb: probability(raw[34]!),
    partialFaceProb: probability(raw[35]!),
    distractedPoseProb: probability(raw[36]!),
    distractedEyesProb: probability(raw[37]!),
    ...(raw.length > 38 && { occludedProb: probability(raw[38]!) }),
  }
}

const readReadiness = (raw: Float32Array, start: number): Partial<DriverState> => ({
  readyProbs: raw.slice(start, start + 4).map(sigmoid),
  notReadyProbs: raw.slice(start + 4, start + 6).map(sigmoid),
})
