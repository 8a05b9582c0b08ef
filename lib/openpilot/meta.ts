// meta.ts: what a driving model expects the driver to do.
import { sigmoid, strided, widthError } from './mixture.js'

/** Probabilities that the driver takes over, and how, by each of `drivingConstants.metaTimes`; [5] each. */
export interface DisengageProbs {
  /** By pressing the gas. */
  readonly gas: Float32Array
  /** By pressing the brake. */
  readonly brake: Float32Array
  /** By steering. */
  readonly steer: Float32Array
  /** By braking with more than 3 m/s². */
  readonly hardBrake3: Float32Array
  /** By braking with more than 4 m/s². */
  readonly hardBrake4: Float32Array
  /** By braking with more than 5 m/s². */
  readonly hardBrake5: Float32Array
}

/** What a driving model expects the driver to do. */
export interface DrivingMeta {
  /** Probability that openpilot is engaged. */
  readonly engaged: number
  /** Probabilities that the driver takes over. */
  readonly disengage: DisengageProbs
  /** Probabilities that the gas is pressed, at `drivingConstants.signalTimes`, [6]; in older models at `metaTimes`, [5]. */
  readonly gasPress: Float32Array
  /** Probabilities that the brake is pressed, at the times of `gasPress`; null where the model does not say it. */
  readonly brakePress: Float32Array | null
  /** Probabilities that the left blinker is on, at `drivingConstants.signalTimes`. */
  readonly leftBlinker: Float32Array
  /** Probabilities that the right blinker is on, at `drivingConstants.signalTimes`. */
  readonly rightBlinker: Float32Array
}

/** By the number of logits: how many there are in each of the first five rows. */
const earlyWidths: Readonly<Record<number, number>> = { 48: 7, 53: 8, 55: 6 }

/**
 * Logits: engaged, five rows of what the driver does to take over, six rows of pedals and blinkers. In models of 48 and 53
 * numbers the gas, and in those of 53 also the brake, are in the first rows.
 * @throws SparkError ERR_SHAPE
 */
export function readMeta(name: string, raw: Float32Array): DrivingMeta {
  const width = earlyWidths[raw.length]
  if (width === undefined) throw widthError(name, raw.length, '55, 53 or 48')
  const probs = raw.map(sigmoid)
  const early = probs.subarray(0, 1 + 5 * width)
  const late = probs.subarray(early.length)
  const isOld = width > 6
  const of = (index: number): Float32Array => strided(early, 1 + index, width)
  const lateOf = (index: number): Float32Array => strided(late, index, late.length / 6)
  return {
    engaged: probs[0]!,
    disengage: {
      gas: of(0),
      brake: of(1),
      steer: of(2),
      hardBrake3: of(3),
      hardBrake4: of(4),
      hardBrake5: of(5),
    },
    gasPress: isOld ? of(6) : lateOf(0),
    brakePress: width === 8 ? of(7) : isOld ? null : lateOf(1),
    leftBlinker: lateOf(isOld ? 0 : 2),
    rightBlinker: lateOf(isOld ? 1 : 3),
  }
}
