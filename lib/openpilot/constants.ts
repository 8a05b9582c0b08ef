// constants.ts: the points in time and space at which openpilot's driving models predict, and the rates that they run at.

/** `count` points from 0 to `last`, whose distances grow linearly: last · (i / (count − 1))². */
const quadratic = (count: number, last: number): readonly number[] =>
  Object.freeze(Array.from({ length: count }, (_, i) => last * (i / (count - 1)) ** 2))

/**
 * What the numbers in a driving model's inputs and outputs stand for, as openpilot's modeld defines them.
 * @example
 * const { plan } = await driving.run(inputs)
 * drivingConstants.times.forEach((seconds, i) => console.log(seconds, plan?.position.mean[i]))
 */
export const drivingConstants = Object.freeze({
  /** Times of the points of a plan, in seconds: 10 · (i / 32)². */
  times: quadratic(33, 10),
  /** Distances ahead of the points of lane lines and road edges, in metres: 192 · (i / 32)². */
  distances: quadratic(33, 192),
  /** Times of the points of a lead, in seconds from now. */
  leadTimes: Object.freeze([0, 2, 4, 6, 8, 10]),
  /** When each of the three leads is the one ahead, in seconds from now. */
  leadOffsets: Object.freeze([0, 2, 4]),
  /** Ends of the periods in which the driver may take over, in seconds from now. */
  metaTimes: Object.freeze([2, 4, 6, 8, 10]),
  /** Times at which a pedal is pressed or a blinker is on, in seconds from now. */
  signalTimes: Object.freeze([0, 2, 4, 6, 8, 10]),
  /** Frames a second that a model is run on, in Hz. */
  frameRate: 20,
  /** Frames a second that recent models remember, in Hz. */
  contextRate: 5,
})
