// drives.ts: drives for the learned simulator: made from seeds, and those of the controls challenge.
import { expectInteger, expectKnownOptions, expectText } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import { randomGenerator } from '../core/random.js'
import type { TinyphysicsDrive } from './tinyphysics.js'

/** Options of {@link generateDrives}. */
export interface GenerateDrivesOptions {
  /** How many. */
  count: number
  /** The seed of the first one; the others have those behind it. Default: 0. */
  seed?: number
  /** Samples at 10 Hz of each. Default: 600. */
  steps?: number
}

const gravity = 9.81

/**
 * Makes drives: speeds and banks that change slowly, targets of sums of sines up to some 2 m/s². Each depends on its seed only.
 * @throws SparkError ERR_ARGUMENT
 */
export function generateDrives(options: GenerateDrivesOptions): TinyphysicsDrive[] {
  expectKnownOptions('options', options, ['count', 'seed', 'steps'])
  const { count, seed = 0, steps = 600 } = options
  expectInteger('options.count', count, 0, 1e6)
  expectInteger('options.seed', seed, 0, 2 ** 32)
  expectInteger('options.steps', steps, 102, 36_000)
  return Array.from({ length: count }, (_, i) => driveOf(seed + i, steps))
}

function driveOf(seed: number, steps: number): TinyphysicsDrive {
  const random = randomGenerator(seed)
  const waves = (number: number, amplitude: number, longest: number): ((step: number) => number) => {
    const parts = Array.from({ length: number }, () => ({
      amplitude: (amplitude * (0.3 + 0.7 * random())) / number,
      rate: (2 * Math.PI * 0.1) / (longest * (0.2 + 0.8 * random())),
      phase: 2 * Math.PI * random(),
    }))
    return step =>
      parts.reduce((sum, { amplitude, rate, phase }) => sum + amplitude * Math.sin(rate * step + phase), 0)
  }
  const [mean, speed, bank, target] = [
    15 + 18 * random(),
    waves(2, 3, 60),
    waves(2, 0.06, 40),
    waves(4, 3, 25),
  ]
  const sampled = (value: (step: number) => number): number[] =>
    Array.from({ length: steps }, (_, step) => value(step))
  const vEgo = sampled(step => mean + speed(step))
  const roll = sampled(step => gravity * Math.sin(bank(step)))
  const wanted = sampled(target)
  return {
    name: `drive ${seed}`,
    seed,
    targetLateralAcceleration: wanted,
    rollLateralAcceleration: roll,
    vEgo,
    aEgo: sampled(step => (vEgo[Math.min(step + 1, steps - 1)]! - vEgo[step]!) / 0.1),
    // About what a car needs, as people steer before step 100.
    steer: sampled(step => Math.max(-2, Math.min(2, (wanted[step]! - roll[step]!) / 3))),
  }
}

const columns = ['vEgo', 'aEgo', 'roll', 'targetLateralAcceleration', 'steerCommand'] as const

/**
 * A drive of the controls challenge from the text of its CSV file: columns vEgo, aEgo, roll, targetLateralAcceleration and
 * steerCommand, which is positive to the right there; samples behind the last steering command hold it.
 * @throws SparkError ERR_FORMAT for a missing column or a value that is no number
 */
export function parseDrive(text: string, name = 'drive'): TinyphysicsDrive {
  expectText('text', text)
  const [header = '', ...lines] = text.split(/\r?\n/).filter(line => line.trim() !== '')
  const titles = header.split(',').map(title => title.trim())
  const rows = lines.map(line => line.split(','))
  const valuesOf = (column: (typeof columns)[number]): number[] => {
    const index = titles.indexOf(column)
    if (index < 0)
      throw new SparkError(
        'ERR_FORMAT',
        `${name}: there is no column '${column}'; there are: ${titles.join(', ')}`,
      )
    const values: number[] = []
    for (const [i, row] of rows.entries()) {
      const given = (row[index] ?? '').trim()
      const value =
        given === '' && column === 'steerCommand'
          ? (values.at(-1) ?? Number.NaN)
          : Number(given || Number.NaN)
      if (!Number.isFinite(value))
        throw new SparkError(
          'ERR_FORMAT',
          `${name}: line ${i + 2}: ${column} is '${given}', which is no number`,
        )
      values.push(value)
    }
    return values
  }
  return {
    name,
    targetLateralAcceleration: valuesOf('targetLateralAcceleration'),
    rollLateralAcceleration: valuesOf('roll').map(roll => gravity * Math.sin(roll)),
    vEgo: valuesOf('vEgo'),
    aEgo: valuesOf('aEgo'),
    steer: valuesOf('steerCommand').map(steer => -steer),
  }
}
