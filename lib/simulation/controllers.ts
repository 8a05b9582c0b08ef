// controllers.ts: algorithms that are built in: following, lane keeping, PID.
import { expectKnownOptions, expectNumber, expectText } from '../core/checks.js'
import type { PolicyWithMemory } from './algorithm.js'

/** Options of {@link idm}. */
export interface IdmOptions {
  /** s to the car in front. Default: 1.5. */
  timeGap?: number
  /** m to a car in front that stands. Default: 2. */
  minimumGap?: number
  /** m/s². Default: 1.5. */
  maximumAcceleration?: number
  /** m/s². Default: 2. */
  comfortableBraking?: number
}

/**
 * The intelligent driver model: a = a₀ [1 − (v/v₀)⁴ − (w/s)²] with w = s₀ + max(0, v T + v Δv / (2 √(a₀ b))) (Treiber, Hennecke
 * and Helbing 2000, equations 3 and 4). Gives the action `acceleration`.
 * @throws SparkError ERR_ARGUMENT
 */
export function idm(options: IdmOptions = {}): PolicyWithMemory {
  const defaults = { timeGap: 1.5, minimumGap: 2, maximumAcceleration: 1.5, comfortableBraking: 2 }
  const { timeGap, minimumGap, maximumAcceleration, comfortableBraking } = numbers(options, defaults)
  return {
    name: 'idm',
    act({ speed, targetSpeed, gap, leadSpeed, hasLead }) {
      const closing = speed!.subtract(leadSpeed!)
      const braking = speed!.multiply(closing).divide(2 * Math.sqrt(maximumAcceleration * comfortableBraking))
      const wanted = speed!.multiply(timeGap).add(braking).maximum(0).add(minimumGap)
      const free = speed!.divide(targetSpeed!.maximum(0.1)).power(4)
      const near = wanted.divide(gap!.maximum(0.1)).square().multiply(hasLead!)
      return { action: { acceleration: free.add(near).negate().add(1).multiply(maximumAcceleration) } }
    },
  }
}

/** Options of {@link acc}. */
export interface AccOptions {
  /** s to the car in front. Default: 1.5. */
  timeGap?: number
  /** m to a car in front that stands. Default: 4. */
  minimumGap?: number
  /** 1/s: acceleration for each m/s that is missing. Default: 0.4. */
  speedGain?: number
  /** 1/s²: acceleration for each m that the gap is too long. Default: 0.1. */
  gapGain?: number
  /** 1/s: acceleration for each m/s that the car in front is faster. Default: 0.6. */
  relativeSpeedGain?: number
}

/**
 * Adaptive cruise control: the lower acceleration of a speed controller, k_v (v₀ − v), and of a controller of the time gap,
 * k_s (s − s₀ − T v) + k_r (v_lead − v). Gives the action `acceleration`, −4 to 2 m/s².
 * @throws SparkError ERR_ARGUMENT
 */
export function acc(options: AccOptions = {}): PolicyWithMemory {
  const defaults = { timeGap: 1.5, minimumGap: 4, speedGain: 0.4, gapGain: 0.1, relativeSpeedGain: 0.6 }
  const { timeGap, minimumGap, speedGain, gapGain, relativeSpeedGain } = numbers(options, defaults)
  return {
    name: 'acc',
    act({ speed, targetSpeed, gap, leadSpeed, hasLead }) {
      const cruise = targetSpeed!.subtract(speed!).multiply(speedGain)
      const spare = gap!.subtract(minimumGap).subtract(speed!.multiply(timeGap))
      const follow = spare.multiply(gapGain).add(leadSpeed!.subtract(speed!).multiply(relativeSpeedGain))
      const acceleration = hasLead!.choose(cruise.minimum(follow), cruise).clip(-4, 2)
      return { action: { acceleration } }
    },
  }
}

/** Options of {@link laneKeeping}. */
export interface LaneKeepingOptions {
  /** rad/s: how fast errors go. Default: 1. */
  frequency?: number
  /** Damping: 1 does not overshoot. Default: 1. */
  damping?: number
}

/**
 * Keeps the lane: with the curvature κ − 2ζω ψ / v − ω² d / v² the lateral error d follows d'' = −2ζω d' − ω² d for small
 * angles; the angle of the wheels is that of the kinematic bicycle, atan(L κ). Gives the action `steeringAngle`.
 * @throws SparkError ERR_ARGUMENT
 */
export function laneKeeping(options: LaneKeepingOptions = {}): PolicyWithMemory {
  const { frequency, damping } = numbers(options, { frequency: 1, damping: 1 })
  return {
    name: 'laneKeeping',
    act({ speed, lateralError, headingError, curvature, wheelbase }) {
      const fast = speed!.maximum(3)
      const turn = headingError!.multiply(2 * damping * frequency).divide(fast)
      const back = lateralError!.multiply(frequency ** 2).divide(fast.square())
      const wanted = curvature!.subtract(turn).subtract(back)
      return { action: { steeringAngle: wanted.multiply(wheelbase!).atan() } }
    },
  }
}

/** Options of {@link pid}. */
export interface PidOptions {
  /** The observation that is controlled. */
  value: string
  /** The observation that it should be. Default: 0. */
  target?: string
  /** The action that does it. */
  action: string
  /** For each unit of the error, target − value. Default: 0. */
  proportional?: number
  /** For each unit of the sum of errors over the steps. Default: 0. */
  integral?: number
  /** For each unit by which the error has grown since the step before. Default: 0. */
  derivative?: number
}

/**
 * A PID controller in steps, as the one of comma's controls challenge: u = p·e + i·Σe + d·(e − e before), with an error of 0 before
 * the first step.
 * @example
 * pid({ value: 'lateralError', action: 'steeringAngle', proportional: 0.02, integral: 0.0005, derivative: 0.4 })
 * @throws SparkError ERR_ARGUMENT
 */
export function pid(options: PidOptions): PolicyWithMemory {
  expectKnownOptions('options', options, [
    'value',
    'target',
    'action',
    'proportional',
    'integral',
    'derivative',
  ])
  const { value, target, action, proportional = 0, integral = 0, derivative = 0 } = options
  expectText('options.value', value)
  expectText('options.action', action)
  if (target !== undefined) expectText('options.target', target)
  for (const [name, gain] of Object.entries({ proportional, integral, derivative }))
    expectNumber(`options.${name}`, gain)
  return {
    name: 'pid',
    memory: { sum: 0, before: 0 },
    act(observation, memory) {
      const measured = observation[value]!
      const error = target === undefined ? measured.negate() : observation[target]!.subtract(measured)
      const total = memory.sum!.add(error)
      const change = error.subtract(memory.before!)
      const output = error
        .multiply(proportional)
        .add(total.multiply(integral))
        .add(change.multiply(derivative))
      return { action: { [action]: output }, memory: { sum: total, before: error } }
    },
  }
}

/** Options with their defaults; each must be a number that is not negative. */
function numbers<T extends Record<string, number>>(options: object, defaults: T): T {
  expectKnownOptions('options', options, Object.keys(defaults))
  const all = { ...defaults, ...options }
  for (const [name, value] of Object.entries(all)) expectNumber(`options.${name}`, value, 0)
  return all
}
