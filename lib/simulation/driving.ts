// driving.ts: the built-in world: a car on a lane, with another one in front.
import {
  argumentError,
  expectInteger,
  expectKnownOptions,
  expectNumber,
  expectOneOf,
} from '../core/checks.js'
import { beginDriving, type DrivingScenario, drivingSchema } from './driving-scenario.js'
import { largest, mean, rootMeanSquare, smallest, sum } from './metrics.js'
import type { Traced } from './traced.js'
import { kinematicBicycle, pointMass } from './vehicles.js'
import type { Metric, TracedValues, World, WorldStep } from './world.js'

/** Options of {@link drivingWorld}. */
export interface DrivingWorldOptions {
  /** Seconds of a step. Default: 0.05, as openpilot's models. */
  timeStep?: number
  /** How the car moves: with `pointMass` it keeps its lane. Default: bicycle. */
  vehicle?: 'bicycle' | 'pointMass'
  /** Cars of each scenario in an environment, each behind the one before: the first one follows the car of the scenario. Default: 1. */
  agents?: number
}

/** m up to which a car in front is seen. */
const range = 200
/** Seconds: no time to a collision is longer. */
const longestTime = 100

const metrics: Readonly<Record<string, Metric>> = {
  collision: largest('collision', ''),
  timeToCollision: smallest('timeToCollision', 's', longestTime),
  gap: smallest('gap', 'm', range),
  jerk: rootMeanSquare('jerk', 'm/s³'),
  lateralError: rootMeanSquare('lateralError', 'm'),
  largestLateralError: largest('lateralDistance', 'm'),
  speedError: rootMeanSquare('speedError', 'm/s'),
  speed: mean('speed', 'm/s'),
  cost: sum('cost', ''),
}

/**
 * A car on a lane, with another one in front of it that goes its way. Observations: `speed` m/s, `acceleration` m/s²,
 * `targetSpeed` m/s, `gap` m from bumper to bumper (200 when no car is seen in the lane), `leadSpeed` m/s (the own one then),
 * `hasLead` 1 or 0, `lateralError` m to the left of where it should be, `headingError` rad to the left of the lane, `curvature` 1/m
 * of the lane where the car is, `steeringAngle` rad of the front wheels, `wheelbase` m. Actions: `acceleration` −9 to 4 m/s²,
 * `steeringAngle` −0.6 to 0.6 rad.
 *
 * Metrics: `collision` 0 or 1; the smallest `timeToCollision` (100 when there is none shorter) and `gap`; root mean squares of
 * `jerk`, `lateralError` and `speedError`; `largestLateralError`; the mean `speed`; and `cost`, defined here as the integral over
 * the time in s of 10·(lateral error/m)² + 0.1·(jerk/(m/s³))² + 0.1·(speed below the target/(m/s))², and 100 for a collision. A
 * scenario ends early with a `collision` or `off road`.
 * @throws SparkError ERR_ARGUMENT
 */
export function drivingWorld(options: DrivingWorldOptions = {}): World<DrivingScenario> {
  expectKnownOptions('options', options, ['timeStep', 'vehicle', 'agents'])
  const { timeStep = 0.05, vehicle = 'bicycle', agents = 1 } = options
  expectInteger('options.agents', agents, 1, 1000)
  expectNumber('options.timeStep', timeStep)
  if (!(timeStep > 0 && timeStep <= 1))
    throw argumentError('options.timeStep', 'a number in (0, 1]', timeStep)
  expectOneOf('options.vehicle', vehicle, ['bicycle', 'pointMass'])
  const move = vehicle === 'bicycle' ? kinematicBicycle : pointMass
  return {
    name: 'driving',
    timeStep,
    schema: drivingSchema,
    actions: { acceleration: [-9, 4], steeringAngle: [-0.6, 0.6] },
    observations: [
      'speed',
      'acceleration',
      'targetSpeed',
      'gap',
      'leadSpeed',
      'hasLead',
      'lateralError',
      'headingError',
      'curvature',
      'steeringAngle',
      'wheelbase',
    ],
    endings: ['collision', 'off road'],
    metrics,
    agents,
    begin: (scenario, agent = 0) => beginDriving(scenario, timeStep, agent),
    observe: step => observe(step, leadOf(step, agents)),
    advance(step, action) {
      const { states, parameters } = step
      const curvature = curvatureOf(step)
      const next = move(states, parameters, action, curvature, timeStep)
      const lead = leadOf(step, agents)
      return { states: next, ...consequences(step, lead, { ...states, ...next }, curvature, timeStep) }
    },
  }
}

