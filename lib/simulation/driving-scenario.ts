// driving-scenario.ts: scenarios of the driving world as data, and what they mean.
import { argumentError } from '../core/checks.js'
import { normalNoise } from './noise.js'
import { type Breakpoint, breakpoints, type Profile, valueAt } from './profile.js'
import type { ScenarioStart } from './world.js'

/** The car that is driven. */
export interface EgoCar {
  /** m/s at the beginning. */
  readonly speed: number
  /** m to the left of the middle of its lane. Default: 0. */
  readonly lateralOffset?: number
  /** rad to the left of the lane's direction. Default: 0. */
  readonly heading?: number
  /** m between the axles. Default: 2.7. */
  readonly wheelbase?: number
  /** m. Default: 4.8. */
  readonly length?: number
  /** m. Default: 1.85. */
  readonly width?: number
  /** Seconds in which an acceleration follows a command to 63 %. Default: 0.3. */
  readonly accelerationLag?: number
  /** The same of the steering angle. Default: 0.1. */
  readonly steeringLag?: number
}

/** A car in front. */
export interface LeadCar {
  /** m from bumper to bumper at the beginning. */
  readonly gap: number
  /** m/s at the beginning. */
  readonly speed: number
  /** m/s² over time in s; it does not drive backwards. Default: 0. */
  readonly acceleration?: Profile
  /** m to the left of the middle of the lane over time in s. Default: 0. */
  readonly lateralOffset?: Profile
  /** m. Default: 4.8. */
  readonly length?: number
  /** m. Default: 1.85. */
  readonly width?: number
}

/** The road. */
export interface Road {
  /** 1/m over the distance in m, positive to the left; at most 16 breakpoints. Default: 0. */
  readonly curvature?: Profile
  /** m. Default: 3.6. */
  readonly laneWidth?: number
  /** m to the left or right of the middle of the lane at which the road ends. Default: 5.4. */
  readonly edge?: number
}

/** Standard deviations of normal noise in what an algorithm sees. */
export interface SensorNoise {
  /** m */
  readonly gap?: number
  /** m/s */
  readonly leadSpeed?: number
  /** m */
  readonly lateralError?: number
  /** rad */
  readonly headingError?: number
  /** m/s */
  readonly speed?: number
}

/** A scenario of the driving world. */
export interface DrivingScenario {
  /** Its name. Default: scenario. */
  readonly name?: string
  /** Seconds. */
  readonly duration: number
  /** Seed of its noise. Default: 0. */
  readonly seed?: number
  /** The car that is driven. */
  readonly ego: EgoCar
  /** The car ahead. Default: none. */
  readonly lead?: LeadCar
  /** Default: a straight road. */
  readonly road?: Road
  /** m/s over time in s that the driver wants. Default: the speed at the beginning. */
  readonly targetSpeed?: Profile
  /** m to the left of the middle of the lane over time in s that the driver wants, as for a lane change. Default: 0. */
  readonly targetOffset?: Profile
  /** What the driver's sensors add. Default: nothing. */
  readonly noise?: SensorNoise
}

/** Breakpoints of curvature; a fixed number, so that sums do not depend on other scenarios. */
const roadPoints = 16
/** Distance of a lead car that there is none. */
const nowhere = 1e6

const number = { type: 'number' }
const atLeast = (minimum: number) => ({ type: 'number', minimum })
const moreThan = (exclusiveMinimum: number) => ({ type: 'number', exclusiveMinimum })
const profile = (value: object = number) => ({
  anyOf: [
    value,
    {
      type: 'array',
      minItems: 1,
      items: { type: 'array', prefixItems: [number, value], minItems: 2, maxItems: 2 },
    },
  ],
})
const record = (properties: object, required: readonly string[] = []) => ({
  type: 'object',
  properties,
  required,
  additionalProperties: false,
})

/** JSON schema of {@link DrivingScenario}. */
export const drivingSchema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'Scenario of the driving world',
  ...record(
    {
      name: { type: 'string', minLength: 1 },
      duration: { ...moreThan(0), maximum: 3600 },
      seed: { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER },
      ego: record(
        {
          speed: atLeast(0),
          lateralOffset: number,
          heading: number,
          wheelbase: moreThan(0),
          length: moreThan(0),
          width: moreThan(0),
          accelerationLag: atLeast(0),
          steeringLag: atLeast(0),
        },
        ['speed'],
      ),
      lead: record(
        {
          gap: atLeast(0),
          speed: atLeast(0),
          acceleration: profile(),
          lateralOffset: profile(),
          length: moreThan(0),
          width: moreThan(0),
        },
        ['gap', 'speed'],
      ),
      road: record({ curvature: profile(), laneWidth: moreThan(0), edge: moreThan(0) }),
      targetSpeed: profile(atLeast(0)),
      targetOffset: profile(),
      noise: record({
        gap: atLeast(0),
        leadSpeed: atLeast(0),
        lateralError: atLeast(0),
        headingError: atLeast(0),
        speed: atLeast(0),
      }),
    },
    ['duration', 'ego'],
  ),
} as const

