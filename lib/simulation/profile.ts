// profile.ts: a number that changes over time or distance, as breakpoints with straight lines between them.
import { argumentError, expectNumber } from '../core/checks.js'

/** A number that stays, or breakpoints [x, value] in ascending order of x, with straight lines in between. */
export type Profile = number | readonly (readonly [x: number, value: number])[]

/** A breakpoint. */
export type Breakpoint = readonly [x: number, value: number]

/**
 * The breakpoints of a profile; one for a number.
 * @throws SparkError ERR_ARGUMENT naming `what`
 */
export function breakpoints(what: string, profile: Profile): readonly Breakpoint[] {
  if (typeof profile === 'number') {
    expectNumber(what, profile)
    return [[0, profile]]
  }
  const isPoint = (point: unknown): boolean =>
    Array.isArray(point) && point.length === 2 && point.every(Number.isFinite)
  if (!Array.isArray(profile) || profile.length === 0 || !profile.every(isPoint))
    throw argumentError(what, 'a number, or a list of pairs [x, value]', profile)
  for (let i = 1; i < profile.length; i++)
    if (profile[i]![0] < profile[i - 1]![0])
      throw argumentError(
        `${what}[${i}][0]`,
        `at least ${profile[i - 1]![0]}, that before it`,
        profile[i]![0],
      )
  return profile
}

/** The value at x; before the first breakpoint and behind the last one it stays. */
export function valueAt(points: readonly Breakpoint[], x: number): number {
  let i = points.length - 1
  while (i >= 0 && points[i]![0] > x) i--
  const [x0, y0] = points[Math.max(i, 0)]!
  const next = i < 0 ? undefined : points[i + 1]
  return next ? y0 + ((next[1] - y0) * (x - x0)) / (next[0] - x0) : y0
}