/** The curvature of the lane where the car is. */
function curvatureOf({ states, parameters }: WorldStep): Traced {
  const { curvature, roadStarts, roadSlopes, roadRises } = parameters
  const parts = states.position!.subtract(roadStarts!).multiply(roadSlopes!).clip(0, 1)
  return curvature!.add(parts.multiply(roadRises!).sum())
}

/** The car in front. */
interface Lead {
  /** m from bumper to bumper. */
  readonly gap: Traced
  /** m/s */
  readonly speed: Traced
  /** m to the side. */
  readonly aside: Traced
  /** 1 where it is seen in the way. */
  readonly isAhead: Traced
}

/** The car in front: that of the scenario, or of the agent before. */
function leadOf({ states, parameters, now }: WorldStep, agents: number): Lead {
  const of = (own: Traced, agent: Traced): Traced =>
    agents === 1 ? own : parameters.follows!.choose(agent.rowBefore(), own)
  const speed = of(now.leadSpeed!, states.speed!)
  const position = of(now.leadPosition!, states.position!)
  const gap = position.subtract(states.position!).subtract(parameters.carLength!)
  const aside = of(now.leadOffset!, states.lateralOffset!).subtract(states.lateralOffset!).abs()
  const isNear = gap.less(range).multiply(gap.greater(parameters.carLength!.multiply(-2)))
  return { gap, speed, aside, isAhead: isNear.multiply(aside.less(parameters.laneWidth!.multiply(0.5))) }
}

function observe(step: WorldStep, lead: Lead): TracedValues {
  const { states, parameters, now } = step
  const { gap, isAhead } = lead
  const speed = states.speed!.add(now.speedNoise!)
  return {
    speed,
    acceleration: states.acceleration!,
    targetSpeed: now.targetSpeed!,
    gap: isAhead.choose(gap.add(now.gapNoise!).clip(0, range), range),
    leadSpeed: isAhead.choose(lead.speed.add(now.leadNoise!).maximum(0), speed),
    hasLead: isAhead,
    lateralError: states.lateralOffset!.subtract(now.targetOffset!).add(now.lateralNoise!),
    headingError: states.heading!.add(now.headingNoise!),
    curvature: curvatureOf(step),
    steeringAngle: states.steeringAngle!,
    wheelbase: parameters.wheelbase!,
  }
}

/** What is measured of a step, and whether it ends a scenario: distances are those before the step. */
function consequences(
  { states, parameters, now }: WorldStep,
  { gap, speed, aside, isAhead }: Lead,
  next: TracedValues,
  curvature: Traced,
  timeStep: number,
) {
  const beside = aside.less(parameters.carWidth!)
  const touches = gap.lessOrEqual(0).multiply(gap.greater(parameters.carLength!.multiply(-2)))
  const collision = touches.multiply(beside)
  const closing = states.speed!.subtract(speed)
  const time = gap.maximum(0).divide(closing.maximum(0.01)).minimum(longestTime)
  const jerk = next.acceleration!.subtract(states.acceleration!).divide(timeStep)
  const lateralError = states.lateralOffset!.subtract(now.targetOffset!)
  const speedError = states.speed!.subtract(now.targetSpeed!)
  const discomfort = jerk.square().multiply(0.1)
  const slowness = speedError.minimum(0).square().multiply(0.1)
  const rate = lateralError.square().multiply(10).add(discomfort).add(slowness)
  return {
    measures: {
      ...Object.fromEntries(['x', 'y', 'yaw', 'position', 'speed'].map(name => [name, states[name]!])),
      collision,
      timeToCollision: isAhead.multiply(closing.greater(0)).choose(time, longestTime),
      gap: isAhead.choose(gap, range),
      jerk,
      lateralError,
      lateralDistance: lateralError.abs(),
      speedError,
      curvature,
      cost: rate.multiply(timeStep).add(collision.multiply(100)),
    },
    ends: { collision, 'off road': states.lateralOffset!.abs().greater(parameters.edge!) },
  }
}
