// noise.ts: random numbers that belong to a scenario and a step, not to the order or the batch in which they are drawn.
import { philox } from '../core/philox.js'

const unit = 2 ** -32

/**
 * Normal numbers, one for each step: Box and Muller's transform of Philox4x32 with the seed as its key and step and stream as
 * its counter.
 * @param seed - of the scenario, an integer
 * @param stream - which sequence of the scenario
 */
export function normalNoise(seed: number, stream: number, steps: number, deviation: number): Float32Array {
  const values = new Float32Array(steps)
  if (deviation === 0) return values
  for (let step = 0; step < steps; step++) {
    const [a, b] = words(seed, stream, step)
    values[step] = deviation * Math.sqrt(-2 * Math.log((a! + 0.5) * unit)) * Math.cos(2 * Math.PI * b! * unit)
  }
  return values
}

/** Uniform numbers in [0, 1) with 24 random bits, one for each step. */
export function uniformNoise(seed: number, stream: number, steps: number): Float32Array {
  const values = new Float32Array(steps)
  for (let step = 0; step < steps; step++) values[step] = (words(seed, stream, step)[0]! >>> 8) * 2 ** -24
  return values
}

const words = (seed: number, stream: number, step: number): number[] =>
  philox([step, stream, 0, 0], [seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0])
