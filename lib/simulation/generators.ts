// generators.ts: scenarios of the driving world by the dozen, each from its own seed.
import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectNumber,
  expectOneOf,
} from '../core/checks.js'
import { randomGenerator } from '../core/random.js'
import type { DrivingScenario } from './driving-scenario.js'

/** Kinds of scenarios that {@link generateScenarios} makes. */
export const scenarioKinds = ['cruise', 'cutIn', 'hardBrake', 'laneChange', 'curve', 'sensorNoise'] as const

/** A kind of scenario. */
export type ScenarioKind = (typeof scenarioKinds)[number]

/** Options of {@link generateScenarios}. */
export interface GenerateOptions {
  /** How many. */
  count: number
  /** The seed of the first one; the others have those behind it. Default: 0. */
  seed?: number
  /** Kinds that take turns. Default: all. */
  kinds?: readonly ScenarioKind[]
  /** Seconds of each. Default: 20. */
  duration?: number
}

type Draw = (low: number, high: number) => number

const makers: Readonly<
  Record<ScenarioKind, (draw: Draw) => Omit<DrivingScenario, 'name' | 'duration' | 'seed'>>
> = {
  /** Behind a car whose speed changes slowly. */
  cruise(draw) {
    const speed = draw(15, 32)
    const acceleration = draw(-0.6, 0.6)
    return {
      ego: { speed },
      targetSpeed: speed + draw(0, 4),
      lead: {
        gap: speed * draw(1.2, 2.5),
        speed: speed + draw(-2, 2),
        acceleration: [
          [4, 0],
          [5, acceleration],
          [8, acceleration],
          [9, -acceleration],
          [12, -acceleration],
          [13, 0],
        ],
      },
    }
  },
  /** A slower car comes over from the lane beside. */
  cutIn(draw) {
    const speed = draw(20, 32)
    const [from, begin, takes] = [draw(0, 1) < 0.5 ? -3.6 : 3.6, draw(2, 5), draw(1.5, 3.5)]
    return {
      ego: { speed },
      lead: {
        gap: speed * draw(0.8, 1.6),
        speed: speed - draw(0, 4),
        lateralOffset: [
          [begin, from],
          [begin + takes, 0],
        ],
      },
    }
  },
  /** The car in front brakes, and drives on. */
  hardBrake(draw) {
    const [speed, braking, begin] = [draw(15, 32), draw(3, 7), draw(3, 6)]
    return {
      ego: { speed },
      lead: {
        gap: speed * draw(1.3, 2.2),
        speed,
        acceleration: [
          [begin, 0],
          [begin + 0.3, -braking],
          [begin + 2.5, -braking],
          [begin + 3, 0],
          [begin + 5, 1],
          [begin + 9, 1],
          [begin + 10, 0],
        ],
      },
    }
  },
  /** The driver wants to be a lane further to one side. */
  laneChange(draw) {
    const [side, begin, takes] = [draw(0, 1) < 0.5 ? -3.6 : 3.6, draw(3, 6), draw(4, 7)]
    return {
      ego: { speed: draw(18, 32) },
      road: { edge: 7.2 },
      targetOffset: [
        [begin, 0],
        [begin + takes, side],
      ],
    }
  },
  /** A bend to one side. */
  curve(draw) {
    const speed = draw(12, 28)
    const curvature = (draw(0, 1) < 0.5 ? -1 : 1) * (draw(0.5, 2.5) / speed ** 2)
    const [begin, ramp, length] = [draw(40, 100), draw(20, 60), draw(60, 200)]
    return {
      ego: { speed },
      road: {
        curvature: [
          [begin, 0],
          [begin + ramp, curvature],
          [begin + ramp + length, curvature],
          [begin + 2 * ramp + length, 0],
        ],
      },
    }
  },
  /** A drive behind a car in a bend with sensors that are off. */
  sensorNoise(draw) {
    const { ego, road } = makers.curve(draw)
    return {
      ego: { ...ego, lateralOffset: draw(-0.5, 0.5) },
      road: road!,
      lead: { gap: ego.speed * draw(1.5, 2.5), speed: ego.speed },
      noise: {
        gap: draw(0.1, 1),
        leadSpeed: draw(0.05, 0.4),
        lateralError: draw(0.02, 0.1),
        headingError: draw(0.001, 0.004),
        speed: draw(0.05, 0.2),
      },
    }
  },
}

/**
 * Makes scenarios. Each depends on its kind and seed only, so that more of them begin with the same ones.
 * @example
 * generateScenarios({ count: 1000, kinds: ['cutIn', 'hardBrake'], seed: 7 })
 * @throws SparkError ERR_ARGUMENT
 */
export function generateScenarios(options: GenerateOptions): DrivingScenario[] {
  expectKnownOptions('options', options, ['count', 'seed', 'kinds', 'duration'])
  const { count, seed = 0, kinds = scenarioKinds, duration = 20 } = options
  expectInteger('options.count', count, 0, 1e7)
  expectInteger('options.seed', seed, 0, 2 ** 32)
  if (!Array.isArray(kinds as unknown) || kinds.length === 0)
    throw argumentError('options.kinds', 'a list of at least one kind', kinds)
  expectNumber('options.duration', duration, Number.MIN_VALUE, 3600)
  for (const [i, kind] of kinds.entries()) expectOneOf(`options.kinds[${i}]`, kind, scenarioKinds)
  return Array.from({ length: count }, (_, i) => {
    const kind = kinds[i % kinds.length]!
    const random = randomGenerator(seed + i)
    const draw: Draw = (low, high) => Math.round((low + (high - low) * random()) * 1e4) / 1e4
    return { name: `${kind} ${seed + i}`, duration, seed: seed + i, ...makers[kind](draw) }
  })
}