/**
 * What a scenario means in steps.
 * @param timeStep - s
 * @param agent - whose car it is: each drives 2 m and 1.5 s behind the one before at the beginning
 * @throws SparkError ERR_ARGUMENT for breakpoints that are no profile
 */
export function beginDriving(scenario: DrivingScenario, timeStep: number, agent = 0): ScenarioStart {
  const { name = 'scenario', duration, seed = 0, ego, lead, road = {}, noise = {} } = scenario
  const steps = Math.max(1, Math.round(duration / timeStep))
  const { speed, length = 4.8, width = 1.85, wheelbase = 2.7, accelerationLag = 0.3, steeringLag = 0.1 } = ego
  const { laneWidth = 3.6, edge = 5.4 } = road
  const overTime = (what: string, given: Profile): Float32Array => {
    const points = breakpoints(what, given)
    return Float32Array.from({ length: steps }, (_, step) => valueAt(points, step * timeStep))
  }
  const deviations = [noise.gap, noise.leadSpeed, noise.lateralError, noise.headingError, noise.speed]
  const [gapNoise, leadNoise, lateralNoise, headingNoise, speedNoise] = deviations.map(
    (deviation = 0, stream) => normalNoise(seed, agent * deviations.length + stream, steps, deviation),
  ) as [Float32Array, Float32Array, Float32Array, Float32Array, Float32Array]
  const other = agent > 0 ? { length, width } : { length: lead?.length ?? 4.8, width: lead?.width ?? 1.85 }
  return {
    name,
    steps,
    states: {
      position: -agent * (speed * 1.5 + 2 + length),
      lateralOffset: ego.lateralOffset ?? 0,
      heading: ego.heading ?? 0,
      speed,
      acceleration: 0,
      steeringAngle: 0,
      x: 0,
      y: ego.lateralOffset ?? 0,
      yaw: ego.heading ?? 0,
    },
    parameters: {
      wheelbase,
      // Parts of the way to a command in a step: exact for a command that stays.
      accelerationShare: accelerationLag === 0 ? 1 : 1 - Math.exp(-timeStep / accelerationLag),
      steeringShare: steeringLag === 0 ? 1 : 1 - Math.exp(-timeStep / steeringLag),
      carLength: (length + other.length) / 2,
      carWidth: (width + other.width) / 2,
      follows: agent > 0 ? 1 : 0,
      laneWidth,
      edge,
      ...roadOf(road.curvature ?? 0),
    },
    timeline: {
      ...leadOver(lead, (length + other.length) / 2, steps, timeStep, overTime),
      targetSpeed: overTime('targetSpeed', scenario.targetSpeed ?? speed),
      targetOffset: overTime('targetOffset', scenario.targetOffset ?? 0),
      gapNoise,
      leadNoise,
      lateralNoise,
      headingNoise,
      speedNoise,
    },
  }
}

/** Where the car in front is at each step, whatever the other one does: the trapezoidal rule in f64. */
function leadOver(
  lead: LeadCar | undefined,
  carLength: number,
  steps: number,
  timeStep: number,
  overTime: (what: string, profile: Profile) => Float32Array,
): Record<'leadPosition' | 'leadSpeed' | 'leadOffset', Float32Array> {
  const leadPosition = new Float32Array(steps).fill(nowhere)
  const leadSpeed = new Float32Array(steps)
  if (!lead) return { leadPosition, leadSpeed, leadOffset: new Float32Array(steps) }
  const acceleration = overTime('lead.acceleration', lead.acceleration ?? 0)
  let [position, speed] = [lead.gap + carLength, lead.speed]
  for (let step = 0; step < steps; step++) {
    leadPosition[step] = position
    leadSpeed[step] = speed
    const next = Math.max(0, speed + acceleration[step]! * timeStep)
    position += ((speed + next) / 2) * timeStep
    speed = next
  }
  return { leadPosition, leadSpeed, leadOffset: overTime('lead.lateralOffset', lead.lateralOffset ?? 0) }
}

/** Curvature as a sum of ramps: the first value, and for each piece where it starts, 1 / its length, and how much it adds. */
function roadOf(
  given: Profile,
): Record<'curvature' | 'roadStarts' | 'roadSlopes' | 'roadRises', number | number[]> {
  const points = breakpoints('road.curvature', given)
  if (points.length > roadPoints)
    throw argumentError('road.curvature', `at most ${roadPoints} breakpoints`, points)
  const pieces = Array.from({ length: roadPoints - 1 }, (_, i): [Breakpoint, Breakpoint] => {
    const last = points.at(-1)!
    return [points[i] ?? last, points[i + 1] ?? last]
  })
  return {
    curvature: points[0]![1],
    roadStarts: pieces.map(([from]) => from[0]),
    // A piece without length is a step of 1 mm.
    roadSlopes: pieces.map(([from, to]) => 1 / Math.max(to[0] - from[0], 1e-3)),
    roadRises: pieces.map(([from, to]) => to[1] - from[1]),
  }
}
